# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory that a unit holds now and gives back when it ends, on the host and on each GPU. All in bytes."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import processes
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware

# Files that a process maps stay in the page cache when it ends, and count as available before.
_HELD = re.compile(r"^(?:RssAnon|RssShmem):\s*(\d+) kB$", re.MULTILINE)


def of_gpus(hardware: Hardware, units: Collection[str]) -> dict[int, int]:
    """Return what the processes of some units hold of each GPU, by the GPU's index."""
    held = {
        gpu.index: sum(process.used_bytes for process in gpu.processes if process.unit in units)
        for gpu in hardware.gpus
    }
    return {index: size for index, size in held.items() if size}


def of_host(units: Collection[str], proc: Path = Path("/proc")) -> int:
    """Return what the processes of some units hold of the host's memory: their own and shared memory, no files."""
    total = 0
    for home in proc.iterdir() if units else ():
        if not home.name.isdigit():
            continue
        try:
            if processes.unit_of((home / "cgroup").read_text(encoding="utf-8", errors="replace")) in units:
                status = (home / "status").read_text(encoding="utf-8", errors="replace")
                total += sum(int(kib) * 1024 for kib in _HELD.findall(status))
        except OSError:
            continue  # it has ended meanwhile
    return total
