# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start of any server on any GPU: its log, rounded as SGLang rounds it, gives the tokens of every later start."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, configuration, given, settings
from hypothesis import strategies as st

from ansible_collections.headroom.serving.plugins.module_utils import measured_facts
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, Plan, PlanInput, plan
from ansible_collections.headroom.serving.plugins.module_utils.startup_log import StartupLog
from plan_samples import GIB, HYBRID, MIB, NEW, OLD, WINDOWED, dense, gpu, inputs, latent, node

configuration.set_hypothesis_home_dir(Path(__file__).resolve().parents[3] / ".cache" / "hypothesis")
# Deterministic, so that a run of the suite tells the same as the one before.
quiet = settings(
    derandomize=True, database=None, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
PLAIN = st.sampled_from(
    [
        dense(weights_gib=5),
        dense(layers=80, kv_heads=8, weights_gib=131, hidden_size=8192),
        latent(layers=27, weights_gib=29, hidden_size=2048),
        latent(weights_gib=550),
        latent(weights_gib=640, index=128),
        latent(weights_gib=150, is_multimodal=True, vision_layers=27, vision_hidden_size=1152),
    ]
)
ANY = st.one_of(PLAIN, st.sampled_from([HYBRID, WINDOWED]))
# What others hold of a GPU: usually nothing.
HELD_MIB = st.one_of(st.just(0), st.just(0), st.integers(0, 40_000))
FRACTIONS = st.integers(300, 970).map(lambda part: part / 1000)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "kv-cache-dtype": st.sampled_from(["bf16", "fp8_e4m3"]),
        "page-size": st.sampled_from([1, 16, 64]),
        "cuda-graph-max-bs-decode": st.sampled_from([8, 512]),
        "max-running-requests": st.integers(1, 512),
        "chunked-prefill-size": st.sampled_from([2048, 8192]),
    },
)
DRAFT = {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/m/draft"}


@dataclass(frozen=True)
class Truth:
    """A rank as it is, in GiB and exactly: what is free before the weights, and all that is there before the KV."""

    pre_gib: float
    weights_gib: float
    draft_gib: float
    extra_gib: float

    def room_gib(self, fraction: float) -> float:
        """Return the budget of the KV: A model_runner_kv_cache_mixin.py:85-100."""
        free = self.pre_gib - self.weights_gib - self.draft_gib - self.extra_gib
        return free - self.pre_gib * (1 - fraction)


def sglang(room_gib: float, planned: Plan, item: PlanInput) -> tuple[int, int]:
    """Return (tokens, states) that SGLang makes of a budget; sizes of a token and a state are those of the plan."""
    room_gib -= planned.gpu.multimodal_bytes / GIB
    states = 0
    if planned.gpu.states:
        each = planned.gpu.state_bytes // planned.gpu.states
        states = int(room_gib * 0.9 / 1.9 * GIB // each)
        room_gib -= states * each / GIB
    page = item.args.integer("page-size", 1)
    return int(int(room_gib * GIB) // planned.gpu.cell_bytes) // page * page, states


def log(item: PlanInput, truth: Truth, tokens: int, states: int, said_gib: float, ranks: int) -> StartupLog:
    """Return the log of a start; each rank says the same, and free memory as `said_gib` more was taken."""
    pre = truth.pre_gib - said_gib
    fraction = item.args.number("mem-fraction-static")
    texts = [
        f"Load weight begin. avail mem={pre:.2f} GB",
        "Load weight end. elapsed=9.15 s, type=Target, "
        f"avail mem={pre - truth.weights_gib:.2f} GB, mem usage={truth.weights_gib:.2f} GB.",
    ]
    if truth.draft_gib:
        texts += [
            f"Load weight begin. avail mem={pre - truth.weights_gib:.2f} GB",
            f"Load weight end. elapsed=1.15 s, type=Draft, avail mem=1.00 GB, mem usage={truth.draft_gib:.2f} GB.",
        ]
    if states:
        texts.append(
            f"Mamba Cache is allocated. max_mamba_cache_size: {states}, conv_state size: 0.01GB, ssm_state size: 1.00GB"
        )
    texts += [
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: 1.00 GB",
        "Memory pool end. avail mem=1.00 GB",
    ]
    found = StartupLog()
    found.feed(f"[2026-11-30 04:21:00] server_args=ServerArgs(model_path='/m', mem_fraction_static={fraction}, x=1)")
    for text in texts:
        for rank in range(ranks):
            found.feed(f"[2026-11-30 04:22:10{f' TP{rank}' if ranks > 1 else ''}] {text}")
    return found


@dataclass(frozen=True)
class Situation:
    """A first start, a later one of other settings, and the truth of both."""

    first: PlanInput
    later: PlanInput
    truth: Truth
    tokens: int
    facts: Facts


@st.composite
def situations(draw: st.DrawFn, models: st.SearchStrategy[Any], exact: bool) -> Situation:
    """Return what one start has taught, by way of its log and the store.

    `exact`: the log says what SGLang reckons with, but for its rounding; else up to 0.08 GiB less is free when it says
    so, and each start finds up to 3 MiB more or less.
    """
    tp = draw(st.sampled_from([1, 2, 8]))
    model, version = draw(models), draw(st.sampled_from([OLD, NEW]))
    flags: dict[str, Any] = {"tp-size": tp, "page-size": 1, **(DRAFT if draw(st.booleans()) else {})}
    where = node(*[gpu(index, 143_771, draw(HELD_MIB)) for index in range(8)], available=2e12)
    gpus = tuple(range(tp))
    fractions = draw(FRACTIONS), draw(FRACTIONS)
    first, later = (
        inputs({**flags, **draw(FLAGS), "mem-fraction-static": fraction}, model, where, version, gpus=gpus)
        for fraction in fractions
    )
    overhead = draw(st.floats(0.32, 2.15 if tp == 1 else 2.85))
    truth = Truth(
        pre_gib=min(one.free_bytes for one in where.gpus[:tp]) / GIB - overhead,
        weights_gib=plan(first).gpu.weights_bytes.best / GIB * (1 + draw(st.floats(-0.05, 0.05))),
        draft_gib=draw(st.floats(0.1, 3.0)) if "speculative-algorithm" in flags else 0.0,
        extra_gib=draw(st.floats(0.0, 0.4)),
    )
    assume(truth.pre_gib > 0 and all(truth.room_gib(fraction) > 0.6 for fraction in fractions))
    tokens, states = sglang(truth.room_gib(fractions[0]), plan(first), first)
    said = 0.0 if exact else draw(st.floats(0.0, 0.08))
    facts = kept(first, log(first, truth, tokens, states, said, tp))
    if not exact:
        truth = replace(truth, pre_gib=truth.pre_gib + draw(st.floats(-3, 3)) * MIB / GIB)
    return Situation(first, later, truth, tokens, facts)


def kept(item: PlanInput, said: StartupLog) -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        name = measured_facts.key(item.args, "model", "engine")
        measured_facts.save(root, name, said.facts.result(), measured_facts.setting(item), None, 1764480000.0)
        return measured_facts.load(root, name)[0]


@quiet
@given(situations(PLAIN, exact=True))
def test_the_same_start_again_gets_the_same_tokens(case: Situation) -> None:
    found = plan(replace(case.first, facts=case.facts))
    assert found.tokens.best == case.tokens
    assert found.origin == "measured"
    assert found.verdict_of("gpu.no_room_for_kv") == "ok"


@quiet
@given(situations(ANY, exact=True))
def test_any_later_start_is_right_to_half_a_percent(case: Situation) -> None:
    found = plan(replace(case.later, facts=case.facts))
    truth, _states = sglang(case.truth.room_gib(found.gpu.fraction), found, case.later)
    page = max(case.first.args.integer("page-size"), case.later.args.integer("page-size"))
    # A pool of 0.6 GiB has few pages, and states are whole ones: no more than that may come on top.
    steps = 2 * page + (found.gpu.state_bytes // found.gpu.states / found.gpu.cell_bytes if found.gpu.states else 0)
    assert abs(found.tokens.best - truth) <= 0.005 * truth + steps
    if truth * found.gpu.cell_bytes >= 4 * GIB:
        assert abs(found.tokens.best - truth) <= 0.005 * truth
    assert found.tokens.low <= truth <= found.tokens.high


@quiet
@given(situations(PLAIN, exact=False))
def test_the_interval_holds_the_truth_whatever_the_log_leaves_out(case: Situation) -> None:
    found = plan(replace(case.later, facts=case.facts))
    truth, _states = sglang(case.truth.room_gib(found.gpu.fraction), found, case.later)
    assert found.tokens.low <= truth <= found.tokens.high
    if truth * found.gpu.cell_bytes >= 12 * GIB:
        assert abs(found.tokens.best - truth) <= 0.005 * truth


@quiet
@given(situations(PLAIN, exact=False))
def test_the_band_is_as_narrow_as_the_difference_of_the_fractions(case: Situation) -> None:
    found = plan(replace(case.later, facts=case.facts))
    first, later = case.first.args.number("mem-fraction-static"), found.gpu.fraction
    pages = case.first.args.integer("page-size") * measured_facts.setting(case.first).token_bytes
    pages += case.later.args.integer("page-size") * found.gpu.cell_bytes
    half = (found.tokens.high - found.tokens.low) / 2 * found.gpu.cell_bytes
    assert half <= (abs(first - later) * 0.1 + 0.005) * GIB + pages


@quiet
@given(situations(PLAIN, exact=True), st.lists(HELD_MIB, min_size=8, max_size=8))
def test_what_others_held_then_and_hold_now_decides_nothing_but_the_room(case: Situation, held_mib: list[int]) -> None:
    gpus = [gpu(index, 143_771, used_mib) for index, used_mib in enumerate(held_mib)]
    later = replace(case.later, hardware=replace(case.later.hardware, gpus=tuple(gpus)), facts=case.facts)
    tp = later.args.integer("tp-size")
    before, now = (min(one.free_bytes for one in some[:tp]) for some in (case.later.hardware.gpus, gpus))
    truth = replace(case.truth, pre_gib=case.truth.pre_gib + (now - before) / GIB)
    found = plan(later)
    tokens, _states = sglang(max(0.0, truth.room_gib(found.gpu.fraction)), found, later)
    assert found.origin == "measured"
    assert found.tokens.low <= tokens <= found.tokens.high
    assert found.gpu.pre_bytes.low <= truth.pre_gib * GIB <= found.gpu.pre_bytes.high
    if tokens * found.gpu.cell_bytes >= 6 * GIB:
        assert abs(found.tokens.best - tokens) <= 0.005 * tokens
