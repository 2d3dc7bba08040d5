# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ModelShape: what a model is made of, as far as memory goes, and the JSON record of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import LayerGroup, LayerKind
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import Allocation, WeightPart

# Counts up whenever a record of an older collection would be read wrongly, or is known to be wrong.
FORMAT = 1


@dataclass(frozen=True)
class ModelShape:
    """A model: bytes as SGLang loads them, before any rank takes its part.

    `sharded_bytes` and `replicated_bytes` are the target model's own weights; those of draft layers that lie in the
    same files are in `draft_bytes`, and what SGLang makes on its own (copies of latent attention, RoPE tables) is in
    `parts` only. `expert_bytes` is part of the sharded bytes, `vision_bytes` part of both. `tensors`, `files`,
    `total_bytes` (of all tensors) and `largest_file_bytes` describe what lies on disk.
    """

    format: int
    architecture: str
    model_type: str
    layers: int
    hidden_size: int
    vocab_size: int
    attention_heads: int
    experts: int
    experts_per_token: int
    moe_intermediate_size: int
    context_tokens: int
    dtype: str
    quantization: str
    kv_cache_quant: str
    groups: tuple[LayerGroup, ...]
    is_multimodal: bool
    vision_layers: int
    vision_hidden_size: int
    sharded_bytes: int
    replicated_bytes: int
    expert_bytes: int
    vision_bytes: int
    tensors: int
    files: int
    total_bytes: int
    largest_file_bytes: int
    key: str
    approximate: tuple[str, ...]
    intermediate_size: int = 0
    kv_heads: int = 0
    tied_embeddings: bool = False
    draft_layers: int = 0
    draft_bytes: int = 0
    parts: tuple[WeightPart, ...] = ()
    allocations: tuple[Allocation, ...] = ()

    def __hash__(self) -> int:
        """Return the hash of what tells models apart: that of thousands of parts would cost more than a plan."""
        return hash((self.key, self.architecture, self.layers, self.sharded_bytes, self.replicated_bytes))


def to_json(shape: ModelShape) -> str:
    """Return the shape as the JSON record that `from_json` takes."""
    return json.dumps(asdict(shape), indent=1)


def from_json(text: str, where: str = "model record") -> ModelShape:
    """Return the shape of a record.

    Args:
        text: What `to_json` gave.
        where: Where it came from, for messages.

    Raises:
        HeadroomError: With `model.record_invalid` if it is none, or one of another format.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_record(where, f"is no JSON: {str(error)[:80]}") from error
    if not isinstance(found, dict):
        raise _no_record(where, "is no JSON object")
    if found.get("format") != FORMAT:
        raise _no_record(where, f"has format {found.get('format')!r:.20}; this collection reads format {FORMAT}")
    values = dict(_checked(found, ModelShape, where))
    values["groups"] = tuple(LayerGroup(**dict(_checked(item, LayerGroup, where))) for item in values["groups"])
    values["parts"] = tuple(WeightPart(**dict(_checked(item, WeightPart, where))) for item in values["parts"])
    values["allocations"] = tuple(
        Allocation(**dict(_checked(item, Allocation, where))) for item in values["allocations"]
    )
    if any(group.kind not in get_args(LayerKind) for group in values["groups"]):
        raise _no_record(where, "has a group of layers of unknown kind")
    return ModelShape(**values)


def _checked(found: Any, kind: type[Any], where: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record, each of the type that the dataclass gives it."""
    if not isinstance(found, Mapping):
        raise _no_record(where, f"has {found!r:.40} where a mapping belongs")
    kinds = {"int": int, "str": str, "bool": bool, "LayerKind": str}
    for field in fields(kind):
        if field.name not in found:
            raise _no_record(where, f"lacks {field.name}")
        value = found[field.name]
        wanted = kinds.get(str(field.type), list)
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise _no_record(where, f"has {value!r:.40} for {field.name}")
        yield field.name, tuple(value) if isinstance(value, list) else value


def _no_record(where: str, what: str) -> HeadroomError:
    return refusal("model.record_invalid", f"{where} {what}.", "Make it anew from the model's directory.")
