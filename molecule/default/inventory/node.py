#!/usr/bin/env python3
"""Inventory script: how to reach the scenario's node; empty while it does not exist."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from devnode import node  # noqa: E402
from devnode.names import Clone  # noqa: E402

NAME = "molecule-default"
clone = Clone.here()
hosts = {NAME: node.host_variables(clone, NAME)} if NAME in clone.records() else {}
print(json.dumps({"_meta": {"hostvars": hosts}, "sglang": {"hosts": list(hosts)}}))
