# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights on the fullest rank, for any split of a model over GPUs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from ansible_collections.headroom.serving.plugins.module_utils import tensor_parts, weight_parts
from ansible_collections.headroom.serving.plugins.module_utils.shape_record import ModelShape
from ansible_collections.headroom.serving.plugins.module_utils.weight_parts import WeightPart

_VOCABULARY_PADDING = 64
# kMinLargeAlloc, kSmallSize, kRoundLarge and kLargeBuffer of the allocator.
_LARGE_BYTES = 10 * 2**20
_SMALL_BYTES = 2**20
_ROUNDED_BYTES = 2 * 2**20
_BLOCK_BYTES = 20 * 2**20


@dataclass(frozen=True)
class Split:
    """How a model is spread: tensor, pipeline, expert ranks, and ranks of data-parallel attention (within tp)."""

    tp: int
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    vision_dp: bool = False
    without_vision: bool = False
    all_to_all: bool = False
    offload_bytes: int = 0


# The search for values that fit plans dozens of times, and the weights are the same each time.
@lru_cache(maxsize=64)
def weight_bytes_per_rank(
    shape: ModelShape,
    tp: int,
    pp: int = 1,
    ep: int = 1,
    attention_dp: int = 1,
    vision_dp: bool = False,
    without_vision: bool = False,
    all_to_all: bool = False,
    offload_bytes: int = 0,
) -> int:
    """Return the bytes of weights that the fullest rank holds after loading, those of draft layers not included.

    Args:
        shape: The model.
        tp: `--tp-size`.
        pp: `--pp-size`.
        ep: `--ep-size`.
        attention_dp: `--dp-size` with `--enable-dp-attention`, else 1.
        vision_dp: `--mm-enable-dp-encoder`.
        without_vision: `--language-only` or `--language-model-only`.
        all_to_all: `--moe-a2a-backend` is given and not "none": shared experts are whole on each rank then.
        offload_bytes: Up to how many bytes of a rank's layers lie in the host's memory instead.
    """
    split = Split(tp, pp, ep, attention_dp, vision_dp, without_vision, all_to_all, offload_bytes)
    parts = [part for part in shape.parts if not part.draft]
    if not parts:
        # A shape that was put together from totals alone.
        held = -(-(-(-shape.sharded_bytes // tp) + shape.replicated_bytes) // pp)
        return held - min(offload_bytes, -(-shape.sharded_bytes // tp) // pp)
    held = max(
        sum(_on_rank(shape, part, split, stage) for part in parts) - _offloaded(shape, split, stage)
        for stage in range(pp)
    )
    return held + _rest_bytes(shape, split) // pp


def offloaded_bytes_per_rank(
    shape: ModelShape, tp: int, pp: int, ep: int, attention_dp: int, all_to_all: bool, offload_bytes: int
) -> int:
    """Return the most bytes of its layers that a rank keeps in the host's memory; arguments as above."""
    split = Split(tp, pp, ep, attention_dp, all_to_all=all_to_all, offload_bytes=offload_bytes)
    if not any(not part.draft for part in shape.parts):
        return min(offload_bytes, -(-shape.sharded_bytes // tp) // pp)
    return max(_offloaded(shape, split, stage) for stage in range(pp))


def draft_bytes_per_rank(
    shape: ModelShape, tp: int, ep: int = 1, attention_dp: int = 1, all_to_all: bool = False
) -> int:
    """Return the bytes that a draft worker adds on each rank for the draft layers in the model's own files (MTP)."""
    split = Split(tp, 1, ep, attention_dp, all_to_all=all_to_all)
    return sum(_on_rank(shape, part, split, 0) for part in shape.parts if part.draft)


def stage_layers(layers: int, pp: int, stage: int) -> range:
    """Return the layers of a pipeline stage; the last stages get one more (distributed/utils.py, get_pp_indices)."""
    base, more = divmod(layers, pp)
    plain = pp - more
    first = stage * base + max(0, stage - plain)
    return range(first, first + base + (1 if stage >= plain else 0))


def _on_rank(shape: ModelShape, part: WeightPart, split: Split, stage: int) -> int:
    if part.kind in tensor_parts.VISION and split.without_vision:
        return 0
    if part.first_layer >= 0:
        mine = stage_layers(shape.layers, split.pp, stage)
        first, last = max(part.first_layer, mine.start), min(part.first_layer + part.layers, mine.stop)
        return max(0, last - first) * _share(shape, part, split)
    return part.layers * _share(shape, part, split) if _has(shape, part, split, stage) else 0


def _offloaded(shape: ModelShape, split: Split, stage: int) -> int:
    """Return what of a stage's layers is offloaded: their parameters, not what is made of them after loading."""
    if not split.offload_bytes:
        return 0
    layers = (part for part in shape.parts if part.first_layer >= 0 and part.stored and not part.draft)
    return min(split.offload_bytes, sum(_on_rank(shape, part, split, stage) for part in layers))


def _rest_bytes(shape: ModelShape, split: Split) -> int:
    """Return what PyTorch's allocator takes beyond what was asked for (c10/cuda/CUDACachingAllocator.cpp).

    It takes 20 MiB at a time for requests from 1 to 10 MiB and fills these blocks best fit; larger requests are
    rounded up to 2 MiB. The requests of all layers are played through in their order.
    """
    rest = 0
    layers: list[tuple[int, int]] = []
    copies: list[tuple[int, int]] = []
    for item in shape.allocations:
        if item.draft:
            continue
        size = _share(shape, WeightPart(item.kind, -1, 1, item.size_bytes), split)
        if size >= _LARGE_BYTES:
            rest += -size % _ROUNDED_BYTES * item.count
        elif size > _SMALL_BYTES:
            (copies if item.kind == weight_parts.ABSORBED else layers).append((size, item.count))
    return rest + left_in_blocks(chain(in_turns(layers), in_turns(copies)))


def in_turns(sizes: list[tuple[int, int]]) -> Iterator[int]:
    """Yield one of each size, then one of each that has another, and so on."""
    turn = 0
    while sizes:
        yield from (size for size, _count in sizes)
        turn += 1
        sizes = [(size, count) for size, count in sizes if count > turn]


def left_in_blocks(sizes: Iterable[int]) -> int:
    """Return what is left of all blocks once requests of these sizes were put into the fullest that has room."""
    rest = 0
    blocks: dict[int, int] = {}  # how many blocks have this much left
    lefts: list[int] = []  # the same figures in order
    for size in sizes:
        place = bisect_left(lefts, size)
        if place < len(lefts):
            found = lefts[place]
            blocks[found] -= 1
            if not blocks[found]:
                del blocks[found], lefts[place]
        else:
            found = _BLOCK_BYTES
        left = found - size
        if left <= _SMALL_BYTES:
            rest += left  # too little for any request of this kind
        elif left in blocks:
            blocks[left] += 1
        else:
            blocks[left] = 1
            insort(lefts, left)
    return rest + sum(left * count for left, count in blocks.items())


def _has(shape: ModelShape, part: WeightPart, split: Split, stage: int) -> bool:
    """Whether a stage holds what belongs to no layer: the ends of the model go to the ends of the pipeline."""
    last = split.pp - 1
    if part.kind == tensor_parts.EMBEDDING:
        return stage == 0 or (shape.tied_embeddings and stage == last)
    return part.kind != tensor_parts.HEAD or stage == last


def _share(shape: ModelShape, part: WeightPart, split: Split) -> int:
    """Return a rank's bytes of one layer of a part."""
    size, attention_tp = part.bytes_per_layer, max(1, split.tp // split.attention_dp)
    kind = part.kind
    if kind == tensor_parts.EMBEDDING and split.attention_dp > 1:
        return size
    if kind in (tensor_parts.EMBEDDING, tensor_parts.HEAD):
        return size * _vocabulary_rows(shape.vocab_size, split.tp) // shape.vocab_size
    if kind in (tensor_parts.ATTENTION, weight_parts.ABSORBED):
        return -(-size // attention_tp)
    if kind == tensor_parts.KV:
        heads = max(1, shape.kv_heads)
        return -(-size * max(1, heads // attention_tp) // heads)
    if kind == tensor_parts.SHARED_EXPERT and split.all_to_all:
        return size
    if kind == tensor_parts.EXPERT and shape.experts:
        within = max(1, split.tp // split.ep)
        if shape.quantization == "mxfp4":
            size = _padded(size, shape, within)
        return -(-size * -(-shape.experts // split.ep) // (shape.experts * within))
    if kind in (tensor_parts.MLP, tensor_parts.SHARED_EXPERT, tensor_parts.EXPERT):
        return -(-size // split.tp)
    if kind == tensor_parts.VISION_SHARDED and not split.vision_dp:
        return -(-size // attention_tp)
    return size


def _padded(size: int, shape: ModelShape, within: int) -> int:
    """Return the bytes of experts whose sides are padded for the Marlin kernel (quantization/mxfp4.py, use_marlin).

    That is what compute capability 12.0 takes; on 9.0 it is a few per cent less, on 10.0 it may be more.
    """
    width, hidden = shape.moe_intermediate_size // within, shape.hidden_size
    if not width:
        return size
    return size * (-(-width // 128) * 128) * (-(-hidden // 256) * 256) // (width * hidden)


def _vocabulary_rows(vocab_size: int, tp: int) -> int:
    """Return the rows of a rank (vocab_parallel_embedding.py): padded to 64, or to 64 x tp if need be."""
    padding = _VOCABULARY_PADDING
    if -(-vocab_size // padding) * padding % tp:
        padding *= tp
    return -(-vocab_size // padding) * padding // tp
