# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang does with a tensor of a given name: which ranks hold which share of it.

Mirrors the layers that the models of sglang/srt/models (0.5.14, 0.5.23) are built from: VocabParallelEmbedding and
ParallelLMHead (split by padded vocabulary), QKVParallelLinear (keys and values are repeated where ranks outnumber
their heads), ColumnParallelLinear and RowParallelLinear (split), FusedMoE (split or spread), ReplicatedLinear, norms
and nn.Linear (whole on each rank). Scales, zero points and group indices follow their weight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.headroom.serving.plugins.module_utils.model_config import ModelConfig

# The share of a rank, by kind of part.
EMBEDDING = "embedding"  # rows of the vocabulary, padded
HEAD = "head"  # the same for the output
ATTENTION = "attention"  # by heads, over the attention ranks
KV = "kv"  # by KV heads, at least one on each rank
MLP = "mlp"  # over all ranks
SHARED_EXPERT = "shared_expert"  # as MLP, but whole on each rank where experts are reached by all-to-all
EXPERT = "expert"  # over all ranks, by expert and within experts
REPLICATED = "replicated"  # whole on each rank
VISION_SHARDED = "vision_sharded"  # as attention, unless the encoder is run data-parallel
VISION_REPLICATED = "vision_replicated"
SKIPPED = "skipped"  # in the files but never loaded
UNKNOWN = "unknown"  # counted as whole on each rank: rather too much than too little
SHARDED = frozenset({EMBEDDING, HEAD, ATTENTION, KV, MLP, SHARED_EXPERT, EXPERT, VISION_SHARDED})
VISION = frozenset({VISION_SHARDED, VISION_REPLICATED})

_WEIGHT_PARTS = frozenset(
    {
        *("weight", "bias", "qweight", "qzeros", "scales", "g_idx", "perm", "zeros"),
        *("weight_packed", "weight_scale", "weight_scale_inv", "weight_shape", "weight_zero_point", "weight_g_idx"),
        *(
            "weight_global_scale",
            "weight_scale_2",
            "input_global_scale",
            "input_scale",
            "input_zero_point",
            "act_scale",
        ),
        *("k_scale", "v_scale", "output_scale", "pre_quant_scale", "quant_map", "absmax", "smooth_factor"),
    }
)
_TOWERS = frozenset(
    {
        *("vision_tower", "visual", "vision_model", "vision_encoder", "vit", "vpm", "sam_model", "vit_large_projector"),
        *("multi_modal_projector", "mm_projector", "mlp1", "resampler", "projector", "aligner", "patch_merger"),
        *(
            "image_newline",
            "view_seperator",
            "embed_vision",
            "embed_audio",
            "audio_tower",
            "audio_model",
            "vision_proj",
        ),
        *("img_projection", "img_processor", "embed_tokens_extend", "speech_encoder", "vision_adapter", "qformer"),
        *("pre_mm_projector_norm", "vision_language_adapter", "glm_projection", "radio_model", "sound_encoder"),
    }
)
_TOWER_SPLIT = frozenset(
    {
        *(
            "q_proj",
            "k_proj",
            "v_proj",
            "qkv",
            "qkv_proj",
            "wqkv",
            "wo",
            "proj",
            "out_proj",
            "o_proj",
            "in_proj_weight",
        ),
        *("query", "key", "value", "fc1", "fc2", "gate_proj", "up_proj", "down_proj", "gate_up_proj", "linear_fc1"),
        *("linear_fc2", "w1", "w2", "w3", "lin1", "lin2"),
    }
)
# Of these only the attention is split: their MLP is plain nn.Linear or ReplicatedLinear (kimi_k25.py, pixtral.py).
_TOWER_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "wqkv", "wo", "proj", "out_proj", "o_proj"})
_ATTENTION_ONLY_TOWERS = frozenset({"KimiK25ForConditionalGeneration"})
# kimi_vl_moonvit.py is nn.Linear throughout.
_WHOLE_TOWERS = frozenset({"KimiVLForConditionalGeneration"})
_ATTENTION = frozenset(
    {
        *("q_proj", "q_b_proj", "kv_b_proj", "o_proj", "out_proj", "wq", "wo", "wq_b", "wo_a", "wo_b", "q_up_proj"),
        *("in_proj", "in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d"),
        *("A_log", "dt_bias", "D", "q_conv1d", "k_conv1d", "v_conv1d", "f_b_proj", "g_b_proj", "b_proj", "g_proj"),
        *("sinks", "query", "q", "attention_sink_bias", "conv"),
    }
)
_KV = frozenset({"k_proj", "v_proj", "wk", "wv", "key", "value", "k", "v"})
_QKV = frozenset({"qkv_proj", "query_key_value", "c_attn", "W_pack", "wqkv", "qkv", "Wqkv", "attn_qkv"})
_MLP = frozenset(
    {
        *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3", "fc1", "fc2", "fc_in", "fc_out"),
        *("dense_h_to_4h", "dense_4h_to_h", "c_fc", "wi", "w13", "linear_fc1", "linear_fc2", "shared_mlp"),
        *("input_linear", "output_linear"),
    }
)
_REPLICATED = frozenset(
    {
        *("q_a_proj", "kv_a_proj_with_mqa", "kv_a_proj", "fused_qkv_a_proj_with_mqa", "q_down_proj", "wq_a", "wkv"),
        *("gate", "router", "wg", "shared_expert_gate", "f_a_proj", "g_a_proj", "fc1_latent_proj", "fc2_latent_proj"),
        *("eh_proj", "fc", "input_proj", "e_score_correction_bias", "expert_bias", "d2t", "t2d", "wpe"),
        *("position_embeddings", "embed_positions", "rotary_emb", "layer_scalar", "per_expert_scale"),
    }
)
_EMBEDDING = frozenset(
    {*("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embedding", "embeddings", "word_embed")}
)
_HEAD = frozenset({"lm_head", "output", "embed_out", "output_layer", "head"})
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,9})\.")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Place:
    """Where a tensor goes: the kind of its part, its layer (-1 for none), and whether it is the draft model's."""

    kind: str
    layer: int
    draft: bool = False
    fused_qkv: bool = False


class Places:
    """Tells the place of each tensor of one model; names that differ in numbers only are looked at once."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._known: dict[str, tuple[str, bool]] = {}
        # A draft model of its own takes embedding and output over from its target; EAGLE-3 has its own output.
        self._eagle = "eagle" in config.architecture.lower()
        self._own_head = "eagle3" in config.architecture.lower()

    def of(self, name: str) -> Place:
        """Return the place of a tensor by its full name in the checkpoint."""
        pattern = _DIGITS.sub("0", name)
        known = self._known.get(pattern)
        if known is None:
            known = self._known[pattern] = self._kind(name)
        kind, fused = known
        found = _LAYER.search(name)
        layer = int(found.group(1)) if found is not None and kind not in VISION else -1
        if self._eagle and (kind == EMBEDDING or (kind == HEAD and not self._own_head)):
            return Place(SKIPPED, -1)
        draft = name.startswith("mtp.") or ".mtp." in name or (layer >= self._config.layers)
        if draft:
            # The draft model uses the target's embedding and output, and gives back its own (set_embed_and_head).
            kind, layer = (SKIPPED if kind in (EMBEDDING, HEAD) else kind), -1
        return Place(kind, layer, draft, fused)

    def _kind(self, name: str) -> tuple[str, bool]:
        parts = name.split(".")
        leaf = parts[-2] if parts[-1] in _WEIGHT_PARTS and len(parts) > 1 else parts[-1]
        if leaf == "inv_freq" or parts[-1] == "inv_freq":
            return SKIPPED, False
        if not _TOWERS.isdisjoint(parts) and not {"language_model", "llm"} & set(parts[:2]):
            return self._tower(leaf, parts), False
        if "indexer" in parts:
            return REPLICATED, False
        if "experts" in parts or leaf.startswith("experts"):
            return EXPERT, False
        if leaf in _MLP and not {"shared_expert", "shared_experts"}.isdisjoint(parts):
            return SHARED_EXPERT, False
        if leaf in _QKV:
            return ATTENTION, True
        if leaf == "dense":
            return (ATTENTION if any("attention" in part or "attn" in part for part in parts) else MLP), False
        if leaf == "c_proj":
            return (ATTENTION if "attn" in parts else MLP), False
        if leaf == "embeddings" and "norm" in parts[-1]:
            return REPLICATED, False
        for names, kind in (
            (_REPLICATED, REPLICATED),
            (_ATTENTION, ATTENTION),
            (_KV, KV),
            (_MLP, MLP),
            (_EMBEDDING, EMBEDDING),
            (_HEAD, HEAD),
        ):
            if leaf in names:
                return kind, False
        if "norm" in leaf or leaf.startswith(("ln_", "ln")) or leaf.endswith("_ln"):
            return REPLICATED, False
        return UNKNOWN, False

    def _tower(self, leaf: str, parts: list[str]) -> str:
        if self._config.architecture in _WHOLE_TOWERS:
            return VISION_REPLICATED
        names = _TOWER_ATTENTION if self._config.architecture in _ATTENTION_ONLY_TOWERS else _TOWER_SPLIT
        split = leaf in names and bool(_LAYER.search(".".join(parts)) or {"merger", "resblocks"} & set(parts))
        # The patch embedding is a convolution called "proj" in some towers.
        return VISION_SHARDED if split and "patch_embed" not in parts else VISION_REPLICATED
