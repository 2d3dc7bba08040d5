# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a node's hardware: there and back, and what is wrong with one that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import gpu_facts, hardware
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu, GpuProcess, Hardware

WHERE = "plan_hardware_record 'a.json'"
PROCESS = GpuProcess(4711, "sglang", "sglang::scheduler_TP3", 88 * 2**30, "sglang-kimi.service")
GPU = Gpu(0, "GPU-1", "NVIDIA H200", 5, 3, 1, (9, 0), 5, 16, (PROCESS,), 1, False)
RECORD = Hardware(
    format=1,
    gpus=(GPU, replace(GPU, index=2, compute_capability=None, processes=(), numa_node=-1, mig=True)),
    driver_version="580.95.05",
    cuda_driver_version="13.0",
    mem_total_bytes=412,
    mem_available_bytes=408,
    cgroup_limit_bytes=None,
    cgroup_available_bytes=None,
    swap_bytes=0,
    shm_total_bytes=206,
    shm_free_bytes=206,
    memlock_hard_bytes=None,
    cpus=128,
    numa_nodes=2,
    topology=(("X", "NODE"), ("NODE", "X")),
    source="nvml",
    notes=("gpu.lost: GPU 1 does not answer: GPU is lost", "a word"),
)


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, gpus=(), topology=(), source="none", notes=()),
        replace(RECORD, cgroup_limit_bytes=64, cgroup_available_bytes=0, memlock_hard_bytes=8388608),
        replace(RECORD, topology=()),
    ],
)
def test_there_and_back(record: Hardware) -> None:
    assert hardware.from_json(hardware.to_json(record), WHERE) == record


def test_the_json_is_plain() -> None:
    value = json.loads(hardware.to_json(RECORD))
    assert value["gpus"][0]["compute_capability"] == [9, 0]
    assert value["gpus"][0]["processes"][0]["pid"] == 4711
    assert value["topology"] == [["X", "NODE"], ["NODE", "X"]]
    assert set(value) == set(Hardware.__dataclass_fields__)


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(record: Any) -> None:
        for part in path[:-1]:
            record = record[part]
        record[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("format", to=2), "has the format 2, this version reads 1"),
        (_set("format", to="1"), 'has format = "1", which is not a whole number from 0 up'),
        (_set("gpus", to={}), "has gpus = {}, which is not a list"),
        (_set("gpus", 0, to=5), "gpus[0] is no object"),
        (_set("gpus", 1, "total_bytes", to=1.5), "has gpus[1].total_bytes = 1.5, which is not a whole number"),
        (_set("gpus", 1, "total_bytes", to=True), "has gpus[1].total_bytes = true, which is not a whole number"),
        (_set("gpus", 1, "free_bytes", to=-1), "has gpus[1].free_bytes = -1, which is not a whole number from 0 up"),
        (_set("gpus", 1, "numa_node", to=-2), "has gpus[1].numa_node = -2, which is not a whole number from -1 up"),
        (_set("gpus", 0, "mig", to=1), "has gpus[0].mig = 1, which is not true or false"),
        (_set("gpus", 0, "name", to=None), "has gpus[0].name = null, which is not a text"),
        (_set("gpus", 0, "compute_capability", to="9.0"), "which is not two numbers or null"),
        (_set("gpus", 0, "compute_capability", to=[9]), "which is not two numbers or null"),
        (_set("gpus", 0, "processes", 0, "pid", to="x"), 'has gpus[0].processes[0].pid = "x"'),
        (_set("mem_available_bytes", to=None), "has mem_available_bytes = null"),
        (_set("cgroup_limit_bytes", to="max"), 'has cgroup_limit_bytes = "max"'),
        (_set("notes", to="x"), 'has notes = "x", which is not a list of texts'),
        (_set("topology", to=[["X", "NV18"], ["NV18", "X"]]), "which is not rows of X, NVL, PIX, PXB, PHB, NODE, SYS"),
        (_set("topology", to=[["X"]]), "has a topology that is not 2 x 2"),
        (_set("topology", to=[["X", "SYS"], ["X"]]), "has a topology that is not 2 x 2"),
        (_set("topology", to=5), "has topology = 5"),
        (lambda record: record.pop("cpus"), "lacks cpus"),
        (lambda record: record["gpus"][0]["processes"][0].pop("unit"), "lacks gpus[0].processes[0].unit"),
    ],
)
def test_what_is_no_record(change: Callable[[dict[str, Any]], None], said: str) -> None:
    value = json.loads(hardware.to_json(RECORD))
    change(value)
    with pytest.raises(HeadroomError) as caught:
        hardware.from_json(json.dumps(value), WHERE)
    assert str(caught.value).startswith(f"{WHERE} ") and said in str(caught.value)
    assert [item.id for item in caught.value.findings] == ["settings.invalid"]


@pytest.mark.parametrize("text", ["", "{", "[", "[]", "5", "null", "x" * 10, "[" * 100_000, '{"format": 1}'])
def test_what_is_no_json_object(text: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        hardware.from_json(text, WHERE)
    assert str(caught.value).startswith(WHERE) and "\n" not in str(caught.value)


def test_every_key_of_a_record_is_wanted() -> None:
    value = json.loads(hardware.to_json(RECORD))
    for part in (value, value["gpus"][0], value["gpus"][0]["processes"][0]):
        for key in list(part):
            kept = part.pop(key)
            with pytest.raises(HeadroomError, match=f"lacks .*{key}"):
                hardware.from_json(json.dumps(value))
            part[key] = kept


def test_notes_that_are_findings() -> None:
    notes = (
        "gpu.lost: GPU 1 does not answer: GPU is lost",
        "gpu.driver_mismatch: x",
        "gpu.unknown_id: x",
        "NVML: Driver Not Loaded",
        "no colon",
    )
    found = hardware.findings(replace(RECORD, notes=notes))
    assert [(item.id, item.verdict) for item in found] == [("gpu.lost", "warn"), ("gpu.driver_mismatch", "refuse")]
    assert found[0].message == "GPU 1 does not answer: GPU is lost"
    assert all(item.suggestion for item in found)


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ({}, 1),
        ({"node0": "0-31\n"}, 1),
        ({"node0": "0-31\n", "node1": "32-63\n", "node10": "64\n"}, 3),
        # The memory of a GPU, or an expander, is a node without processors.
        ({"node0": "0-71\n", "node1": "\n", "node2": ""}, 1),
        ({"node0": "0\n", "has_cpu": "0\n", "power": ""}, 1),
    ],
)
def test_numa_nodes(tmp_path: Path, nodes: dict[str, str], wanted: int) -> None:
    for name, cpus in nodes.items():
        (tmp_path / "devices/system/node" / name).mkdir(parents=True)
        (tmp_path / "devices/system/node" / name / "cpulist").write_text(cpus)
    assert hardware.numa_nodes(tmp_path) == wanted


@pytest.mark.parametrize(
    ("bus", "wanted"),
    [
        ("00000000:3B:00.0", 1),
        ("0000:3b:00.0", 1),
        ("00010000:3B:00.0", -1),
        ("00000000:3C:00.0", -1),
        ("", -1),
        ("../../x", -1),
    ],
)
def test_the_numa_node_of_a_gpu(tmp_path: Path, bus: str, wanted: int) -> None:
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    assert gpu_facts.numa_node(bus, tmp_path) == wanted


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3)\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n",
            "580.95.05",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n", "535.161.07"),
        ("GCC version: 12.2.0 x\n", ""),
        (None, ""),
    ],
)
def test_the_loaded_module_in_a_mismatch(tmp_path: Path, text: str | None, version: str) -> None:
    if text is not None:
        (tmp_path / "driver/nvidia").mkdir(parents=True)
        (tmp_path / "driver/nvidia/version").write_text(text)
    assert gpu_facts.module_version(tmp_path) == version
    error = gpu_facts.mismatch("580.105.08", tmp_path)
    said = f"the loaded kernel module is {version}" if version else "the loaded kernel module differs"
    assert error.note == f"gpu.driver_mismatch: the libraries are 580.105.08, but {said}, so no GPU can be used"
    assert error.is_final
