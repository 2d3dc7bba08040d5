# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on the node: print what it records of its instances. Argument: the root directory of the instances."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def read(path: Path) -> dict[str, object]:
    """Return the content of a record, nothing where there is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def target(link: Path) -> str:
    """Return the id of the release that a link leads to, nothing where there is no link."""
    return link.readlink().name if link.is_symlink() else ""


def enablement(name: str) -> str:
    """Return what systemd says of the start at boot."""
    done = subprocess.run(
        ["systemctl", "is-enabled", f"sglang-{name}.service"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "missing"


def instances(root: Path) -> list[dict[str, object]]:
    """Return the instances that have a current release."""
    found = [entry for entry in sorted(root.iterdir()) if (entry / "current").is_symlink()] if root.is_dir() else []
    return [
        {
            "name": entry.name,
            "current": target(entry / "current"),
            "last_good": target(entry / "last_good"),
            "enabled": enablement(entry.name),
            "release": read(entry / "current" / "release.json"),
            "measured": read(entry / "measured" / f"{target(entry / 'current')}.json"),
        }
        for entry in found
    ]


print(json.dumps({"uid": os.geteuid(), "instances": instances(Path(sys.argv[1]) / "instances")}))
