# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of KV for a token, and how many tokens fit: SGLang's pools, in its own arithmetic.

Mirrors A model_executor/pool_configurator.py:115-440 and B :340-1050, and A mem_cache/pool_host/base.py:58.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs, is_mla
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import LayerGroup, ModelShape

GIB = 2**30
_TYPE_BYTES: Mapping[str, float] = {
    "auto": 2,
    "bf16": 2,
    "bfloat16": 2,
    "half": 2,
    "float16": 2,
    "float": 4,
    "float32": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "mxfp8": 1 + 1 / 32,
}
_FP4 = {"fp4_e2m1", "nvfp4", "fp4_mx_block16"}
_OWN_DRAFT = {"DFLASH", "DSPARK"}
# A model_runner_kv_cache_mixin.py:55, B kv_cache_configurator.py:227
STATES_PER_REQUEST = 3
_SWA_EVICTION_INTERVAL = 128  # A environ.py:338


@dataclass(frozen=True)
class KvLayout:
    """What a rank keeps for a token, in bytes; `budget` is what SGLang divides by, `device` what it then allocates."""

    budget_bytes: float
    device_bytes: float
    full_bytes: int
    swa_bytes: int
    draft_bytes: int
    index_bytes: int
    state_request_bytes: int
    window_tokens: int
    has_full: bool
    has_swa: bool

    @property
    def has_state(self) -> bool:
        """Whether layers of linear attention keep a state for each request."""
        return self.state_request_bytes > 0


@dataclass(frozen=True)
class Pools:
    """The GPU pools of a rank: tokens of full attention, of sliding windows, and states of linear attention."""

    tokens: int
    swa_tokens: int
    states: int
    kv_bytes: int
    draft_bytes: int
    state_bytes: int


def type_bytes(kind: str) -> float:
    """Return the bytes of one number of a KV type; unknown types count as 2."""
    return _TYPE_BYTES.get(kind, 2)


def layout(shape: ModelShape, args: EffectiveArgs, draft: ModelShape | None = None, draft_layers: int = 0) -> KvLayout:
    """Return the bytes of KV of a rank, for the pipeline stage that has the most layers.

    Args:
        shape: The model.
        args: Effective arguments.
        draft: The draft model of speculative decoding, if it is one of its own.
        draft_layers: Layers of a draft that uses the target's own attention (EAGLE, MTP).
    """
    kind = args.text("kv-cache-dtype")
    stages = args.integer("pp-size", 1)
    split_swa = not args.flag("disable-hybrid-swa-memory") and _kinds(shape) >= {"swa"}
    full = swa = index = allocated = state = window = 0
    full_layers = swa_layers = 0
    for group in shape.groups:
        layers = -(-group.layers // stages)
        if group.kind == "linear":
            state += group.state_bytes // args.attention_tp * layers
            continue
        size = _layer_bytes(group, args, kind) * layers
        if group.kind == "swa" and split_swa:
            swa += size
            swa_layers += layers
            window = max(window, group.window_tokens)
        else:
            full += size
            full_layers += layers
        index += _index_bytes(group) * layers
        allocated += _sparse_extra_bytes(group, args, kind) * layers
    ratio = args.number("swa-full-tokens-ratio", 0.8)
    has_full = full > 0
    budget: float = full + index + (ratio * swa if has_full else swa)
    if args.release == NEW:
        budget += allocated  # B counts the scales of sparse attention in FP8, A forgets them
    dcp = args.integer("dcp-size", 1)
    if dcp > 1 and is_mla(shape):
        budget = (budget - index) / dcp + index
    layers = full_layers + swa_layers
    drafted = 0
    if draft is not None:
        own, whole = layout(draft, args), _attention_layers(draft)
        draft_layers = draft.draft_layers or whole
        drafted = (own.full_bytes + own.swa_bytes + own.index_bytes) * draft_layers // max(1, whole)
    elif layers:
        drafted = int((full + swa + index) * draft_layers / layers)
    cell = full + swa + index + (allocated if args.release == NEW else 0)
    whole_layer = full / full_layers if has_full else swa / max(1, swa_layers)
    counted = 0
    if draft is not None and args.release == NEW and _algorithm(args) in _OWN_DRAFT:
        counted = drafted
    elif swa:
        counted = int(whole_layer * draft_layers) if args.release == NEW else 0
    elif layers:
        counted = _scaled_draft_bytes(args, cell, draft_layers, layers)
    # What is then allocated for a draft is its own form, whatever was counted for it.
    beyond = max(0, drafted - counted) + (allocated if dcp == 1 and args.release != NEW else 0)
    budget += counted
    device = budget + beyond
    return KvLayout(
        budget if budget != int(budget) else int(budget),
        device,
        full + allocated,
        swa,
        drafted,
        index,
        state,
        window,
        has_full,
        swa > 0,
    )


def pools(budget_gib: float, kv: KvLayout, args: EffectiveArgs) -> Pools:
    """Return the pools that SGLang makes of what is left for them.

    Mirrors A model_runner_kv_cache_mixin.py:85-224 and :952-979, B kv_cache_configurator.py:2990-3117.

    Args:
        budget_gib: `fraction x pre - weights`, in GiB; nothing fits if it is not above 0.
        kv: Bytes of a token.
        args: Effective arguments.
    """
    states = state_bytes = 0
    if kv.has_state and budget_gib > 0:
        states = _states(budget_gib, kv, args)
        state_bytes = states * kv.state_request_bytes
        budget_gib -= state_bytes / GIB
    budget_bytes = int(budget_gib * GIB) if budget_gib > 0 else 0
    page = args.integer("page-size", 1)
    cap = _window_cap_tokens(kv, args)
    token_bytes, fixed_bytes = cost_bytes(kv, args)
    tokens = int((budget_bytes - fixed_bytes) // token_bytes) if token_bytes > 0 else 0
    limit = args.value("max-total-tokens")
    tokens = max(0, min(tokens, limit) if limit is not None else tokens) // page * page
    swa_tokens = 0
    if kv.has_swa:
        ratio = args.number("swa-full-tokens-ratio", 0.8) if kv.has_full else 1.0
        swa_tokens = cap or int(tokens * ratio) // page * page
    kv_bytes = tokens * (kv.full_bytes + kv.index_bytes) + swa_tokens * kv.swa_bytes
    return Pools(tokens, swa_tokens, states, kv_bytes, tokens * kv.draft_bytes, state_bytes)


def cost_bytes(kv: KvLayout, args: EffectiveArgs) -> tuple[float, float]:
    """Return (bytes of the budget that a token takes, bytes that window pools take before the first token)."""
    cap = _window_cap_tokens(kv, args)
    if not cap:
        return kv.budget_bytes, 0.0
    return kv.budget_bytes - _shared_swa_bytes(kv, args), cap * kv.swa_bytes


def max_running_requests(tokens: int, states: int, kv: KvLayout, args: EffectiveArgs) -> int:
    """Return how many requests a rank may run at once (A mixin:981-1018, B kv_cache_configurator.py:3119-3172)."""
    context = max(1, args.integer("context-length", 1))
    given = args.value("max-running-requests")
    if given is None:
        wanted = min(max(min(int(tokens / context * 512), 4096), 2048), tokens // 2)
    else:
        shards = args.attention_dp if args.release == NEW else args.integer("dp-size", 1)
        wanted = given // max(1, shards)
        if args.release == NEW:
            wanted = max(1, wanted)
        wanted = min(wanted, tokens // 2)
    if kv.has_state:
        wanted = min(wanted, states // (1 if args.flag("disable-radix-cache") else STATES_PER_REQUEST))
    return wanted


def host_tokens(size_gb: float, token_bytes: float, page: int, device_tokens: int, ratio: float) -> int:
    """Return the tokens of a host pool (A and B mem_cache/pool_host/base.py:58-66, :225).

    Args:
        size_gb: `--hicache-size` in decimal GB for this pool; the ratio counts if it is 0.
        token_bytes: Bytes of a token in this pool.
        page: Tokens of a page.
        device_tokens: Tokens of the GPU pool.
        ratio: `--hicache-ratio`.
    """
    tokens = int(size_gb * 1e9 // token_bytes) if size_gb > 0 else int(device_tokens * ratio)
    return (tokens // page + 1) * page


def _scaled_draft_bytes(args: EffectiveArgs, cell: int, draft_layers: int, layers: int) -> int:
    """Return what SGLang counts of a token for a draft: its layers as if they were the target's, whatever they are.

    Mirrors A pool_configurator.py:130-165, B :259-338. B's DFLASH looks at the draft itself (:318); beside a target
    with windows A counts nothing (:240-282), B so many of the target's whole layers (:727-803).
    """
    if _algorithm(args) in _OWN_DRAFT:
        return -(-cell * (layers + draft_layers) // layers) - cell
    if args.release == NEW:
        return int(cell * draft_layers / layers)
    return int(cell * (1 + draft_layers / layers)) - cell


def _algorithm(args: EffectiveArgs) -> str:
    return args.text("speculative-algorithm").upper()


def _attention_layers(shape: ModelShape) -> int:
    return sum(group.layers for group in shape.groups if group.kind != "linear")


def _kinds(shape: ModelShape) -> set[str]:
    return {group.kind for group in shape.groups}


def _layer_bytes(group: LayerGroup, args: EffectiveArgs, kind: str) -> int:
    size = type_bytes(kind)
    if group.kind == "mla":
        width = group.kv_lora_rank + group.rope_dim
        return width // 2 + width // 16 if kind in _FP4 else int(width * size)
    heads = max(1, group.kv_heads // args.attention_tp)
    width = heads * (group.head_dim + group.v_head_dim)
    return width // 2 + heads * group.head_dim * 2 // 16 if kind in _FP4 else int(width * size)


def _index_bytes(group: LayerGroup) -> int:
    return group.index_head_dim + group.index_head_dim // 128 * 4 if group.index_head_dim else 0


def _sparse_extra_bytes(group: LayerGroup, args: EffectiveArgs, kind: str) -> int:
    """Return what FP8 KV of sparse attention takes beyond its numbers: scales, and rope kept in 16 bits."""
    backends = (args.text("dsa-prefill-backend"), args.text("dsa-decode-backend"))
    if not group.index_head_dim or type_bytes(kind) != 1 or "trtllm" in backends:
        return 0
    return group.kv_lora_rank // 128 * 4 + group.rope_dim


def _states(budget_gib: float, kv: KvLayout, args: EffectiveArgs) -> int:
    given = args.value("max-mamba-cache-size")
    if given is not None:
        return int(given) // args.attention_dp
    requests = args.value("max-running-requests")
    if args.flag("disable-radix-cache") and requests is not None:
        return int(requests) // args.attention_dp
    ratio = args.number("mamba-full-memory-ratio", 0.9)
    return int(budget_gib * ratio / (1 + ratio) * GIB // kv.state_request_bytes)


def _shared_swa_bytes(kv: KvLayout, args: EffectiveArgs) -> float:
    return args.number("swa-full-tokens-ratio", 0.8) * kv.swa_bytes


def _window_cap_tokens(kv: KvLayout, args: EffectiveArgs) -> int:
    """Return the tokens of a window pool that is sized by requests (A pool_configurator.py:339), 0 where it is not."""
    requests = args.value("max-running-requests")
    if not (kv.has_swa and kv.has_full and requests and args.flag("disable-radix-cache") and kv.window_tokens):
        return 0
    page = args.integer("page-size", 1)
    draft = args.integer("speculative-num-draft-tokens", 1)
    each = kv.window_tokens + _SWA_EVICTION_INTERVAL * draft + page + page
    flying = 1 if args.flag("disable-overlap-schedule") else 2
    tokens = each * (int(requests) // max(1, args.integer("dp-size", 1)))
    tokens += flying * max(0, args.integer("chunked-prefill-size")) + page
    return -(-tokens // page) * page
