# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection read of a machine with two H200s, through NVML and through nvidia-smi, idle and while serving."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import hardware
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from plan_samples import GIB, LOADED, MIB, planned, recorded_model

READ = json.loads((Path(__file__).parent / "recorded_hardware.json").read_text(encoding="utf-8"))
STARTS = {start["name"]: start for start in LOADED["starts"]}


def recorded(name: str) -> Hardware:
    return hardware.from_json(json.dumps(READ[name]))


@pytest.mark.parametrize("name", READ)
def test_records_are_whole(name: str) -> None:
    found = recorded(name)
    assert json.loads(hardware.to_json(found)) == READ[name]
    assert [(gpu.name, gpu.compute_capability, gpu.pcie_gen, gpu.pcie_width) for gpu in found.gpus] == [
        ("NVIDIA H200", (9, 0), 5, 16)
    ] * 2
    assert found.topology == (("X", "NVL"), ("NVL", "X"))
    assert found.notes == () and hardware.findings(found) == []


@pytest.mark.parametrize("state", ["idle", "serving"])
def test_both_ways_tell_the_same(state: str) -> None:
    first, second = recorded(f"{state} nvml"), recorded(f"{state} nvidia-smi")
    assert (first.source, second.source) == ("nvml", "nvidia-smi")
    for one, other in zip(first.gpus, second.gpus, strict=True):
        assert one.uuid == other.uuid and one.total_bytes == other.total_bytes
        # nvidia-smi tells whole MiB.
        assert abs(one.used_bytes - other.used_bytes) <= MIB and abs(one.free_bytes - other.free_bytes) <= MIB
        assert [(item.pid, item.user, item.command) for item in one.processes] == [
            (item.pid, item.user, item.command) for item in other.processes
        ]


def test_what_the_driver_keeps_is_neither_used_nor_free() -> None:
    for gpu in recorded("idle nvml").gpus:
        assert gpu.used_bytes == 0
        assert (gpu.total_bytes - gpu.free_bytes) / MIB == pytest.approx(615, abs=1)


def test_ranks_are_seen_by_name_with_what_they_hold() -> None:
    for gpu in recorded("serving nvml").gpus:
        (rank,) = gpu.processes
        assert rank.command == "sglang::scheduler" and rank.user == "root"
        assert 0 <= gpu.used_bytes - rank.used_bytes < 64 * MIB


def test_a_plan_on_the_machine_itself() -> None:
    start = STARTS["tp2-gqa-90"]
    model = recorded_model(start["model"])
    found = planned(start["args"], model, recorded("idle nvml"))
    assert found.verdict == "ok"
    assert found.tokens.low < start["tokens"] < found.tokens.high
    assert found.gpu.pre_bytes.best / GIB == pytest.approx(start["pre_gib"], abs=0.01)
    # While two others serve there, it is said who holds the memory.
    busy = planned(start["args"], model, recorded("serving nvml"))
    assert busy.verdict == "refuse"
    held = [item.message for item in busy.findings if item.id in ("gpu.unbalanced", "gpu.foreign_memory")]
    assert held and all("sglang::scheduler" in message for message in held)


def test_the_limit_of_a_control_group_is_read() -> None:
    found = recorded("limited nvml")
    assert found.cgroup_limit_bytes == 64_000_000_000 < found.mem_total_bytes
    start = STARTS["tp2-cgroup"]
    refused = planned(start["args"], recorded_model(start["model"]), found)
    assert refused.verdict_of("hicache.node_budget") == "refuse"
    assert (
        planned(start["args"], recorded_model(start["model"]), recorded("serving nvml")).verdict_of(
            "hicache.node_budget"
        )
        == "ok"
    )
