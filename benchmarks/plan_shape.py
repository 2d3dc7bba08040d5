# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what it costs to read the shape of a checkpoint of Kimi-K2.5's size: 64 files, 595 GB, 208,550 tensors.

The files are sparse, with real headers and a real index, so they take 50 MB of disk. The shape is read in a fresh
process each time: first from the headers, then from the record that the first one kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARDS = 64
_READ = """
import pathlib, re, resource, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.headroom.serving.plugins.module_utils import model_shape
def figure(file, pattern):
    return int(re.search(pattern, pathlib.Path("/proc/self", file).read_text())[1])
before = figure("io", r"rchar: (\\d+)")
shape = model_shape.stored(sys.argv[2], sys.argv[3])
weights = model_shape.weight_bytes_per_rank(shape, 8)
read = figure("io", r"rchar: (\\d+)") - before
spent = resource.getrusage(resource.RUSAGE_SELF)
peak = figure("status", r"VmHWM:\\s*(\\d+) kB") * 1024
print(spent.ru_utime + spent.ru_stime, read / 1e6, peak / 1e6, weights, shape.tensors, before / 1e6)
"""


@dataclass(frozen=True)
class Cost:
    """What one process took: CPU seconds with the interpreter's start, decimal MB read after it and of peak memory."""

    cpu_s: float
    read_mb: float
    memory_mb: float

    def within(self, goal: Cost) -> bool:
        """Whether each figure is below that of the goal."""
        return self.cpu_s < goal.cpu_s and self.read_mb < goal.read_mb and self.memory_mb < goal.memory_mb

    def line(self) -> str:
        """Return the figures for people."""
        return f"{self.cpu_s:6.2f} s CPU  {self.read_mb:7.2f} MB read  {self.memory_mb:6.1f} MB memory"


GOALS = {"first": Cost(3, 64, 300), "later": Cost(0.3, 1, 80)}


def measure(folder: Path, store: Path) -> tuple[Cost, int, int, float]:
    """Read a shape in a fresh process; return cost, bytes on one of 8 ranks, tensors, and the MB read before."""
    packages = str(ROOT / "playbooks" / "collections")
    command = [sys.executable, "-I", "-c", _READ, packages, str(folder), str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu, read, memory, weights, tensors, start = done.stdout.split()
    return Cost(float(cpu), float(read), float(memory)), int(weights), int(tensors), float(start)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return 0: whether the goals are met does not change the status."""
    parser = argparse.ArgumentParser(prog="benchmarks/plan_shape", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "scripts"))
    from suite import checkpoints

    found: dict[str, list[Cost]] = {"first": [], "later": []}
    with tempfile.TemporaryDirectory(prefix="plan-shape-") as work:
        folder = Path(work, "model")
        checkpoints.write(folder, checkpoints.KIMI_K25, checkpoints.kimi_k25(), SHARDS)
        size = sum(path.stat().st_size for path in folder.iterdir())
        for turn in range(max(1, options.rounds)):
            for kind in found:
                cost, weights, tensors, start_mb = measure(folder, Path(work, f"store-{turn}"))
                found[kind].append(cost)
    medians = {
        kind: Cost(
            *(statistics.median(column) for column in zip(*(asdict(cost).values() for cost in costs), strict=True))
        )
        for kind, costs in found.items()
    }
    print(
        f"{SHARDS} files, {size / 1e9:.1f} GB, {tensors} tensors; {weights / 2**30:.3f} GiB of weights a rank at TP 8"
    )
    for kind, cost in medians.items():
        goal = GOALS[kind]
        verdict = "met" if cost.within(goal) else "missed"
        print(f"{kind}  {cost.line()}; goal below {goal.cpu_s} s, {goal.read_mb} MB, {goal.memory_mb} MB: {verdict}")
    print(f"Python and the collection's code are {start_mb:.2f} MB more, read before")
    if options.json:
        options.json.write_text(json.dumps({kind: asdict(cost) for kind, cost in medians.items()}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
