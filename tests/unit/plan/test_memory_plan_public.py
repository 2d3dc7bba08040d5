# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on what people reported about host and GPU memory, each with siblings of the same fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import (
    Facts,
    Plan,
    PlanInput,
    plan,
    plan_node,
)
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import LayerGroup, ModelShape, WeightPart
from plan_samples import (
    GIB,
    HYBRID,
    KIMI,
    NEW,
    OLD,
    WINDOWED,
    dense,
    gpu,
    inputs,
    latent,
    node,
    planned,
    process,
    seed,
    shape,
)

BUDGET = "hicache.node_budget"


def tier(size: int, tp: int, **more: Any) -> dict[str, Any]:
    return {"tp-size": tp, "mem-fraction-static": 0.8, "enable-hierarchical-cache": True, "hicache-size": size, **more}


def message(found: Plan, kind: str) -> str:
    return next(item.message for item in found.findings if item.id == kind)


# --- host memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "verdict", "need"),
    [(34.38e9, "refuse", "748.3"), (0, "ok", ""), (20e9, "warn", "690.7"), (23e9, "refuse", "702.7")],
)
def test_sizes_are_for_each_rank_and_side_pools_come_on_top(side: float, verdict: str, need: str) -> None:
    found = planned(tier(150, 4), latent(weights_gib=200), node(available=700e9), side_pool_bytes_per_rank=int(side))
    assert found.verdict_of(BUDGET) == verdict
    if need:
        assert f"{need} " in message(found, BUDGET)
    assert found.host.needed_bytes == pytest.approx(4 * (150e9 + side) + 10 * GIB, rel=1e-5)


def test_the_pool_of_a_sparse_index_is_known_from_the_model() -> None:
    args = tier(
        150, 4, **{"kv-cache-dtype": "fp8_e4m3", "dsa-prefill-backend": "trtllm", "dsa-decode-backend": "trtllm"}
    )
    found = planned(args, latent(index=128, weights_gib=200), node(available=700e9))
    assert found.host.side_bytes == pytest.approx(34.38e9, rel=0.001)
    assert found.verdict_of(BUDGET) == "refuse"
    assert planned(args, latent(weights_gib=200), node(available=700e9)).verdict_of(BUDGET) == "ok"


@pytest.mark.parametrize(
    ("size", "tp", "available", "verdict"),
    [
        (300, 8, 408e9, "refuse"),
        (48, 8, 408e9, "warn"),
        (40, 8, 408e9, "ok"),
        (120, 2, 240e9, "refuse"),
        (112, 2, 240e9, "warn"),
        (107, 2, 240e9, "ok"),
        (200, 1, 208e9, "refuse"),
    ],
)
def test_the_seeds_shape(size: int, tp: int, available: float, verdict: str) -> None:
    assert planned(tier(size, tp), latent(weights_gib=20), node(available=available)).verdict_of(BUDGET) == verdict


@pytest.mark.parametrize(
    ("size", "available", "usable"), [(40, 44.87e9, "34.1"), (100, 108e9, "97.3"), (30, 36.5e9, "25.8")]
)
def test_the_hidden_reserve(size: int, available: float, usable: str) -> None:
    found = planned(tier(size, 1), dense(), node(gpu(0), available=available))
    assert found.verdict_of(BUDGET) == "refuse"
    assert f"{usable} GB usable" in message(found, BUDGET)


@pytest.mark.parametrize(
    ("model", "version", "verdict", "need"),
    [
        (HYBRID, OLD, "refuse", 330.7),
        (dense(weights_gib=150), OLD, "ok", 170.7),
        (HYBRID, NEW, "ok", 170.7),
        (WINDOWED, OLD, "refuse", 330.7),
        (WINDOWED, NEW, "ok", 170.7),
    ],
)
def test_hybrid_models_take_the_size_twice(model: ModelShape, version: str, verdict: str, need: float) -> None:
    found = planned(tier(40, 4), model, node(available=200e9), version)
    assert found.verdict_of(BUDGET) == verdict
    assert found.host.needed_bytes / 1e9 == pytest.approx(need, abs=0.1)


@pytest.mark.parametrize(("ratio", "verdict"), [(2.5, "refuse"), (1.5, "ok"), (6.0, "refuse")])
def test_a_ratio_larger_than_the_machine(ratio: float, verdict: str) -> None:
    gpus = [gpu(index, 275_000, name="B300", compute_capability=(10, 3)) for index in range(8)]
    args = {"tp-size": 8, "mem-fraction-static": 0.9, "enable-hierarchical-cache": True, "hicache-ratio": ratio}
    found = planned(
        args, dense(kv_heads=64, weights_gib=100), node(*gpus, available=3.2e12, mem_total_bytes=int(3.246e12))
    )
    assert found.verdict_of(BUDGET) == verdict
    if verdict == "refuse":
        best = next(one for one in found.suggestions if one.setting == "hicache-ratio")
        assert best.value < ratio
    if ratio == 2.5:
        assert found.host.pools_bytes > 4.5e12


@pytest.mark.parametrize(
    ("planned_gb", "measured_gb", "verdict", "percent"),
    [(270, 335.34, "warn", "24 %"), (100, 101.0, "ok", ""), (48, 60.0, "warn", "25 %")],
)
def test_pools_that_took_more_than_planned(planned_gb: int, measured_gb: float, verdict: str, percent: str) -> None:
    found = planned(tier(planned_gb, 4), dense(), node(available=3e12), facts=Facts(host_pool_gb=measured_gb))
    assert found.verdict_of("hicache.pool_overhead") == verdict
    if percent:
        assert percent in message(found, "hicache.pool_overhead")
        assert found.host.pools_bytes / 1e9 == pytest.approx(4 * measured_gb, rel=1e-3)


def test_what_pools_took_holds_for_another_size_in_proportion() -> None:
    facts = Facts(host_pool_gb=335.34, host_pool_planned_gb=270)
    found = planned(tier(100, 4), dense(), node(available=3e12), facts=facts)
    assert found.host.pools_bytes / 1e9 == pytest.approx(4 * 124.2, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "driver", "version", "verdict"),
    [
        (600, "580.95", OLD, "warn"),
        (540, "580.95", OLD, "ok"),
        (600, "580.95", NEW, "ok"),
        (600, "575.57", OLD, "ok"),
        (550, "595.71", OLD, "warn"),
        (549, "580.159", OLD, "ok"),
    ],
)
def test_one_call_that_pins_too_much(size: int, driver: str, version: str, verdict: str) -> None:
    where = node(gpu(0), available=1.0e12, driver_version=driver)
    found = planned(tier(size, 1), dense(), where, version)
    assert found.verdict_of("hicache.single_registration") == verdict
    if verdict == "warn":
        assert [(one.value, one.beyond) for one in found.suggestions if one.setting == "hicache-size"] == [(549, 550)]


@pytest.mark.parametrize(
    ("limit", "size", "verdict"),
    [(8_388_608, 40, "warn"), (None, 40, "ok"), (10**12, 40, "ok"), (30 * 10**9, 40, "warn"), (8_388_608, 0, "ok")],
)
def test_pinned_memory_under_a_low_limit(limit: int | None, size: int, verdict: str) -> None:
    args = tier(size, 1) if size else {"mem-fraction-static": 0.8}
    found = planned(args, dense(), node(gpu(0), memlock_hard_bytes=limit))
    assert found.verdict_of("host.memlock") == verdict
    on_cpu = planned({**args, "device": "cpu"}, dense(), node(memlock_hard_bytes=limit))
    assert on_cpu.verdict_of("host.memlock") == "ok"


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({"weight-loader-disable-mmap": True}, "refuse"),
        ({}, "ok"),
        ({"weight-loader-disable-mmap": False}, "ok"),
        ({"weight-loader-disable-mmap": True, "model-loader-extra-config": '{"num_threads": 2}'}, "ok"),
        ({"weight-loader-disable-mmap": True, "model-loader-extra-config": {"num_threads": 4}}, "refuse"),
        ({"weight-loader-disable-mmap": True, "model-loader-extra-config": "no json"}, "refuse"),
    ],
)
def test_loading_without_mapping(args: dict[str, Any], verdict: str) -> None:
    found = planned(seed(0.88, **args))
    assert found.verdict_of("host.load_window") == verdict
    if args.keys() == {"weight-loader-disable-mmap"} and verdict == "refuse":
        assert "744 GB needed, 408 GB available" in message(found, "host.load_window")
        assert "8 ranks x 10 files x 9.3 GB" in message(found, "host.load_window")
        assert any(one.setting == "weight-loader-disable-mmap" for one in found.suggestions)


def test_a_limit_of_the_control_group_counts() -> None:
    where = node(cgroup_limit_bytes=300 * 10**9, cgroup_available_bytes=290 * 10**9)
    for version in (OLD, NEW):
        assert planned(seed(0.88, 40), KIMI, where, version).verdict_of(BUDGET) == "refuse"


def test_the_newer_engine_sizes_the_tier_itself() -> None:
    args = {"tp-size": 8, "mem-fraction-static": 0.88, "enable-hierarchical-cache": True}
    roomy = planned(args, version=NEW)
    assert roomy.host.ratio == 2.0
    assert roomy.verdict_of(BUDGET) == "ok" == roomy.verdict_of("hicache.race")
    tight = planned(args, KIMI, node(available=150e9), NEW)
    assert 0 < tight.host.ratio < 2.0
    assert tight.host.pools_bytes <= (150e9 - 10 * GIB) * 0.8
    assert planned(args, KIMI, node(available=10e9), NEW).verdict_of(BUDGET) == "refuse"
    assert planned(args, KIMI, node(available=150e9), OLD).verdict_of(BUDGET) == "refuse"


def test_flags_that_do_nothing_or_exclude_each_other() -> None:
    assert planned(seed(0.88, **{"hicache-size": 40})).verdict_of("hicache.not_enabled") == "warn"
    assert planned(seed(0.88, 40, **{"disable-radix-cache": True})).verdict_of("hicache.needs_radix_cache") == "refuse"
    assert planned(seed(0.88, **{"max-total-tokens": 900_000})).verdict_of("plan.limit_above_pool") == "warn"
    limited = planned(seed(0.88, **{"max-total-tokens": 50_000}))
    assert limited.verdict_of("plan.limit_above_pool") == "ok"
    assert limited.tokens.best == 50_000
    assert planned(seed(0.8, **{"max-running-requests": 60_000})).verdict_of("plan.requests_lowered") == "warn"


# --- GPU memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_draft_model_is_counted(version: str) -> None:
    draft = dense(layers=2, weights_gib=2.0e9 / GIB)
    args = {
        "tp-size": 1,
        "mem-fraction-static": 0.9,
        "speculative-algorithm": "EAGLE",
        "speculative-draft-model-path": "/d",
    }
    where = node(gpu(0))
    found = plan(inputs(args, dense(), where, version, draft_shape=draft))
    assert found.gpu.draft_weight_bytes == pytest.approx(2.0e9, rel=0.01)
    assert found.gpu.draft_kv_bytes > 0
    assert found.verdict_of("plan.draft_unknown") == "ok"
    without = planned({"mem-fraction-static": 0.9}, dense(), where, version)
    assert found.tokens.best < without.tokens.best
    # Speculative decoding runs 48 requests at a time.
    as_many = planned({"mem-fraction-static": 0.9, "max-running-requests": 48}, dense(), where, version)
    assert found.gpu.decode_graph_bytes > as_many.gpu.decode_graph_bytes
    unread = planned(args, dense(), where, version)
    assert unread.verdict_of("plan.draft_unknown") == "warn"
    assert unread.gpu.draft_weight_bytes > 0 < unread.gpu.draft_kv_bytes
    ngram = planned({"mem-fraction-static": 0.9, "speculative-algorithm": "NGRAM"}, dense(), where, version)
    assert ngram.gpu.draft_weight_bytes == 0 == ngram.gpu.draft_kv_bytes


HEADS_8_LAYER, HEADS_32_LAYER = 4_096, 16_384  # bytes of a token


@pytest.mark.parametrize(
    ("version", "algorithm", "counted"),
    [
        (OLD, "EAGLE", HEADS_8_LAYER),
        (OLD, "STANDALONE", HEADS_8_LAYER),
        (OLD, "DFLASH", HEADS_8_LAYER),
        (NEW, "EAGLE", HEADS_8_LAYER),
        (NEW, "DFLASH", HEADS_32_LAYER),
    ],
)
def test_a_layer_of_a_draft_counts_as_one_of_the_targets_whatever_it_takes(
    version: str, algorithm: str, counted: int
) -> None:
    """pool_configurator.py:134 of 0.5.14 and :311 of 0.5.23; by hand 0.85 x 78 - 15.9 GiB over 151,552 bytes."""
    target, draft = dense(36, 8, weights_gib=15), dense(1, 32, weights_gib=0.9)
    args = {
        "mem-fraction-static": 0.85,
        "speculative-algorithm": algorithm,
        "speculative-draft-model-path": "/d",
        "max-running-requests": 48,
    }
    facts = Facts(pre_gib=78, weights_gib=15, draft_weights_gib=0.9)
    found = plan(inputs(args, target, node(gpu(0, 81_559)), version, facts, draft_shape=draft))
    assert found.gpu.cell_bytes == 36 * HEADS_8_LAYER + counted
    assert found.tokens.best == int((0.85 * 78 - 15.9) * GIB / found.gpu.cell_bytes)
    # It is allocated in its own form, and what was not counted comes out of the slack.
    assert found.gpu.draft_kv_bytes == found.tokens.best * HEADS_32_LAYER
    assert found.gpu.overflow_bytes == int(found.tokens.best * (HEADS_32_LAYER - counted))


@pytest.mark.parametrize(("version", "counted"), [(OLD, 0), (NEW, 2_048)])
def test_a_draft_beside_windows_is_forgotten_by_the_old_release(version: str, counted: int) -> None:
    """Class HybridSWAPoolConfigurator: A knows no draft, B counts one of the target's whole layers."""
    args = {"mem-fraction-static": 0.85, "speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/d"}
    draft = dense(1, 8, weights_gib=0.9)
    without = planned({"mem-fraction-static": 0.85}, WINDOWED, node(gpu(0)), version)
    found = plan(inputs(args, WINDOWED, node(gpu(0)), version, draft_shape=draft))
    assert found.gpu.cell_bytes == pytest.approx(without.gpu.cell_bytes + counted)
    assert found.gpu.draft_kv_bytes == found.tokens.best * HEADS_8_LAYER
    assert found.gpu.overflow_bytes == pytest.approx(found.tokens.best * (HEADS_8_LAYER - counted), rel=1e-6)


def test_a_draft_inside_a_whole_checkpoint_takes_its_own_layers_only() -> None:
    """The path of the draft may be the target's own: 61 layers and one for drafts."""
    args = {**seed(0.8), "speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/m"}
    found = plan(inputs(args, latent(weights_gib=300), draft_shape=latent(weights_gib=300, draft_layers=1)))
    assert found.gpu.cell_bytes == 70_272 + 1_152
    assert found.gpu.draft_kv_bytes == found.tokens.best * 1_152


@pytest.mark.parametrize(
    ("total_mib", "tp", "version", "fraction"),
    [
        (81_559, 1, OLD, 0.830),
        (81_559, 8, OLD, 0.812),
        (143_771, 1, OLD, 0.903),
        (24_564, 1, OLD, 0.833),
        (24_564, 1, NEW, 0.704),
        (183_359, 8, NEW, 0.849),
    ],
)
def test_the_default_fraction_is_computed(total_mib: int, tp: int, version: str, fraction: float) -> None:
    where = node(*[gpu(index, total_mib) for index in range(tp)])
    found = planned({"tp-size": tp}, dense(weights_gib=8), where, version)
    assert found.gpu.fraction == pytest.approx(fraction, abs=0.0006)
    said = message(found, "gpu.fraction_computed")
    assert f"{found.gpu.fraction:.3f}" in said and "computes" in said
    assert planned({"mem-fraction-static": 0.8}, dense(), where, version).verdict_of("gpu.fraction_computed") == "ok"
    entry = inputs({"tp-size": tp}, dense(), where, version).args["mem-fraction-static"]
    assert entry.origin == "rule" and entry.source


def test_other_values_of_the_default_follow_the_model_and_flags() -> None:
    where = node(gpu(0, 81_559))
    fractions = {
        planned(args, model, where, version).gpu.fraction
        for version in (OLD, NEW)
        for model in (dense(), latent(layers=27, weights_gib=20))
        for args in ({}, {"chunked-prefill-size": 16_384}, {"disable-cuda-graph": True})
    }
    assert len(fractions) >= 6


@pytest.mark.parametrize("held_on", [6, 0, 3])
def test_a_leftover_process_on_one_gpu(held_on: int) -> None:
    gpus = [gpu(index, used_mib=4) for index in range(8)]
    gpus[held_on] = gpu(held_on, used_mib=21_500, processes=(process(4711, 21_000, "python train.py"),))
    found = planned(seed(0.88), KIMI, node(*gpus))
    assert found.verdict_of("gpu.unbalanced") == "refuse"
    said = message(found, "gpu.unbalanced")
    assert f"GPU {held_on}" in said and "PID 4711 python train.py" in said
    back = planned(seed(0.88), KIMI, node(*gpus), release_gpu_bytes={held_on: 21_500 * 2**20})
    assert back.verdict_of("gpu.unbalanced") == "ok"


def test_memory_that_others_hold_on_all_gpus_lowers_the_tokens() -> None:
    gpus = [gpu(index, used_mib=6_000, processes=(process(100 + index, 5_900),)) for index in range(8)]
    found = planned(seed(0.88), KIMI, node(*gpus))
    assert found.verdict_of("gpu.foreign_memory") == "warn"
    assert found.gpu.pre_source == "estimated"
    assert found.tokens.best < planned(seed(0.88)).tokens.best - 50_000


@pytest.mark.parametrize("odd", [0, 7])
def test_gpus_of_two_models(odd: int) -> None:
    gpus = [gpu(index) for index in range(8)]
    gpus[odd] = gpu(odd, 32_607, name="RTX 5090")
    assert planned(seed(0.88), KIMI, node(*gpus)).verdict_of("gpu.mixed_gpus") == "refuse"
    rest = tuple(index for index in range(8) if index != odd)[:4]
    assert planned({"tp-size": 4}, dense(), node(*gpus), gpus=rest).verdict_of("gpu.mixed_gpus") == "ok"


def test_gpus_that_are_not_there() -> None:
    assert planned({"tp-size": 2}, dense(), node(gpu(0))).verdict_of("gpu.too_few") == "refuse"
    assert planned({"tp-size": 2}, dense(), node(), gpus=(0, 9)).verdict_of("gpu.too_few") == "refuse"
    nothing = replace(node(), gpus=())
    assert planned({}, dense(), nothing).verdict_of("gpu.none") == "refuse"
    assert planned({}, dense(), node(), gpus=(8,)).verdict_of("gpu.none") == "refuse"
    assert planned({"device": "cpu"}, dense(weights_gib=1), nothing).verdict_of("gpu.none") == "ok"


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(("device", "on", "verdict"), [("cpu", True, "refuse"), ("cpu", False, "ok"), ("", True, "ok")])
def test_the_host_tier_needs_a_gpu(device: str, on: bool, verdict: str, version: str) -> None:
    args = {"enable-hierarchical-cache": on, "hicache-size": 40, "mem-fraction-static": 0.5, "device": device or None}
    found = planned(args, dense(weights_gib=1), node(gpu(0)), version)
    assert found.verdict_of("hicache.needs_gpu") == verdict


@pytest.mark.parametrize("version", [OLD, NEW])
def test_weights_that_leave_no_room(version: str) -> None:
    found = planned(seed(0.70), version=version)
    assert found.verdict_of("gpu.no_room_for_kv") == "refuse"
    best = next(one for one in found.suggestions if one.finding == "gpu.no_room_for_kv")
    assert best.setting == "mem-fraction-static" and 0.769 <= best.value <= 0.775
    hopeless = planned(seed(0.9), latent(weights_gib=99 * 8), version=version)
    assert [one.setting for one in hopeless.suggestions if one.finding == "gpu.no_room_for_kv"] == [""]


# --- kinds of models and layouts -------------------------------------------------------------------------------------


def test_latent_kv_is_not_split_and_heads_are() -> None:
    where = node()
    cells = {
        tp: planned({"tp-size": tp, "mem-fraction-static": 0.8}, dense(kv_heads=8), where).gpu.cell_bytes
        for tp in (1, 4, 8)
    }
    assert cells == {1: 131_072, 4: 32_768, 8: 16_384}
    whole = {
        tp: planned({"tp-size": tp, "mem-fraction-static": 0.8}, latent(weights_gib=30), where).gpu.cell_bytes
        for tp in (1, 8)
    }
    assert whole == {1: 70_272, 8: 70_272}
    repeated = planned({"tp-size": 8, "mem-fraction-static": 0.8}, dense(kv_heads=2), where)
    assert repeated.gpu.cell_bytes == 16_384


def test_data_parallel_attention_keeps_a_pool_for_each_rank() -> None:
    args = {
        "tp-size": 8,
        "dp-size": 8,
        "enable-dp-attention": True,
        "mem-fraction-static": 0.8,
        "enable-hierarchical-cache": True,
        "hicache-size": 30,
    }
    found = planned(args, latent(weights_gib=30), node())
    assert found.host.unique_tokens == found.host_tokens * 8
    assert found.verdict_of("plan.copies_per_rank") == "ok"
    assert not [item for item in found.findings if item.id == "plan.copies_per_rank"]
    assert found.host.ranks == 8


def test_copies_of_the_model_serve_that_many_times_more() -> None:
    args = {"tp-size": 2, "mem-fraction-static": 0.8}
    one = planned(args, dense(), node(), expected_request_tokens=4_000)
    four = planned({**args, "dp-size": 4}, dense(), node(), expected_request_tokens=4_000)
    assert four.tokens == one.tokens
    assert four.requests_at_context == 4 * one.requests_at_context > 0
    assert four.host.ranks == 8


def test_stages_and_nodes() -> None:
    args = {"tp-size": 4, "pp-size": 2, "mem-fraction-static": 0.8}
    found = planned(args, dense(layers=33, kv_heads=8, weights_gib=64), node())
    assert found.gpu.cell_bytes == 2 * 256 * 17 * 2
    assert found.host.ranks == 8
    half = planned(
        {**args, "nnodes": 2, "enable-hierarchical-cache": True, "hicache-size": 30}, dense(weights_gib=64), node()
    )
    assert half.host.ranks == 4
    assert half.host.pools_bytes == pytest.approx(120e9, rel=1e-4)


def test_pages_round_down() -> None:
    base = {"mem-fraction-static": 0.8}
    one = planned(base, dense(), node(gpu(0))).tokens.best
    paged = planned({**base, "page-size": 64}, dense(), node(gpu(0))).tokens.best
    assert paged % 64 == 0 and one - 63 <= paged <= one
    assert (
        planned({**base, "attention-backend": "cutlass_mla"}, latent(weights_gib=20), node(gpu(0))).tokens.best % 128
        == 0
    )


def test_a_window_pool_is_smaller_and_may_be_too_small() -> None:
    found = planned({"mem-fraction-static": 0.8}, WINDOWED, node(gpu(0)))
    assert found.gpu.swa_tokens == int(found.tokens.best * 0.8)
    plain = planned({"mem-fraction-static": 0.8, "disable-hybrid-swa-memory": True}, WINDOWED, node(gpu(0)))
    assert plain.tokens.best < found.tokens.best
    wide = shape(
        LayerGroup("mha", 12, kv_heads=8, head_dim=64, v_head_dim=64),
        LayerGroup("swa", 12, kv_heads=8, head_dim=64, v_head_dim=64, window_tokens=32_768),
        weights_gib=16.0,
    )
    args = {"mem-fraction-static": 0.5, "max-total-tokens": 30_000}
    assert planned(args, wide, node(gpu(0))).verdict_of("gpu.window_pool_too_small") == "refuse"
    capped = {"mem-fraction-static": 0.8, "max-running-requests": 8, "disable-radix-cache": True}
    by_requests = planned(capped, WINDOWED, node(gpu(0)))
    assert by_requests.gpu.swa_tokens < 30_000 < found.gpu.swa_tokens
    assert by_requests.tokens.best > found.tokens.best


def test_states_of_linear_attention_share_the_room() -> None:
    found = planned({"tp-size": 4, "mem-fraction-static": 0.8}, HYBRID, node())
    room = 0.8 * found.gpu.pre_bytes.best - found.gpu.weights_bytes.best
    assert found.gpu.state_bytes == pytest.approx(room * 0.9 / 1.9, rel=0.01)
    assert found.max_running_requests <= found.gpu.states // 3
    assert found.gpu.state_bytes == found.gpu.states * 36 * 2_200_000 // 4  # 4 ranks share the heads
    none = planned({"tp-size": 4, "mem-fraction-static": 0.8, "max-mamba-cache-size": 2}, HYBRID, node())
    assert none.verdict_of("gpu.state_cache_too_small") == "refuse"


def test_sparse_attention_in_fp8_overflows_the_older_engine() -> None:
    args = {"tp-size": 8, "mem-fraction-static": 0.8, "kv-cache-dtype": "fp8_e4m3"}
    old, new = (planned(args, latent(index=128, weights_gib=200), node(), version) for version in (OLD, NEW))
    assert old.gpu.cell_bytes == (576 + 132) * 61
    assert new.gpu.cell_bytes == (656 + 132) * 61
    assert old.gpu.overflow_bytes == pytest.approx(old.tokens.best * 80 * 61, rel=1e-6)
    assert new.gpu.overflow_bytes == 0


def test_a_checkpoint_may_ask_for_fp8_kv() -> None:
    found = planned({"mem-fraction-static": 0.8}, dense(kv_cache_quant="fp8"), node(gpu(0)))
    assert found.gpu.cell_bytes == 65_536
    assert (
        planned(
            {"mem-fraction-static": 0.8, "kv-cache-dtype": "bf16"}, dense(kv_cache_quant="fp8"), node(gpu(0))
        ).gpu.cell_bytes
        == 131_072
    )


def test_kv_in_four_bits() -> None:
    args = {"mem-fraction-static": 0.8, "kv-cache-dtype": "fp4_e2m1"}
    # A pool_configurator.py: half a byte a number, and a scale for 16 of them.
    assert planned(args, dense(), node(gpu(0))).gpu.cell_bytes == 65_536 // 2 + 8 * 128 * 32 * 2 // 16
    assert planned(args, latent(weights_gib=20), node(gpu(0))).gpu.cell_bytes == (576 // 2 + 576 // 16) * 61


def test_draft_layers_in_the_models_own_files() -> None:
    extra = WeightPart("mlp", -1, 1, 2 * GIB, draft=True)
    model = latent(weights_gib=300, draft_layers=1, draft_bytes=2 * GIB)
    model = replace(model, parts=(*model.parts, extra))
    args = {
        "tp-size": 8,
        "mem-fraction-static": 0.8,
        "speculative-algorithm": "EAGLE",
        "speculative-num-draft-tokens": 4,
    }
    found = planned(args, model)
    assert found.gpu.draft_weight_bytes == pytest.approx(2 * GIB / 8, rel=0.01)
    assert found.gpu.cell_bytes == 70_272 + 70_272 // 61
    assert found.verdict_of("plan.draft_unknown") == "ok"
    assert "plan.draft_counted" in {item.id for item in found.findings}
    tier = planned({**args, "enable-hierarchical-cache": True, "hicache-size": 20}, model)
    assert tier.host.side_bytes == tier.host_tokens * (70_272 // 61)


def test_several_shards_of_the_latent_pool_hold_more() -> None:
    one = planned({"tp-size": 8, "mem-fraction-static": 0.8}, latent(weights_gib=300), node(), NEW)
    four = planned({"tp-size": 8, "mem-fraction-static": 0.8, "dcp-size": 4}, latent(weights_gib=300), node(), NEW)
    assert four.tokens.best == pytest.approx(one.tokens.best * 4, rel=0.001)


def test_images_cost_kv_on_the_newer_engine_only() -> None:
    assert planned(seed(0.88), version=OLD).gpu.multimodal_bytes == 0
    assert planned(seed(0.88), version=NEW).gpu.multimodal_bytes == 100 * 2**20
    moved = planned(seed(0.88, **{"mm-feature-transport": "cuda_ipc"}), version=NEW)
    assert moved.gpu.multimodal_bytes == 1124 * 2**20
    env = {"SGLANG_VLM_CACHE_SIZE_MB": "500"}
    assert planned(seed(0.88), version=NEW, env=env).gpu.multimodal_bytes == 500 * 2**20
    assert planned(seed(0.88), version=NEW, env={"SGLANG_VLM_CACHE_SIZE_MB": "x"}).gpu.multimodal_bytes == 100 * 2**20
    assert planned(seed(0.88, **{"language-model-only": True}), version=NEW).gpu.multimodal_bytes == 0


def test_a_server_on_the_cpu() -> None:
    where = replace(node(available=16e9), gpus=())
    tiny = dense(layers=2, kv_heads=2, weights_gib=0.01, hidden_size=64, context_tokens=2_048)
    args = {"device": "cpu", "disable-cuda-graph": True, "max-total-tokens": 4_096}
    found = planned(args, tiny, where)
    assert found.tokens.best == 4_096
    assert found.verdict == "ok", [item.line() for item in found.findings]
    assert found.host.computing_bytes < 1e9
    large = planned({"device": "cpu", "mem-fraction-static": 0.9}, dense(weights_gib=16), where)
    assert large.verdict == "refuse"
    whole = planned({"device": "cpu", "mem-fraction-static": 0.97}, dense(weights_gib=8), where)
    assert whole.verdict_of("host.memory") in ("warn", "refuse")


def test_instances_share_a_node() -> None:
    first = inputs(tier(70, 4), dense(), node(), name="a", gpus=(0, 1, 2, 3))
    second = inputs(tier(60, 4), dense(), node(), name="b", gpus=(4, 5, 6, 7))
    assert plan(first).verdict_of(BUDGET) != "refuse" != plan(second).verdict_of(BUDGET)
    both = plan_node([first, second])
    assert [found.verdict_of(BUDGET) for found in both] == ["refuse", "refuse"]
    turned = plan_node([second, first])
    assert [found.findings for found in turned] == [found.findings for found in reversed(both)]
    assert "other instances" in message(both[0], BUDGET)


@pytest.mark.parametrize(("fraction", "verdict"), [(0.88, "refuse"), (0.30, "ok")])
def test_instances_on_one_gpu(fraction: float, verdict: str) -> None:
    args = {"mem-fraction-static": fraction, "cuda-graph-max-bs-decode": 16}
    pair = [inputs(args, dense(weights_gib=16), node(gpu(0)), name=name, gpus=(0,)) for name in ("a", "b")]
    found = plan_node(pair)
    assert [one.verdict_of("gpu.no_room_for_kv") for one in found] == ["ok", verdict]
    assert {one.verdict_of("gpu.shared_by_instances") for one in found} == {"warn"}
    assert "also for b, started after it" in message(found[0], "gpu.shared_by_instances")
    assert "also for a, started before it, which will take" in message(found[1], "gpu.shared_by_instances")


def shared(*fractions: float, weights_gib: float = 40, **more: Any) -> list[PlanInput]:
    """Instances a, b, ... of one H200, each with its fraction of what is free then."""
    where = node(gpu(0, 143_771, name="H200", compute_capability=(9, 0)), available=1e12)
    model = dense(32, 8, weights_gib=weights_gib)
    args = {"max-running-requests": 64, "attention-backend": "triton", **more}
    return [
        inputs({**args, "mem-fraction-static": fraction}, model, where, name=name, gpus=(0,))
        for name, fraction in zip("abcdef", fractions, strict=False)
    ]


def test_the_second_on_a_gpu_gets_a_part_of_what_the_first_leaves() -> None:
    first, second = plan_node(shared(0.45, 0.80))
    assert "refuse" not in (first.verdict, second.verdict)
    alone = plan(shared(0.45)[0])
    assert (first.tokens, first.gpu) == (alone.tokens, alone.gpu)
    assert first.gpu.claim_bytes < second.gpu.claimed_by_others_bytes
    assert second.gpu.pre_bytes.best < alone.gpu.pre_bytes.best - 0.45 * alone.gpu.pre_bytes.best


def test_small_models_on_one_gpu_are_told_what_each_gets() -> None:
    first, second = plan_node(shared(0.45, 0.45, weights_gib=15))
    assert first.tokens == plan(shared(0.45, weights_gib=15)[0]).tokens
    assert first.tokens.low > 350_000 and second.tokens.high < 200_000


def test_what_fits_only_if_the_first_is_first_is_said_once() -> None:
    """After a reboot they start together: 0.80 of all leaves the other one nothing."""
    first, second = plan_node(shared(0.45, 0.80))
    (said,) = [item for item in first.findings if item.id == "plan.start_order"]
    assert said.verdict == "warn" and "If b is first: a: mem-fraction-static is 0.450" in said.message
    assert second.verdict_of("plan.start_order") == "ok"
    turned = plan_node(shared(0.80, 0.45))
    assert [one.verdict for one in turned][1] == "refuse"
    assert {one.verdict_of("plan.start_order") for one in turned} == {"ok"}


def test_the_order_is_not_told_where_it_decides_nothing() -> None:
    either = plan_node(shared(0.45, 0.45, weights_gib=15))
    assert {one.verdict for one in either} <= {"ok", "warn"}
    assert {one.verdict_of("plan.start_order") for one in either} == {"ok"}
    apart = [replace(one, gpus=(place,)) for place, one in enumerate(shared(0.45, 0.80))]
    where = node(*(gpu(place, 143_771) for place in range(2)), available=1e12)
    found = plan_node([replace(one, hardware=where) for one in apart])
    assert {one.verdict_of("plan.start_order") for one in found} == {"ok"}
    assert {one.verdict_of("gpu.shared_by_instances") for one in found} == {"ok"}


def test_of_three_on_a_gpu_the_first_may_be_the_last() -> None:
    found = plan_node(shared(0.3, 0.5, 0.7, weights_gib=15))
    assert "refuse" not in {one.verdict for one in found}
    assert [one.verdict_of("plan.start_order") for one in found][2] == "ok"
    assert "before b, c," in message(found[0], "plan.start_order")


def test_host_pools_that_size_themselves_are_sized_in_turn() -> None:
    """0.5.23 takes a share of what is free at its start, so those that come later have to do with less."""
    where = node(gpu(0), gpu(1), available=150e9)
    args = {"mem-fraction-static": 0.8, "enable-hierarchical-cache": True, "max-running-requests": 64}
    pair = [inputs(args, dense(), where, NEW, name=name, gpus=(place,)) for place, name in enumerate("ab")]
    first, second = plan_node(pair)
    assert first.host.pool_bytes == plan(pair[0]).host.pool_bytes
    assert second.host.pool_bytes < first.host.pool_bytes / 2


def test_an_engine_that_was_never_compared() -> None:
    assert planned(seed(0.88), version="0.5.30").verdict_of("plan.engine_unknown") == "warn"
    assert planned(seed(0.88), version="0.5.30").tokens.best == planned(seed(0.88), version=NEW).tokens.best
    assert planned(seed(0.88), version="0.5.18").tokens.best == planned(seed(0.88), version=OLD).tokens.best
