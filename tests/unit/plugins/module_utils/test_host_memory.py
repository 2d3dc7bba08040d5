# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory from trees as kernels and containers show them, and from this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import host_memory
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.host_memory import HostMemory

GB = 10**9
V1_NONE = "9223372036854771712"
SERVICE = "/system.slice/sglang-a.service"
V2 = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "30 1 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)
HYBRID = V1 + "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"


def meminfo(available: int, total: int = 412 * GB, free: int = 300 * GB, swap: int = 0) -> str:
    lines = {"MemTotal": total, "MemFree": free, "MemAvailable": available, "Cached": GB, "SwapTotal": swap}
    return "".join(f"{name + ':':<16}{size // 1024:>12} kB\n" for name, size in lines.items()) + "HugePages_Total: 0\n"


def tree(root: Path, member: str, mounts: str, groups: dict[str, dict[str, object]]) -> Path:
    """Lay out /proc and control groups; a group's name is its path below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(meminfo(408 * GB))
    (root / "proc/self/cgroup").write_text(member)
    (root / "proc/self/mountinfo").write_text(mounts)
    for path, files in groups.items():
        directory = root / "sys/fs/cgroup" / path.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (directory / name).write_text(f"{value}\n")
    return root


def limits(root: Path) -> tuple[int | None, int | None]:
    found = host_memory.read(root)
    assert [note for note in found.notes if "control groups" in note] == []
    return found.cgroup_limit_bytes, found.cgroup_available_bytes


def stat(active: int = 0, inactive: int = 0, **more: int) -> str:
    values = {"anon": GB, "file": active + inactive, "active_file": active, "inactive_file": inactive, **more}
    return "\n".join(f"{name} {value}" for name, value in values.items())


def v2(limit: object = "max", high: object = "max", current: int = 0, **more: Any) -> dict[str, object]:
    files = {"memory.max": limit, "memory.high": high, "memory.current": current, "memory.stat": stat(**more)}
    return {**files, "memory.min": 0}


def v1(limit: object = V1_NONE, usage: int = 0, active: int = 0, inactive: int = 0) -> dict[str, object]:
    # The counters without `total_` are of the group alone and must not be taken.
    text = f"cache 1\nactive_file 7\ninactive_file 7\ntotal_active_file {active}\ntotal_inactive_file {inactive}"
    return {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": usage, "memory.stat": text}


V2_CASES: list[tuple[str, dict[str, dict[str, object]], tuple[int | None, int | None]]] = [
    ("no limit", {"": {}, "system.slice": v2(), SERVICE: v2()}, (None, None)),
    ("no memory controller", {SERVICE: {}}, (None, None)),
    ("own", {SERVICE: v2(100 * GB, current=10 * GB)}, (100 * GB, 90 * GB)),
    ("high below max", {SERVICE: v2(100 * GB, 80 * GB, 10 * GB)}, (80 * GB, 70 * GB)),
    ("high without max", {SERVICE: v2("max", 80 * GB, 10 * GB)}, (80 * GB, 70 * GB)),
    ("max below high", {SERVICE: v2(60 * GB, 80 * GB, 10 * GB)}, (60 * GB, 50 * GB)),
    ("of the slice", {"system.slice": v2(50 * GB, current=45 * GB), SERVICE: v2(current=GB)}, (50 * GB, 5 * GB)),
    (
        "lower one is not the tighter one",
        {"system.slice": v2(200 * GB, current=190 * GB), SERVICE: v2(100 * GB, current=10 * GB)},
        (100 * GB, 10 * GB),
    ),
    ("of the root of a container", {"": v2(64 * GB, current=4 * GB), SERVICE: v2()}, (64 * GB, 60 * GB)),
    (
        "page cache is free",
        {SERVICE: v2(100 * GB, current=95 * GB, active=20 * GB, inactive=60 * GB)},
        (100 * GB, 85 * GB),
    ),
    (
        "dirty pages too",
        {SERVICE: v2(100 * GB, current=95 * GB, inactive=60 * GB, file_dirty=9 * GB)},
        (100 * GB, 65 * GB),
    ),
    ("shared memory is not", {SERVICE: v2(100 * GB, current=95 * GB, shmem=80 * GB)}, (100 * GB, 5 * GB)),
    ("cache above usage", {SERVICE: v2(100 * GB, current=GB, inactive=3 * GB)}, (100 * GB, 100 * GB)),
    ("used up", {SERVICE: v2(100 * GB, current=101 * GB)}, (100 * GB, 0)),
    ("nothing allowed", {SERVICE: v2(0, current=0)}, (0, 0)),
    (
        "a sibling protects its cache",
        {
            "system.slice": v2(100 * GB, current=90 * GB, inactive=50 * GB),
            "system.slice/db.service": {**v2(), "memory.min": 5 * GB},
            SERVICE: v2(),
        },
        (100 * GB, 10 * GB),
    ),
    (
        "its own protection does not bind",
        {SERVICE: {**v2(100 * GB, current=90 * GB, inactive=50 * GB), "memory.min": 5 * GB}},
        (100 * GB, 60 * GB),
    ),
    (
        "a child that can't be read counts as protected",
        {SERVICE: v2(100 * GB, current=90 * GB, inactive=50 * GB), f"{SERVICE}/sub": {}},
        (100 * GB, 10 * GB),
    ),
]


@pytest.mark.parametrize(("groups", "wanted"), [case[1:] for case in V2_CASES], ids=[case[0] for case in V2_CASES])
def test_cgroup_v2(tmp_path: Path, groups: dict[str, dict[str, object]], wanted: tuple[int | None, int | None]) -> None:
    assert limits(tree(tmp_path, f"0::{SERVICE}\n", V2, groups)) == wanted


V1_CASES: list[tuple[str, dict[str, dict[str, object]], tuple[int | None, int | None]]] = [
    ("no limit", {"": v1(), "system.slice": v1(), SERVICE: v1()}, (None, None)),
    ("own", {"": v1(), SERVICE: v1(100 * GB, 10 * GB)}, (100 * GB, 90 * GB)),
    ("of the slice", {"system.slice": v1(50 * GB, 45 * GB), SERVICE: v1()}, (50 * GB, 5 * GB)),
    ("of the root", {"": v1(64 * GB, 4 * GB), SERVICE: v1()}, (64 * GB, 60 * GB)),
    ("page cache of all below is free", {SERVICE: v1(100 * GB, 95 * GB, 20 * GB, 60 * GB)}, (100 * GB, 85 * GB)),
]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(("groups", "wanted"), [case[1:] for case in V1_CASES], ids=[case[0] for case in V1_CASES])
def test_cgroup_v1(
    tmp_path: Path, groups: dict[str, dict[str, object]], wanted: tuple[int | None, int | None], hybrid: bool
) -> None:
    member = f"4:memory:{SERVICE}\n2:cpu,cpuacct:/\n1:name=systemd:{SERVICE}\n" + (f"0::{SERVICE}\n" if hybrid else "")
    found = {f"memory/{path.lstrip('/')}": files for path, files in groups.items()}
    if hybrid:
        found[f"unified{SERVICE}"] = {}
    assert limits(tree(tmp_path, member, HYBRID if hybrid else V1, found)) == wanted


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    "session", ["/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-0.slice/user@0.service/init.scope"]
)
def test_a_login_session_sees_the_limits_of_services_not_its_own(tmp_path: Path, version: str, session: str) -> None:
    make, base = (v1, "memory/") if version == "v1" else (v2, "")
    groups = {
        base: make(300 * GB, 10 * GB) if version == "v1" else make(300 * GB, current=10 * GB),
        f"{base}user.slice": make(GB),
        f"{base}{session.lstrip('/')}": make(GB),
        f"{base}system.slice": make(200 * GB),
    }
    member = f"4:memory:{session}\n" if version == "v1" else f"0::{session}\n"
    assert limits(tree(tmp_path, member, V1 if version == "v1" else V2, groups)) == (200 * GB, 200 * GB)


def test_a_login_session_before_any_service(tmp_path: Path) -> None:
    groups = {"": v2(300 * GB), "user.slice/user-0.slice": v2(GB)}
    assert limits(tree(tmp_path, "0::/user.slice/user-0.slice\n", V2, groups)) == (300 * GB, 300 * GB)


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("/docker/abc", "/docker/abc/system.slice/a.service", "system.slice/a.service"),
        ("/docker/abc", "/docker/abc", ""),
        # A namespace of its own, in which only the mount names the host's path.
        ("/docker/abc", "/system.slice/a.service", "system.slice/a.service"),
        ("/docker/abc", "/docker/abc/user.slice/user-0.slice/session-1.scope", "system.slice/"),
    ],
)
def test_a_container_that_sees_a_part_of_the_tree(tmp_path: Path, root: str, path: str, below: str) -> None:
    mounts = V2.replace(" / /sys", f" {root} /sys")
    groups = {"": v2(30 * GB), "system.slice": v2(20 * GB), below: v2(10 * GB)}
    assert limits(tree(tmp_path, f"0::{path}\n", mounts, groups)) == (10 * GB, 10 * GB)


def test_a_mount_with_a_space_in_its_path(tmp_path: Path) -> None:
    tree(tmp_path, "0::/a\n", V2.replace("/sys/fs/cgroup", "/sys/fs/my\\040cgroup"), {})
    for name, value in v2(10 * GB, current=GB).items():
        path = tmp_path / "sys/fs/my cgroup/a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(value))
    assert limits(tmp_path) == (10 * GB, 9 * GB)


UNREADABLE: list[tuple[str, str, str, dict[str, dict[str, object]]]] = [
    ("limit is no number", f"0::{SERVICE}\n", V2, {SERVICE: v2("lots")}),
    ("no usage below a limit", f"0::{SERVICE}\n", V2, {SERVICE: {"memory.max": GB, "memory.stat": stat()}}),
    ("no statistics below a limit", f"0::{SERVICE}\n", V2, {SERVICE: {"memory.max": GB, "memory.current": 1}}),
    ("group is not there", f"0::{SERVICE}\n", V2, {}),
    ("nothing is mounted", f"0::{SERVICE}\n", "", {}),
    ("outside of the namespace", "0::/../other\n", V2, {}),
    ("no membership text", "nonsense\n", V2, {}),
]


@pytest.mark.parametrize(
    ("member", "mounts", "groups"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE]
)
def test_limits_that_cannot_be_read_are_noted(
    tmp_path: Path, member: str, mounts: str, groups: dict[str, dict[str, object]]
) -> None:
    found = host_memory.read(tree(tmp_path, member, mounts, groups))
    assert (found.cgroup_limit_bytes, found.cgroup_available_bytes) == (None, None)
    (note,) = [note for note in found.notes if "control groups" in note]
    assert "only the host's memory is known" in note and "\n" not in note
    assert found.available_bytes == 408 * GB


def test_a_limit_that_is_a_directory_is_noted(tmp_path: Path) -> None:
    root = tree(tmp_path, f"0::{SERVICE}\n", V2, {SERVICE: {}})
    (root / "sys/fs/cgroup" / SERVICE.lstrip("/") / "memory.max").mkdir()
    assert "control groups can't be read" in host_memory.read(root).notes[0]


def test_no_proc_self_at_all_is_noted(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(meminfo(GB))
    assert [note.split(" can't")[0] for note in host_memory.read(tmp_path).notes] == [
        "the memory limits of the control groups",
        "there is no /dev/shm",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (meminfo(408 * GB), (412 * GB, 408 * GB, 0)),
        (meminfo(408 * GB, swap=8 * GB), (412 * GB, 408 * GB, 8 * GB)),
        (meminfo(0, swap=GB), (412 * GB, 0, GB)),
        # A container that sees its own total and the host's available memory.
        (meminfo(408 * GB, total=64 * GB, free=30 * GB), (64 * GB, 30 * GB, 0)),
        ("MemTotal: 2 kB\nMemAvailable: 1 kB\n", (2048, 1024, 0)),
    ],
)
def test_meminfo(tmp_path: Path, text: str, wanted: tuple[int, int, int]) -> None:
    (tmp_path / "meminfo").write_text(text)
    found = host_memory.meminfo(tmp_path)
    assert found == tuple(size // 1024 * 1024 for size in wanted)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read (No such file or directory)"),
        ("", "has no MemTotal"),
        ("MemTotal: 5 kB\n", "has no MemAvailable"),
        ("MemTotal: x kB\nMemAvailable: 5 kB\n", "has no MemTotal"),
        ("MemTotal: 5 MB\nMemAvailable: 5 kB\n", "has no MemTotal"),
    ],
)
def test_meminfo_that_tells_nothing(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    with pytest.raises(HeadroomError) as caught:
        host_memory.meminfo(tmp_path)
    assert said in str(caught.value) and str(tmp_path / "meminfo") in str(caught.value)


SHM = "40 1 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=65536k\n"


@pytest.mark.parametrize(
    ("mounts", "note"),
    [
        (SHM, ""),
        ("40 1 0:23 / /dev/shm rw - ext4 /dev/sda1 rw\n", "/dev/shm is no tmpfs"),
        ("", "/dev/shm is no tmpfs"),
        (SHM.replace("tmpfs tmpfs", "ext4 x") + SHM, ""),
        (SHM + SHM.replace("tmpfs tmpfs", "ext4 x"), "/dev/shm is no tmpfs"),
    ],
)
def test_shared_memory_of_a_real_file_system(tmp_path: Path, mounts: str, note: str) -> None:
    tree(tmp_path, "", mounts, {})
    (tmp_path / "dev/shm").mkdir(parents=True)
    notes: list[str] = []
    total, free = host_memory.shm(tmp_path, 5, 4, notes)
    found = os.statvfs(tmp_path / "dev/shm")
    assert total == found.f_blocks * found.f_frsize > free > 0
    assert [text.split(":")[0] for text in notes] == ([note] if note else [])


def test_shared_memory_without_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the kernel answers for a tmpfs that was mounted with size=0; mounting one needs more than a test may do.
    tree(tmp_path, "", SHM, {})
    answer = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 4096, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: answer)
    notes: list[str] = []
    assert host_memory.shm(tmp_path, 412 * GB, 408 * GB, notes) == (412 * GB, 408 * GB)
    assert notes == []


def test_no_shared_memory(tmp_path: Path) -> None:
    notes: list[str] = []
    assert host_memory.shm(tree(tmp_path, "", SHM, {}), 5, 4, notes) == (0, 0)
    assert notes == ["there is no /dev/shm"]


LIMITS = "Limit                     Soft Limit           Hard Limit           Units     \n"
LOCKED = "Max locked memory         8388608              {:<20} bytes     \n"
ALL = "000001ffffffffff"
NO_RESOURCE = "000001fffeffffff"


@pytest.mark.parametrize(
    ("capabilities", "hard", "users", "wanted"),
    [
        (ALL, "8388608", "0 0 4294967295", None),
        (ALL, "unlimited", "0 0 4294967295", None),
        (NO_RESOURCE, "unlimited", "0 0 4294967295", None),
        (NO_RESOURCE, "8388608", "0 0 4294967295", 8388608),
        # All capabilities, but only over the users of a container.
        (ALL, "8388608", "0 100000 65536", 8388608),
        (ALL, "unlimited", "0 100000 65536", None),
        ("0", "65536", "0 0 4294967295", 65536),
    ],
)
def test_locked_memory(tmp_path: Path, capabilities: str, hard: str, users: str, wanted: int | None) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/status").write_text(f"Name:\tsystemd\nCapPrm:\t{ALL}\nCapEff:\t{capabilities}\n")
    (tmp_path / "1/limits").write_text(LIMITS + LOCKED.format(hard))
    (tmp_path / "1/uid_map").write_text("".join(f"{number:>10} " for number in users.split()) + "\n")
    assert host_memory.memlock_hard(tmp_path) == wanted


def test_locked_memory_where_process_1_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda _which: (1, 4096))
    assert host_memory.memlock_hard(tmp_path) == 4096
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda _which: (1, host_memory.resource.RLIM_INFINITY))
    assert host_memory.memlock_hard(tmp_path) is None


def test_this_machine() -> None:
    found = host_memory.read()
    assert isinstance(found, HostMemory)
    assert found.total_bytes >= found.available_bytes > 0
    assert found.total_bytes % 1024 == 0
    if found.cgroup_limit_bytes is not None:
        assert found.cgroup_available_bytes is not None
