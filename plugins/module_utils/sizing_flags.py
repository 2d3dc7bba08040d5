# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags that size anything: under their own names, and as values of their types."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import Flag
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

# Everything a plan reads, by the flag's own name; `None` in a table's default is filled by a rule or stays unset.
SIZING = (
    "attention-backend",
    "attn-cp-size",
    "attn-dp-size",
    "base-gpu-id",
    "chunked-prefill-size",
    "context-length",
    "cpu-offload-gb",
    "cuda-graph-backend-decode",
    "cuda-graph-backend-prefill",
    "cuda-graph-bs-decode",
    "cuda-graph-max-bs-decode",
    "cuda-graph-max-bs-prefill",
    "dcp-size",
    "decode-attention-backend",
    "device",
    "disable-decode-cuda-graph",
    "disable-hybrid-swa-memory",
    "disable-overlap-schedule",
    "disable-prefill-cuda-graph",
    "disable-radix-cache",
    "dp-size",
    "dsa-decode-backend",
    "dsa-prefill-backend",
    "dtype",
    "enable-deepep-waterfill",
    "enable-dp-attention",
    "enable-hierarchical-cache",
    "enable-lora",
    "enable-multimodal",
    "enable-torch-compile",
    "enable-waterfill",
    "ep-size",
    "gpu-id-step",
    "hicache-host-memory-fraction",
    "hicache-io-backend",
    "hicache-mem-layout",
    "hicache-ratio",
    "hicache-size",
    "json-model-override-args",
    "kv-cache-dtype",
    "language-model-only",
    "language-only",
    "load-format",
    "mamba-full-memory-ratio",
    "max-mamba-cache-size",
    "max-prefill-tokens",
    "max-running-requests",
    "max-total-tokens",
    "mem-fraction-static",
    "mm-enable-dp-encoder",
    "mm-feature-transport",
    "model-loader-extra-config",
    "model-impl",
    "modelopt-quant",
    "moe-a2a-backend",
    "nnodes",
    "page-size",
    "pp-size",
    "prefill-attention-backend",
    "quantization",
    "quantize-and-serve",
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-draft-tokens",
    "swa-full-tokens-ratio",
    "torchao-config",
    "tp-size",
    "triton-attention-num-kv-splits",
    "weight-loader-disable-mmap",
)
# Flags that set another one (A: DeprecatedAliasStoreAction and DeprecatedStoreTrueAction of server_args.py).
_ALIASES = {"cuda-graph-max-bs": "cuda-graph-max-bs-decode", "cuda-graph-bs": "cuda-graph-bs-decode"}
_SWITCHES_OFF = {
    "disable-cuda-graph": ("disable-decode-cuda-graph", "disable-prefill-cuda-graph"),
    "disable-piecewise-cuda-graph": ("disable-prefill-cuda-graph",),
}
_AT_LEAST = {
    "attn-cp-size": 1,
    "attn-dp-size": 1,
    "base-gpu-id": 0,
    "context-length": 1,
    "cpu-offload-gb": 0,
    "cuda-graph-max-bs-decode": 1,
    "cuda-graph-max-bs-prefill": 1,
    "dcp-size": 1,
    "dp-size": 1,
    "ep-size": 1,
    "gpu-id-step": 1,
    "hicache-size": 0,
    "max-mamba-cache-size": 1,
    "max-prefill-tokens": 1,
    "max-running-requests": 1,
    "max-total-tokens": 1,
    "nnodes": 1,
    "page-size": 1,
    "pp-size": 1,
    "speculative-num-draft-tokens": 1,
    "tp-size": 1,
    "triton-attention-num-kv-splits": 1,
}
# Both ends excluded; a whole pool (1.0) is allowed where SGLang allows it.
_BELOW = {
    "mem-fraction-static": (1.0, "a part of the GPU's memory"),
    "hicache-ratio": (1e6, "a multiple of the GPU's KV pool"),
    "hicache-host-memory-fraction": (1.0 + 1e-9, "a part of the host's free memory"),
    "swa-full-tokens-ratio": (1.0 + 1e-9, "a part of the tokens of full attention"),
    "mamba-full-memory-ratio": (1e6, "a ratio of states to KV"),
}
_SUFFIX = {
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def given(args: Mapping[str, Any], table: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the sizing flags that are given, under their own names, as values of their types."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        if name in _SWITCHES_OFF and value is not False and name in table:
            for other in _SWITCHES_OFF[name]:
                found[other] = True
        flag = table.get(name)
        own = _ALIASES.get(name, flag.names[0] if flag else name)
        if flag is None or own not in SIZING or value is None or value is False:
            continue
        found[own] = _typed(name, value, flag)
    sizes = found.get("cuda-graph-bs-decode")
    if sizes:
        found["cuda-graph-max-bs-decode"] = max(sizes)  # A server_args.py:3220
    for name, least in _AT_LEAST.items():
        if name in found and found[name] < least:
            raise _invalid(name, found[name], f"the least that makes sense is {least}", f"Set it to {least} or more.")
    for name, (most, what) in _BELOW.items():
        if name in found and not 0 < found[name] < most:
            raise _invalid(name, found[name], f"it is {what}", f"Set it above 0 and below {most:g}.")
    return found


def _typed(name: str, value: Any, flag: Flag) -> Any:
    if flag.nargs in ("+", "*"):
        items = value if isinstance(value, (list, tuple)) else str(value).split()
        return [_scalar(name, item, flag.kind) for item in items]
    return _scalar(name, value, flag.kind)


def _scalar(name: str, value: Any, kind: str) -> Any:
    if kind in ("flag", "switch"):
        return bool(value)
    if isinstance(value, (list, tuple)) or (isinstance(value, bool) and kind != "str"):
        raise _invalid(name, value, "the flag takes one value", "Write that value alone.")
    if kind in ("int", "human_readable_int"):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", str(value).strip())
        if match and kind == "human_readable_int":
            return int(float(match[1]) * _SUFFIX[match[2]])
        try:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        except (TypeError, ValueError, OverflowError):
            raise _invalid(name, value, "it is not a whole number", "Write digits only.") from None
    if kind == "float":
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise _invalid(name, value, "it is not a number", "Write it like 0.88.")
        return number
    return value if isinstance(value, Mapping) else str(value)


def _invalid(name: str, value: Any, reason: str, cure: str) -> HeadroomError:
    return refusal("settings.invalid", f"args.{name} is {value!r}: {reason}.", cure)
