# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan of a very large checkpoint costs, each time in a process of its own and from the code of a release.

The checkpoint is Kimi-K2.5's: 64 files of 595 GB, of whose tensors 207,360 are experts'. The files are sparse, with
real headers and a real index, so they take 50 MB of disk. Settings and hardware are those of inventory/blackwell, with
a fraction and a host tier that do not fit: a plan that refuses searches for values that would, and so costs most.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from noop_deploy import BenchmarkError

from devnode import venv
from suite import checkpoints

ROOT = Path(__file__).resolve().parents[1]
SHARDS = 64
MISFIT = {"mem-fraction-static": 0.93, "hicache-size": 300}
_RECORDS = ROOT / "roles" / "sglang_server" / "files" / "records" / "blackwell"
_SETTINGS = ROOT / "inventory" / "blackwell" / "group_vars" / "sglang.yml"
_COLLECTIONS = ROOT / "playbooks" / "collections"
_WRITE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.headroom.serving.plugins.module_utils import own_code
own_code.write(pathlib.Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class Cost:
    """What one process took, its start included; `read_mb` (10**6 bytes) is what it read after its own code."""

    cpu_s: float
    read_mb: float
    memory_mb: float
    code_mb: float = 0.0
    wall_s: float = 0.0


GOALS = {"first": Cost(3, 64, 300), "later": Cost(0.3, 1, 80)}


def release_record(model: Path, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a release of inventory/blackwell's instance with another model directory and some flags."""
    settings = yaml.safe_load(_SETTINGS.read_text(encoding="utf-8"))
    [instance], [engine] = settings["sglang_server_instances"], settings["sglang_runtime_engines"]
    version = re.search(r"sglang-(.+)\.lock$", engine["lock"])
    assert version, engine["lock"]
    return {
        "id": "0123456789ab",
        "name": instance["name"],
        "args": {**instance["args"], **args},
        "environment": instance["env"],
        "gpus": instance["gpus"],
        "engine": {"id": "e" * 12, "version": version[1]},
        "model": {"path": str(model), "digest": "d" * 64},
    }


def run_one(archive: Path, case: Path) -> tuple[Cost, dict[str, Any]]:
    """Plan a case in a fresh process of the distribution's Python; return its cost and what it found.

    Raises:
        BenchmarkError: If it fails.
    """
    # -I and -B: as the check before a start runs, which no variable or directory may change.
    command = [venv.python(), "-I", "-B", str(Path(__file__).with_name("one_plan.py")), str(archive), str(case)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        output = child.stdout.read()
        _pid, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - began
    if child.returncode != 0:
        raise BenchmarkError(f"one_plan.py ended with {child.returncode}; its error is above")
    found = json.loads(output)
    cost = Cost(
        cpu_s=used.ru_utime + used.ru_stime,
        read_mb=found["read_bytes"] / 1e6,
        memory_mb=found["peak_bytes"] / 1e6,
        code_mb=found["code_bytes"] / 1e6,
        wall_s=took,
    )
    return cost, found


def measure(rounds: int, work: Path, tensors: Sequence[checkpoints.TensorSpec] | None = None) -> dict[str, Any]:
    """Plan `rounds` times from the headers and as often from the record that this left.

    Args:
        rounds: How often.
        work: An empty directory.
        tensors: Those of the checkpoint; Kimi-K2.5's if not given.

    Returns:
        `first` and `later` (lists of Cost), and of what was planned: `files`, `bytes`, `tensors`, `found`.
    """
    model, archive = work / "model", work / "code.pyz"
    checkpoints.write(model, checkpoints.KIMI_K25, tensors or checkpoints.kimi_k25(), SHARDS)
    subprocess.run([sys.executable, "-I", "-B", "-c", _WRITE, str(_COLLECTIONS), str(archive)], check=True)
    record = release_record(model, MISFIT)
    costs: dict[str, list[Cost]] = {"first": [], "later": []}
    for turn in range(rounds):
        # A directory of records for each turn, so that each has a first plan.
        case = {
            "record": record,
            "hardware": str(_RECORDS / "hardware.json"),
            "shapes": str(work / f"shapes-{turn}"),
        }
        path = work / "case.json"
        path.write_text(json.dumps(case), encoding="utf-8")
        answers = []
        for kind in costs:
            cost, found = run_one(archive, path)
            costs[kind].append(cost)
            answers.append({key: value for key, value in found.items() if not key.endswith("_bytes")})
        if answers[0] != answers[1]:
            raise BenchmarkError(f"the plan from the record differs from the one from the headers: {answers}")
    return {
        **costs,
        "files": SHARDS,
        "bytes": sum(path.stat().st_size for path in model.iterdir()),
        "found": found,
    }


def in_scratch(rounds: int) -> dict[str, Any]:
    """Measure in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="headroom-plan-") as work:
        return measure(rounds, Path(work))
