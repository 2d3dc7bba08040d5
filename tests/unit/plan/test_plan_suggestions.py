# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says would fit instead, one case for each kind of finding; test_memory_plan_properties tries many."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import value_search
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Plan, Suggestion
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import LayerGroup
from plan_samples import NEW, OLD, dense, gpu, latent, node, planned, seed, shape

# Qwen3-Next's layout with few tokens for each state.
STATES = shape(
    LayerGroup("mha", 12, kv_heads=2, head_dim=256, v_head_dim=256),
    LayerGroup("linear", 36, kv_heads=32, head_dim=128, v_head_dim=128, state_bytes=20_000_000),
    architecture="Qwen3NextForCausalLM",
    weights_gib=40,
)
WIDE_WINDOWS = shape(
    LayerGroup("mha", 4, kv_heads=8, head_dim=128, v_head_dim=128),
    LayerGroup("swa", 44, kv_heads=8, head_dim=128, v_head_dim=128, window_tokens=4_096),
    architecture="GptOssForCausalLM",
    weights_gib=20,
)


def told(found: Plan, kind: str) -> dict[str, Suggestion]:
    """Return the suggestions for a finding by setting; they are part of its line, too."""
    one = [item for item in found.findings if item.id == kind]
    some = {item.setting: item for item in found.suggestions if item.finding == kind}
    assert all(item.text in one[0].suggestion for item in some.values())
    return some


def assert_edge(kind: str, one: Suggestion, args: dict[str, Any], *rest: Any, **more: Any) -> None:
    at = planned({**args, one.setting: one.value}, *rest, **more)
    beyond = planned({**args, one.setting: one.beyond}, *rest, **more)
    assert at.verdict_of(kind) == one.verdict != "refuse" and at.verdict != "refuse", one
    assert beyond.verdict_of(kind) not in ("ok", one.verdict), one


def test_less_fits_in_the_memory_of_a_processor() -> None:
    where = node(available=40e9, numa_nodes=1, mem_total_bytes=41_000_000_000)
    args = {"device": "cpu", "mem-fraction-static": 0.99, "page-size": 16}
    model = dense(weights_gib=8)
    found = planned(args, model, where)
    assert found.verdict_of("host.memory") == "refuse"
    some = told(found, "host.memory")
    assert list(some) == ["max-total-tokens", "mem-fraction-static"]
    for one in some.values():
        assert_edge("host.memory", one, args, model, where)
    hopeless = planned({**args, "max-total-tokens": 16}, dense(weights_gib=60), where)
    assert "free memory, or take a smaller model" in told(hopeless, "host.memory")[""].text


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_pool_of_windows_that_is_too_small_is_cured(version: str) -> None:
    kind = "gpu.window_pool_too_small"
    args = {"mem-fraction-static": 0.5, "swa-full-tokens-ratio": 0.01, "max-total-tokens": 100_000}
    found = planned(args, WIDE_WINDOWS, node(gpu(0)), version)
    assert found.verdict_of(kind) == "refuse"
    some = told(found, kind)
    assert set(some) == {"swa-full-tokens-ratio", "max-total-tokens"}
    for one in some.values():
        assert_edge(kind, one, args, WIDE_WINDOWS, node(gpu(0)), version)
    unlimited = {"mem-fraction-static": 0.225, "swa-full-tokens-ratio": 0.05}
    found = planned(unlimited, WIDE_WINDOWS, node(gpu(0)), version)
    assert found.verdict_of(kind) == "refuse"
    assert_edge(kind, told(found, kind)["mem-fraction-static"], unlimited, WIDE_WINDOWS, node(gpu(0)), version)


@pytest.mark.parametrize(
    ("more", "cures"),
    [
        (
            {"mamba-full-memory-ratio": 0.1, "mem-fraction-static": 0.55},
            ["mem-fraction-static", "mamba-full-memory-ratio"],
        ),
        ({"max-mamba-cache-size": 2, "mem-fraction-static": 0.55}, ["max-mamba-cache-size"]),
    ],
)
def test_a_cache_of_states_that_is_too_small_is_cured(more: dict[str, Any], cures: list[str]) -> None:
    kind = "gpu.state_cache_too_small"
    found = planned(more, STATES, node(gpu(0)))
    assert found.verdict_of(kind) == "refuse"
    some = told(found, kind)
    assert list(some) == cures
    for one in some.values():
        assert_edge(kind, one, more, STATES, node(gpu(0)))


def test_the_least_fraction_with_room_has_room_for_a_state_too() -> None:
    args = {"mem-fraction-static": 0.3, "mamba-full-memory-ratio": 0.1}
    found = planned(args, STATES, node(gpu(0)))
    (one,) = told(found, "gpu.no_room_for_kv").values()
    assert planned({**args, "mem-fraction-static": one.value}, STATES, node(gpu(0))).verdict != "refuse"
    below = planned({**args, "mem-fraction-static": one.beyond}, STATES, node(gpu(0)))
    assert below.verdict_of("gpu.no_room_for_kv") == "ok" and below.verdict_of("gpu.state_cache_too_small") == "refuse"


def test_a_fraction_that_helps_only_with_another_setting_is_told_as_that() -> None:
    args = {"mem-fraction-static": 0.3, "mamba-full-memory-ratio": 0.01}
    (one,) = told(planned(args, STATES, node(gpu(0))), "gpu.no_room_for_kv").values()
    assert one.setting == "" and one.text.startswith("No fraction does alone: ")
    assert "leaves room for KV, but then gpu.state_cache_too_small refuses" in one.text


def test_no_room_and_too_little_beside_it_is_hopeless_and_said() -> None:
    args = {"mem-fraction-static": 0.97}
    found = planned(args, dense(weights_gib=93), node(gpu(0)))
    assert {found.verdict_of(kind) for kind in ("gpu.no_room_for_kv", "gpu.slack")} == {"refuse"}
    for kind, words in (("gpu.slack", "No single setting helps"), ("gpu.no_room_for_kv", "No fraction does")):
        some = told(found, kind)
        assert list(some) == [""] and words in some[""].text


def test_a_tier_that_can_only_warn_is_said_to() -> None:
    """0.5.23 on 8 GPUs: the processes' own 38 GB do not fit beside any tier."""
    where = node(*(gpu(index) for index in range(8)), available=45e9)
    args = {**seed(0.8), "enable-hierarchical-cache": True, "hicache-size": 100}
    found = planned(args, latent(weights_gib=300), where, NEW)
    one = told(found, "hicache.node_budget")["hicache-size"]
    assert "No hicache-size is without a warning; the largest that is not refused: " in one.text
    assert "; hicache.node_budget" in one.text and one.verdict == "warn"
    assert_edge("hicache.node_budget", one, args, latent(weights_gib=300), where, NEW)
    smaller = planned({**args, "hicache-size": one.value}, latent(weights_gib=300), where, NEW)
    assert told(smaller, "hicache.node_budget")[""].text.startswith("A smaller hicache-size warns at least.")


def test_a_chunk_that_leaves_sglang_no_fraction_is_lowered() -> None:
    """Its own rule takes chunks off, so there is no fraction to keep; 30,000 tokens leave less than none."""
    args, where = {"chunked-prefill-size": 30_000}, node(gpu(0, 24_564))
    found = planned(args, dense(), where)
    assert found.gpu.fraction < 0
    one = told(found, "gpu.no_room_for_kv")["chunked-prefill-size"]
    assert "eave the fraction to SGLang with chunked-prefill-size 2048 at most" in one.text
    assert_edge("gpu.no_room_for_kv", one, args, dense(), where)


@pytest.mark.parametrize(("chunk", "fraction"), [(5_000, 0.85), (40_000, 0.85), (20_001, 0.85)])
def test_odd_chunks_are_lowered_to_a_power_of_two(chunk: int, fraction: float) -> None:
    args = {"mem-fraction-static": fraction, "chunked-prefill-size": chunk, "cuda-graph-max-bs": 8}
    found = planned(args, dense(), node(gpu(0, 24_564)))
    one = told(found, "gpu.slack")["chunked-prefill-size"]
    assert (one.value, one.beyond) == (2_048, 4_096)
    assert_edge("gpu.slack", one, args, dense(), node(gpu(0, 24_564)))


def test_a_list_of_graphs_is_no_longer_in_the_way_of_a_smaller_batch() -> None:
    """The list would win; a smaller limit only counts with the list gone, and both are planned so."""
    args = {"mem-fraction-static": 0.9, "chunked-prefill-size": 5_000, "attention-backend": "triton"}
    found = planned({**args, "cuda-graph-bs": [1, 2, 256]}, dense(), node(gpu(0, 24_564)))
    some = told(found, "gpu.slack")
    assert_edge("gpu.slack", some["cuda-graph-max-bs-decode"], args, dense(), node(gpu(0, 24_564)))
    listed = {**args, "cuda-graph-bs": [1, 2, 256]}
    assert_edge("gpu.slack", some["max-running-requests"], listed, dense(), node(gpu(0, 24_564)))


@pytest.mark.parametrize(
    ("passing", "low", "high", "found"),
    [
        (range(1, 8), 1, 20, 7),
        (range(1, 21), 1, 20, 20),  # the edge lies where the range ends
        (range(1, 40), 1, 20, 39),  # and beyond it
        (range(9, 13), 1, 20, 12),  # the low end does not pass
        ([1, 2, 3, 11, 12], 1, 20, 12),
        ([], 1, 20, None),
        (range(1, 8), 5, 4, None),
        (range(2**30), 1, 20, None),  # all pass
    ],
)
def test_an_edge_is_found(passing: Any, low: int, high: int, found: int | None) -> None:
    assert value_search.largest(low, high, lambda value: value in passing) == found
    assert value_search.smallest(-high, -low, lambda value: -value in passing) == (None if found is None else -found)
