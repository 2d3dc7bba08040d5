# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tensors that a model must have, told from config.json alone, for the families that are built alike.

For directories without weights (`--load-format dummy`) and for checkpoints whose files tell no names (.bin).
Names are those of the published checkpoints, shapes those of the classes in sglang/srt/models.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import is_mla
from ansible_collections.headroom.serving.plugins.module_utils.model_config import ModelConfig

_DENSE = frozenset(
    {
        *("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text", "granite", "exaone4"),
        *("internlm2", "stablelm", "seed_oss"),
    }
)
_EXPERTS = frozenset(
    {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe", "olmoe"}
)
_QKV_BIAS = frozenset({"qwen2", "qwen2_moe"})
_QK_NORM = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
_FOUR_NORMS = frozenset({"gemma2", "gemma3_text"})


def known(config: ModelConfig) -> bool:
    """Whether the tensors of this model can be told."""
    plain = config.model_type in _DENSE | _EXPERTS or (is_mla(config) and config.model_type.startswith("deepseek"))
    return plain and not (config.quantization or config.is_multimodal or config.is_draft)


def of(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of elements of each tensor, without the draft layers.

    Raises:
        HeadroomError: With `model.config_invalid` where a figure is missing.
    """
    hidden = config.hidden_size
    yield "model.embed_tokens.weight", config.vocab_size * hidden
    if not config.tied_embeddings and not config.model_type.startswith("gemma"):
        yield "lm_head.weight", config.vocab_size * hidden
    yield "model.norm.weight", hidden
    norms = ["input_layernorm", "post_attention_layernorm"]
    if config.model_type in _FOUR_NORMS:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    plain_layers = frozenset(config.text.wholes("mlp_only_layers"))
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        for norm in norms:
            yield f"{prefix}{norm}.weight", hidden
        attention = _latent(config) if is_mla(config) else _plain(config)
        for name, elements in attention:
            yield f"{prefix}self_attn.{name}", elements
        for name, elements in (
            _experts(config) if _has_experts(config, layer, plain_layers) else _mlp(hidden, config.intermediate_size)
        ):
            yield f"{prefix}mlp.{name}", elements


def _plain(config: ModelConfig) -> Iterator[tuple[str, int]]:
    hidden, dim = config.hidden_size, config.head_dim
    bias = config.model_type in _QKV_BIAS or config.text.flag("attention_bias")
    for name, width in (
        ("q_proj", config.attention_heads * dim),
        ("k_proj", config.kv_heads * dim),
        ("v_proj", config.kv_heads * config.v_head_dim),
    ):
        yield f"{name}.weight", hidden * width
        if bias:
            yield f"{name}.bias", width
    yield "o_proj.weight", hidden * config.attention_heads * config.v_head_dim
    if config.model_type in _QK_NORM or config.text.flag("use_qk_norm"):
        yield "q_norm.weight", dim
        yield "k_norm.weight", dim


def _latent(config: ModelConfig) -> Iterator[tuple[str, int]]:
    text, hidden, heads = config.text, config.hidden_size, config.attention_heads
    rank, rope = text.whole("kv_lora_rank", least=1), text.whole("qk_rope_head_dim", least=1)
    nope, value = text.whole("qk_nope_head_dim", least=1), text.whole("v_head_dim", least=1)
    query = text.whole("q_lora_rank", default=0)
    if query:
        yield "q_a_proj.weight", hidden * query
        yield "q_a_layernorm.weight", query
        yield "q_b_proj.weight", query * heads * (nope + rope)
    else:
        yield "q_proj.weight", hidden * heads * (nope + rope)
    yield "kv_a_proj_with_mqa.weight", hidden * (rank + rope)
    yield "kv_a_layernorm.weight", rank
    yield "kv_b_proj.weight", rank * heads * (nope + value)
    yield "o_proj.weight", heads * value * hidden


def _has_experts(config: ModelConfig, layer: int, plain_layers: frozenset[int]) -> bool:
    text = config.text
    if not config.experts:
        return False
    if layer < text.whole("first_k_dense_replace", default=0):
        return False
    if layer in plain_layers:
        return False
    if config.model_type.startswith(("qwen2", "qwen3")):
        return (layer + 1) % text.whole("decoder_sparse_step", default=1, least=1) == 0
    return layer % text.whole("moe_layer_freq", default=1, least=1) == 0


def _experts(config: ModelConfig) -> Iterator[tuple[str, int]]:
    text, hidden, width = config.text, config.hidden_size, config.moe_intermediate_size
    yield "gate.weight", config.experts * hidden
    if text.text("topk_method") == "noaux_tc" or config.model_type in ("deepseek_v3", "kimi_k2", "glm4_moe"):
        yield "gate.e_score_correction_bias", config.experts
    # All experts of a layer are alike; one entry stands for the sum.
    for name in ("gate_proj", "up_proj", "down_proj"):
        yield f"experts.0.{name}.weight", config.experts * hidden * width
    shared = text.whole("n_shared_experts", default=0) * width
    for name, elements in _mlp(hidden, shared) if shared else ():
        yield f"shared_experts.{name}", elements
    single = text.whole("shared_expert_intermediate_size", default=0)
    if single:
        for name, elements in _mlp(hidden, single):
            yield f"shared_expert.{name}", elements
        yield "shared_expert_gate.weight", hidden


def _mlp(hidden: int, width: int) -> Iterator[tuple[str, int]]:
    for name in ("gate_proj", "up_proj", "down_proj"):
        yield f"{name}.weight", hidden * width
