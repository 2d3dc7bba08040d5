# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The range of each field of a ModelShape: what a plan can reckon with, whoever wrote the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from ansible_collections.headroom.serving.plugins.module_utils import model_bounds, tensor_parts
from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import LayerGroup, LayerKind
from ansible_collections.headroom.serving.plugins.module_utils.model_config import DTYPES
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import (
    ABSORBED,
    TABLES,
    Allocation,
    WeightPart,
)

_LAYERS, _DIMENSION, _BYTES = model_bounds.LAYERS, model_bounds.DIMENSION, model_bounds.BYTES
_SHAPE = {
    "layers": (1, _LAYERS),
    "hidden_size": (1, _DIMENSION),
    "vocab_size": (1, model_bounds.VOCABULARY),
    "attention_heads": (1, _DIMENSION),
    "experts": (0, model_bounds.EXPERTS),
    "experts_per_token": (0, model_bounds.EXPERTS),
    "moe_intermediate_size": (0, _DIMENSION),
    "context_tokens": (1, model_bounds.TOKENS),
    "vision_layers": (0, _LAYERS),
    "vision_hidden_size": (0, _DIMENSION),
    "sharded_bytes": (0, _BYTES),
    "replicated_bytes": (0, _BYTES),
    "expert_bytes": (0, _BYTES),
    "vision_bytes": (0, _BYTES),
    "tensors": (0, model_bounds.TENSORS),
    "files": (0, model_bounds.FILES),
    "total_bytes": (0, _BYTES),
    "largest_file_bytes": (0, _BYTES),
    "intermediate_size": (0, _DIMENSION),
    "kv_heads": (1, _DIMENSION),
    "draft_layers": (0, _LAYERS),
    "draft_bytes": (0, _BYTES),
}
_GROUP = {
    "kv_heads": (0, _DIMENSION),
    "head_dim": (0, 2 * _DIMENSION),
    "v_head_dim": (0, _DIMENSION),
    "kv_lora_rank": (0, _DIMENSION),
    "rope_dim": (0, _DIMENSION),
    "window_tokens": (0, model_bounds.TOKENS),
    "index_head_dim": (0, _DIMENSION),
    "state_bytes": (0, _BYTES),
}
_PLAIN = ("kv_heads", "head_dim", "v_head_dim")
# What layers of a kind can't be without.
_NEEDED = {"mha": _PLAIN, "swa": _PLAIN, "mla": ("kv_lora_rank", "rope_dim"), "linear": ()}
_KINDS = tensor_parts.SHARDED | tensor_parts.VISION | {tensor_parts.REPLICATED, tensor_parts.UNKNOWN, ABSORBED, TABLES}
_COUNTS = {
    "groups": (1, 16),
    "parts": (0, model_bounds.PARTS),
    "allocations": (0, model_bounds.ALLOCATIONS + 1),
    "approximate": (0, 20),
}
_MATRICES = model_bounds.MATRICES + 2 * _LAYERS  # with the copies of latent attention
_REASON_LETTERS = 1000


def fault(values: Mapping[str, Any]) -> str:
    """Return what is wrong with the fields of a ModelShape, each of which has its type, or '' if nothing is."""
    return next(_faults(values), "")


def _faults(values: Mapping[str, Any]) -> Iterator[str]:
    yield from _out_of_range(values, _SHAPE)
    for name in ("architecture", "model_type", "quantization", "key"):
        if not model_bounds.is_name(values[name]) or (name == "architecture" and not values[name]):
            yield f"{name} is {_shown(values[name])}; it must be a name of {model_bounds.TEXT} letters at most"
    if values["dtype"] not in DTYPES:
        yield f"dtype is {_shown(values['dtype'])}; known are {', '.join(DTYPES)}"
    if values["kv_cache_quant"] not in ("", "fp8"):
        yield f"kv_cache_quant is {_shown(values['kv_cache_quant'])}; it must be empty or fp8"
    for name, (least, most) in _COUNTS.items():
        if not least <= len(values[name]) <= most:
            yield f"{name} has {len(values[name]):,} entries; there must be from {least} to {most:,}"
    for place, reason in enumerate(values["approximate"]):
        if not isinstance(reason, str) or len(reason) > _REASON_LETTERS or not reason.isprintable():
            yield f"approximate[{place}] is {_shown(reason)}; it must be one line of {_REASON_LETTERS} letters at most"
    for place, group in enumerate(values["groups"]):
        yield from (f"groups[{place}].{text}" for text in _of_group(group, values["layers"]))
    for place, part in enumerate(values["parts"]):
        yield from (f"parts[{place}].{text}" for text in _of_part(part, values["layers"]))
    for place, item in enumerate(values["allocations"]):
        yield from (f"allocations[{place}].{text}" for text in _of_allocation(item))
    count = sum(item.count for item in values["allocations"])
    if count > _MATRICES:
        yield f"allocations[].count is {count:,} in all; it must be {_MATRICES:,} at most"


def _of_group(group: LayerGroup, layers: int) -> Iterator[str]:
    if group.kind not in get_args(LayerKind):
        yield f"kind is {_shown(group.kind)}; known are {', '.join(get_args(LayerKind))}"
        return
    needed = {name: (1, _GROUP[name][1]) for name in _NEEDED[group.kind]}
    yield from _out_of_range(vars(group), {"layers": (1, layers), **_GROUP, **needed})


def _of_part(part: WeightPart, layers: int) -> Iterator[str]:
    if part.kind not in _KINDS:
        yield f"kind is {_shown(part.kind)}; known are {', '.join(sorted(_KINDS))}"
    last = layers - max(0, part.first_layer) if part.first_layer >= 0 else 1
    ranges = {"first_layer": (-1, layers - 1), "layers": (1, last), "bytes_per_layer": (0, _BYTES)}
    yield from _out_of_range(vars(part), ranges)


def _of_allocation(item: Allocation) -> Iterator[str]:
    if item.kind not in _KINDS:
        yield f"kind is {_shown(item.kind)}; known are {', '.join(sorted(_KINDS))}"
    yield from _out_of_range(vars(item), {"size_bytes": (0, _BYTES), "count": (1, _MATRICES)})


def _out_of_range(values: Mapping[str, Any], ranges: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for name, (least, most) in ranges.items():
        if not least <= values[name] <= most:
            yield f"{name} is {_shown(values[name])}; it must be from {least} to {most:,}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
