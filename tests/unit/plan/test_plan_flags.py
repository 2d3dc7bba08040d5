# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags that change where a server's memory lies, how much it is, or what SGLang makes of other flags."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.effective_args import reserved_mib
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.gpu_slack import decode_graph_bytes
from ansible_collections.headroom.serving.plugins.module_utils.mirrored_rules import prefill_graph_sizes
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape, WeightPart
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import Facts
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import Allocation
from plan_samples import GIB, MIB, NEW, OLD, dense, gpu, inputs, node, planned, process

H200 = [gpu(index, 143_771, name="H200", compute_capability=(9, 0)) for index in range(8)]
WHERE = node(*H200, available=1.5e12)


@pytest.mark.parametrize(
    ("args", "gpus", "used"),
    [
        ({"tp-size": 4}, (), (0, 1, 2, 3)),
        ({"tp-size": 4, "base-gpu-id": 4}, (), (4, 5, 6, 7)),
        ({"tp-size": 2, "base-gpu-id": 1}, (4, 5, 6), (5, 6)),
        ({"tp-size": 2}, (6, 2, 4), (6, 2)),
        ({"tp-size": 3, "gpu-id-step": 2, "base-gpu-id": 1}, (), (1, 3, 5)),
        ({"tp-size": 2, "pp-size": 2}, (), (0, 1, 2, 3)),
        ({"tp-size": 2, "dp-size": 2, "gpu-id-step": 2}, (), (0, 2, 4, 6)),
        ({"tp-size": 4, "dp-size": 4, "enable-dp-attention": True}, (), (0, 1, 2, 3)),
        ({"tp-size": 8, "pp-size": 2, "nnodes": 2}, (), (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"tp-size": 8, "nnodes": 2, "base-gpu-id": 2}, (), (2, 3, 4, 5)),
    ],
)
def test_gpus_that_ranks_take(args: dict[str, Any], gpus: tuple[int, ...], used: tuple[int, ...]) -> None:
    for version in (OLD, NEW):
        assert planned({"mem-fraction-static": 0.8, **args}, dense(), WHERE, version=version, gpus=gpus).gpus == used


def test_gpus_from_a_base_on_that_are_full() -> None:
    full = [
        gpu(index, 143_771, used_mib=120_000 * (index > 3), processes=(process(9, 119_000),) * (index > 3))
        for index in range(8)
    ]
    assert planned({"tp-size": 4, "mem-fraction-static": 0.8}, dense(), node(*full)).verdict == "ok"
    there = planned({"tp-size": 4, "mem-fraction-static": 0.8, "base-gpu-id": 4}, dense(), node(*full))
    assert there.verdict_of("gpu.slack") == "refuse" and there.verdict_of("gpu.foreign_memory") == "warn"
    assert there.gpu.pre_bytes.best < 30 * GIB
    half = planned({"tp-size": 4, "mem-fraction-static": 0.8, "base-gpu-id": 2}, dense(), node(*full))
    assert half.verdict_of("gpu.unbalanced") == "refuse"


@pytest.mark.parametrize(
    "args",
    [
        {"tp-size": 4, "base-gpu-id": 5},
        {"tp-size": 5, "gpu-id-step": 2},
        {"tp-size": 2, "dp-size": 4, "base-gpu-id": 1},
    ],
)
def test_gpus_beyond_the_last_one(args: dict[str, Any]) -> None:
    plan = planned({"mem-fraction-static": 0.8, **args}, dense(), WHERE)
    (said,) = [item for item in plan.findings if item.id == "gpu.too_few"]
    assert said.verdict == "refuse" and "base-gpu-id" in said.message


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({"tp-size": 12, "nnodes": 8}, "nnodes"),
        ({"tp-size": 2, "pp-size": 2, "gpu-id-step": 2}, "gpu-id-step"),
        ({"tp-size": 10**9}, "tp-size"),
        ({"base-gpu-id": -1}, "base-gpu-id"),
        ({"gpu-id-step": 0}, "gpu-id-step"),
    ],
)
def test_ranks_that_can_not_be_placed(args: dict[str, Any], word: str) -> None:
    with pytest.raises(HeadroomError, match=f"args.{word} is"):
        inputs(args, dense(), WHERE)


def parted(**gib: float) -> ModelShape:
    """Return a model of 32 layers whose parts have so many GiB each in all."""
    parts = tuple(
        WeightPart(kind, -1, 1, int(size * GIB))
        if kind in ("embedding", "head", "replicated", "vision_sharded", "vision_replicated")
        else WeightPart(kind, 0, 32, int(size * GIB / 32))
        for kind, size in gib.items()
    )
    total = sum(part.bytes for part in parts)
    return dense(parts=parts, sharded_bytes=total, total_bytes=total, experts=64, vocab_size=151_552, kv_heads=8)


@pytest.mark.parametrize(
    ("backend", "version", "ep", "gib"),
    [
        ("", OLD, 1, 16 + 2),
        ("none", NEW, 1, 16 + 2),
        ("deepep", OLD, 4, 16 + 8),
        ("mooncake", OLD, 4, 16 + 8),
        ("flashinfer", NEW, 4, 16 + 8),
        ("deepep_v2", NEW, 4, 16 + 8),
        ("customized", OLD, 1, 16 + 8),
    ],
)
def test_experts_reached_by_all_to_all(backend: str, version: str, ep: int, gib: float) -> None:
    args = {"tp-size": 4, "mem-fraction-static": 0.8, **({"moe-a2a-backend": backend} if backend else {})}
    plan = planned(args, parted(expert=64, shared_expert=8), WHERE, version=version)
    assert plan.gpu.weights_bytes.best == pytest.approx(gib * GIB)
    assert inputs(args, dense(), WHERE, version).args.value("ep-size") == ep


@pytest.mark.parametrize(
    ("args", "env", "version", "backend"),
    [
        ({"enable-deepep-waterfill": True}, {}, OLD, "deepep"),
        ({"enable-waterfill": True}, {}, NEW, "deepep"),
        ({"enable-waterfill": True, "moe-a2a-backend": "megamoe"}, {}, NEW, "megamoe"),
        ({"moe-a2a-backend": "deepep"}, {"SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE": "1"}, OLD, "megamoe"),
        ({}, {"SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE": "1"}, NEW, "none"),
    ],
)
def test_all_to_all_that_other_settings_turn_on(
    args: dict[str, Any], env: dict[str, str], version: str, backend: str
) -> None:
    found = inputs({"tp-size": 4, **args}, dense(), WHERE, version, env=env).args
    assert found.text("moe-a2a-backend") == backend
    assert found.integer("ep-size") == (1 if backend == "none" else 4)


@pytest.mark.parametrize(("args", "gib"), [({}, 2 + 1), ({"mm-enable-dp-encoder": True}, 2 + 4)])
def test_vision_tower_that_each_rank_holds(args: dict[str, Any], gib: float) -> None:
    model = replace(parted(mlp=8, vision_sharded=4), is_multimodal=True)
    plan = planned({"tp-size": 4, "mem-fraction-static": 0.8, **args}, model, WHERE)
    assert plan.gpu.weights_bytes.best == pytest.approx(gib * GIB)


def test_draft_layers_reached_by_all_to_all() -> None:
    draft = WeightPart("shared_expert", -1, 1, 4 * GIB, draft=True)
    model = replace(parted(mlp=8), draft_layers=1, draft_bytes=4 * GIB)
    model = replace(model, parts=(*model.parts, draft))
    args = {"tp-size": 4, "mem-fraction-static": 0.8, "speculative-algorithm": "EAGLE"}
    assert planned(args, model, WHERE).gpu.draft_weight_bytes == GIB
    assert planned({**args, "moe-a2a-backend": "deepep"}, model, WHERE).gpu.draft_weight_bytes == 4 * GIB


@pytest.mark.parametrize(
    ("architecture", "version", "args", "images", "gib"),
    [
        ("Gemma3ForConditionalGeneration", OLD, {}, False, 12),
        ("Gemma3ForConditionalGeneration", NEW, {}, False, 12),
        ("Gemma3ForConditionalGeneration", OLD, {"enable-multimodal": True}, True, 12),
        ("Gemma3ForConditionalGeneration", OLD, {"model-impl": "transformers"}, True, 12),
        ("Llama4ForConditionalGeneration", OLD, {}, False, 8),
        ("Llama4ForConditionalGeneration", NEW, {"enable-multimodal": True}, True, 12),
        ("Step3VLForConditionalGeneration", OLD, {}, False, 12),
        ("InklingForConditionalGeneration", OLD, {}, True, 12),
        ("InklingForConditionalGeneration", NEW, {}, False, 8),
        ("Qwen2_5_VLForConditionalGeneration", NEW, {}, True, 12),
        ("Qwen2_5_VLForConditionalGeneration", NEW, {"language-only": True}, False, 8),
    ],
)
def test_models_that_take_no_images_unless_told(
    architecture: str, version: str, args: dict[str, Any], images: bool, gib: float
) -> None:
    model = replace(parted(mlp=8, vision_sharded=4), is_multimodal=True, architecture=architecture)
    model = replace(model, vision_layers=24, vision_hidden_size=1024)
    plan = planned({"mem-fraction-static": 0.8, **args}, model, WHERE, version=version)
    assert (plan.gpu.vision_bytes > 0, plan.gpu.multimodal_bytes > 0) == (images, images and version == NEW)
    assert plan.gpu.weights_bytes.best == pytest.approx(gib * GIB)
    computed = inputs(args, model, WHERE, version).args.number("mem-fraction-static")
    plain = inputs(args, replace(model, is_multimodal=False, architecture="Qwen3"), WHERE, version).args
    # Without its factor for images; what the graphs of a prefill change is less than the floor of the reserve.
    assert (computed < plain.number("mem-fraction-static")) == images


@pytest.mark.parametrize(
    ("layers", "hidden", "factor"), [(0, 0, 1.0), (24, 1280, 0.95 * 0.94375), (24, 1024, 0.95), (60, 5000, 0.76)]
)
def test_fraction_by_the_size_of_a_tower(layers: int, hidden: int, factor: float) -> None:
    model = replace(dense(), is_multimodal=True, vision_layers=layers, vision_hidden_size=hidden)
    computed = inputs({}, model, WHERE).args.number("mem-fraction-static")
    plain = inputs({"disable-prefill-cuda-graph": True}, dense(), WHERE).args.number("mem-fraction-static")
    assert computed == pytest.approx(plain * factor)


@pytest.mark.parametrize(
    ("args", "version", "chunk"),
    [
        ({}, OLD, 8192),
        ({"enable-dp-attention": True}, OLD, 8192),
        ({"dp-size": 8}, OLD, 8192),
        ({"dp-size": 8, "enable-dp-attention": True}, OLD, 1024),
        ({"dp-size": 8, "enable-dp-attention": True}, NEW, 1024),
        ({"attn-dp-size": 4}, NEW, 2048),
        ({"dp-size": 8, "enable-dp-attention": True, "chunked-prefill-size": 4100}, NEW, 512),
        ({"dp-size": 8, "enable-dp-attention": True, "chunked-prefill-size": -1}, OLD, -1),
    ],
)
def test_chunk_that_ranks_of_attention_share(args: dict[str, Any], version: str, chunk: int) -> None:
    tp = 1 if args == {"dp-size": 8} else 8
    found = inputs({"tp-size": tp, **args}, dense(), WHERE, version).args
    assert found.integer("chunked-prefill-size") == chunk


def test_fraction_is_older_than_the_division_of_the_chunk() -> None:
    args = {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True, "chunked-prefill-size": 32_768}
    for version in (OLD, NEW):
        found = inputs(args, dense(), WHERE, version).args
        graph = found.integer("cuda-graph-max-bs-decode")
        prefill = prefill_graph_sizes(32_768) if version == NEW else 0
        reserve = 512 + 32_768 * 1.5 + 1024 + 2 * graph + 4.5 * graph * 8 + 8 * prefill
        assert found.number("mem-fraction-static") == round((143_771 - reserve) / 143_771, 3)
        assert reserved_mib(found, dense(), WHERE) == pytest.approx(reserve)
        # B captures no more than the chunk that is left, A nothing.
        assert found.integer("cuda-graph-max-bs-prefill") == (4096 if version == NEW else 32_768)
    given = inputs({**args, "cuda-graph-max-bs-prefill": 8192}, dense(), WHERE, NEW).args
    assert given.integer("cuda-graph-max-bs-prefill") == 8192


def test_activations_of_attention_that_ranks_share_out() -> None:
    args = {"tp-size": 8, "chunked-prefill-size": 65_536, "mem-fraction-static": 0.8, "max-running-requests": 64}
    shared = {**args, "dp-size": 8, "enable-dp-attention": True}
    model = dense(intermediate_size=12_288)
    # Heads are not split then, and the tokens of all ranks are gathered for each MLP.
    plan = planned(shared, model, WHERE)
    assert plan.gpu.chunk_bytes == 2 * (8192 * (5 * 4096 + 48 * 128) + 65_536 * (2 * 4096 + 3 * 12_288 // 8))
    reached = planned({**shared, "moe-a2a-backend": "deepep"}, model, WHERE)
    assert reached.gpu.chunk_bytes == 2 * 8192 * (5 * 4096 + 48 * 128 + 3 * 12_288 // 8)


@pytest.mark.parametrize(
    ("args", "version", "requests"),
    [
        ({"speculative-algorithm": "EAGLE"}, OLD, 48),
        ({"speculative-algorithm": "NGRAM"}, NEW, 48),
        ({"speculative-algorithm": "EAGLE3", "max-running-requests": 100}, NEW, 100),
        ({"speculative-algorithm": "UNO"}, NEW, None),
        ({}, OLD, None),
    ],
)
def test_requests_that_speculative_decoding_leaves(args: dict[str, Any], version: str, requests: int | None) -> None:
    args = {**args, "mem-fraction-static": 0.8}
    assert inputs(args, dense(), WHERE, version).args.value("max-running-requests") == requests
    plan = planned(args, dense(), WHERE, version=version)
    assert plan.max_running_requests == (requests or 4096)


@pytest.mark.parametrize(
    ("args", "version", "largest"),
    [
        ({}, OLD, 256),
        ({"max-running-requests": 300}, OLD, 256),
        ({"max-running-requests": 10}, OLD, 10),
        ({"max-running-requests": 10}, NEW, 10),
        ({"max-running-requests": 10, "cuda-graph-max-bs-decode": 64}, NEW, 10),
        ({"max-running-requests": 30, "tp-size": 8, "dp-size": 2, "enable-dp-attention": True}, OLD, 16),
        ({"speculative-algorithm": "NGRAM"}, OLD, 48),
    ],
)
def test_decode_graphs_of_no_more_requests_than_run(args: dict[str, Any], version: str, largest: int) -> None:
    model = dense(vocab_size=64)
    args = {"mem-fraction-static": 0.8, "cuda-graph-backend-prefill": "disabled", **args}
    plan = planned(args, model, WHERE, version=version)
    same = inputs({**args, "max-running-requests": None, "cuda-graph-max-bs-decode": largest}, model, WHERE, version)
    assert plan.gpu.decode_graph_bytes == decode_graph_bytes(same.args, model, 10_000)


LARGE = dense(80, 8, weights_gib=131, hidden_size=8192, vocab_size=128_256)


@pytest.mark.parametrize(
    ("dtype", "stored", "factor"),
    [
        ("auto", "bfloat16", 1),
        ("float16", "bfloat16", 1),
        ("half", "bfloat16", 1),
        ("float32", "bfloat16", 2),
        ("float", "float16", 2),
        ("bfloat16", "float32", 0.5),
    ],
)
def test_type_of_the_weights(dtype: str, stored: str, factor: float) -> None:
    tables = WeightPart("tables", -1, 1, GIB, stored=False)
    model = replace(parted(embedding=1, head=1, attention=2, kv=1, mlp=3), dtype=stored)
    model = replace(model, parts=(*model.parts, tables))
    plan = planned({"mem-fraction-static": 0.8, "dtype": dtype}, model, WHERE)
    assert plan.gpu.weights_bytes.best == pytest.approx(8 * factor * GIB + GIB)
    # It is exact: the band is that of any estimate of weights.
    assert plan.gpu.weights_bytes.high == pytest.approx(plan.gpu.weights_bytes.best * 1.0049)
    assert plan.verdict_of("plan.weights_uncertain") == "ok"


def test_weights_of_32_bits_that_do_not_fit() -> None:
    args = {"tp-size": 2, "mem-fraction-static": 0.85}
    assert planned(args, LARGE, WHERE).verdict == "ok"
    plan = planned({**args, "dtype": "float32"}, LARGE, WHERE)
    assert plan.verdict_of("gpu.no_room_for_kv") == "refuse"
    wide = planned({**args, "dtype": "float32", "tp-size": 8}, LARGE, WHERE)
    narrow = planned({**args, "tp-size": 8}, LARGE, WHERE)
    assert wide.gpu.chunk_bytes > narrow.gpu.chunk_bytes and wide.gpu.cell_bytes == 2 * narrow.gpu.cell_bytes


def test_type_of_weights_made_up_alone_by_their_allocations() -> None:
    rows = (Allocation("mlp", 3 * MIB, 10),)
    model = replace(parted(mlp=1), allocations=rows)
    plain, wide = (
        planned({"mem-fraction-static": 0.8, "dtype": dtype}, model, WHERE).gpu.weights_bytes.best
        for dtype in ("auto", "float32")
    )
    # 20 MiB are taken at a time: 6 of 3 MiB go into one, 3 of 6 MiB.
    assert (plain - GIB, wide - 2 * GIB) == (40 * MIB - 30 * MIB, 80 * MIB - 60 * MIB)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_draft_model_has_the_type_too(version: str) -> None:
    args = {"mem-fraction-static": 0.8, "speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/d"}
    draft = dense(1, weights_gib=1)
    plain, wide = (
        planned({**args, "dtype": dtype}, dense(), WHERE, version=version, draft_shape=draft).gpu.draft_weight_bytes
        for dtype in ("auto", "float32")
    )
    assert (plain, wide) == (GIB, 2 * GIB)


@pytest.mark.parametrize(
    ("args", "quantization"),
    [({}, "fp8"), ({}, "awq"), ({"quantization": "fp8"}, ""), ({"quantization": "w8a8_int8"}, "")],
)
def test_types_that_quantised_weights_do_not_bear(args: dict[str, Any], quantization: str) -> None:
    model = dense(quantization=quantization)
    with pytest.raises(HeadroomError, match="16 bits only"):
        inputs({**args, "dtype": "float32"}, model, WHERE)
    assert inputs({**args, "dtype": "float16"}, model, WHERE)
    assert inputs({**args, "dtype": "float32", "quantization": "bitsandbytes"}, dense(), WHERE)


@pytest.mark.parametrize(
    ("args", "stored", "least", "best", "most"),
    [
        # 2 GiB of embeddings and output, 4 of linear layers, 8 of experts, 2 of a tower.
        ({"quantization": "fp8"}, "", 2 + 7, 2 + 2 + 6, 10 + 0.15 * 6),
        ({"quantization": "w8a8_int8"}, "", 2 + 7, 10, 10.9),
        ({"quantization": "bitsandbytes"}, "", 2 + 14 * 0.28125, 4 + 12 * 0.28125, 8.7),
        ({"load-format": "bitsandbytes"}, "", 2 + 14 * 0.28125, 4 + 12 * 0.28125, 8.7),
        ({"torchao-config": "int8wo"}, "", 2 + 7, 4 + 8 + 2, 14 + 0.15 * 2),
        ({"torchao-config": "int4wo-128"}, "", 5.7, 4 + 8 + 4 * 0.265625, 13.5),
        ({"quantization": "quark_int4fp8_moe"}, "", 2 + 14 * 0.25, 16, 16),
        ({"modelopt-quant": "fp8"}, "", 2 + 14 * 0.25, 16, 16),
        ({"quantization": "fp8"}, "fp8", 16, 16, 16),
        ({"quantization": "awq_marlin"}, "awq", 16, 16, 16),
        ({"quantization": "unquant"}, "", 16, 16, 16),
        ({"json-model-override-args": '{"num_hidden_layers": 20}'}, "", 12, 16, 20),
        ({"json-model-override-args": '{"rope_theta": 10000}'}, "", 16, 16, 16),
    ],
)
def test_weights_that_only_a_start_will_show(
    args: dict[str, Any], stored: str, least: float, best: float, most: float
) -> None:
    model = parted(embedding=1, head=1, attention=1, kv=1, mlp=1, shared_expert=1, expert=8, vision_sharded=2)
    model = replace(model, quantization=stored)
    plan = planned({"mem-fraction-static": 0.8, **args}, model, WHERE)
    weights = plan.gpu.weights_bytes
    assert weights.best == pytest.approx(best * GIB, rel=1e-6)
    assert weights.low == pytest.approx(least * GIB * 0.9951, rel=0.03)
    assert weights.high == pytest.approx(most * GIB * 1.0049, rel=0.03)
    uncertain = (least, most) != (16, 16)
    assert plan.verdict_of("plan.weights_uncertain") == ("warn" if uncertain else "ok")
    assert any(text.startswith("the weights are an estimate") for text in plan.estimates) == uncertain
    known = planned({"mem-fraction-static": 0.8, **args}, model, WHERE, facts=Facts(pre_gib=138.0, weights_gib=9.0))
    assert known.verdict_of("plan.weights_uncertain") == "ok" and known.gpu.weights_bytes.best == 9 * GIB
    assert known.gpu.load_peak_bytes == 0


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({"quantization": "fp8"}, "refuse"),
        ({"torchao-config": "int8wo"}, "refuse"),
        ({"torchao-config": "int8wo", "load-format": "layered"}, "ok"),
        ({"quantization": "fp8", "load-format": "layered"}, "refuse"),
        ({"quantization": "bitsandbytes"}, "ok"),
        ({"quantization": "fp8", "tp-size": 2}, "ok"),
        ({"quantization": "fp8", "cpu-offload-gb": 60}, "ok"),
    ],
)
def test_weights_that_must_fit_before_they_are_quantised(args: dict[str, Any], verdict: str) -> None:
    model = dense(80, 8, weights_gib=150)
    plan = planned({"mem-fraction-static": 0.85, **args}, model, WHERE)
    assert plan.verdict_of("gpu.load_peak") == verdict
    assert plan.verdict_of("gpu.no_room_for_kv") == "ok"


@pytest.mark.parametrize("text", ["{", "[]", "7", "nothing"])
def test_overrides_that_are_no_object(text: str) -> None:
    with pytest.raises(HeadroomError, match="json-model-override-args"):
        inputs({"json-model-override-args": text, "context-length": 100}, dense(), WHERE)


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({"max_position_embeddings": 65_536}, 65_536),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 131_072),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}}, 32_768),
        ({"rope_theta": 7}, 32_768),
    ],
)
def test_context_that_is_overridden(said: dict[str, Any], tokens: int) -> None:
    args = {"json-model-override-args": json.dumps(said)}
    assert inputs(args, dense(), WHERE).args.value("context-length") == tokens
    assert inputs({**args, "context-length": 512}, dense(), WHERE).args.value("context-length") == 512


@pytest.mark.parametrize(
    ("args", "available", "verdict", "host_gib", "gpu_gib"),
    [
        ({}, 1.5e12, "ok", 0, 65.5),
        ({"cpu-offload-gb": 20}, 1.5e12, "ok", 2 * 21, 45.5),
        ({"cpu-offload-gb": 20}, 90e9, "warn", 2 * 21, 45.5),
        ({"cpu-offload-gb": 20}, 40e9, "refuse", 2 * 21, 45.5),
        ({"cpu-offload-gb": 100}, 64e9, "refuse", 2 * 65.5, 0),
        ({"cpu-offload-gb": 100, "pp-size": 2}, 1.5e12, "ok", 4 * 32.75, 0),
    ],
)
def test_offloaded_weights(
    args: dict[str, Any], available: float, verdict: str, host_gib: float, gpu_gib: float
) -> None:
    plan = planned({"tp-size": 2, "mem-fraction-static": 0.8, **args}, LARGE, node(*H200, available=available))
    assert plan.verdict_of("host.offload") == verdict
    assert plan.host.offload_bytes == pytest.approx(host_gib * GIB, rel=0.01)
    assert plan.host.claim_bytes >= plan.host.offload_bytes and plan.host.needed_bytes == plan.host.offload_bytes
    assert plan.gpu.weights_bytes.best == pytest.approx(gpu_gib * GIB, abs=2**10)
    assert (plan.verdict == "refuse") == (verdict == "refuse")


def test_offloaded_weights_beside_a_host_tier() -> None:
    args = {"tp-size": 2, "mem-fraction-static": 0.8, "enable-hierarchical-cache": True, "hicache-size": 100}
    where = node(*H200, available=300e9)
    assert planned(args, LARGE, where).verdict_of("hicache.node_budget") == "ok"
    plan = planned({**args, "cpu-offload-gb": 60}, LARGE, where)
    (said,) = [item for item in plan.findings if item.id == "hicache.node_budget"]
    assert said.verdict == "refuse" and "offloaded weights" in said.message


@pytest.mark.parametrize("architecture", ["InternLM2ForCausalLM", "GraniteForCausalLM"])
def test_models_whose_layers_are_not_offloaded(architecture: str) -> None:
    model = replace(LARGE, architecture=architecture)
    plan = planned({"tp-size": 2, "mem-fraction-static": 0.8, "cpu-offload-gb": 40}, model, WHERE)
    assert plan.gpu.weights_bytes.best == pytest.approx(65.5 * GIB) and plan.host.offload_bytes == 0
    assert any("does nothing" in text for text in plan.estimates)
