# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what a plan costs, and how soon it refuses what SGLang would refuse itself.

First the plan of a checkpoint of 595 GB for 8 GPUs: from its headers, and from the record that is kept of them. Then,
on a throw-away node, a host tier of 500 GB: refused by a deploy, and by SGLang started with it, in turns. Results are
printed with their goals; whether these are met does not change the exit status.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plan_costs
import plan_refusals
from noop_deploy import BenchmarkError, ratios
from plan_costs import GOALS, Cost

from devnode.steps import StepError

RATIO_GOAL = 0.1
_WIDTH = 20


@dataclass(frozen=True)
class Row:
    """A figure and its goal, if there is one; it is met below the goal, or at it where `at_most` says so."""

    what: str
    kind: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = False
    digits: int = 2

    @property
    def is_met(self) -> bool:
        """Whether the goal is met; without one it is."""
        return self.goal is None or self.value < self.goal or (self.at_most and self.value == self.goal)

    def line(self) -> str:
        """Return the row for people, with a bar of its share of the goal."""
        text = f"{self.what:<24} {self.kind:<8}{self.value:>9,.{self.digits}f} {self.unit:<3}"
        if self.goal is None:
            return text.rstrip()
        limit = f"{'at most' if self.at_most else 'below'} {self.goal:g} {self.unit}".strip()
        verdict = "met" if self.is_met else "missed"
        return f"{text}  {limit:<13}  {share_bar(self.value / self.goal)} {self.value / self.goal:>5.0%}  {verdict}"


def share_bar(share: float) -> str:
    """Return a bar that is full at 1; what is more than that shows as an arrow at its end."""
    if share > 1:
        return f"[{'#' * (_WIDTH - 1)}>]"
    # What is there at all shows.
    filled = max(int(share > 0), int(share * _WIDTH + 0.5))
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}]"


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    columns = zip(*(dataclasses.astuple(cost) for cost in costs), strict=True)
    return Cost(*(statistics.median(column) for column in columns))


def cost_rows(costs: Mapping[str, Sequence[Cost]]) -> list[Row]:
    """Return the rows of the plan itself."""
    rows = []
    for kind, goal in GOALS.items():
        middle = median(costs[kind])
        what = f"{kind} plan"
        rows += [
            Row(what, "CPU", middle.cpu_s, "s", goal.cpu_s),
            Row(what, "read", middle.read_mb, "MB", goal.read_mb),
            Row(what, "memory", middle.memory_mb, "MB", goal.memory_mb, digits=1),
        ]
    return rows


def refusal_rows(found: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the node: the deploy against SGLang, then what runs there without Ansible."""
    both = ratios(found["ours_s"], found["its_s"])
    ours, its = statistics.median(found["ours_s"]), statistics.median(found["its_s"])
    rows = [
        Row("refused by a deploy", "wall", ours, "s"),
        Row("refused by SGLang", "wall", its, "s"),
        Row("deploy / SGLang", "ratio", max(both.values()), "", RATIO_GOAL, at_most=True),
    ]
    for key, what in (
        ("module", "module memory_plan"),
        ("guard", "check before a start"),
        ("guard_refusal", "refused by the check"),
    ):
        middle = {name: statistics.median(one[name] for one in found[key]) for name in ("cpu_s", "wall_s", "memory_mb")}
        rows += [
            Row(what, "CPU", middle["cpu_s"], "s"),
            Row(what, "wall", middle["wall_s"], "s"),
            Row(what, "memory", middle["memory_mb"], "MB", digits=1),
        ]
        if key != "guard":
            share = middle["wall_s"] / its
            rows.append(Row(f"{what.split()[-1]} / SGLang", "ratio", share, "", RATIO_GOAL, at_most=True, digits=3))
    return rows


def cost_notes(costs: Mapping[str, Any]) -> list[str]:
    """Return what was planned, and what the figures leave out."""
    found = costs["found"]
    start = median([*costs["first"], *costs["later"]]).code_mb
    return [
        f"planned: {costs['files']} files, {costs['bytes'] / 1e9:.1f} GB, {found['tensors']:,} tensors, "
        f"{found['rank_weight_bytes'] / 2**30:.3f} GiB of weights a rank; refused for {', '.join(found['refused'])}, "
        f"{found['suggestions']} suggestions",
        f"Python itself and the collection's code are {start:.2f} MB more, read from the local disk before",
    ]


def refusal_notes(found: Mapping[str, Any]) -> list[str]:
    """Return where the deploy spent its time, and SGLang's own words."""
    names = list(dict.fromkeys(name for one in found["phases"] for name in one))
    middles = {name: statistics.median(one.get(name, 0.0) for one in found["phases"]) for name in names}
    return [
        "the deploy: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in middles.items()),
        f"SGLang's words: {found['reason']}",
    ]


def _rounds(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} rounds measure nothing; use at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and optionally write the figures; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/plan",
        description="Measure what a plan costs, and how soon it refuses what SGLang would refuse itself.",
    )
    parser.add_argument("--rounds", type=_rounds, default=5, help="how often a plan is measured (default 5)")
    parser.add_argument("--refusals", type=_rounds, default=3, help="how often a refusal is (default 3)")
    parser.add_argument("--without-node", action="store_true", help="measure the plan only; needs no podman")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(arguments)
    load = [os.getloadavg()[0]]
    try:
        costs = plan_costs.in_scratch(given.rounds)
        load.append(os.getloadavg()[0])
        print("\n".join([*(row.line() for row in cost_rows(costs)), *cost_notes(costs)]), flush=True)
        report = {**costs, **{kind: [dataclasses.asdict(cost) for cost in costs[kind]] for kind in GOALS}}
        if not given.without_node:
            refusals = plan_refusals.measure(given.refusals)
            load.append(os.getloadavg()[0])
            print("\n".join(["", *(row.line() for row in refusal_rows(refusals)), *refusal_notes(refusals)]))
            report["refusals"] = refusals
    except (BenchmarkError, StepError) as error:
        print(f"benchmarks/plan: {error}", file=sys.stderr)
        return 1
    shown = ", ".join(f"{value:.1f}" for value in load)
    print(f"\n{os.cpu_count()} processors, load average {shown} before, between and after")
    if given.json:
        report["machine"] = {"processors": os.cpu_count(), "load_average": load}
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
