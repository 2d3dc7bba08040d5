# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights: of whole models against published and measured figures, of a rank against sums done by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import (
    model_config,
    model_shape,
    model_tensors,
    rank_weights,
)
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape, weight_bytes_per_rank
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import Allocation
from suite import checkpoints

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("model_configs.json").read_text("utf-8"))
GIB = 2**30
MIB = 2**20
# Two models that were started on one H200 with SGLang 0.5.14 and made-up weights; what the server logged is in GiB.
GQA = {**CONFIGS["Qwen3-8B"], "vocab_size": 1024}
MLA = {**CONFIGS["DeepSeek-V2-Lite"], "vocab_size": 1024, "rope_scaling": None}
MEASURED = [(GQA, 12.99), (MLA, 28.70)]


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    folder = tmp_path_factory.mktemp("kimi")
    checkpoints.write(folder, checkpoints.KIMI_K25, checkpoints.kimi_k25(), 64)
    return model_shape.from_dir(str(folder))


def dummy(folder: Path, config: dict[str, Any]) -> ModelShape:
    """Return the shape of a directory that has a config.json only."""
    (folder / "config.json").write_text(json.dumps(config))
    return model_shape.from_dir(str(folder), dummy=True)


def small(folder: Path, tensors: list[checkpoints.TensorSpec], **changes: Any) -> ModelShape:
    """Return the shape of a small checkpoint with the given tensors."""
    config = {**CONFIGS["Qwen3-8B"], "num_hidden_layers": 4, **changes}
    checkpoints.write(folder, config, tensors)
    return model_shape.from_dir(str(folder))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
        ("Llama-2-7B", 6_738_415_616),
        ("Mistral-7B-v0.1", 7_241_732_096),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Qwen3-8B", 8_190_735_360),
        ("Phi-3.5-mini", 3_821_079_552),
        ("Gemma-2-9B", 9_241_705_984),
        ("Mixtral-8x7B", 46_702_792_704),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("Qwen1.5-MoE-A2.7B", 14_315_784_192),
        ("DeepSeek-V2-Lite", 15_706_484_224),
    ],
)
def test_parameters_told_from_a_config_are_those_that_are_published(name: str, parameters: int, tmp_path: Path) -> None:
    config = model_config.parse(CONFIGS[name])
    assert sum(elements for _name, elements in model_tensors.of(config)) == parameters
    shape = dummy(tmp_path, CONFIGS[name])
    assert shape.sharded_bytes + shape.replicated_bytes == shape.total_bytes == 2 * parameters
    assert "config.json asks for" in shape.approximate[0]


@pytest.mark.parametrize(("config", "logged_gib"), MEASURED)
def test_weights_as_the_server_logged_them(config: dict[str, Any], logged_gib: float, tmp_path: Path) -> None:
    computed = weight_bytes_per_rank(dummy(tmp_path, config), 1) / GIB
    assert computed == pytest.approx(logged_gib, rel=0.002)


def test_kimi_on_eight_ranks(kimi: ModelShape) -> None:
    """The case that the collection was born from: 71.957 GiB a rank fit its logged tokens."""
    assert kimi.expert_bytes == 60 * 384 * (3 * (2048 * 7168 // 2 + 2048 * 7168 // 32 * 2 + 16))
    assert weight_bytes_per_rank(kimi, 8) / GIB == pytest.approx(71.95708, rel=0.002)
    assert (kimi.tensors, kimi.files, kimi.layers, kimi.context_tokens) == (208_550, 64, 61, 262_144)
    assert (kimi.experts, kimi.experts_per_token, kimi.vision_layers, kimi.vision_hidden_size) == (384, 8, 27, 1152)
    assert (kimi.quantization, kimi.kv_cache_quant, kimi.dtype) == ("compressed-tensors", "", "bfloat16")
    assert kimi.approximate == ()
    (group,) = kimi.groups
    assert (group.kind, group.layers, group.kv_lora_rank, group.rope_dim) == ("mla", 61, 512, 64)


def test_kimi_otherwise_spread(kimi: ModelShape) -> None:
    eight = weight_bytes_per_rank(kimi, 8)
    assert weight_bytes_per_rank(kimi, 8, ep=8) == eight
    # Attention whole on each rank: 61 x (164 + 16) MiB instead of an eighth, and the embedding.
    more = weight_bytes_per_rank(kimi, 8, attention_dp=8) - eight
    assert more / GIB == pytest.approx(7 / 8 * (61 * 180 / 1024 + 2.1875 + kimi.vision_bytes / GIB * 0.305), rel=0.05)
    assert eight - weight_bytes_per_rank(kimi, 8, without_vision=True) > 0.6 * GIB
    assert weight_bytes_per_rank(kimi, 8, vision_dp=True) > eight
    halves = weight_bytes_per_rank(kimi, 8, pp=2)
    # The second stage has 31 of 61 layers, all with experts, and the output.
    assert halves > eight / 2
    assert halves == pytest.approx(eight * 31 / 60, rel=0.01)


def test_shared_experts_are_whole_where_experts_are_reached_by_all_to_all(kimi: ModelShape) -> None:
    more = weight_bytes_per_rank(kimi, 8, ep=8, all_to_all=True) - weight_bytes_per_rank(kimi, 8, ep=8)
    # 60 layers of three matrices of 28 MiB, seven eighths more; the allocator's rest is another one.
    assert more == pytest.approx(60 * 3 * 28 * MIB * 7 / 8, rel=0.05)


@pytest.mark.parametrize(("tp", "width"), [(1, 2944), (2, 1536), (4, 768), (8, 384)])
def test_mxfp4_experts_are_padded(tp: int, width: int, tmp_path: Path) -> None:
    """gpt-oss: 2880 x 2880, padded to 3072 by a multiple of 128."""
    config = {**CONFIGS["gpt-oss-120b"], "num_hidden_layers": 1, "max_position_embeddings": None}
    name = "model.layers.0.mlp.experts.gate_up_proj_blocks"
    checkpoints.write(tmp_path, config, [(name, "U8", (128, 5760, 90, 16))])
    shape = model_shape.from_dir(str(tmp_path))
    assert shape.expert_bytes == 128 * 5760 * 1440
    assert weight_bytes_per_rank(shape, tp) == 128 * 2 * width * 3072 // 2
    assert any("MXFP4" in note for note in shape.approximate)


def test_ranks_that_outnumber_kv_heads_repeat_them(tmp_path: Path) -> None:
    shape = small(
        tmp_path,
        [
            ("model.layers.0.self_attn.k_proj.weight", "BF16", (1024, 4096)),
            ("model.layers.0.self_attn.q_proj.weight", "BF16", (4096, 4096)),
            ("model.layers.0.input_layernorm.weight", "BF16", (4096,)),
        ],
        max_position_embeddings=None,
    )
    for tp, keys, queries in ((1, 8, 32), (2, 4, 16), (8, 1, 4), (16, 1, 2), (32, 1, 1)):
        held = sum(rank_weights._on_rank(shape, part, rank_weights.Split(tp), 0) for part in shape.parts)
        assert held == (keys + queries) * MIB + 8192, tp


@pytest.mark.parametrize(
    ("vocab", "tp", "rows"),
    [(151936, 1, 151936), (151936, 8, 18992), (32000, 3, 10688), (32001, 2, 16032), (100, 8, 16), (128256, 16, 8016)],
)
def test_vocabulary_is_padded(vocab: int, tp: int, rows: int) -> None:
    assert rank_weights._vocabulary_rows(vocab, tp) == rows
    assert rows * tp >= vocab


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [(61, 1, [61]), (61, 2, [30, 31]), (61, 4, [15, 15, 15, 16]), (62, 4, [15, 15, 16, 16]), (3, 4, [0, 1, 1, 1])],
)
def test_stages_of_a_pipeline(layers: int, pp: int, stages: list[int]) -> None:
    ranges = [rank_weights.stage_layers(layers, pp, stage) for stage in range(pp)]
    assert [len(found) for found in ranges] == stages
    assert [layer for found in ranges for layer in found] == list(range(layers))


def test_the_ends_of_a_pipeline(tmp_path: Path) -> None:
    embed = ("model.embed_tokens.weight", "BF16", (151936, 4096))
    head = ("lm_head.weight", "BF16", (151936, 4096))
    layers: list[checkpoints.TensorSpec] = [
        (f"model.layers.{n}.mlp.up_proj.weight", "BF16", (4096, 4096)) for n in range(4)
    ]
    both = small(tmp_path / "a", [embed, *layers, head])
    tied = small(tmp_path / "b", [embed, *layers])
    flagged = small(tmp_path / "c", [embed, *layers, head], tie_word_embeddings=True)
    table = 151936 * 4096 * 2
    assert (both.tied_embeddings, tied.tied_embeddings, flagged.tied_embeddings) == (False, True, True)
    one = weight_bytes_per_rank(both, 1)
    assert one - weight_bytes_per_rank(tied, 1) == pytest.approx(table, abs=2 * MIB)
    assert weight_bytes_per_rank(flagged, 1) == weight_bytes_per_rank(tied, 1)
    for shape in (both, tied, flagged):
        # A stage has an end of the model and two layers of 32 MiB.
        assert weight_bytes_per_rank(shape, 1, pp=2) == pytest.approx(table + 64 * MIB + 20 * MIB, abs=2 * MIB)


def test_a_fused_projection_is_split_by_heads(tmp_path: Path) -> None:
    shape = small(tmp_path, [("model.layers.0.self_attn.qkv_proj.weight", "BF16", (6144, 4096))])
    assert {part.kind: part.bytes for part in shape.parts if part.stored} == {"attention": 32 * MIB, "kv": 16 * MIB}


@pytest.mark.parametrize(
    ("name", "kind", "want"),
    [
        ("model.layers.0.mlp.up_proj.weight", "F32", 2),
        ("model.layers.0.mlp.up_proj.bias", "F32", 2),
        ("model.layers.0.mlp.up_proj.weight", "F16", 2),
        ("model.layers.0.mlp.up_proj.weight", "F8_E4M3", 1),
        ("model.layers.0.mlp.up_proj.weight", "U8", 1),
        ("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", 4),
        ("model.layers.0.mlp.up_proj.qweight", "I32", 4),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "F32", 4),
    ],
)
def test_floats_are_loaded_in_the_models_type_and_others_as_they_are(
    name: str, kind: str, want: int, tmp_path: Path
) -> None:
    shape = small(tmp_path, [(name, kind, (64, 64))])
    assert shape.sharded_bytes + shape.replicated_bytes == 64 * 64 * want


def test_draft_layers_in_the_models_files_are_counted_apart(tmp_path: Path) -> None:
    layer = "model.layers.4."
    shape = small(
        tmp_path,
        [
            ("model.layers.3.mlp.up_proj.weight", "BF16", (1024, 1024)),
            (f"{layer}mlp.up_proj.weight", "BF16", (1024, 1024)),
            (f"{layer}eh_proj.weight", "BF16", (1024, 2048)),
            (f"{layer}embed_tokens.weight", "BF16", (4096, 1024)),
            (f"{layer}shared_head.head.weight", "BF16", (4096, 1024)),
        ],
        num_nextn_predict_layers=1,
    )
    assert (shape.sharded_bytes, shape.draft_bytes, shape.draft_layers) == (2 * MIB, 6 * MIB, 1)
    assert model_shape.draft_bytes_per_rank(shape, 1) == 6 * MIB
    assert model_shape.draft_bytes_per_rank(shape, 8) == 4 * MIB + MIB // 4


def test_latent_attention_keeps_copies_of_a_projection(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.kv_b_proj.weight"
    changes = {key: value for key, value in MLA.items() if key not in ("num_hidden_layers", "vocab_size")}
    for kind, quantization, width in (
        ("BF16", None, 2),
        ("F8_E4M3", {"quant_method": "fp8", "weight_block_size": [128, 128]}, 2),
        ("F8_E4M3", {"quant_method": "fp8"}, 1),
    ):
        shape = small(tmp_path, [(name, kind, (4096, 512))], **{**changes, "quantization_config": quantization})
        copies = sum(part.bytes for part in shape.parts if part.kind == "absorbed")
        assert copies == 4 * 16 * 256 * 512 * width


def test_what_is_of_no_known_kind_is_whole_on_each_rank_and_said(tmp_path: Path) -> None:
    shape = small(tmp_path, [("model.layers.0.novelty.weight", "BF16", (1024, 1024))])
    assert shape.replicated_bytes == 2 * MIB
    assert len(shape.approximate) == 1 and "model.layers.0.novelty.weight" in shape.approximate[0]


def test_blocks_of_the_allocator() -> None:
    """Requests of 1 to 10 MiB share blocks of 20 MiB; larger ones are rounded up to 2 MiB."""
    parts = (model_shape.WeightPart("replicated", -1, 1, 1),)
    for sizes, rest in (
        ([(12, 3)], 0),
        ([(11, 3)], 3),
        ([(8, 1)], 12),
        ([(8, 2)], 4),
        ([(8, 2), (4, 1)], 0),
        ([(8, 3)], 16),
        ([(1, 9)], 0),
    ):
        allocations = tuple(Allocation("replicated", mib * MIB, count) for mib, count in sizes)
        shape = dataclasses.replace(EMPTY, parts=parts, allocations=allocations)
        assert weight_bytes_per_rank(shape, 4) == 1 + rest * MIB, sizes


EMPTY = ModelShape(
    format=model_shape.FORMAT,
    architecture="LlamaForCausalLM",
    model_type="llama",
    layers=1,
    hidden_size=8,
    vocab_size=64,
    attention_heads=1,
    experts=0,
    experts_per_token=0,
    moe_intermediate_size=0,
    context_tokens=8,
    dtype="bfloat16",
    quantization="",
    kv_cache_quant="",
    groups=(),
    is_multimodal=False,
    vision_layers=0,
    vision_hidden_size=0,
    sharded_bytes=0,
    replicated_bytes=0,
    expert_bytes=0,
    vision_bytes=0,
    tensors=0,
    files=0,
    total_bytes=0,
    largest_file_bytes=0,
    key="",
    approximate=(),
)


def test_a_shape_of_totals_only() -> None:
    shape = dataclasses.replace(EMPTY, sharded_bytes=800, replicated_bytes=10)
    assert [weight_bytes_per_rank(shape, tp, pp) for tp, pp in ((1, 1), (8, 1), (8, 2), (3, 1))] == [810, 110, 55, 277]


def test_a_model_of_nothing() -> None:
    assert weight_bytes_per_rank(EMPTY, 8) == 0 == model_shape.draft_bytes_per_rank(EMPTY, 8)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_ranks_together_hold_at_least_the_model(kimi: ModelShape, tp: int) -> None:
    assert tp * weight_bytes_per_rank(kimi, tp) >= kimi.sharded_bytes + kimi.replicated_bytes
    assert weight_bytes_per_rank(kimi, 2 * tp) < weight_bytes_per_rank(kimi, tp)
    # With twice the ranks at most the half is saved.
    assert 2 * weight_bytes_per_rank(kimi, 2 * tp) >= weight_bytes_per_rank(kimi, tp)
