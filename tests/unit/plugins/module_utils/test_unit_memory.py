# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit gives back when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import unit_memory
from ansible_collections.headroom.serving.plugins.module_utils.gpu_facts import Gpu, GpuProcess
from ansible_collections.headroom.serving.plugins.module_utils.hardware import FORMAT, Hardware

A, B = "sglang-a.service", "sglang-b.service"


def process(proc: Path, pid: int, unit: str, **kib: int) -> None:
    home = proc / str(pid)
    home.mkdir(parents=True)
    (home / "cgroup").write_text(f"0::/system.slice/{unit}\n" if unit else "0::/\n")
    lines = [f"{name}:\t{size} kB" for name, size in {"RssFile": 5000, **kib}.items()]
    (home / "status").write_text("Name:\tpython\n" + "\n".join(lines) + "\n")


def gpu(index: int, *held: tuple[str, int]) -> Gpu:
    used = tuple(GpuProcess(pid, "u", "python", size, unit) for pid, (unit, size) in enumerate(held))
    return Gpu(index, f"GPU-{index}", "X", 100, sum(size for _unit, size in held), 0, (9, 0), 5, 16, used, 0, False)


def node(*gpus: Gpu) -> Hardware:
    values: dict[str, Any] = dict.fromkeys(("cgroup_limit_bytes", "cgroup_available_bytes", "memlock_hard_bytes"))
    return Hardware(
        FORMAT, gpus, "580", "13.0", 1000, 900, values["cgroup_limit_bytes"], values["cgroup_available_bytes"], 0, 0, 0,
        values["memlock_hard_bytes"], 1, 1, (), "nvml", (),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (set(), 0),
        ({A}, (100 + 7 + 20) * 1024),
        ({B}, 1000 * 1024),
        ({A, B}, (100 + 7 + 20 + 1000) * 1024),
        ({"sglang-c.service"}, 0),
        ({""}, 40 * 1024),
    ],
)
def test_of_the_host_own_and_shared_pages_count_and_files_do_not(
    tmp_path: Path, units: set[str], expected: int
) -> None:
    process(tmp_path, 10, A, RssAnon=100, RssShmem=7)
    process(tmp_path, 11, A, RssAnon=20)
    process(tmp_path, 12, B, RssAnon=1000)
    process(tmp_path, 13, "", RssAnon=40)
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "99").mkdir()  # it has ended: nothing can be read
    assert unit_memory.of_host(units, tmp_path) == expected


@pytest.mark.parametrize(
    ("units", "expected"),
    [(set(), {}), ({A}, {0: 30, 1: 5}), ({B}, {1: 7}), ({A, B}, {0: 30, 1: 12}), ({"x.service"}, {})],
)
def test_of_each_gpu_what_its_processes_hold(units: set[str], expected: dict[int, int]) -> None:
    found = unit_memory.of_gpus(node(gpu(0, (A, 10), (A, 20), ("", 50)), gpu(1, (A, 5), (B, 7)), gpu(2)), units)
    assert found == expected
