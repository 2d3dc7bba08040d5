# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds which share of a tensor, by the names that published checkpoints give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import model_config, tensor_parts
from ansible_collections.headroom.serving.plugins.module_utils.tensor_parts import Places
from suite.checkpoints import KIMI_K25

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("model_configs.json").read_text("utf-8"))
CONFIGS["Kimi-K2.5"] = KIMI_K25
CONFIGS["Kimi-VL"] = {**KIMI_K25, "architectures": ["KimiVLForConditionalGeneration"]}

# Model, then for each kind the names, without what does not matter for them.
TABLE: list[tuple[str, str, str]] = [
    (
        "Llama-3.1-8B",
        "embedding",
        "model.embed_tokens.weight",
    ),
    ("Llama-3.1-8B", "head", "lm_head.weight"),
    ("Llama-3.1-8B", "attention", "model.layers.0.self_attn.q_proj.weight model.layers.31.self_attn.o_proj.weight"),
    ("Llama-3.1-8B", "kv", "model.layers.0.self_attn.k_proj.weight model.layers.0.self_attn.v_proj.weight"),
    ("Llama-3.1-8B", "mlp", "model.layers.9.mlp.gate_proj.weight model.layers.9.mlp.down_proj.weight"),
    ("Llama-3.1-8B", "replicated", "model.norm.weight model.layers.0.input_layernorm.weight"),
    ("Llama-3.1-8B", "skipped", "model.layers.0.self_attn.rotary_emb.inv_freq"),
    ("Llama-3.1-8B", "unknown", "model.layers.0.something_new.weight"),
    ("Llama-3.1-8B-AWQ", "mlp", "model.layers.0.mlp.up_proj.qweight model.layers.0.mlp.up_proj.qzeros"),
    ("Llama-3.1-8B-AWQ", "kv", "model.layers.0.self_attn.k_proj.scales"),
    ("Llama-3.1-8B-GPTQ", "attention", "model.layers.0.self_attn.q_proj.g_idx model.layers.0.self_attn.q_proj.bias"),
    ("Llama-3.1-8B-NVFP4", "mlp", "model.layers.0.mlp.up_proj.weight_scale model.layers.0.mlp.up_proj.weight_scale_2"),
    ("Llama-3.1-8B-NVFP4", "mlp", "model.layers.0.mlp.up_proj.input_scale"),
    ("Llama-3.1-8B-NVFP4", "kv", "model.layers.0.self_attn.k_proj.k_scale model.layers.0.self_attn.v_proj.v_scale"),
    ("Llama-3.1-8B-CT-W8", "mlp", "model.layers.0.mlp.down_proj.weight_scale"),
    ("Qwen2.5-7B", "kv", "model.layers.0.self_attn.k_proj.bias"),
    ("Qwen3-8B", "replicated", "model.layers.0.self_attn.q_norm.weight model.layers.0.self_attn.k_norm.weight"),
    ("Phi-3.5-mini", "attention", "model.layers.0.self_attn.qkv_proj.weight"),
    ("Phi-3.5-mini", "mlp", "model.layers.0.mlp.gate_up_proj.weight"),
    ("Gemma-2-9B", "replicated", "model.layers.0.pre_feedforward_layernorm.weight"),
    ("Mixtral-8x7B", "expert", "model.layers.0.block_sparse_moe.experts.7.w2.weight"),
    ("Mixtral-8x7B", "replicated", "model.layers.0.block_sparse_moe.gate.weight"),
    ("Qwen3-30B-A3B", "expert", "model.layers.0.mlp.experts.127.gate_proj.weight"),
    ("Qwen3-30B-A3B", "replicated", "model.layers.0.mlp.gate.weight"),
    ("Qwen1.5-MoE-A2.7B", "shared_expert", "model.layers.0.mlp.shared_expert.gate_proj.weight"),
    ("Qwen1.5-MoE-A2.7B", "replicated", "model.layers.0.mlp.shared_expert_gate.weight"),
    ("DeepSeek-V3", "attention", "model.layers.0.self_attn.q_b_proj.weight model.layers.0.self_attn.kv_b_proj.weight"),
    ("DeepSeek-V3", "attention", "model.layers.0.self_attn.kv_b_proj.weight_scale_inv"),
    (
        "DeepSeek-V3",
        "replicated",
        "model.layers.0.self_attn.q_a_proj.weight model.layers.0.self_attn.q_a_layernorm.weight",
    ),
    ("DeepSeek-V3", "replicated", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv"),
    ("DeepSeek-V3", "replicated", "model.layers.5.mlp.gate.e_score_correction_bias model.layers.5.mlp.gate.weight"),
    ("DeepSeek-V3", "mlp", "model.layers.0.mlp.down_proj.weight"),
    ("DeepSeek-V3", "shared_expert", "model.layers.5.mlp.shared_experts.down_proj.weight"),
    ("DeepSeek-V3", "expert", "model.layers.5.mlp.experts.255.up_proj.weight_scale_inv"),
    ("DeepSeek-V3.2", "replicated", "model.layers.0.self_attn.indexer.wq_b.weight"),
    ("DeepSeek-V3.2", "replicated", "model.layers.0.self_attn.indexer.weights_proj.weight"),
    ("Kimi-K2.5", "expert", "language_model.model.layers.9.mlp.experts.3.up_proj.weight_packed"),
    ("Kimi-K2.5", "expert", "language_model.model.layers.9.mlp.experts.3.up_proj.weight_shape"),
    ("Kimi-K2.5", "embedding", "language_model.model.embed_tokens.weight"),
    ("Kimi-K2.5", "head", "language_model.lm_head.weight"),
    ("Kimi-K2.5", "vision_sharded", "vision_tower.encoder.blocks.3.wqkv.weight vision_tower.encoder.blocks.3.wo.bias"),
    ("Kimi-K2.5", "vision_replicated", "vision_tower.encoder.blocks.3.mlp.fc0.weight mm_projector.proj.0.weight"),
    ("Kimi-K2.5", "vision_replicated", "vision_tower.patch_embed.proj.weight mm_projector.pre_norm.weight"),
    ("Kimi-VL", "vision_replicated", "vision_tower.encoder.blocks.3.wqkv.weight"),
    ("GLM-4.5", "kv", "model.layers.0.self_attn.k_proj.bias"),
    (
        "gpt-oss-120b",
        "expert",
        "model.layers.0.mlp.experts.gate_up_proj_blocks model.layers.0.mlp.experts.down_proj_bias",
    ),
    ("gpt-oss-120b", "replicated", "model.layers.0.mlp.router.weight"),
    ("gpt-oss-120b", "attention", "model.layers.0.self_attn.sinks"),
    ("Llama-4-Scout", "expert", "language_model.model.layers.0.feed_forward.experts.gate_up_proj"),
    ("Llama-4-Scout", "shared_expert", "language_model.model.layers.0.feed_forward.shared_expert.up_proj.weight"),
    ("Llama-4-Scout", "replicated", "language_model.model.layers.0.feed_forward.router.weight"),
    ("Llama-4-Scout", "vision_sharded", "vision_model.model.layers.0.self_attn.q_proj.weight"),
    ("Gemma-3-27B", "vision_sharded", "vision_tower.vision_model.encoder.layers.3.mlp.fc1.weight"),
    ("Gemma-3-27B", "vision_replicated", "multi_modal_projector.mm_input_projection_weight"),
    ("Gemma-3-27B", "kv", "language_model.model.layers.3.self_attn.v_proj.weight"),
    ("Qwen2.5-VL-7B", "vision_sharded", "visual.blocks.0.attn.qkv.weight visual.blocks.0.mlp.gate_proj.weight"),
    ("Qwen2.5-VL-7B", "vision_replicated", "visual.patch_embed.proj.weight visual.merger.ln_q.weight"),
    ("Qwen3-VL-8B", "vision_sharded", "model.visual.blocks.0.attn.proj.weight model.visual.merger.linear_fc1.weight"),
    ("Qwen3-VL-8B", "attention", "model.language_model.layers.0.self_attn.q_proj.weight"),
    ("Qwen3-Next-80B", "attention", "model.layers.0.linear_attn.in_proj_qkvz.weight model.layers.0.linear_attn.A_log"),
    (
        "Qwen3-Next-80B",
        "attention",
        "model.layers.0.linear_attn.conv1d.weight model.layers.0.linear_attn.out_proj.weight",
    ),
    ("Nemotron-Nano-9B-v2", "attention", "backbone.layers.0.mixer.in_proj.weight backbone.layers.0.mixer.D"),
    ("Nemotron-Nano-9B-v2", "mlp", "backbone.layers.1.mixer.up_proj.weight"),
    ("Nemotron-Nano-9B-v2", "kv", "backbone.layers.14.mixer.k_proj.weight"),
    ("Nemotron-Nano-9B-v2", "embedding", "backbone.embeddings.weight"),
    ("Nemotron-Nano-9B-v2", "replicated", "backbone.norm_f.weight"),
    ("Kimi-Linear-48B", "replicated", "model.layers.0.self_attn.f_a_proj.weight"),
    (
        "Kimi-Linear-48B",
        "attention",
        "model.layers.0.self_attn.f_b_proj.weight model.layers.0.self_attn.q_conv1d.weight",
    ),
    ("EAGLE-Llama-3.1-8B", "skipped", "model.embed_tokens.weight embed_tokens.weight lm_head.weight"),
    ("EAGLE-Llama-3.1-8B", "replicated", "fc.weight"),
    ("EAGLE3-Llama-3.1-8B", "skipped", "embed_tokens.weight"),
    ("EAGLE3-Llama-3.1-8B", "head", "lm_head.weight"),
    ("EAGLE3-Llama-3.1-8B", "attention", "midlayer.self_attn.q_proj.weight"),
    ("EAGLE3-Llama-3.1-8B", "replicated", "fc.weight d2t t2d midlayer.hidden_norm.weight"),
]


@pytest.mark.parametrize(("model", "kind", "names"), TABLE)
def test_the_share_of_a_tensor(model: str, kind: str, names: str) -> None:
    places = Places(model_config.parse(CONFIGS[model]))
    assert {name: places.of(name).kind for name in names.split()} == dict.fromkeys(names.split(), kind)


@pytest.mark.parametrize(
    ("model", "name", "layer", "draft", "kind"),
    [
        ("Llama-3.1-8B", "model.layers.31.mlp.up_proj.weight", 31, False, "mlp"),
        ("Llama-3.1-8B", "model.norm.weight", -1, False, "replicated"),
        ("Kimi-K2.5", "vision_tower.encoder.blocks.3.wqkv.weight", -1, False, "vision_sharded"),
        ("DeepSeek-V3", "model.layers.60.self_attn.o_proj.weight", 60, False, "attention"),
        ("DeepSeek-V3", "model.layers.61.self_attn.o_proj.weight", -1, True, "attention"),
        ("DeepSeek-V3", "model.layers.61.eh_proj.weight", -1, True, "replicated"),
        ("DeepSeek-V3", "model.layers.61.embed_tokens.weight", -1, True, "skipped"),
        ("DeepSeek-V3", "model.layers.61.shared_head.head.weight", -1, True, "skipped"),
        ("DeepSeek-V3", "model.layers.61.shared_head.norm.weight", -1, True, "replicated"),
        ("GLM-4.5", "model.layers.92.mlp.experts.3.up_proj.weight", -1, True, "expert"),
        ("Qwen3-Next-80B", "mtp.layers.0.self_attn.q_proj.weight", -1, True, "attention"),
        ("Qwen3-Next-80B", "mtp.fc.weight", -1, True, "replicated"),
    ],
)
def test_layers_and_draft_layers(model: str, name: str, layer: int, draft: bool, kind: str) -> None:
    place = Places(model_config.parse(CONFIGS[model])).of(name)
    assert (place.layer, place.draft, place.kind) == (layer, draft, kind)


def test_only_a_fused_projection_is_two_kinds_in_one() -> None:
    places = Places(model_config.parse(CONFIGS["Phi-3.5-mini"]))
    assert places.of("model.layers.0.self_attn.qkv_proj.weight").fused_qkv
    assert not places.of("model.layers.0.self_attn.o_proj.weight").fused_qkv


def test_kinds_are_told_apart() -> None:
    assert tensor_parts.SHARDED & {tensor_parts.REPLICATED, tensor_parts.UNKNOWN, tensor_parts.SKIPPED} == set()
    assert {tensor_parts.VISION_REPLICATED} == tensor_parts.VISION - tensor_parts.SHARDED
