# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit instead: values found by planning again, each with its next step, which does not pass.

A value is only told if nothing refuses with it that did not refuse without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.findings import Verdict, refusals
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import Plan, PlanInput, Suggestion
from ansible_collections.headroom.serving.plugins.module_utils.value_search import largest, smallest

# Plans the same instance with some flags set otherwise; a value of None removes a flag.
Probe = Callable[[Mapping[str, Any]], Plan]
_RANK = {"ok": 0, "warn": 1, "refuse": 2}
_TOO_LARGE = ("hicache.node_budget", "hicache.race", "hicache.single_registration")
_TOO_SMALL = "hicache.host_smaller_than_device"
# Each says that a pool of the GPU is too small; the later ones are looked at only where the first is not there.
_NO_ROOM = ("gpu.no_room_for_kv", "gpu.window_pool_too_small", "gpu.state_cache_too_small")
_FRACTION = "mem-fraction-static"
_STEP = 1000  # steps of the fraction: thousandths
_LEAST_CHUNK, _MOST_CHUNK = 2048, 2**20  # chunks are powers of two; below the first SGLang reserves no less
# Their defaults, and the most steps: SGLang takes no ratio of windows above 1.
_RATIOS = {"swa-full-tokens-ratio": (0.8, 100), "mamba-full-memory-ratio": (0.9, 1000)}
_OFF = "Set 'enable-hierarchical-cache: false', or free host memory."
_MORE_GPUS = "take more GPUs (tp-size), GPUs with more memory, or a smaller or quantised model."


def suggest(plan: Plan, inputs: PlanInput, probe: Probe) -> tuple[Suggestion, ...]:
    """Return the nearest values that pass, for each finding that refuses or that has a value without a warning.

    Args:
        plan: The plan without suggestions.
        inputs: What it was made from.
        probe: Plans again with changed flags. It is called a few hundred times at most.
    """
    tries = _Tries(plan, inputs, probe)
    found: list[Suggestion] = []
    ids = [item.id for item in plan.findings if item.verdict != "ok"]
    first = next((item for item in ids if item in _TOO_LARGE), None)
    if first is not None:
        found += _smaller_tier(first, tries)
    if plan.verdict_of(_TOO_SMALL) == "refuse":
        found += _larger_tier(tries)
    if plan.verdict_of("host.memory") == "refuse":
        found += _less_on_the_host(tries)
    lacking = next((kind for kind in _NO_ROOM if plan.verdict_of(kind) == "refuse"), None)
    if lacking is not None:
        found += _more_room(lacking, tries)
    if "gpu.slack" in ids:
        found += _more_slack(tries, lacking)
    if "host.load_window" in ids and tries.passes(("host.load_window",), {"weight-loader-disable-mmap": None}):
        text = "Remove weight-loader-disable-mmap: mapped weights need no memory of their own."
        found.append(Suggestion("host.load_window", "weight-loader-disable-mmap", None, "ok", True, text))
    return tuple(found)


class _Tries:
    """The plan, and what becomes of it with flags set otherwise; each is planned once."""

    def __init__(self, plan: Plan, inputs: PlanInput, probe: Probe) -> None:
        self.plan = plan
        self.inputs = inputs
        self._probe = probe
        self._refused = {item.id for item in refusals(plan.findings)}
        self._seen: dict[tuple[tuple[str, Any], ...], Plan] = {}

    def at(self, changes: Mapping[str, Any]) -> Plan:
        key = tuple(sorted(changes.items(), key=lambda item: item[0]))
        if key not in self._seen:
            self._seen[key] = self._probe(changes)
        return self._seen[key]

    def worst(self, ids: tuple[str, ...], changes: Mapping[str, Any]) -> Verdict:
        after = self.at(changes)
        return max((after.verdict_of(kind) for kind in ids), key=lambda verdict: _RANK[verdict])

    def passes(self, ids: tuple[str, ...], changes: Mapping[str, Any], bound: Verdict = "ok") -> bool:
        return _RANK[self.worst(ids, changes)] <= _RANK[bound]

    def is_sound(self, changes: Mapping[str, Any]) -> bool:
        """Whether nothing refuses that did not refuse before."""
        return {item.id for item in refusals(self.at(changes).findings)} <= self._refused


class _Lever:
    """A setting whose values are whole numbers times a step, within limits; `parts` counts the steps."""

    def __init__(self, tries: _Tries, setting: str, step: float = 1, limits: tuple[int, int] = (1, 2**40)) -> None:
        self.setting = setting
        self._tries = tries
        self.step = step
        self._limits = limits

    def value(self, parts: int) -> Any:
        """Return a value of the setting, None where it has none."""
        if not self._limits[0] <= parts <= self._limits[1]:
            return None
        return parts * self.step if isinstance(self.step, int) else round(parts * self.step, 6)

    def changes(self, parts: int) -> dict[str, Any]:
        if self.setting == "cuda-graph-max-bs-decode":
            # The lists and the older names set the same thing and would win.
            older = dict.fromkeys(("cuda-graph-bs-decode", "cuda-graph-bs", "cuda-graph-max-bs"))
            return {**older, self.setting: self.value(parts)}
        return {self.setting: self.value(parts)}

    def passes(self, parts: int, ids: tuple[str, ...], bound: Verdict = "ok") -> bool:
        return self.value(parts) is not None and self._tries.passes(ids, self.changes(parts), bound)

    def is_sound(self, parts: int) -> bool:
        return self._tries.is_sound(self.changes(parts))

    def most(self, high: int, ids: tuple[str, ...], bound: Verdict = "ok") -> int | None:
        """Return the largest value, below or about `high`, with which none of the ids is harsher than the bound."""
        return largest(self._limits[0], min(high, self._limits[1]), lambda parts: self.passes(parts, ids, bound))

    def least(self, low: int, high: int, ids: tuple[str, ...], bound: Verdict = "ok") -> int | None:
        """Return the smallest value, about `low` to `high`, with which none of the ids is harsher than the bound."""
        first, last = max(low, self._limits[0]), min(high, self._limits[1])
        return smallest(first, last, lambda parts: self.passes(parts, ids, bound))

    def suggestion(self, kind: str, parts: int, beyond: int, verdict: Verdict, text: str) -> Suggestion:
        return Suggestion(kind, self.setting, self.value(parts), verdict, self.value(beyond), text)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nothing(kind: str, text: str) -> Suggestion:
    return Suggestion(kind, "", None, "refuse", None, text)


def _fraction(tries: _Tries) -> _Lever:
    return _Lever(tries, _FRACTION, 1 / _STEP, (1, _STEP - 1))


def _tier(tries: _Tries) -> tuple[_Lever, int, str]:
    """Return the setting that sizes the host tier, the first value above its present one, and its unit."""
    args = tries.inputs.args
    size = args.integer("hicache-size")
    if size:
        return _Lever(tries, "hicache-size"), size + 1, "GB a rank"
    tenths = math.floor(round((args.number("hicache-ratio") or 2.0) * 10, 6)) + 1
    return _Lever(tries, "hicache-ratio", 0.1), tenths, "times the GPU's pool"


def _smaller_tier(kind: str, tries: _Tries) -> list[Suggestion]:
    """The largest host tier that draws none of the findings against large ones, or none that refuses."""
    lever, above, unit = _tier(tries)
    found = lever.most(above - 1, _TOO_LARGE)
    bound: Verdict = "ok"
    if found is None and tries.worst(_TOO_LARGE, {}) == "refuse":
        found = lever.most(above - 1, _TOO_LARGE, "warn")
        bound = "warn"
    if found is None and lever.most(above - 1, _TOO_LARGE, "warn") is not None:
        return [_nothing(kind, f"A smaller {lever.setting} warns at least. {_OFF}")]
    if found is None:
        return [_nothing(kind, f"No {lever.setting} passes on this node. {_OFF}")]
    value = _shown(lever.value(found))
    if not lever.passes(found, (_TOO_SMALL,), "warn"):
        return [
            _nothing(
                kind, f"The largest {lever.setting} that the node bears is {value}, less than the GPU holds. {_OFF}"
            )
        ]
    if not lever.is_sound(found):
        return [_nothing(kind, f"No {lever.setting} passes on this node. {_OFF}")]
    text = f"Largest {lever.setting} that passes: {value} ({unit})."
    if bound == "warn":
        after = tries.at(lever.changes(found))
        warning = ", ".join(one for one in _TOO_LARGE if after.verdict_of(one) == "warn")
        text = f"No {lever.setting} is without a warning; the largest that is not refused: {value} ({unit}; {warning})."
    return [lever.suggestion(kind, found, found + 1, bound, text)]


def _larger_tier(tries: _Tries) -> list[Suggestion]:
    """The smallest host tier that is larger than the GPU's pool."""
    lever, above, _unit = _tier(tries)
    most = max(above, int(tries.inputs.hardware.mem_total_bytes / 1e9)) if lever.setting == "hicache-size" else 100
    found = lever.least(min(above, most), most, (_TOO_SMALL,))
    if found is None or not lever.passes(found, _TOO_LARGE, "warn") or not lever.is_sound(found):
        return [
            _nothing(_TOO_SMALL, "A tier larger than the GPU's pool does not fit on this node: turn the cache off.")
        ]
    text = f"Smallest {lever.setting} that passes: {_shown(lever.value(found))}."
    return [lever.suggestion(_TOO_SMALL, found, found - 1, "ok", text)]


def _less_on_the_host(tries: _Tries) -> list[Suggestion]:
    """The most tokens, and the largest fraction, that the host's memory holds where a CPU computes."""
    kind = "host.memory"
    plan, args = tries.plan, tries.inputs.args
    page = args.integer("page-size", 1)
    found: list[Suggestion] = []
    for lever, now, what in (
        (_Lever(tries, "max-total-tokens", page), int(plan.gpu.tokens.high) // page, "Largest"),
        (_fraction(tries), math.ceil(plan.gpu.fraction * _STEP) - 1, "Or the largest"),
    ):
        bounds: tuple[Verdict, ...] = ("ok", "warn")
        for bound in bounds:
            value = lever.most(now, (kind,), bound)
            if value is not None and lever.is_sound(value):
                noted = " with a warning" if bound == "warn" else ""
                text = f"{what if found else 'Largest'} {lever.setting}{noted}: {_shown(lever.value(value))}."
                found.append(lever.suggestion(kind, value, value + 1, bound, text))
                break
    if found:
        return found
    return [_nothing(kind, "No fraction and no max-total-tokens helps: free memory, or take a smaller model.")]


def _more_room(kind: str, tries: _Tries) -> list[Suggestion]:
    """Settings with the smallest value that makes the GPU's pools large enough."""
    lever = _fraction(tries)
    value = lever.least(int(tries.plan.gpu.fraction * _STEP), _STEP - 1, _NO_ROOM)
    found = []
    # What is left beside it can only become less.
    fits = value is not None and lever.is_sound(value) and tries.worst(("gpu.slack",), lever.changes(value)) != "refuse"
    if value is not None and fits:
        gives = "leaves room for KV" if kind == _NO_ROOM[0] else "passes"
        text = f"Smallest {_FRACTION} that {gives}: {_shown(lever.value(value))}."
        found.append(lever.suggestion(kind, value, value - 1, "ok", text))
    for other, low, most in _room_levers(tries, kind):
        part = other.least(low, most, _NO_ROOM) if low <= most else None
        if part is not None and other.is_sound(part):
            text = f"{'Or the smallest' if found else 'Smallest'} {other.setting} that passes: "
            found.append(other.suggestion(kind, part, part - 1, "ok", f"{text}{_shown(other.value(part))}."))
    if tries.inputs.args["mem-fraction-static"].origin != "given":
        # The fraction that SGLang computes is what the chunk and others leave.
        for other, part, beyond in _chunk(tries, _NO_ROOM, "ok"):
            if other.is_sound(part):
                start = "Or leave" if found else "Leave"
                text = f"{start} the fraction to SGLang with {other.setting} {part} at most."
                found.append(other.suggestion(kind, part, beyond, "ok", text))
    if found:
        return found
    if value is None:
        alone = lever.least(int(tries.plan.gpu.fraction * _STEP), _STEP - 1, (kind,))
        if alone is None:
            return [_nothing(kind, f"No fraction does: {_MORE_GPUS}")]
        after = tries.at(lever.changes(alone))
        then = ", ".join(one for one in _NO_ROOM if after.verdict_of(one) == "refuse")
        text = f"No fraction does alone: {_shown(lever.value(alone))} leaves room for KV, but then {then} refuses."
        return [_nothing(kind, text)]
    least = _shown(lever.value(value))
    return [
        _nothing(kind, f"No fraction does, as the least with room, {least}, leaves too little beside: {_MORE_GPUS}")
    ]


def _room_levers(tries: _Tries, kind: str) -> list[tuple[_Lever, int, int]]:
    """Return what may help beside the fraction, with the steps from above the present value to the most."""
    args = tries.inputs.args
    settings = {"max-total-tokens": 1.0}
    if kind == "gpu.window_pool_too_small":
        settings["swa-full-tokens-ratio"] = 0.01
    if kind == "gpu.state_cache_too_small":
        settings.update({"mamba-full-memory-ratio": 0.01, "max-mamba-cache-size": 1.0, "max-running-requests": 1.0})
    found = []
    for setting, step in settings.items():
        now = args.value(setting)
        if now is None:
            if setting not in _RATIOS:
                continue  # no limit of its own
            now = _RATIOS[setting][0]
        most = _RATIOS[setting][1] if setting in _RATIOS else 2**24
        lever = _Lever(tries, setting, int(step) if step >= 1 else step, (1, most))
        found.append((lever, math.floor(round(now / step, 6)) + 1, most))
    return found


def _more_slack(tries: _Tries, lacking: str | None) -> list[Suggestion]:
    """Fractions that leave enough, and other levers that would make the asked fraction safe."""
    kind = "gpu.slack"
    plan, args = tries.plan, tries.inputs.args
    refused = plan.verdict_of(kind) == "refuse"
    if lacking is not None:
        if not refused:
            return []
        text = (
            f"No single setting helps: a lower fraction leaves no room for KV ({lacking}), a higher one less beside it."
        )
        return [_nothing(kind, text)]
    lever = _fraction(tries)
    top = math.ceil(plan.gpu.fraction * _STEP) - 1
    found: list[Suggestion] = []
    bounds: tuple[Verdict, ...] = ("ok", "warn") if refused else ("ok",)
    for bound in bounds:
        value = lever.most(top, (kind,), bound)
        if value is None or not lever.is_sound(value) or tries.worst((kind,), lever.changes(value)) != bound:
            continue
        noted = "" if bound == "ok" else " with a warning"
        text = f"Largest {_FRACTION}{noted}: {_shown(lever.value(value))}."
        found.append(lever.suggestion(kind, value, value + 1, bound, text))
    if not refused:
        return found
    given = args["mem-fraction-static"].origin == "given"
    start = f"Or keep {plan.gpu.fraction:.3f} with" if given else "Or leave the fraction to SGLang with"
    shards = args.attention_dp * args.replicas
    helped = False
    for other, parts, beyond in (
        *_edge(_Lever(tries, "max-running-requests"), plan.gpu.max_running_requests * shards, kind),
        *_edge(_Lever(tries, "cuda-graph-max-bs-decode"), args.integer("cuda-graph-max-bs-decode"), kind),
        *_chunk(tries, (kind,), "warn"),
    ):
        if other.is_sound(parts):
            helped = True
            text = f"{start} {other.setting} {other.value(parts)} at most."
            verdict = tries.worst((kind,), other.changes(parts))
            found.append(other.suggestion(kind, parts, beyond, verdict, text))
    if not helped:
        which = f"At {plan.gpu.fraction:.3f} no" if given or found else "No"
        text = f"{which} other single setting helps: not fewer running requests, graphs or tokens."
        found.append(_nothing(kind, text))
    return found


def _edge(lever: _Lever, now: int, kind: str) -> list[tuple[_Lever, int, int]]:
    parts = lever.most(now - 1, (kind,), "warn")
    return [] if parts is None else [(lever, parts, parts + 1)]


def _chunk(tries: _Tries, ids: tuple[str, ...], bound: Verdict) -> list[tuple[_Lever, int, int]]:
    lever = _Lever(tries, "chunked-prefill-size")
    now = tries.inputs.args.integer("chunked-prefill-size")
    now = now if now > 0 else tries.inputs.args.integer("max-prefill-tokens")
    value = _LEAST_CHUNK
    if value >= now or not lever.passes(value, ids, bound):
        return []
    while value < _MOST_CHUNK and lever.passes(value * 2, ids, bound):
        value *= 2
    return [(lever, value, value * 2)] if value < _MOST_CHUNK else []
