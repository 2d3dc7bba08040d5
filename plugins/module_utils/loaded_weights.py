# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The weights of a rank once flags have changed what the files hold: their type, quantization while loading, offload.

What can be computed is; for the rest the figure gets a band that holds the truth, and a reason to be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import effective_args, tensor_parts, weight_parts
from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import (
    ModelShape,
    offloaded_bytes_per_rank,
    weight_bytes_per_rank,
)

GIB = 2**30
# Bytes of a number of weights, scales included, once SGLang has quantised it itself while or after loading.
_RATES: Mapping[str, float] = {
    **dict.fromkeys(("fp8", "w8a8_fp8", "w8a8_int8", "blockwise_int8", "modelopt_fp8", "fbgemm_fp8"), 1.0),
    "mxfp8": 1 + 1 / 32,
    **dict.fromkeys(("mxfp4", "nvfp4_online", "modelopt_fp4", "bitsandbytes"), 0.5 + 1 / 16),
}
# Nothing that a rank holds is as it is in the files at any time, so no peak comes before (A, B model_loader/loader.py:
# BitsAndBytesModelLoader; LayeredModelLoader does so for torchao alone).
_WITHOUT_PEAK = "bitsandbytes"
_LAYERED = "layered"
# Parts of a model that may be quantised; the first ones are with every method.
_LINEAR = frozenset({tensor_parts.ATTENTION, tensor_parts.KV, tensor_parts.MLP, tensor_parts.SHARED_EXPERT})
_MAYBE = _LINEAR | {tensor_parts.EXPERT, tensor_parts.VISION_SHARDED}
# The part of what is saved by quantization that the high end does not count: layers that a model leaves out.
_LEFT_OUT = 0.15
# How far weights may be off where config.json is overridden.
_OVERRIDDEN = 0.25
# Their layers are made without make_layers, which offloads (A, B utils/common.py), so nothing of them is offloaded.
_WITHOUT_OFFLOAD = frozenset(
    {
        *("AfmoeForCausalLM", "BaichuanForCausalLM", "ChatGLMModel", "CohereForCausalLM", "Cohere2ForCausalLM"),
        *("DbrxForCausalLM", "DeepseekForCausalLM", "ExaoneForCausalLM", "GemmaForCausalLM", "GPT2LMHeadModel"),
        *("GPTBigCodeForCausalLM", "GPTJForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM"),
        *("Grok1ForCausalLM", "Grok1ModelForCausalLM", "HunYuanMoEV1ForCausalLM", "HunYuanDenseV1ForCausalLM"),
        *("InternLM2ForCausalLM", "MiniCPMForCausalLM", "MiniCPM3ForCausalLM", "QWenLMHeadModel"),
        *("QuantMixtralForCausalLM", "StableLmForCausalLM", "XverseForCausalLM", "XverseMoeForCausalLM"),
    }
)


@dataclass(frozen=True)
class Loaded:
    """Bytes of the fullest rank's weights on its GPU, without draft layers, and the ends of their band."""

    low: int
    best: int
    high: int


def of(args: EffectiveArgs, shape: ModelShape) -> Loaded:
    """Return the weights of a rank as the flags make them."""
    shape = typed(shape, args)
    without_vision, offload = effective_args.leaves_vision_out(args, shape), offload_bytes(args, shape)
    name, rate = quantized_by(args, shape)
    if name:
        low, best, high = _quantized(args, shape, name, rate, without_vision, offload)
    else:
        low = best = high = split_bytes(args, shape, without_vision, offload)
        if offload:
            # SGLang goes on until a parameter reaches the limit, so up to one more is offloaded.
            low = split_bytes(args, shape, without_vision, offload + largest_bytes(args, shape))
    if overridden(args):
        low, high = int(low * (1 - _OVERRIDDEN)), int(high * (1 + _OVERRIDDEN))
    return Loaded(low, best, high)


def reasons(args: EffectiveArgs, shape: ModelShape) -> tuple[str, ...]:
    """Return why the weights have a band, in words; none where they can be computed."""
    said = []
    name = quantized_by(args, shape)[0]
    if name:
        said.append(f"{name} quantises weights while they are loaded, and which of them a model decides itself")
    if overridden(args):
        keys = ", ".join(sorted(overridden(args)))
        said.append(f"json-model-override-args sets {keys}, and the plan reads the model's own config.json")
    if offload_bytes(args, shape):
        said.append("cpu-offload-gb moves whole parameters of layers, up to one more than its size")
    elif args.integer("cpu-offload-gb") and not args.on_cpu:
        said.append(f"cpu-offload-gb does nothing for {shape.architecture}, whose layers SGLang does not offload")
    return tuple(said)


def peak_bytes(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return a rank's weights as they lie on the GPU before SGLang quantises them, 0 where they never do."""
    name = quantized_by(args, shape)[0]
    layered = args.text("load-format") == _LAYERED and name.startswith("torchao")
    if layered or name in ("", _WITHOUT_PEAK):
        return 0
    shape = typed(shape, args)
    without_vision = effective_args.leaves_vision_out(args, shape)
    return split_bytes(args, shape, without_vision, offload_bytes(args, shape))


def typed(shape: ModelShape, args: EffectiveArgs) -> ModelShape:
    """Return a model as it is loaded in the type of `--dtype`: a model that is not quantised changes as a whole."""
    wanted = effective_args.number_bytes(args, shape)
    stored = effective_args.type_bytes(shape.dtype)
    return shape if shape.quantization or wanted == stored else _scaled(shape, wanted, stored)


def split_bytes(args: EffectiveArgs, shape: ModelShape, without_vision: bool = False, offload: int = 0) -> int:
    """Return the bytes of the fullest rank by the flags that split a model."""
    return weight_bytes_per_rank(
        shape,
        args.integer("tp-size", 1),
        args.integer("pp-size", 1),
        args.integer("ep-size", 1),
        args.attention_dp,
        vision_dp=args.flag("mm-enable-dp-encoder"),
        without_vision=without_vision,
        all_to_all=effective_args.uses_all_to_all(args),
        offload_bytes=offload,
    )


def offload_bytes(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return up to how many bytes of a rank's layers SGLang offloads to the host (A, B utils/offloader.py:85-120)."""
    if args.on_cpu or shape.architecture in _WITHOUT_OFFLOAD:
        return 0
    return args.integer("cpu-offload-gb") * GIB


def host_bytes(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return the most that a rank keeps of its weights in the host's memory, in bytes."""
    offload = offload_bytes(args, shape)
    if not offload:
        return 0
    shape = typed(shape, args)
    return offloaded_bytes_per_rank(
        shape,
        args.integer("tp-size", 1),
        args.integer("pp-size", 1),
        args.integer("ep-size", 1),
        args.attention_dp,
        effective_args.uses_all_to_all(args),
        offload + largest_bytes(args, shape),
    )


def largest_bytes(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return a bound of a rank's largest parameter in a layer, in bytes: a part of it, which has more than one."""
    tp, attention = args.integer("tp-size", 1), (tensor_parts.ATTENTION, tensor_parts.KV)
    sizes = [
        part.bytes_per_layer // (args.attention_tp if part.kind in attention else tp)
        if part.kind in tensor_parts.SHARDED
        else part.bytes_per_layer
        for part in shape.parts
        if part.first_layer >= 0
    ]
    return max(sizes, default=0)


def quantized_by(args: EffectiveArgs, shape: ModelShape) -> tuple[str, float | None]:
    """Return what quantises weights that the files hold otherwise, "" for nothing, and bytes of a number, if known."""
    torchao = args.text("torchao-config")
    if torchao:
        group = torchao.rpartition("-")[2]
        wide = 4 / int(group) if group.isdigit() and int(group) else 0.125
        return f"torchao {torchao}", (0.5 + wide if torchao.startswith("int4") else 1.0)
    if args.text("modelopt-quant") or args.flag("quantize-and-serve"):
        return "modelopt-quant", None
    method = args.text("quantization").lower()
    if not method and args.text("load-format") == "bitsandbytes":
        method = "bitsandbytes"
    # A configs/model_config.py:1299-1307: the one method that makes another of what is quantised already.
    again = method == "nvfp4_online" and shape.quantization == "fp8"
    if method in ("", "unquant") or (shape.quantization and not again):
        return "", None
    return method, _RATES.get(method)


def overridden(args: EffectiveArgs) -> set[str]:
    """Return the keys of json-model-override-args that may change what a model is made of."""
    return set(effective_args.override(args)) - effective_args.HARMLESS_OVERRIDES


def _quantized(
    args: EffectiveArgs, shape: ModelShape, name: str, rate: float | None, without_vision: bool, offload: int
) -> tuple[int, int, int]:
    """Return (low, best, high) of weights that SGLang quantises itself."""
    plain = split_bytes(args, shape, without_vision, offload)
    stored = 1 if shape.quantization else effective_args.number_bytes(args, shape)
    least = split_bytes(args, _scaled(shape, min(rate or 0.5, stored), stored, _MAYBE), without_vision, offload)
    if rate is None:
        return least, plain, plain
    # torchao knows modules that are called proj (layers/torchao_utils.py), not experts.
    kinds = _LINEAR if name.startswith("torchao") else _LINEAR | {tensor_parts.EXPERT}
    best = split_bytes(args, _scaled(shape, min(rate, stored), stored, kinds), without_vision, offload)
    return least, best, best + int((plain - best) * _LEFT_OUT)


@lru_cache(maxsize=64)
def _scaled(shape: ModelShape, wanted: float, stored: float, kinds: frozenset[str] | None = None) -> ModelShape:
    """Return a model whose numbers take `wanted` bytes instead of `stored`; of these kinds only, if any are given."""

    def size(kind: str, size_bytes: int) -> int:
        # RoPE tables are float32 whatever the type.
        same = kind == weight_parts.TABLES if kinds is None else kind not in kinds
        return size_bytes if same else int(size_bytes * wanted / stored)

    changes: dict[str, Any] = {
        "parts": tuple(replace(one, bytes_per_layer=size(one.kind, one.bytes_per_layer)) for one in shape.parts),
        "allocations": tuple(replace(one, size_bytes=size(one.kind, one.size_bytes)) for one in shape.allocations),
    }
    if not shape.parts:
        # Totals alone: all of what is split counts as linear.
        changes["sharded_bytes"] = int(shape.sharded_bytes * wanted / stored)
        changes["replicated_bytes"] = int(shape.replicated_bytes * (wanted / stored if kinds is None else 1))
    return replace(shape, **changes)
