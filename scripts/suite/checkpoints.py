"""Checkpoints with real headers and no contents: sparse files, to test and measure what is read from headers.

Usage: PYTHONPATH=scripts python -m suite.checkpoints DIRECTORY

writes Kimi-K2.5 in INT4 there, 595 GB in 64 files that take some 50 MB of the disk.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

TensorSpec = tuple[str, str, tuple[int, ...]]
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "F8_E4M3": 1, "U8": 1, "I8": 1}

# The language model of Kimi-K2.5 is one of DeepSeek-V3's kind; figures as its publisher states them.
KIMI_K25: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "dtype": "bfloat16",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 384,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": 262144,
        "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096},
        "vocab_size": 163840,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
            "kv_cache_scheme": None,
        },
    },
    "vision_config": {
        "model_type": "kimi_k25",
        "vt_num_hidden_layers": 27,
        "vt_hidden_size": 1152,
        "vt_intermediate_size": 4304,
        "vt_num_attention_heads": 16,
        "mm_hidden_size": 1152,
        "text_hidden_size": 7168,
        "patch_size": 14,
        "init_pos_emb_height": 64,
        "init_pos_emb_width": 64,
        "merge_kernel_size": [2, 2],
    },
}


def write(
    folder: Path, config: Mapping[str, Any], tensors: Iterable[TensorSpec], shards: int = 1, index: bool = True
) -> dict[str, str]:
    """Write a checkpoint whose files have the right sizes and no blocks on disk.

    Args:
        folder: Where to write; made if need be.
        config: The object of config.json.
        tensors: Name, type and shape of each tensor.
        shards: Over how many files they are spread, in their order and about equally by size.
        index: Whether to write the index that names the file of each tensor.

    Returns:
        The file of each tensor.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    todo = [(name, kind, shape, math.prod(shape) * _BYTES[kind]) for name, kind, shape in tensors]
    total = sum(size for *_rest, size in todo)
    weight_map: dict[str, str] = {}
    place, done = 0, 0
    for shard in range(1, shards + 1):
        name = f"model-{shard:05}-of-{shards:06}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        reached = 0
        while place < len(todo) and (shard == shards or done < total * shard // shards):
            tensor, kind, shape, size = todo[place]
            header[tensor] = {"dtype": kind, "shape": list(shape), "data_offsets": [reached, reached + size]}
            weight_map[tensor] = name
            reached, done, place = reached + size, done + size, place + 1
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with (folder / name).open("wb") as handle:
            handle.write(len(text).to_bytes(8, "little") + text)
            os.ftruncate(handle.fileno(), 8 + len(text) + reached)
    if index:
        whole = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(whole, indent=2))
    return weight_map


def kimi_k25() -> Iterator[TensorSpec]:
    """Yield the tensors of Kimi-K2.5: INT4 experts in groups of 32, everything else in bfloat16, a vision tower."""
    text = KIMI_K25["text_config"]
    hidden, prefix = text["hidden_size"], "language_model."
    yield f"{prefix}model.embed_tokens.weight", "BF16", (text["vocab_size"], hidden)
    for layer in range(text["num_hidden_layers"]):
        at = f"{prefix}model.layers.{layer}."
        yield f"{at}input_layernorm.weight", "BF16", (hidden,)
        yield f"{at}post_attention_layernorm.weight", "BF16", (hidden,)
        yield from _latent_attention(f"{at}self_attn.", text)
        if layer < text["first_k_dense_replace"]:
            yield from _mlp(f"{at}mlp.", hidden, text["intermediate_size"])
            continue
        width, experts = text["moe_intermediate_size"], text["n_routed_experts"]
        yield f"{at}mlp.gate.weight", "BF16", (experts, hidden)
        yield f"{at}mlp.gate.e_score_correction_bias", "F32", (experts,)
        yield from _mlp(f"{at}mlp.shared_experts.", hidden, width)
        for expert in range(experts):
            for name, rows, columns in (
                ("gate_proj", width, hidden),
                ("up_proj", width, hidden),
                ("down_proj", hidden, width),
            ):
                matrix = f"{at}mlp.experts.{expert}.{name}."
                yield f"{matrix}weight_packed", "I32", (rows, columns // 8)
                yield f"{matrix}weight_scale", "BF16", (rows, columns // 32)
                yield f"{matrix}weight_shape", "I64", (2,)
    yield f"{prefix}model.norm.weight", "BF16", (hidden,)
    yield f"{prefix}lm_head.weight", "BF16", (text["vocab_size"], hidden)
    yield from _kimi_vision(KIMI_K25["vision_config"])


def _latent_attention(at: str, text: Mapping[str, Any]) -> Iterator[TensorSpec]:
    hidden, heads, rank = text["hidden_size"], text["num_attention_heads"], text["kv_lora_rank"]
    nope, rope, value, query = (text[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank"))
    yield f"{at}q_a_proj.weight", "BF16", (query, hidden)
    yield f"{at}q_a_layernorm.weight", "BF16", (query,)
    yield f"{at}q_b_proj.weight", "BF16", (heads * (nope + rope), query)
    yield f"{at}kv_a_proj_with_mqa.weight", "BF16", (rank + rope, hidden)
    yield f"{at}kv_a_layernorm.weight", "BF16", (rank,)
    yield f"{at}kv_b_proj.weight", "BF16", (heads * (nope + value), rank)
    yield f"{at}o_proj.weight", "BF16", (hidden, heads * value)


def _mlp(at: str, hidden: int, width: int) -> Iterator[TensorSpec]:
    yield f"{at}gate_proj.weight", "BF16", (width, hidden)
    yield f"{at}up_proj.weight", "BF16", (width, hidden)
    yield f"{at}down_proj.weight", "BF16", (hidden, width)


def _kimi_vision(vision: Mapping[str, Any]) -> Iterator[TensorSpec]:
    hidden, width, patch = vision["vt_hidden_size"], vision["vt_intermediate_size"], vision["patch_size"]
    yield "vision_tower.patch_embed.proj.weight", "BF16", (hidden, 3, patch, patch)
    yield "vision_tower.patch_embed.proj.bias", "BF16", (hidden,)
    positions = (vision["init_pos_emb_height"], vision["init_pos_emb_width"], hidden)
    yield "vision_tower.patch_embed.pos_emb.weight", "BF16", positions
    for layer in range(vision["vt_num_hidden_layers"]):
        at = f"vision_tower.encoder.blocks.{layer}."
        for name, rows, columns in (
            ("wqkv", 3 * hidden, hidden),
            ("wo", hidden, hidden),
            ("mlp.fc0", width, hidden),
            ("mlp.fc1", hidden, width),
        ):
            yield f"{at}{name}.weight", "BF16", (rows, columns)
            yield f"{at}{name}.bias", "BF16", (rows,)
        for name in ("norm0", "norm1"):
            yield f"{at}{name}.weight", "BF16", (hidden,)
            yield f"{at}{name}.bias", "BF16", (hidden,)
    for name in ("weight", "bias"):
        yield f"vision_tower.encoder.final_layernorm.{name}", "BF16", (hidden,)
        yield f"mm_projector.pre_norm.{name}", "BF16", (vision["mm_hidden_size"],)
    merged = vision["mm_hidden_size"] * math.prod(vision["merge_kernel_size"])
    for name, rows in (("proj.0", merged), ("proj.2", vision["text_hidden_size"])):
        yield f"mm_projector.{name}.weight", "BF16", (rows, merged)
        yield f"mm_projector.{name}.bias", "BF16", (rows,)


def main(folder: Path) -> None:
    """Write Kimi-K2.5 into a directory that anybody can read; what was there before is replaced as a whole."""
    draft = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    write(draft, KIMI_K25, kimi_k25(), shards=64)
    for path in (draft, *draft.iterdir()):
        path.chmod(0o755 if path is draft else 0o644)
    shutil.rmtree(folder, ignore_errors=True)
    draft.replace(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
