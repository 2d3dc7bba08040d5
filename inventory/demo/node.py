#!/usr/bin/env python3
# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory script: how to reach the node `demo` of this clone; empty while it does not exist."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from devnode import node  # noqa: E402
from devnode.names import Clone  # noqa: E402

clone = Clone.here()
hosts = {"demo": node.host_variables(clone, "demo")} if "demo" in clone.records() else {}
print(json.dumps({"_meta": {"hostvars": hosts}, "sglang": {"hosts": list(hosts)}}))
