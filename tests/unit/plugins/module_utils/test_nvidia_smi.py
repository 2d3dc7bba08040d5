# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi prints, in the words of several of its versions."""

from __future__ import annotations

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import nvidia_smi

# As recorded on an H200 with driver 580.
H200 = "143771, 0, 143156\n"

# As recorded on two H200s with driver 580.
H200_MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \t0-31\t0\t\tN/A\n"
    "\nLegend:\n\n  X    = Self\n"
)

MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPHB\tSYS\tPIX\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tPXB\tSYS\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU2\tPHB\tPXB\t X \tNODE\tSYS\t32-63\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNODE\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\tSYS\tSYS\t X \t\t\t\t\n"
    "\n"
    "Legend:\n"
    "\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\n"
    "NIC Legend:\n"
    "\n"
    "  NIC0: mlx5_0\n"
)


def test_recorded_sizes() -> None:
    fields = ["memory.total", "memory.used", "memory.free"]
    assert list(nvidia_smi.table(H200, fields)) == [dict(zip(fields, ["143771", "0", "143156"], strict=True))]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0, NVIDIA H200, 9.0\n", [{"index": "0", "name": "NVIDIA H200", "compute_cap": "9.0"}]),
        ("0, NVIDIA H200, [N/A]\n", [{"index": "0", "name": "NVIDIA H200", "compute_cap": "[N/A]"}]),
        ("No devices were found\n", []),
        ("", []),
        ("\n\n", []),
        ("a, b, c\n", []),
        ("Unable to determine the device handle for GPU0: x, y, z\n", []),
        ("0, x\n", []),
    ],
)
def test_rows(text: str, rows: list[dict[str, str]]) -> None:
    assert list(nvidia_smi.table(text, ["index", "name", "compute_cap"])) == rows


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU\n",
            [("0000:02:00.0", "GPU is lost.  Reboot the system to recover this GPU")],
        ),
        (
            "Unable to determine the device handle for GPU0000:20:00.0: Unknown Error\n",
            [("0000:20:00.0", "Unknown Error")],
        ),
        (
            "Unable to determine the device handle for GPU3: 0000:61:00.0: Unknown Error\n",
            [("0000:61:00.0", "Unknown Error")],
        ),
        (
            "Unable to detect the device handle for GPU0000:B1:00.0: Unknown Error\n",
            [("0000:b1:00.0", "Unknown Error")],
        ),
        (
            "Unable to determine the device handle for gpu 000:BA:80.0: Unknown Error\n",
            [("0000:ba:80.0", "Unknown Error")],
        ),
        ("Unable to determine the device handle for GPU 00000000:0B:00.0: x\n", [("0000:0b:00.0", "x")]),
        (
            "Unable to determine the device handle for GPU0000:01:00.0: a\n"
            "Unable to determine the device handle for GPU0000:02:00.0: b\n",
            [("0000:01:00.0", "a"), ("0000:02:00.0", "b")],
        ),
        ("No devices were found\n", []),
    ],
)
def test_gpus_that_are_gone(text: str, found: list[tuple[str, str]]) -> None:
    assert list(nvidia_smi.lost(text)) == found


@pytest.mark.parametrize(
    ("indices", "wanted"),
    [
        ([0], (("X",),)),
        ([0, 1], (("X", "NVL"), ("NVL", "X"))),
        ([0, 2, 3], (("X", "PHB", "SYS"), ("PHB", "X", "NODE"), ("SYS", "NODE", "X"))),
        ([1, 2], (("X", "PXB"), ("PXB", "X"))),
        ([0, 1, 4], ()),
    ],
)
def test_links(indices: list[int], wanted: tuple[tuple[str, ...], ...]) -> None:
    assert nvidia_smi.links(MATRIX, indices) == wanted
    assert nvidia_smi.links(MATRIX.replace("\x1b[4m", "").replace("\x1b[0m", ""), indices) == wanted


def test_recorded_links() -> None:
    assert nvidia_smi.links(H200_MATRIX, [0, 1]) == (("X", "NVL"), ("NVL", "X"))


@pytest.mark.parametrize("text", ["", "Failed to run topology matrix\n", "\tGPU0\tGPU1\n", MATRIX.replace("NV18", "?")])
def test_links_that_are_not_told(text: str) -> None:
    assert nvidia_smi.links(text, [0, 1]) == ()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"index": "0", "uuid": "GPU-1", "memory.total": "143771", "mig.mode.current": "[N/A]"}, ""),
        ({"index": "0", "uuid": "GPU-1", "memory.total": "[N/A]"}, ""),
        ({"index": "0", "uuid": "GPU-1", "memory.total": "[Not Supported]"}, ""),
        ({"index": "0", "uuid": "GPU-1", "pcie.link.gen.max": "[Unknown Error]"}, ""),
        ({"index": "0", "uuid": "GPU-1", "memory.total": "[Unknown Error]"}, "Unknown Error"),
        ({"index": "0", "uuid": "[Unknown Error]"}, "Unknown Error"),
        ({"index": "0", "uuid": "GPU-1", "pcie.link.gen.max": "[GPU is lost]"}, "GPU is lost"),
        ({"index": "0", "uuid": "GPU-1", "memory.used": "[GPU requires reset]"}, "GPU requires reset"),
    ],
)
def test_a_gpu_that_is_listed_but_does_not_answer(row: dict[str, str], reason: str) -> None:
    assert nvidia_smi.broken(row) == reason
