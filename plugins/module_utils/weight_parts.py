# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The weights of a model summed up into parts that ranks share in one way, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import (
    model_bounds,
    model_tensors,
    safetensors_headers,
    tensor_parts,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import is_mla
from ansible_collections.headroom.serving.plugins.module_utils.model_config import ModelConfig
from ansible_collections.headroom.serving.plugins.module_utils.model_files import ModelFiles
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.tensor_parts import Place, Places

ABSORBED = "absorbed"  # copies that latent attention makes of kv_b_proj, over the attention ranks
TABLES = "tables"  # RoPE, whole on each rank
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
MOST_TENSORS = model_bounds.TENSORS
# Smaller ones share blocks of 2 MiB, whose rest is nothing.
LEAST_MATRIX_BYTES = 2**20
_FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "q_a_proj": "qkv_a_proj",
    "kv_a_proj_with_mqa": "qkv_a_proj",
}
# What the fallback for files without names makes of their size (one estimate for all families).
_UNNAMED_SHARDED = 1.04
_UNNAMED_REPLICATED_BYTES = 2**29


@dataclass(frozen=True)
class WeightPart:
    """Bytes of one kind in a run of equal layers: `bytes_per_layer` in each of `layers` from `first_layer` on.

    `first_layer` is -1 for what belongs to no layer. `stored` is False for what is not in the files but made by
    SGLang. `draft` parts are loaded by a draft worker only.
    """

    kind: str
    first_layer: int
    layers: int
    bytes_per_layer: int
    draft: bool = False
    stored: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of all its layers."""
        return self.layers * self.bytes_per_layer


@dataclass(frozen=True)
class Allocation:
    """Tensors of one kind and size that the server asks for one by one; `size_bytes` before ranks share it."""

    kind: str
    size_bytes: int
    count: int
    draft: bool = False


@dataclass
class Read:
    """What the files hold."""

    parts: tuple[WeightPart, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    tensors: int = 0
    stored_bytes: int = 0
    tied: bool = False
    notes: list[str] = field(default_factory=list)


def parts_of(config: ModelConfig, files: ModelFiles) -> Read:
    """Sum up the weights of a model.

    Raises:
        HeadroomError: With a finding `model.*`.
    """
    sums = _Sums(config)
    if files.format == "safetensors":
        for tensor in _checked(files):
            sums.add(tensor.name, tensor.dtype, tensor.elements, tensor.size_bytes)
    elif files.format in ("dummy", "bin") and model_tensors.known(config):
        for name, elements in model_tensors.of(config):
            sums.add(name, "BF16", elements, elements * config.dtype_bytes)
        sums.note("there are no headers to read; the tensors are those that config.json asks for")
    elif files.format == "bin":
        on_disk = sum(size for _path, size in files.weights)
        sums.total(tensor_parts.MLP, int(on_disk * _UNNAMED_SHARDED))
        sums.total(tensor_parts.REPLICATED, _UNNAMED_REPLICATED_BYTES)
        sums.stored_bytes = on_disk
        sums.note("the weights are no safetensors, so what ranks share is estimated from the files' sizes")
    elif files.format == "gguf":
        raise refusal(
            "model.weights_format",
            f"{files.folder} holds GGUF weights, whose memory can't be told before a start.",
            "Use a checkpoint in safetensors format.",
        )
    elif files.format == "dummy":
        raise refusal(
            "model.weights_format",
            f"{files.folder}: the weights of {config.architecture} can't be told from config.json alone.",
            "Give a directory that holds the weights.",
        )
    else:
        raise refusal(
            "model.weights_missing",
            f"{files.folder} holds no weights.",
            "Copy or download the model's safetensors files.",
        )
    return sums.read()


def _checked(files: ModelFiles) -> Iterator[safetensors_headers.Tensor]:
    """Yield the tensors of all files that count, each once, and none that the index names left out."""
    index = files.index()
    # What was seen is marked in the index itself: a second mapping of all names would take as much again.
    expected: dict[str, str] = index if index is not None else {}
    for path, _size in files.weights:
        here = f"/{path.name}"  # the slash tells it from what the index says
        for tensor in safetensors_headers.tensors(path):
            before = expected.get(tensor.name, "")
            if before.startswith("/"):
                raise _held_twice(path, before, tensor.name)
            expected[tensor.name] = here
            if len(expected) > MOST_TENSORS:
                raise refusal(
                    "model.weights_damaged", f"{files.folder} has over {MOST_TENSORS} tensors.", "Copy the model again."
                )
            yield tensor
    for name, file in expected.items():
        if not file.startswith("/"):
            raise refusal(
                "model.weights_missing",
                f"{files.folder}: the index names the tensor {shown(name)} in {file}, which does not hold it.",
                "Copy or download the model again, index and weights of one revision.",
            )


def _held_twice(path: Path, before: str, name: str) -> HeadroomError:
    if before == f"/{path.name}":
        return refusal(
            "model.weights_damaged",
            f"{path} holds the tensor {shown(name)} twice.",
            "Copy or download this file again.",
        )
    return refusal(
        "model.weights_mixed",
        f"{path} holds the tensor {shown(name)}, and so does another file of that directory, {before[1:]}.",
        "Remove the files that do not belong to the checkpoint.",
    )


def shown(name: str) -> str:
    """Return the name of a tensor for a message, which may hold anything and be of any length."""
    text = repr(name)
    return text if len(text) <= model_bounds.TEXT else f"{text[: model_bounds.TEXT - 3]}..."


def fused_name(name: str) -> str:
    """Return the name of the parameter that a matrix becomes a part of, without its layer (packed_modules_mapping)."""
    stem = name.rpartition(".")[0]
    module = stem.rpartition(".")[2]
    owner = "shared." if "shared_expert" in stem else ""
    return owner + _FUSED.get(module, module if module.isidentifier() else stem)


class _Sums:
    """Adds up tensors by kind, layer and owner."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._places = Places(config)
        self._bytes: dict[tuple[str, int, bool], int] = {}
        self._unknown: dict[str, int] = {}
        self._notes: list[str] = []
        self._fp8_per_tensor = False
        self._matrices: dict[tuple[str, int, str, bool], int] = {}
        self.tensors = 0
        self.stored_bytes = 0

    def add(self, name: str, dtype: str, elements: int, size_bytes: int) -> None:
        """Count one tensor of the checkpoint."""
        self.tensors += 1
        self.stored_bytes += size_bytes
        place = self._places.of(name)
        if place.kind == tensor_parts.SKIPPED:
            return
        if dtype in _FLOATS and name.endswith((".weight", ".bias")):
            size_bytes = elements * self._config.dtype_bytes
        elif dtype == "F8_E4M3" and name.endswith("kv_b_proj.weight"):
            self._fp8_per_tensor = not self._blocks()
        if place.kind == tensor_parts.UNKNOWN:
            self._unknown[name] = size_bytes
        whole_bytes = size_bytes
        if place.fused_qkv:
            heads, kv_heads = self._config.attention_heads, self._config.kv_heads
            keys = size_bytes * 2 * kv_heads // (heads + 2 * kv_heads)
            self._count(Place(tensor_parts.KV, place.layer, place.draft), keys)
            size_bytes -= keys
        self._count(place, size_bytes)
        # Experts of a layer are one tensor by projection, and their sizes leave nothing over.
        is_key = place.kind == tensor_parts.KV
        if place.kind != tensor_parts.EXPERT and (is_key or whole_bytes >= LEAST_MATRIX_BYTES):
            # Queries, keys and values are one parameter, also where ranks share them differently.
            kind = tensor_parts.ATTENTION if is_key else place.kind
            key = (kind, place.layer, fused_name(name), place.draft)
            self._matrices[key] = self._matrices.get(key, 0) + whole_bytes

    def total(self, kind: str, size_bytes: int) -> None:
        """Count bytes that belong to no layer."""
        self._count(Place(kind, -1), size_bytes)

    def note(self, text: str) -> None:
        """Keep a reason why the figures are estimates."""
        self._notes.append(text)

    def read(self) -> Read:
        """Return all that was added, with what SGLang makes on its own."""
        head = (tensor_parts.HEAD, -1, False)
        tied = (self._config.tied_embeddings or head not in self._bytes) and not self._config.is_draft
        if tied:
            self._bytes.pop(head, None)
        self._absorbed()
        self._tables()
        if self._config.quantization == "mxfp4":
            self._notes.append("MXFP4 experts are padded by some per cent, differently on each kind of GPU")
        if self._unknown:
            first = max(self._unknown, key=lambda name: self._unknown[name])
            self._notes.append(
                f"{len(self._unknown)} tensors ({sum(self._unknown.values())} bytes) are of no known layer and counted "
                f"as whole on each rank, such as {shown(first)}"
            )
        parts, allocations = tuple(self._runs()), tuple(self._allocations())
        if len(self._matrices) > model_bounds.MATRICES or len(allocations) >= model_bounds.ALLOCATIONS:
            self._notes.append("what the allocator rounds up is counted for the first matrices only, as so many differ")
        return Read(parts, allocations, self.tensors, self.stored_bytes, tied, self._notes)

    def _count(self, place: Place, size_bytes: int) -> None:
        key = (place.kind, place.layer, place.draft)
        self._bytes[key] = self._bytes.get(key, 0) + size_bytes

    def _blocks(self) -> bool:
        quantization = self._config.top.inner("quantization_config")
        return quantization is not None and quantization.values.get("weight_block_size") is not None

    def _absorbed(self) -> None:
        """Latent attention keeps kv_b_proj and copies of its two halves (deepseek_weight_loader.py, w_kc and w_vc).

        The copies are bfloat16, also of AWQ and of FP8 in blocks; FP8 with one scale a tensor stays FP8.
        """
        config, text = self._config, self._config.text
        if not is_mla(config):
            return
        width = text.whole("qk_nope_head_dim", default=0) + text.whole("v_head_dim", default=0)
        size = config.attention_heads * width * text.whole("kv_lora_rank", least=1) * (1 if self._fp8_per_tensor else 2)
        for layer in range(config.layers):
            self._bytes[(ABSORBED, layer, False)] = size
        if config.draft_layers:
            self._bytes[(ABSORBED, -1, True)] = size * config.draft_layers

    def _tables(self) -> None:
        """Cosines and sines of all positions, in float32 on CUDA, one table for all layers (rotary_embedding)."""
        config, text = self._config, self._config.text
        scaling = text.inner("rope_scaling", "rope_parameters")
        positions = text.whole("max_position_embeddings", default=0, most=model_bounds.TOKENS)
        if scaling is not None and scaling.text("rope_type", "type") == "yarn":
            factor = scaling.values.get("factor")
            original = scaling.whole("original_max_position_embeddings", default=positions, most=model_bounds.TOKENS)
            if isinstance(factor, (int, float)) and 0 < factor < 10**6:
                positions = int(original * factor)
        share = text.values.get("partial_rotary_factor", 1)
        numbers = text.whole("qk_rope_head_dim", default=0) if is_mla(config) else config.head_dim
        if isinstance(share, (int, float)) and 0 < share < 1 and not is_mla(config):
            numbers = int(numbers * share)
        self._bytes[(TABLES, -1, False)] = positions * numbers * 4

    def _allocations(self) -> Iterator[Allocation]:
        """Yield the matrices in the order of a layer, equal ones of all layers together, copies after all others."""
        counts: dict[tuple[str, str, int, bool], int] = {}
        for (kind, _layer, name, draft), size in islice(self._matrices.items(), model_bounds.MATRICES):
            if (kind, -1, draft) in self._bytes or kind not in (tensor_parts.HEAD, tensor_parts.EMBEDDING):
                key = (kind, name, size, draft)
                counts[key] = counts.get(key, 0) + 1
        for (kind, _name, size, draft), count in islice(counts.items(), model_bounds.ALLOCATIONS):
            yield Allocation(kind, size, count, draft)
        copies = [size for (kind, _layer, draft), size in self._bytes.items() if kind == ABSORBED and not draft]
        if copies:
            yield Allocation(ABSORBED, copies[0] // 2, 2 * len(copies))

    def _runs(self) -> Iterator[WeightPart]:
        """Yield the sums with equal neighbouring layers in one part."""
        made = (ABSORBED, TABLES)
        for kind, draft in sorted({(kind, draft) for kind, _layer, draft in self._bytes}):
            layers = sorted(layer for k, layer, d in self._bytes if (k, d) == (kind, draft))
            first = 0
            for place in range(1, len(layers) + 1):
                size = self._bytes[(kind, layers[first], draft)]
                if place < len(layers):
                    follows = layers[place] == layers[place - 1] + 1 and layers[first] >= 0
                    if follows and self._bytes[(kind, layers[place], draft)] == size:
                        continue
                yield WeightPart(kind, layers[first], place - first, size, draft, kind not in made)
                first = place
