# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is allocated beside weights and KV, where the size of it is known exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import gpu_slack, mirrored_rules
from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from plan_samples import (
    GIB,
    HYBRID,
    KIMI,
    LOADED,
    MIB,
    NEW,
    OLD,
    RECORDED,
    WINDOWED,
    dense,
    gpu,
    inputs,
    latent,
    node,
    planned,
    recorded_model,
    seed,
)

WITH_GRAPHS = [start for start in [*RECORDED["starts"], *LOADED["starts"]] if start["graphs"]]


def resolved(args: dict[str, Any], model: Any = KIMI, version: str = OLD) -> EffectiveArgs:
    return inputs(args, model, version=version).args


@pytest.mark.parametrize("start", WITH_GRAPHS, ids=lambda start: str(start["name"]))
def test_the_number_of_graphs_is_what_the_server_captured(start: dict[str, Any]) -> None:
    decode, prefill = start["graphs"]["decode"], start["graphs"]["prefill"]
    if "cuda-graph-bs" not in start["args"]:
        assert mirrored_rules.decode_graph_sizes(decode["max_bs"]) == decode["sizes"]
    assert mirrored_rules.prefill_graph_sizes(prefill["max_bs"]) == prefill["sizes"]


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (3, 3), (16, 6), (100, 17), (512, 52), (520, 53), (576, 54)])
def test_the_number_of_decode_graphs(batch: int, count: int) -> None:
    assert mirrored_rules.decode_graph_sizes(batch) == count


def test_tritons_buffers_are_those_that_a_start_had_no_room_for() -> None:
    died = {start["name"]: start["error"] for start in LOADED["starts"]}
    model = recorded_model("mla16b")
    args = {"attention-backend": "triton", "cuda-graph-backend-prefill": "disabled"}
    # One died of the partial results of attention, one of the index of the KV.
    assert "Tried to allocate 2.00 GiB" in died["mla-0.968"]
    bare = gpu_slack.decode_graph_bytes(resolved({**args, "attention-backend": "fa3"}, model), model, 4096)
    whole = gpu_slack.decode_graph_bytes(resolved(args, model), model, 4096)
    batch, heads, splits = 256, 16, 256
    partial = batch * heads * splits * (512 + 1) * 4
    assert partial / GIB == pytest.approx(2.0, abs=0.005)
    assert whole - bare == partial + batch * model.context_tokens * (8 + 1 - 4)
    assert "Tried to allocate 640.00 MiB" in died["mla-fp8-512"]
    assert 512 * model.context_tokens * 8 == 640 * MIB


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_split_results_are_of_a_ranks_heads(tp: int) -> None:
    args = {"tp-size": tp, "attention-backend": "triton", "cuda-graph-max-bs-decode": 100}
    more = {**args, "cuda-graph-max-bs-decode": 101}
    step = gpu_slack.decode_graph_bytes(resolved(more), KIMI, 4096) - gpu_slack.decode_graph_bytes(
        resolved(args), KIMI, 4096
    )
    row = 64 // tp * 256 * 513 * 4 + 262_144 * 9 + 163_840 * 6
    assert step == row


def test_a_short_context_needs_fewer_splits() -> None:
    args = {"attention-backend": "triton", "cuda-graph-max-bs-decode": 100}
    short, long = ({**args, "context-length": tokens} for tokens in (1024, 8192))
    few = gpu_slack.decode_graph_bytes(resolved(short), KIMI, 4096)
    many = gpu_slack.decode_graph_bytes(resolved(long), KIMI, 4096)
    assert many - few == 100 * ((256 - 32) * 64 * 513 * 4 + 7168 * 9)


@pytest.mark.parametrize(
    ("capability", "model", "backend"),
    [
        ((9, 0), dense(), "fa3"),
        ((9, 0), KIMI, "fa3"),
        ((10, 0), dense(), "trtllm_mha"),
        ((10, 0), KIMI, "flashinfer"),
        ((12, 0), dense(), "flashinfer"),
        ((12, 0), KIMI, "triton"),
        ((12, 0), WINDOWED, "triton"),
        ((8, 9), dense(), "flashinfer"),
        ((8, 0), KIMI, "triton"),
        ((9, 0), latent(index=128), None),
    ],
)
@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_attention_back_end_where_none_is_given(
    version: str, capability: tuple[int, int], model: Any, backend: str | None
) -> None:
    where = node(replace(gpu(0), compute_capability=capability))
    found = inputs({}, model, where, version).args
    assert found.value("attention-backend") == backend
    assert inputs({"attention-backend": "fa4"}, model, where, version).args.value("attention-backend") == "fa4"
    unknown = node(replace(gpu(0), compute_capability=None))
    assert inputs({}, model, unknown, version).args.value("attention-backend") is None


def test_a_back_end_that_pages_fixes_the_page() -> None:
    where = node(replace(gpu(0), compute_capability=(10, 0)))
    assert inputs({}, dense(), where).args.integer("page-size") == 64


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("model", [dense(), KIMI, HYBRID, WINDOWED])
def test_each_lever_lowers_what_it_should(model: Any, version: str) -> None:
    usual = planned(seed(0.8), model, version=version).gpu
    fewer = planned(seed(0.8, **{"max-running-requests": 64}), model, version=version).gpu
    smaller = planned(seed(0.8, **{"cuda-graph-max-bs-decode": 8}), model, version=version).gpu
    # With few requests, so that no logits are more than a chunk.
    shorter = planned(
        seed(0.8, **{"cuda-graph-max-bs-decode": 8, "chunked-prefill-size": 1024}), model, version=version
    ).gpu
    assert fewer.request_table_bytes < usual.request_table_bytes
    assert smaller.decode_graph_bytes < usual.decode_graph_bytes and smaller.need_bytes < usual.need_bytes
    assert shorter.chunk_bytes < smaller.chunk_bytes and shorter.need_bytes < smaller.need_bytes


def test_the_seed_case_needs_what_triton_takes_for_512_requests() -> None:
    found = planned(seed(0.88)).gpu
    assert found.decode_graph_bytes / GIB == pytest.approx(3.95, abs=0.05)
    assert found.need_bytes < found.slack_bytes.low
