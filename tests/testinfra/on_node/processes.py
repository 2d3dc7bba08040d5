# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on the node, as root: print the processes in a unit's control group, read from /proc. Argument: the unit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

unit = sys.argv[1]


def belongs(groups: str) -> bool:
    """Whether one of a process's control groups is the unit's or below it."""
    return any(f"{line.rpartition(':')[2]}/".find(f"/{unit}/") >= 0 for line in groups.splitlines())


def strings(path: Path) -> list[str]:
    """Return the strings of a file that ends each of them with a NUL."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return text.split("\0")[:-1] if text.endswith("\0") else text.split("\0")


def describe(process: Path) -> dict[str, object]:
    """Return what the checks look at."""
    lines = (process / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    status = {key: value.strip() for key, _colon, value in (line.partition(":") for line in lines)}
    return {
        "pid": int(process.name),
        "name": status["Name"],
        "uids": sorted({int(uid) for uid in status["Uid"].split()}),
        "capabilities": int(status["CapPrm"], 16) | int(status["CapEff"], 16) | int(status["CapBnd"], 16),
        "no_new_privs": status["NoNewPrivs"] == "1",
        "argv": strings(process / "cmdline"),
        "environment": strings(process / "environ"),
    }


found = []
for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
    try:
        if belongs((process / "cgroup").read_text(encoding="utf-8")):
            found.append(describe(process))
    except (FileNotFoundError, ProcessLookupError):
        continue  # it has ended meanwhile
print(json.dumps(found))
