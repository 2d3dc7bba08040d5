# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who listens on a TCP port of this node, read from /proc."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True)
class Listener:
    """A listening socket; `pid` is 0 where the process can't be seen from here (another PID namespace)."""

    address: str
    port: int
    pid: int
    command: str
    control_group: str

    def belongs_to(self, unit: str) -> bool:
        """Whether the process runs in the control group of a unit."""
        return f"/{unit}" in self.control_group

    def describe(self) -> str:
        """Return the process without its arguments, which may hold secrets."""
        return f"{self.command} (PID {self.pid})" if self.pid else "a process that can't be seen from here"


def listeners(port: int, proc: Path = Path("/proc")) -> list[Listener]:
    """Return the sockets that listen on a port, with their processes; needs root to see those of other users."""
    sockets = dict(_sockets(port, proc))
    if not sockets:
        return []
    owners = _owners(set(sockets), proc)
    found: list[Listener] = []
    for inode, address in sockets.items():
        pid = owners.get(inode, 0)
        command = _read(proc / str(pid) / "comm").strip() if pid else ""
        group = _read(proc / str(pid) / "cgroup") if pid else ""
        found.append(Listener(address, port, pid, command, group))
    return found


def clashes(wanted: str, taken: str) -> bool:
    """Whether binding to the address `wanted` fails while `taken` is bound to the same port."""
    try:
        first, second = ipaddress.ip_address(wanted), ipaddress.ip_address(taken)
    except ValueError:
        return True  # a host name: which address it means is decided later, so be careful
    first, second = getattr(first, "ipv4_mapped", None) or first, getattr(second, "ipv4_mapped", None) or second
    if first.version != second.version:
        # A wildcard IPv6 socket takes IPv4 connections too, unless it was told otherwise.
        return (first if first.version == 6 else second).is_unspecified
    return first == second or first.is_unspecified or second.is_unspecified


def _sockets(port: int, proc: Path) -> Iterator[tuple[str, str]]:
    for name in ("tcp", "tcp6"):
        for line in _read(proc / "net" / name).splitlines()[1:]:
            fields = line.split()
            address, _colon, number = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(number, 16) == port:
                yield fields[9], _address(address)


def _address(text: str) -> str:
    # The kernel prints each 32-bit word in the machine's byte order; every supported machine is little-endian.
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _owners(inodes: set[str], proc: Path) -> dict[str, int]:
    owners: dict[str, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            for link in (entry / "fd").iterdir():
                target = str(link.readlink())
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    # The process that has held it longest is the one that opened it; its children inherit it.
                    owners[target[8:-1]] = min(int(entry.name), owners.get(target[8:-1], int(entry.name)))
        except OSError:
            continue  # the process has ended meanwhile, or is not ours to look into
    return owners


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
