# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layers of a model keep what for each token or request: the groups that SGLang sizes its pools from.

Mirrors sglang/srt/configs/model_config.py (_derive_model_shapes, is_hybrid_swa_model, get_hybrid_layer_ids),
configs/mamba_utils.py and the hybrid models' configs (qwen3_next.py, nemotron_h.py, falcon_h1.py, granitemoehybrid.py,
kimi_linear.py, lfm2.py) of 0.5.14 and 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ansible_collections.headroom.serving.plugins.module_utils import model_bounds
from ansible_collections.headroom.serving.plugins.module_utils.model_config import ModelConfig

LayerKind = Literal["mha", "mla", "swa", "linear"]

# Only of these does SGLang keep sliding layers in a pool of their own. Others with a window (Gemma 2 and 3, Mistral,
# Qwen2) keep all tokens of all layers, so their layers are "mha", with the window for information.
SWA_POOL_ARCHITECTURES = frozenset(
    {
        "Llama4ForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteSWAForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "LagunaForCausalLM",
        "MellumForCausalLM",
    }
)
MLA_ARCHITECTURES = frozenset(
    {
        "BailingMoeV2_5ForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV3ForCausalLMNextN",
        "DeepseekV32ForCausalLM",
        "DeepseekVL2ForCausalLM",
        "DotsVLMForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiniCPM3ForCausalLM",
        "MistralLarge3ForCausalLM",
        "MistralLarge3ForCausalLMEagle",
        "PixtralForConditionalGeneration",
        "SarvamMLAForCausalLM",
    }
)
_LINEAR_WORDS = frozenset({"linear_attention", "mamba", "conv", "kda", "recurrent"})


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep the same amount.

    `kv_heads`, `head_dim` and `v_head_dim` are those of one layer before it is split over ranks; `kv_lora_rank` and
    `rope_dim` are set for "mla" only; `window_tokens` is 0 where a layer looks at everything; `index_head_dim` is that
    of a sparse-attention index (0 for none). A "linear" layer keeps `state_bytes` for one running request at TP 1,
    whatever its length, split over the attention ranks: a recurrent state of kv_heads x head_dim x v_head_dim numbers
    and a short convolution's.
    """

    kind: LayerKind
    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    kv_lora_rank: int = 0
    rope_dim: int = 0
    window_tokens: int = 0
    index_head_dim: int = 0
    state_bytes: int = 0


def of(config: ModelConfig) -> tuple[tuple[LayerGroup, ...], tuple[str, ...]]:
    """Return the groups of a model's layers and why their figures may be estimates.

    Raises:
        HeadroomError: With `model.config_invalid`.
    """
    notes: list[str] = []
    linear = _linear_layers(config)
    if linear:
        keeps = _state(config, linear)
        if not keeps.state_bytes:
            notes.append(f"{config.architecture}: what a request keeps in its linear layers is not known")
        both = config.architecture.startswith("FalconH1")
        full = _full_layers(config, linear)
        groups = [keeps]
        if full or both:
            groups.insert(0, _full(config, config.layers if both else full, notes))
        return tuple(groups), tuple(notes)
    sliding = _sliding_layers(config)
    if sliding and config.architecture in SWA_POOL_ARCHITECTURES:
        groups = [_sliding(config, sliding)]
        if config.layers > sliding:
            groups.insert(0, _full(config, config.layers - sliding, notes))
        return tuple(groups), tuple(notes)
    group = _full(config, config.layers - sliding, notes) if config.layers > sliding else None
    if sliding:
        window = _window(config)
        windowed = LayerGroup("mha", sliding, config.kv_heads, config.head_dim, config.v_head_dim, window_tokens=window)
        return tuple(item for item in (group, windowed) if item is not None), tuple(notes)
    return (group,) if group is not None else (), tuple(notes)


def is_mla(config: ModelConfig) -> bool:
    """Whether SGLang keeps the latent KV of this model, the same copy on each rank."""
    if config.text.values.get("kv_lora_rank") is None or not config.text.flag("use_mla", True):
        return False
    return config.architecture in MLA_ARCHITECTURES or config.model_type.startswith(("deepseek", "kimi"))


def _full(config: ModelConfig, layers: int, notes: list[str]) -> LayerGroup:
    text = config.text
    if is_mla(config):
        index = text.whole("index_head_dim", default=0) if text.values.get("index_topk") is not None else 0
        return LayerGroup(
            "mla",
            layers,
            head_dim=text.whole("qk_nope_head_dim", default=0) + text.whole("qk_rope_head_dim", least=1),
            v_head_dim=text.whole("v_head_dim", default=0),
            kv_lora_rank=text.whole("kv_lora_rank", least=1),
            rope_dim=text.whole("qk_rope_head_dim", least=1),
            index_head_dim=index,
        )
    if text.values.get("kv_lora_rank") is not None:
        notes.append(f"{config.architecture} has latent KV but is not known to be served with it; taken as plain KV")
    if config.architecture.startswith("Gemma4") or config.architecture == "EmbeddingGemma2Model":
        notes.append("Gemma 4 shares the KV of some layers; all layers are counted")
        head_dim = text.whole("global_head_dim", default=config.head_dim, least=1)
        heads = text.whole("num_global_key_value_heads", default=config.kv_heads, least=1)
        return LayerGroup("mha", layers, heads, head_dim, head_dim)
    if config.architecture.startswith("DeepseekV4"):
        notes.append("DeepSeek V4 sizes its pools by rules of its own; its KV is not planned")
    return LayerGroup("mha", layers, config.kv_heads, config.head_dim, config.v_head_dim)


def _sliding(config: ModelConfig, layers: int) -> LayerGroup:
    text = config.text
    heads = text.whole("swa_num_key_value_heads", default=config.kv_heads, least=1)
    other = text.inner("attention_other_setting")
    if other is not None:
        heads = other.whole("num_attention_groups", default=heads, least=1)
    head_dim = text.whole("swa_head_dim", default=config.head_dim, least=1)
    plain = config.v_head_dim if head_dim == config.head_dim else head_dim
    v_head_dim = text.whole("swa_v_head_dim", default=plain, least=1)
    return LayerGroup("swa", layers, heads, head_dim, v_head_dim, window_tokens=_window(config))


def _window(config: ModelConfig) -> int:
    names = ("sliding_window_size", "sliding_window", "window_size", "attention_chunk_size")
    return config.text.whole(*names, default=0, most=model_bounds.TOKENS)


def _sliding_layers(config: ModelConfig) -> int:
    """Return how many layers see a window only."""
    text = config.text
    if config.architecture == "Llama4ForConditionalGeneration":
        return config.layers - config.layers // 4
    if text.values.get("use_sliding_window") is False:
        return 0
    kinds = text.words("layer_types")[: config.layers]
    if kinds:
        return sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
    if not _window(config):
        return 0
    pattern = text.values.get("hybrid_layer_pattern")
    if isinstance(pattern, list):
        return sum(item == 1 for item in text.wholes("hybrid_layer_pattern")[: config.layers])
    if config.model_type.startswith("gemma3"):
        return config.layers - config.layers // text.whole("sliding_window_pattern", default=6, least=1)
    if config.model_type == "gemma2" or config.architecture == "GptOssForCausalLM":
        return (config.layers + 1) // 2
    if config.model_type.startswith("qwen"):
        # Those from max_window_layers on, and only if the switch is on.
        least = text.whole("max_window_layers", default=config.layers)
        return max(0, config.layers - least) if text.flag("use_sliding_window") else 0
    return config.layers if config.architecture not in SWA_POOL_ARCHITECTURES else 0


def _linear_layers(config: ModelConfig) -> int:
    """Return how many layers keep a state of fixed size instead of KV."""
    text = config.text
    pattern = text.text("hybrid_override_pattern")
    if pattern:
        return pattern[: config.layers].count("M")
    kda = text.inner("linear_attn_config")
    if kda is not None:
        return len({layer for layer in kda.wholes("kda_layers") if 1 <= layer <= config.layers})
    if config.architecture.startswith("FalconH1"):
        return config.layers
    kinds = text.words("layer_types")[: config.layers] or text.words("layers_block_type")[: config.layers]
    if kinds:
        return sum(kind in _LINEAR_WORDS for kind in kinds)
    if text.values.get("linear_num_value_heads") is not None:
        return config.layers - config.layers // text.whole("full_attention_interval", default=4, least=1)
    return 0


def _full_layers(config: ModelConfig, linear: int) -> int:
    pattern = config.text.text("hybrid_override_pattern")
    if pattern:
        return pattern[: config.layers].count("*")
    kinds = config.text.words("layers_block_type")[: config.layers]
    if kinds:
        return sum(kind in ("attention", "hybrid", "full_attention") for kind in kinds)
    return config.layers - linear


def _state(config: ModelConfig, layers: int) -> LayerGroup:
    """Return the group of the linear layers; with `state_bytes` 0 if the model is of no known family.

    Convolution state in bfloat16, recurrent state in float32 unless the model says otherwise (mamba2_state_dtype).
    """
    text = config.text
    if text.values.get("linear_num_value_heads") is not None:
        heads, keys = text.whole("linear_num_value_heads", least=1), text.whole("linear_num_key_heads", least=1)
        v_dim, k_dim = text.whole("linear_value_head_dim", least=1), text.whole("linear_key_head_dim", least=1)
        convolved = heads * v_dim + 2 * keys * k_dim
        kernel = text.whole("linear_conv_kernel_dim", default=4, least=1)
    elif text.values.get("mamba_num_heads") is not None:
        heads, v_dim = text.whole("mamba_num_heads", least=1), text.whole("mamba_head_dim", least=1)
        k_dim = text.whole("ssm_state_size", least=1)
        convolved = heads * v_dim + 2 * text.whole("n_groups", default=1, least=1) * k_dim
        kernel = text.whole("conv_kernel", default=4, least=1)
    elif text.values.get("mamba_n_heads") is not None:
        heads, k_dim = text.whole("mamba_n_heads", least=1), text.whole("mamba_d_state", least=1)
        v_dim = text.whole("mamba_d_head", default=0) or config.hidden_size * 2 // heads
        convolved = heads * v_dim + 2 * text.whole("mamba_n_groups", default=1, least=1) * k_dim
        kernel = text.whole("mamba_d_conv", default=4, least=1)
    elif text.inner("linear_attn_config") is not None:
        kda = text.inner("linear_attn_config") or text
        heads = kda.whole("num_heads", least=1)
        v_dim = k_dim = kda.whole("head_dim", least=1)
        convolved = 3 * heads * v_dim
        kernel = kda.whole("short_conv_kernel_size", default=4, least=1)
    elif text.values.get("conv_L_cache") is not None:
        heads = v_dim = k_dim = 0
        convolved, kernel = config.hidden_size, text.whole("conv_L_cache", least=1)
    else:
        return LayerGroup("linear", layers)
    number = {"bfloat16": 2, "float16": 2}.get(text.text("mamba_ssm_dtype"), 4)
    state = convolved * (kernel - 1) * 2 + heads * v_dim * k_dim * number
    return LayerGroup("linear", layers, heads, k_dim, v_dim, state_bytes=state)
