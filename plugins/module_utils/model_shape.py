# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model is made of, as far as memory goes: read once from its headers, then kept as a small record.

The door to all that is known of a model: the types and functions of the rooms below it are handed on from here.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import (
    layer_groups,
    model_config,
    shape_bounds,
    tensor_parts,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import LayerGroup
from ansible_collections.headroom.serving.plugins.module_utils.model_config import ModelConfig
from ansible_collections.headroom.serving.plugins.module_utils.model_files import ModelFiles
from ansible_collections.headroom.serving.plugins.module_utils.rank_weights import (
    draft_bytes_per_rank,
    offloaded_bytes_per_rank,
    weight_bytes_per_rank,
)
from ansible_collections.headroom.serving.plugins.module_utils.shape_record import (
    FORMAT,
    ModelShape,
    from_json,
    to_json,
)
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import WeightPart, parts_of

__all__ = [
    "FORMAT",
    "LayerGroup",
    "ModelShape",
    "WeightPart",
    "draft_bytes_per_rank",
    "from_dir",
    "from_json",
    "offloaded_bytes_per_rank",
    "stored",
    "to_json",
    "weight_bytes_per_rank",
]


def from_dir(path: str, dummy: bool = False) -> ModelShape:
    """Read a model's directory.

    Args:
        path: The directory.
        dummy: Whether the server makes up its weights (`--load-format dummy`), so that config.json alone counts.

    Raises:
        HeadroomError: With a finding `model.*`.
    """
    folder = Path(path)
    config = model_config.read(folder)
    return _shape(config, ModelFiles(folder, config.architecture, dummy))


def stored(path: str, store_dir: str, dummy: bool = False, keep: bool = True) -> ModelShape:
    """Return the shape from the record that was kept for these very files, or read the directory and keep one.

    Files count as the same while names, sizes and modification times are. A record that can't be read or written only
    costs time. Without `keep` none is written.

    Raises:
        HeadroomError: With a finding `model.*`.
    """
    folder = Path(path)
    config = model_config.read(folder)
    files = ModelFiles(folder, config.architecture, dummy)
    record = Path(store_dir, f"{files.key}.json")
    with contextlib.suppress(OSError, HeadroomError, UnicodeDecodeError):
        kept = from_json(record.read_text(encoding="utf-8"), str(record))
        if kept.key == files.key and kept.format == FORMAT:
            return kept
    shape = _shape(config, files)
    if not keep:
        return shape
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        fresh = record.with_suffix(f".{os.getpid()}")
        fresh.write_text(to_json(shape), encoding="utf-8")
        fresh.replace(record)
    return shape


def _shape(config: ModelConfig, files: ModelFiles) -> ModelShape:
    groups, group_notes = layer_groups.of(config)
    read = parts_of(config, files)
    target = [part for part in read.parts if not part.draft and part.stored]
    shape = ModelShape(
        format=FORMAT,
        architecture=config.architecture,
        model_type=config.model_type,
        layers=config.layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        attention_heads=config.attention_heads,
        experts=config.experts,
        experts_per_token=config.experts_per_token,
        moe_intermediate_size=config.moe_intermediate_size,
        context_tokens=config.context_tokens,
        dtype=config.dtype,
        quantization=config.quantization,
        kv_cache_quant=config.kv_cache_quant,
        groups=groups,
        is_multimodal=config.is_multimodal,
        vision_layers=config.vision_layers,
        vision_hidden_size=config.vision_hidden_size,
        sharded_bytes=sum(part.bytes for part in target if part.kind in tensor_parts.SHARDED),
        replicated_bytes=sum(part.bytes for part in target if part.kind not in tensor_parts.SHARDED),
        expert_bytes=sum(part.bytes for part in target if part.kind == tensor_parts.EXPERT),
        vision_bytes=sum(part.bytes for part in target if part.kind in tensor_parts.VISION),
        tensors=read.tensors,
        files=len(files.weights),
        total_bytes=read.stored_bytes,
        largest_file_bytes=max((size for _path, size in files.weights), default=0),
        key=files.key,
        approximate=(*config.approximate, *group_notes, *read.notes),
        intermediate_size=config.intermediate_size,
        kv_heads=config.kv_heads,
        tied_embeddings=read.tied,
        draft_layers=config.draft_layers,
        draft_bytes=sum(part.bytes for part in read.parts if part.draft and part.stored),
        parts=read.parts,
        allocations=read.allocations,
    )
    # Whatever passes here reads back from its record, too.
    fault = shape_bounds.fault(vars(shape))
    if fault:
        figures = (
            f"{shape.layers:,} layers, {shape.experts:,} experts, sides of {shape.hidden_size:,} and "
            f"{max(shape.intermediate_size, shape.moe_intermediate_size):,}, a vocabulary of {shape.vocab_size:,}"
        )
        raise model_config.invalid(f"{config.top.where} describes, with {figures}, what no model is: {fault}")
    return shape
