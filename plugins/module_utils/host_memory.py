# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a host: what is free, what control groups allow, shared memory, locked memory."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

_SHM = "/dev/shm"
# Cgroup v1 writes "no limit" as the largest page-aligned number.
_NO_LIMIT = 2**62
_CAP_SYS_RESOURCE = 24
_LIMITS = {"cgroup2": ("memory.max", "memory.high"), "cgroup": ("memory.limit_in_bytes",)}
_USAGE = {"cgroup2": "memory.current", "cgroup": "memory.usage_in_bytes"}
# In v1 the counters without `total_` leave out the groups below, which the usage holds.
_PAGE_CACHE = {
    "cgroup2": ("active_file", "inactive_file"),
    "cgroup": ("total_active_file", "total_inactive_file"),
}


@dataclass(frozen=True)
class HostMemory:
    """All in bytes.

    `available_bytes` is what can be taken without swapping, page cache included. `cgroup_limit_bytes` is the lowest
    limit above a service, `cgroup_available_bytes` the least that one of them leaves; None without any limit or where
    it can't be read, which is then noted. `swap_bytes` is the size of all swap. `memlock_hard_bytes` is the most that a
    service may lock, None without limit.
    """

    total_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None
    cgroup_available_bytes: int | None
    swap_bytes: int
    shm_total_bytes: int
    shm_free_bytes: int
    memlock_hard_bytes: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    root: str
    point: str
    kind: str
    options: tuple[str, ...]


def read(root: Path = Path("/")) -> HostMemory:
    """Read the memory of the host whose file system begins at `root`.

    Raises:
        HeadroomError: If /proc/meminfo tells no memory.
    """
    proc = root / "proc"
    total, available, swap = meminfo(proc)
    notes: list[str] = []
    limit, left = _cgroup(root, notes)
    shm_total, shm_free = shm(root, total, available, notes)
    return HostMemory(total, available, limit, left, swap, shm_total, shm_free, memlock_hard(proc), tuple(notes))


def meminfo(proc: Path = Path("/proc")) -> tuple[int, int, int]:
    """Return total, available and swap bytes, by psutil as SGLang reads them, or from /proc/meminfo where it is absent.

    Raises:
        HeadroomError: If the file can't be read or lacks a value.
    """
    try:
        import psutil
    except ImportError:
        return plain_meminfo(proc)
    if str(proc) != psutil.PROCFS_PATH:
        return plain_meminfo(proc)
    try:
        memory = psutil.virtual_memory()
        return int(memory.total), int(memory.available), int(psutil.swap_memory().total)
    except (OSError, KeyError, ValueError):
        return plain_meminfo(proc)  # which says what is wrong


def plain_meminfo(proc: Path) -> tuple[int, int, int]:
    """Return the same as `meminfo`, without psutil."""
    path = proc / "meminfo"
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise HeadroomError(
            f"{path} can't be read ({error.strerror}): without it nobody knows how much memory the node has. "
            "A unit's ProcSubset=pid hides it."
        ) from None
    values = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s*(\d+) kB$", text, re.MULTILINE)}
    missing = [name for name in ("MemTotal", "MemAvailable") if name not in values]
    if missing:
        raise HeadroomError(
            f"{path} has no {missing[0]}: a kernel since 3.14 writes it, so something overlays the file."
        )
    total, available = values["MemTotal"], values["MemAvailable"]
    # Some containers see a limited total beside the host's available memory.
    return total, available if available <= total else values.get("MemFree", total), values.get("SwapTotal", 0)


def _cgroup(root: Path, notes: list[str]) -> tuple[int | None, int | None]:
    try:
        levels = list(_levels(root))
    except (OSError, ValueError) as error:
        notes.append(
            f"the memory limits of the control groups can't be read ({error}): only the host's memory is known"
        )
        return None, None
    if not levels:
        return None, None
    return min(limit for limit, _left in levels), min(left for _limit, left in levels)


def _levels(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and headroom for each limit of each group from a service's up to the root, in bytes.

    SGLang 0.5.23 sizes its host memory by the same walk (srt/mem_cache/host_memory.py): `memory.high` counts as
    `memory.max` does, and page cache counts as free, unless a group below protects its own (`memory.min`).

    Raises:
        OSError, ValueError: If a group can't be found or a limit, or the usage below a limit, can't be read.
    """
    member = memberships((root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace"))
    resolved = not member
    for mount in mounts((root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")):
        if mount.kind not in member or (mount.kind == "cgroup" and "memory" not in mount.options):
            continue
        top = root / mount.point.lstrip("/")
        directory = _directory(top, mount.root, member[mount.kind])
        if directory is None:
            continue
        resolved = True
        for group in (directory, *directory.parents):
            for name in _LIMITS[mount.kind]:
                limit = _limit(group / name)
                if limit is not None:
                    yield limit, max(0, limit - _charged(group, mount.kind))
            if group == top:
                break
    if not resolved:
        raise ValueError("no mounted cgroup file system holds this process")


def memberships(text: str) -> dict[str, str]:
    """Return the groups that account for memory, by kind of file system, from the text of /proc/PID/cgroup."""
    found = {}
    for line in text.splitlines():
        _number, controllers, path = line.split(":", 2)
        if not controllers:
            found["cgroup2"] = path
        elif "memory" in controllers.split(","):
            found["cgroup"] = path
    return found


def mounts(text: str) -> Iterator[Mount]:
    """Yield the mounts of a text of /proc/PID/mountinfo."""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        if dash:
            fields, (kind, _source, options) = before.split(), after.split(None, 2)
            yield Mount(_unescaped(fields[3]), _unescaped(fields[4]), kind, tuple(options.strip().split(",")))


def _directory(top: Path, mount_root: str, path: str) -> Path | None:
    """Return where a group lies below a mount, with a login session replaced by the slice of all services.

    What is read over SSH sits in the slice of its user, whose limits do not bind a service.
    """
    inside = PurePosixPath(path)
    base = PurePosixPath(mount_root)
    if base in (inside, *inside.parents):
        parts = list(inside.relative_to(base).parts)
    elif mount_root != "/":
        # In a cgroup namespace the group is told from its root, the mount still from the host's.
        parts = list(inside.relative_to("/").parts)
    else:
        return None
    if ".." in parts:
        raise ValueError(f"the group {path} lies outside of what is mounted")
    if "user.slice" in parts:
        before = parts[: parts.index("user.slice")]
        services = top.joinpath(*before, "system.slice")
        return services if services.is_dir() else top.joinpath(*before)
    directory = top.joinpath(*parts)
    return directory if directory.is_dir() else None


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None  # the root of a hierarchy, or one without the memory controller
    if text == "max" or int(text) >= _NO_LIMIT:
        return None
    return int(text)


def _charged(group: Path, kind: str) -> int:
    """Return the bytes of a group that no pressure frees."""
    usage = int((group / _USAGE[kind]).read_text(encoding="ascii"))
    lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    stat = {name: int(value) for name, _space, value in (line.partition(" ") for line in lines) if value.isdigit()}
    cache = sum(stat.get(name, 0) for name in _PAGE_CACHE[kind])
    if kind == "cgroup2" and cache and _protects(group):
        cache = 0
    return max(0, usage - cache)


def _protects(group: Path) -> bool:
    """Whether a group below keeps memory for itself; one that can't be read counts as if it did."""
    try:
        for child in group.iterdir():
            if child.is_dir() and (int((child / "memory.min").read_text(encoding="ascii")) or _protects(child)):
                return True
    except (OSError, ValueError):
        return True
    return False


def shm(root: Path, total: int, available: int, notes: list[str]) -> tuple[int, int]:
    """Return size and free bytes of /dev/shm, through which ranks and NCCL talk; adds to the notes what is odd."""
    path = root / _SHM.lstrip("/")
    try:
        found = os.statvfs(path)
        text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        notes.append("there is no /dev/shm")
        return 0, 0
    kinds = [mount.kind for mount in mounts(text) if mount.point == _SHM]
    if not kinds or kinds[-1] != "tmpfs":
        notes.append("/dev/shm is no tmpfs: its size is that of the file system below it")
    elif not found.f_blocks:
        # A tmpfs mounted with size=0 has no limit of its own.
        return total, available
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def memlock_hard(proc: Path = Path("/proc")) -> int | None:
    """Return the most bytes that a service may lock, None without limit.

    systemd raises a service's limit as far as it may itself: without bounds if it holds CAP_SYS_RESOURCE of the
    machine, else to its own hard limit. In a container it mostly does not hold it.
    """
    status, limits, users = (_text(proc / "1" / name) for name in ("status", "limits", "uid_map"))
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    of_machine = users.split() == ["0", "0", "4294967295"]
    if effective and of_machine and int(effective[1], 16) >> _CAP_SYS_RESOURCE & 1:
        return None
    found = re.search(r"^Max locked memory\s+\S+\s+(\S+)", limits, re.MULTILINE)
    if found:
        return None if found[1] == "unlimited" else int(found[1])
    # A sandboxed service can't look at process 1, and has the limit that it got.
    own = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return None if own == resource.RLIM_INFINITY else own


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
