# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's own code on a node, for tests that call it there without a playbook."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from node_testing import Node

from ansible_collections.headroom.serving.plugins.module_utils import own_code
from devnode.steps import as_root

_PACKAGE = "ansible_collections/headroom/serving/plugins/module_utils/"


def lay_collection(node: Node, archive: Path, target: str, more: Mapping[str, str] | None = None) -> None:
    """Copy module_utils to a node as the archive in which modules carry it; `more` are modules of the test."""
    own_code.write(archive)
    with zipfile.ZipFile(archive, "a") as copy:
        for name, text in (more or {}).items():
            copy.writestr(_PACKAGE + name, text)
    subprocess.run(as_root("podman", "cp", str(archive), f"{node.container}:{target}"), check=True, capture_output=True)
