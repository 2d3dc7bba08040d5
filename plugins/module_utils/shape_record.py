# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ModelShape: what a model is made of, as far as memory goes, and the JSON record of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import shape_bounds
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import LayerGroup
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import Allocation, WeightPart

# Counts up whenever a record of an older collection would be read wrongly, or is known to be wrong.
FORMAT = 1
# Real ones have kilobytes; a tree of objects takes thirty times its text.
LARGEST_LETTERS = 8_000_000
# By the names of a field's type; all others are lists.
_TYPES: Mapping[str, tuple[type[Any], str]] = {
    "int": (int, "a whole number"),
    "str": (str, "a text"),
    "bool": (bool, "true or false"),
    "LayerKind": (str, "a text"),
}


@dataclass(frozen=True)
class ModelShape:
    """A model: bytes as SGLang loads them, before any rank takes its part.

    `sharded_bytes` and `replicated_bytes` are the target model's own weights; those of draft layers that lie in the
    same files are in `draft_bytes`, and what SGLang makes on its own (copies of latent attention, RoPE tables) is in
    `parts` only. `expert_bytes` is part of the sharded bytes, `vision_bytes` part of both. `tensors`, `files`,
    `total_bytes` (of all tensors) and `largest_file_bytes` describe what lies on disk. `vision_layers` and
    `vision_hidden_size` are what SGLang's rule for the fraction sees of a vision tower, 0 where it sees none.
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
        HeadroomError: With `model.record_invalid` if it is none, one of another format, or has a field that can't be
            true of any model.
    """
    if len(text) > LARGEST_LETTERS:
        raise _no_record(where, f"has {len(text):,} letters, more than any record")
    try:
        found = json.loads(text, parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise _no_record(where, f"is no JSON: {str(error)[:80]}") from error
    if not isinstance(found, dict):
        raise _no_record(where, "is no JSON object")
    if found.get("format") != FORMAT:
        raise _no_record(where, f"has format {found.get('format')!r:.20}; this collection reads format {FORMAT}")
    values = dict(_checked(found, ModelShape, where))
    values["groups"] = tuple(LayerGroup(**item) for item in _entries(values, "groups", LayerGroup, where))
    values["parts"] = tuple(WeightPart(**item) for item in _entries(values, "parts", WeightPart, where))
    values["allocations"] = tuple(Allocation(**item) for item in _entries(values, "allocations", Allocation, where))
    fault = shape_bounds.fault(values)
    if fault:
        raise _no_record(where, f"is of no model: {fault}")
    return ModelShape(**values)


def _number(digits: str) -> int | float:
    """Return a number; one of millions of digits, which int() takes hours for, is none of a model's."""
    return int(digits) if len(digits) <= 40 else float(digits)


def _entries(values: Mapping[str, Any], name: str, kind: type[Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each entry of a list."""
    for place, item in enumerate(values[name]):
        yield dict(_checked(item, kind, where, f"{name}[{place}]"))


def _checked(found: Any, kind: type[Any], where: str, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record, each of the type that the dataclass gives it; `above` is the entry's own name."""
    if not isinstance(found, Mapping):
        raise _no_record(where, f"has {found!r:.40} for {above}; it must be a mapping")
    for field in fields(kind):
        name = f"{above}.{field.name}" if above else field.name
        if field.name not in found:
            raise _no_record(where, f"lacks {name}")
        value = found[field.name]
        wanted, words = _TYPES.get(str(field.type), (list, "a list"))
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise _no_record(where, f"has {value!r:.40} for {name}; it must be {words}")
        yield field.name, tuple(value) if isinstance(value, list) else value


def _no_record(where: str, what: str) -> HeadroomError:
    return refusal("model.record_invalid", f"{where} {what}.", "Make it anew from the model's directory.")
