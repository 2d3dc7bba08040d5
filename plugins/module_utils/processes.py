# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process as it may be shown to people: its user, its name, its unit and its memory, never its arguments."""

from __future__ import annotations

import pwd
import re
from dataclasses import dataclass
from pathlib import Path

# The kernel cuts the name of a process to this many characters.
_COMM_CHARACTERS = 15
_RANK = "sglang::scheduler"  # A and B managers/scheduler.py: setproctitle
_OWN_MEMORY = re.compile(r"^(?:RssAnon|VmSwap):\s*(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class ProcessFacts:
    """Who a process is; all texts are empty where it can't be seen from here (ended, or another PID namespace)."""

    pid: int
    user: str
    command: str
    unit: str


def look(pid: int, proc: Path = Path("/proc")) -> ProcessFacts:
    """Return what /proc says of a process, which need not exist."""
    home = proc / str(pid)
    return ProcessFacts(pid, _user(home), _command(home), unit_of(_read(home / "cgroup")))


def largest_rank_bytes(unit: str, proc: Path = Path("/proc")) -> int | None:
    """Return the own memory of the largest rank of a unit's SGLang, in bytes; None if there is no rank.

    That is RssAnon and what of it was swapped out. RssShmem is left out: the pools of the hierarchical cache, which are
    planned for themselves. RssFile is left out: libraries and weights that are mapped from files lie in the page cache
    once for all ranks, and the kernel gives them back, so it counts them as available.
    """
    found = []
    for home in proc.iterdir():
        if not home.name.isdigit() or unit_of(_read(home / "cgroup")) != unit or not _command(home).startswith(_RANK):
            continue
        sizes_kib = _OWN_MEMORY.findall(_read(home / "status"))
        if sizes_kib:  # a process that is ending has none
            found.append(sum(int(size) for size in sizes_kib) * 1024)
    return max(found, default=None)


def unit_of(control_groups: str) -> str:
    """Return the system's unit that a process belongs to, from the text of /proc/PID/cgroup; empty if it has none.

    What a user's own systemd starts counts as `user@UID.service`, which is what root can stop.
    """
    for line in control_groups.splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers in ("", "name=systemd"):
            for part in path.split("/"):
                if part.endswith((".service", ".scope")):
                    return part
    return ""


def _user(home: Path) -> str:
    for line in _read(home / "status").splitlines():
        if line.startswith("Uid:"):
            uid = int(line.split()[1])
            try:
                return pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
    return ""


def _command(home: Path) -> str:
    """Return the name of a process: SGLang's ranks differ only behind the 15 characters that the kernel keeps."""
    comm = _read(home / "comm").rstrip("\n")
    if len(comm) < _COMM_CHARACTERS:
        return comm
    words = _read(home / "cmdline").replace("\0", " ").split(" ", 1)
    title = words[0].rpartition("/")[2]
    return title if title.startswith(comm) else comm


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
