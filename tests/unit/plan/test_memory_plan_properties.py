# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold of any plan, whatever the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, configuration, given, settings
from hypothesis import strategies as st

from ansible_collections.headroom.serving.plugins.module_utils.effective_args import changed
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.gpu_budget import CONTEXT_GIB
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import (
    Facts,
    Plan,
    PlanInput,
    plan,
    plan_node,
)
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import LayerGroup
from ansible_collections.headroom.serving.plugins.module_utils.sizing_flags import SIZING
from plan_samples import GIB, HYBRID, NEW, OLD, WINDOWED, dense, gpu, inputs, latent, node, shape

BUDGET = "hicache.node_budget"
RANK = {"ok": 0, "warn": 1, "refuse": 2}
configuration.set_hypothesis_home_dir(Path(__file__).resolve().parents[3] / ".cache" / "hypothesis")
# Deterministic, so that a run of the suite tells the same as the one before.
settings.register_profile(
    "plan",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("plan")

MODELS = st.sampled_from(
    [
        dense(),
        dense(layers=64, kv_heads=8, weights_gib=61),
        dense(layers=80, kv_heads=8, weights_gib=131, hidden_size=8192),
        latent(layers=27, weights_gib=29, hidden_size=2048),
        latent(weights_gib=550),
        latent(weights_gib=640, index=128),
        HYBRID,
        WINDOWED,
    ]
)
TOTALS_MIB = st.sampled_from([24_564, 49_140, 81_559, 97_887, 143_771, 183_359])
FRACTIONS = st.integers(50, 980).map(lambda part: part / 1000)
SIZES = st.integers(1, 700)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "mem-fraction-static": FRACTIONS,
        "max-running-requests": st.integers(1, 4096),
        "cuda-graph-max-bs-decode": st.integers(1, 512),
        "chunked-prefill-size": st.sampled_from([-1, 2048, 4096, 8192, 16_384]),
        "kv-cache-dtype": st.sampled_from(["auto", "bf16", "fp8_e4m3"]),
        "page-size": st.sampled_from([1, 16, 64]),
        "disable-cuda-graph": st.just(True),
    },
)


@st.composite
def situations(draw: st.DrawFn, tier: bool = False, version: str | None = None) -> PlanInput:
    """Return any instance on any node; with a host tier of a size if `tier`."""
    tp = draw(st.sampled_from([1, 2, 4, 8]))
    args: dict[str, Any] = {"tp-size": tp, **draw(FLAGS)}
    if tier:
        args.update({"enable-hierarchical-cache": True, "hicache-size": draw(SIZES)})
    total = draw(TOTALS_MIB)
    available = draw(st.integers(30, 2_000)) * 1e9
    where = node(*[gpu(index, total) for index in range(8)], available=available)
    engine = version or draw(st.sampled_from([OLD, NEW]))
    return inputs(args, draw(MODELS), where, engine, gpus=tuple(range(tp)))


def with_args(item: PlanInput, **changes: Any) -> PlanInput:
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    return replace(item, args=changed(item.args, named, item.shape, item.hardware, item.gpus))


def harsher(first: Plan, second: Plan, kind: str) -> bool:
    return RANK[first.verdict_of(kind)] > RANK[second.verdict_of(kind)]


@given(situations(tier=True), st.integers(1, 500))
def test_more_free_memory_never_refuses_what_was_fine(item: PlanInput, more_gb: int) -> None:
    size = item.hardware.mem_available_bytes + more_gb * 10**9
    richer = replace(item, hardware=replace(item.hardware, mem_available_bytes=size, mem_total_bytes=size * 2))
    before, after = plan(item), plan(richer)
    for kind in (BUDGET, "host.memory", "host.load_window", "hicache.host_smaller_than_device"):
        assert not harsher(after, before, kind), kind
    assert RANK[after.verdict] <= RANK[before.verdict] or after.verdict_of("hicache.race") == "warn"


@given(situations(tier=True), st.integers(1, 300))
def test_a_larger_tier_never_cures_a_budget_that_is_spent(item: PlanInput, more: int) -> None:
    larger = with_args(item, hicache_size=item.args.integer("hicache-size") + more)
    assert not harsher(plan(item), plan(larger), BUDGET)


@given(situations(), st.integers(1, 60), st.integers(1, 30))
def test_a_larger_ratio_never_cures_a_budget_that_is_spent(item: PlanInput, tenths: int, more: int) -> None:
    small = with_args(item, enable_hierarchical_cache=True, hicache_ratio=tenths / 10)
    large = with_args(item, enable_hierarchical_cache=True, hicache_ratio=(tenths + more) / 10)
    assert not harsher(plan(small), plan(large), BUDGET)


@given(situations(tier=True))
def test_twice_the_ranks_never_need_less_host_memory(item: PlanInput) -> None:
    tp = item.args.integer("tp-size")
    if tp == 8:
        tp = 4
    one = with_args(replace(item, gpus=()), tp_size=tp)
    two = with_args(replace(item, gpus=()), tp_size=tp * 2)
    assert plan(two).host.needed_bytes >= plan(one).host.needed_bytes
    assert plan(two).host.claim_bytes >= plan(one).host.claim_bytes


@given(situations(tier=True, version=OLD))
def test_the_same_pools_need_the_same_however_ranks_are_named(item: PlanInput) -> None:
    tensor = with_args(replace(item, gpus=()), tp_size=8)
    mixed = with_args(replace(item, gpus=()), tp_size=4, pp_size=2)
    one, two = plan(tensor), plan(mixed)
    # Each of the 8 pools is rounded to a page; a token may take more there than in the budget.
    pages = 8 * item.args.integer("page-size", 1) * max(one.gpu.cell_bytes, two.gpu.cell_bytes) * 1.5
    assert abs(one.host.needed_bytes - two.host.needed_bytes) <= pages
    assert one.host.ranks == two.host.ranks == 8


@given(situations(), st.integers(1, 300))
def test_a_higher_fraction_gives_more_tokens_and_less_slack(item: PlanInput, more: int) -> None:
    low = with_args(item, mem_fraction_static=0.5)
    high = with_args(item, mem_fraction_static=0.5 + more / 1000)
    before, after = plan(low), plan(high)
    assert after.tokens.best >= before.tokens.best
    assert after.gpu.slack_bytes.low < before.gpu.slack_bytes.low
    assert not harsher(after, before, "gpu.no_room_for_kv")
    assert not harsher(before, after, "gpu.slack")


@given(situations(), st.sampled_from(["max-running-requests", "cuda-graph-max-bs-decode"]), st.integers(1, 255))
def test_smaller_batches_need_no_more(item: PlanInput, lever: str, value: int) -> None:
    # Without a fraction SGLang computes one from the batches, and with it another pool.
    item = with_args(item, mem_fraction_static=0.7)
    small, large = with_args(item, **{lever: value}), with_args(item, **{lever: value * 2})
    assert plan(small).gpu.need_bytes <= plan(large).gpu.need_bytes


@given(situations())
def test_the_interval_holds_its_best_figure_and_is_as_narrow_as_promised(item: PlanInput) -> None:
    found = plan(item)
    tokens = found.tokens
    assert tokens.low <= tokens.best <= tokens.high
    bound = max(0.0, found.gpu.fraction) * 0.01 * found.gpu.pre_bytes.best + 0.005 * found.gpu.weights_bytes.best
    assert (tokens.high - tokens.low) / 2 * found.gpu.cell_bytes <= bound + item.args.integer(
        "page-size", 1
    ) * found.gpu.cell_bytes


@given(situations(), st.floats(-0.0099, 0.0099), st.floats(-0.0049, 0.0049))
def test_a_truth_within_the_bands_is_within_the_interval(item: PlanInput, pre: float, weights: float) -> None:
    found = plan(item)
    true_pre = found.gpu.pre_bytes.best / GIB * (1 + pre)
    true_weights = found.gpu.weights_bytes.best / GIB * (1 + weights)
    facts = Facts(pre_gib=true_pre, weights_gib=true_weights)
    truth = plan(replace(item, facts=facts))
    if truth.gpu.pre_source == "measured":
        assert found.tokens.low <= truth.tokens.best <= found.tokens.high


FAMILIES = (
    (BUDGET, "hicache.race", "hicache.single_registration"),
    ("gpu.no_room_for_kv", "gpu.window_pool_too_small", "gpu.state_cache_too_small"),
)
HYBRIDS = [
    HYBRID,
    shape(
        LayerGroup("mha", 12, kv_heads=2, head_dim=256, v_head_dim=256),
        LayerGroup("linear", 36, kv_heads=32, head_dim=128, v_head_dim=128, state_bytes=20_000_000),
        architecture="Qwen3NextForCausalLM",
        weights_gib=40,
    ),
    shape(
        LayerGroup("mha", 4, kv_heads=8, head_dim=128, v_head_dim=128),
        LayerGroup("swa", 44, kv_heads=8, head_dim=128, v_head_dim=128, window_tokens=4_096),
        architecture="GptOssForCausalLM",
        weights_gib=20,
    ),
    WINDOWED,
    dense(),
    dense(layers=64, kv_heads=8, weights_gib=61),
    dense(layers=2, kv_heads=2, weights_gib=0.01, hidden_size=64, context_tokens=2_048),
    latent(layers=27, weights_gib=29, hidden_size=2048),
    latent(weights_gib=550),
]
WIDE = {
    "mem-fraction-static": st.one_of(
        st.integers(300, 995).map(lambda part: part / 1000), st.sampled_from([0.05, 0.4567, 0.8888, 0.97, 0.99])
    ),
    "max-running-requests": st.integers(1, 4096),
    "max-total-tokens": st.one_of(st.integers(1, 500), st.integers(1, 2_000_000)),
    "cuda-graph-bs": st.lists(st.integers(1, 700), min_size=1, max_size=4),
    "cuda-graph-max-bs": st.integers(1, 700),
    "chunked-prefill-size": st.one_of(st.sampled_from([-1, 2048, 8192]), st.integers(1, 70_000)),
    "page-size": st.sampled_from([1, 16, 64]),
    "kv-cache-dtype": st.sampled_from(["auto", "fp8_e4m3"]),
    "swa-full-tokens-ratio": st.sampled_from([0.01, 0.1, 0.8, 1.0]),
    "mamba-full-memory-ratio": st.sampled_from([0.01, 0.2, 0.9, 4.0]),
    "max-mamba-cache-size": st.integers(1, 200),
    "disable-radix-cache": st.just(True),
    "disable-overlap-schedule": st.just(True),
    "enable-dp-attention": st.just(True),
    "weight-loader-disable-mmap": st.just(True),
    "hicache-size": SIZES,
    "hicache-ratio": st.integers(1, 900).map(lambda part: part / 100),
}


@st.composite
def wide_situations(draw: st.DrawFn) -> PlanInput:
    """Return what people really write: lists of graphs, odd chunks, limits, hybrids, tiers by ratio, processors."""
    tp = draw(st.sampled_from([1, 2, 8]))
    version = draw(st.sampled_from([OLD, NEW]))
    names = draw(st.sets(st.sampled_from(sorted(WIDE)), min_size=1, max_size=6))
    args: dict[str, Any] = {"tp-size": tp, **{name: draw(WIDE[name]) for name in sorted(names)}}
    if version == NEW:
        for old in ("cuda-graph-bs", "cuda-graph-max-bs"):
            if old in args:
                args[f"{old}-decode"] = args.pop(old)
    if args.get("enable-dp-attention"):
        args["dp-size"] = tp
    if draw(st.booleans()):
        args["enable-hierarchical-cache"] = True
    cpu = draw(st.integers(0, 5)) == 0
    if cpu:
        args.update({"device": "cpu", "tp-size": 1})
    available = draw(st.sampled_from([12, 25, 60, 120, 250, 500, 1_000, 2_000])) * draw(st.floats(1, 2)) * 1e9
    gpus = () if cpu else tuple(range(tp))
    where = node(*[gpu(index, draw(TOTALS_MIB)) for index in range(1)] * tp, available=available)
    where = replace(where, gpus=tuple(replace(one, index=index) for index, one in enumerate(where.gpus)))
    return inputs(args, draw(st.sampled_from(HYBRIDS)), where, version, gpus=gpus)


def refused(found: Plan) -> set[str]:
    return {item.id for item in found.findings if item.verdict == "refuse"}


def assert_suggestions_hold(item: PlanInput) -> None:
    found = plan(item)
    for one in found.suggestions:
        if not one.setting:
            continue
        family = next((ids for ids in FAMILIES if one.finding in ids), (one.finding,))
        clear = dict.fromkeys(("cuda-graph-bs", "cuda-graph-bs-decode", "cuda-graph-max-bs"))
        clear = clear if "graph" in one.setting else {}
        at = plan(with_args(item, **{**clear, one.setting: one.value}))
        assert one.verdict != "refuse"
        assert max(RANK[at.verdict_of(kind)] for kind in family) <= RANK[one.verdict], one
        assert refused(at) <= refused(found) - {one.finding}, one
        if one.beyond is None:
            assert one.setting in ("mem-fraction-static", "swa-full-tokens-ratio"), one
            continue
        beyond = plan(with_args(item, **{**clear, one.setting: one.beyond}))
        assert max(RANK[beyond.verdict_of(kind)] for kind in family) > RANK[one.verdict], one
    curable = {"host.memory", "gpu.slack", "hicache.host_smaller_than_device", *FAMILIES[0], *FAMILIES[1]}
    told = {one.finding for one in found.suggestions}
    for kind in refused(found) & curable:
        # One of a family speaks for all of it.
        assert told & set(next((ids for ids in FAMILIES if kind in ids), (kind,))), kind


@given(situations(tier=True))
def test_every_suggestion_passes_and_its_next_step_does_not(item: PlanInput) -> None:
    assert_suggestions_hold(item)


@settings(max_examples=600)
@given(wide_situations())
def test_every_suggestion_holds_where_verdicts_go_up_and_down(item: PlanInput) -> None:
    assert_suggestions_hold(item)


@given(situations(tier=True))
def test_nothing_is_approved_that_a_formula_says_dies(item: PlanInput) -> None:
    found = plan(item)
    gpu_side, host = found.gpu, found.host
    new = item.args.release == NEW
    dies = (
        gpu_side.fraction * gpu_side.pre_bytes.low <= gpu_side.weights_bytes.high
        or gpu_side.tokens.low <= 0
        or gpu_side.slack_bytes.low < gpu_side.request_table_bytes
        or host.pools_bytes + 10 * GIB > host.available_bytes
        or (new and host.pool_bytes > (host.available_bytes - 10 * GIB) // host.ranks)
        or (not new and host.tokens <= gpu_side.tokens.best)
    )
    if dies:
        assert found.verdict == "refuse"


@given(situations(), st.permutations(range(8)))
def test_the_order_of_the_gpus_decides_nothing(item: PlanInput, order: list[int]) -> None:
    turned = replace(item.hardware, gpus=tuple(item.hardware.gpus[index] for index in order))
    assert plan(replace(item, hardware=turned)) == plan(item)


@given(situations(tier=True), situations(tier=True))
def test_the_order_of_instances_with_gpus_of_their_own_decides_nothing(first: PlanInput, second: PlanInput) -> None:
    where = replace(first.hardware, gpus=tuple(gpu(index, 97_887) for index in range(16)))
    behind = tuple(index + 8 for index in second.gpus)
    pair = [replace(first, name="a", hardware=where), replace(second, name="b", hardware=where, gpus=behind)]
    there, back = plan_node(pair), plan_node(pair[::-1])
    assert there == back[::-1]
    for alone, beside in zip(pair, there, strict=True):
        assert plan(alone).gpu == beside.gpu
        assert not harsher(plan(alone), beside, BUDGET)


@given(situations(tier=True), situations(tier=True), st.floats(0, 1), st.floats(-0.0099, 0.0099))
def test_a_later_instance_gets_what_it_is_told(first: PlanInput, second: PlanInput, loaded: float, band: float) -> None:
    """The earlier one has taken its part of what was free, and of what a load needs nothing, all or something."""
    pair = [replace(first, name="a"), replace(second, name="b", hardware=first.hardware)]
    there = plan_node(pair)
    alone = plan(pair[0])
    assert (there[0].gpu, there[0].tokens) == (alone.gpu, alone.tokens)
    pre = alone.gpu.pre_bytes.best * (1 + band)
    truth = plan(replace(pair[0], facts=Facts(pre_gib=pre / GIB))) if band < 0 else alone
    budget = truth.gpu
    taken = budget.claim_bytes - (1 - loaded) * (budget.need_bytes - budget.request_table_bytes) + CONTEXT_GIB * GIB
    gpus = tuple(
        replace(one, free_bytes=max(0, one.free_bytes - int(taken)), used_bytes=one.used_bytes + int(taken))
        if one.index in alone.gpus
        else one
        for one in first.hardware.gpus
    )
    got = plan(replace(pair[1], hardware=replace(first.hardware, gpus=gpus)))
    assert there[1].tokens.low <= got.tokens.best <= there[1].tokens.high


@given(situations(tier=True), situations(tier=True))
def test_the_host_holds_both_or_says_so(first: PlanInput, second: PlanInput) -> None:
    pair = [replace(first, name="a"), replace(second, name="b", hardware=first.hardware)]
    there = plan_node(pair)
    pinned = sum(one.host.pools_bytes for one in there)
    if pinned + 10 * GIB > first.hardware.mem_available_bytes:
        assert "refuse" in {one.verdict for one in there}


@given(situations())
def test_flags_of_no_engine_change_nothing(item: PlanInput) -> None:
    assert plan(with_args(item, **{"no-such-flag": 1})) == plan(item)


@given(
    situations(),
    st.dictionaries(
        st.sampled_from(SIZING),
        st.one_of(
            st.integers(-2, 10**7),
            st.floats(),
            st.booleans(),
            st.sampled_from(["", "auto", "8", "64k", "x", "1 8", "{}", "cpu", "cuda", "EAGLE", "NGRAM", "disabled"]),
            st.lists(st.integers(-1, 64), max_size=3),
        ),
        max_size=4,
    ),
)
def test_any_value_gives_a_plan_or_one_clear_line(item: PlanInput, values: dict[str, Any]) -> None:
    try:
        found = plan(with_args(item, **values))
    except HeadroomError as error:
        assert [one.id for one in error.findings] == ["settings.invalid"]
        assert "\n" not in str(error)
    else:
        assert found.verdict in RANK
        assert found.host.needed_bytes >= 0 and found.gpu.need_bytes >= 0


@given(situations(tier=True))
def test_accepting_everything_leaves_no_refusal_and_hides_no_finding(item: PlanInput) -> None:
    found = plan(item)
    accepted = plan(replace(item, accept=tuple(one.id for one in found.findings)))
    assert accepted.verdict != "refuse"
    assert [one.id for one in accepted.findings] == [one.id for one in found.findings]
    assert all("\n" not in one.line() and len(one.line()) < 900 for one in found.findings)
