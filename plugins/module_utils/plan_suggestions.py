# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit instead: values found by planning again, each with its next step, which does not pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.findings import Verdict
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import Plan, PlanInput, Suggestion

# Plans the same instance with some flags set otherwise; a value of None removes a flag.
Probe = Callable[[Mapping[str, Any]], Plan]
_RANK = {"ok": 0, "warn": 1, "refuse": 2}
_TOO_LARGE = ("hicache.node_budget", "hicache.race", "hicache.single_registration")
_HICACHE = (*_TOO_LARGE, "hicache.host_smaller_than_device")
_FRACTION = "mem-fraction-static"
_STEP = 1000  # steps of the fraction: thousandths


def suggest(plan: Plan, inputs: PlanInput, probe: Probe) -> tuple[Suggestion, ...]:
    """Return the nearest values that pass, for each finding that refuses or that has a value without a warning.

    Args:
        plan: The plan without suggestions.
        inputs: What it was made from.
        probe: Plans again with changed flags. It is called a few dozen times at most.
    """
    found: list[Suggestion] = []
    ids = [item.id for item in plan.findings if item.verdict != "ok"]
    first = next((item for item in ids if item in _TOO_LARGE), None)
    if first is not None:
        found += _smaller_tier(first, inputs, probe)
    if plan.verdict_of("hicache.host_smaller_than_device") == "refuse":
        found += _larger_tier(inputs, probe)
    if plan.verdict_of("gpu.no_room_for_kv") == "refuse":
        found += _larger_fraction(plan, probe)
    elif "gpu.slack" in ids:
        found += _more_slack(plan, inputs, probe)
    if "host.load_window" in ids and probe({"weight-loader-disable-mmap": None}).verdict_of("host.load_window") == "ok":
        text = "Remove weight-loader-disable-mmap: mapped weights need no memory of their own."
        found.append(Suggestion("host.load_window", "weight-loader-disable-mmap", None, "ok", True, text))
    return tuple(found)


def largest(low: int, high: int, passes: Callable[[int], bool]) -> int | None:
    """Return the largest whole number in low..high that passes, where all below one that passes do; None if none."""
    if high < low or not passes(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if passes(middle):
            low = middle
        else:
            high = middle - 1
    return low


def smallest(low: int, high: int, passes: Callable[[int], bool]) -> int | None:
    """Return the smallest whole number in low..high that passes, where all above one that passes do; None if none."""
    found = largest(-high, -low, lambda value: passes(-value))
    return None if found is None else -found


def _worst(plan: Plan, ids: tuple[str, ...]) -> Verdict:
    return max((plan.verdict_of(kind) for kind in ids), key=lambda verdict: _RANK[verdict])


def _nothing(kind: str, text: str) -> Suggestion:
    return Suggestion(kind, "", None, "refuse", None, text)


def _smaller_tier(kind: str, inputs: PlanInput, probe: Probe) -> list[Suggestion]:
    """The largest host tier that draws none of the findings against large ones."""
    size = inputs.args.integer("hicache-size")
    if size:
        setting, shown = "hicache-size", "GB a rank"
        step: float = 1
        found: Any = largest(1, size - 1, lambda gb: _worst(probe({"hicache-size": gb}), _TOO_LARGE) == "ok")
    else:
        tenths = math.ceil((inputs.args.number("hicache-ratio") or 2.0) * 10) - 1
        value = largest(1, tenths, lambda part: _worst(probe({"hicache-ratio": part / 10}), _TOO_LARGE) == "ok")
        setting, step, shown = "hicache-ratio", 0.1, "times the GPU's pool"
        found = None if value is None else value / 10
    off = "Set 'enable-hierarchical-cache: false', or free host memory."
    if found is None:
        return [_nothing(kind, f"No {setting} passes on this node. {off}")]
    if _worst(probe({setting: found}), _HICACHE) == "refuse":
        return [
            _nothing(kind, f"The largest {setting} that the node bears is {found:g}, less than the GPU holds. {off}")
        ]
    text = f"Largest {setting} that passes: {found:g} ({shown})."
    return [Suggestion(kind, setting, found, "ok", round(found + step, 1), text)]


def _larger_tier(inputs: PlanInput, probe: Probe) -> list[Suggestion]:
    """The smallest host tier that is larger than the GPU's pool."""
    kind = "hicache.host_smaller_than_device"
    size = inputs.args.integer("hicache-size")
    if size:
        setting = "hicache-size"
        step: float = 1
        ceiling = max(size + 1, int(inputs.hardware.mem_total_bytes / 1e9))
        found: Any = smallest(size + 1, ceiling, lambda gb: probe({"hicache-size": gb}).verdict_of(kind) == "ok")
    else:
        setting, step = "hicache-ratio", 0.1
        value = smallest(1, 100, lambda part: probe({"hicache-ratio": part / 10}).verdict_of(kind) == "ok")
        found = None if value is None else value / 10
    if found is None or _worst(probe({setting: found}), _HICACHE) == "refuse":
        return [_nothing(kind, "A tier larger than the GPU's pool does not fit on this node: turn the cache off.")]
    text = f"Smallest {setting} that passes: {found:g}."
    return [Suggestion(kind, setting, found, "ok", round(found - step, 1), text)]


def _larger_fraction(plan: Plan, probe: Probe) -> list[Suggestion]:
    kind = "gpu.no_room_for_kv"
    start = max(1, int(plan.gpu.fraction * _STEP))
    value = smallest(start, _STEP - 1, lambda part: probe({_FRACTION: part / _STEP}).verdict_of(kind) == "ok")
    if value is not None:
        after = probe({_FRACTION: value / _STEP})
        if after.verdict_of("gpu.slack") != "refuse":
            text = f"Smallest mem-fraction-static that leaves room for KV: {value / _STEP:g}."
            verdict = after.verdict_of(kind)
            return [Suggestion(kind, _FRACTION, value / _STEP, verdict, (value - 1) / _STEP, text)]
    return [
        _nothing(
            kind, "No fraction does: take more GPUs (tp-size), GPUs with more memory, or a smaller or quantised model."
        )
    ]


def _more_slack(plan: Plan, inputs: PlanInput, probe: Probe) -> list[Suggestion]:
    """Fractions that leave enough, and other levers that would make the asked fraction safe."""
    kind = "gpu.slack"
    refused = plan.verdict_of(kind) == "refuse"
    top = math.ceil(plan.gpu.fraction * _STEP) - 1
    found: list[Suggestion] = []

    def verdict_at(changes: Mapping[str, Any]) -> Verdict:
        return _worst(probe(changes), (kind, "gpu.no_room_for_kv"))

    for bound in ("ok", "warn") if refused else ("ok",):
        bad = ("refuse",) if bound == "warn" else ("refuse", "warn")
        value = _largest_fraction(kind, top, bad, probe)
        if value is None:
            continue
        verdict = verdict_at({_FRACTION: value / _STEP})
        if verdict != bound:
            continue
        noted = "" if bound == "ok" else " with a warning"
        text = f"Largest mem-fraction-static{noted}: {value / _STEP:g}."
        found.append(Suggestion(kind, _FRACTION, value / _STEP, bound, (value + 1) / _STEP, text))
    if not refused:
        return found
    levers = (
        ("max-running-requests", plan.gpu.max_running_requests),
        ("cuda-graph-max-bs-decode", inputs.args.integer("cuda-graph-max-bs-decode")),
        ("chunked-prefill-size", inputs.args.integer("chunked-prefill-size")),
    )
    helped = False
    for setting, now in levers:
        value = _lever(kind, setting, now, probe)
        if value is None:
            continue
        helped = True
        changes = _change(setting, value)
        text = f"Or keep {plan.gpu.fraction:.3f} with {setting} {value} at most."
        found.append(Suggestion(kind, setting, value, probe(changes).verdict_of(kind), _next(setting, value), text))
    if not helped:
        text = (
            f"At {plan.gpu.fraction:.3f} no other single setting helps: not fewer running requests, graphs or tokens."
        )
        found.append(_nothing(kind, text))
    return found


def _largest_fraction(kind: str, top: int, bad: tuple[str, ...], probe: Probe) -> int | None:
    return largest(1, top, lambda part: probe({_FRACTION: part / _STEP}).verdict_of(kind) not in bad)


def _lever(kind: str, setting: str, now: int, probe: Probe) -> int | None:
    def passes(value: int) -> bool:
        return probe(_change(setting, value)).verdict_of(kind) != "refuse"

    if setting != "chunked-prefill-size":
        return largest(1, now - 1, passes)
    value = 2048  # powers of two only; below it SGLang reserves no less
    if value >= now or not passes(value):
        return None
    while value * 2 < now and passes(value * 2):
        value *= 2
    return value


def _next(setting: str, value: int) -> int:
    return value * 2 if setting == "chunked-prefill-size" else value + 1


def _change(setting: str, value: int) -> dict[str, Any]:
    if setting == "cuda-graph-max-bs-decode":
        # The lists and the older names set the same thing and would win.
        return {"cuda-graph-bs-decode": None, "cuda-graph-bs": None, "cuda-graph-max-bs": None, setting: value}
    return {setting: value}
