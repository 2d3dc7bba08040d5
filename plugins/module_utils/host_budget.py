# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory of a node: the pools of the hierarchical cache, processes, and what loading takes.

Sizes of `--hicache-size` are decimal GB for each rank (A mem_cache/pool_host/base.py:58-90, B :195-281).
"""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils import (
    effective_args,
    gpu_budget,
    kv_pool,
    loaded_weights,
)
from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW
from ansible_collections.headroom.serving.plugins.module_utils.kv_pool import KvLayout
from ansible_collections.headroom.serving.plugins.module_utils.mirrored_rules import HOST_RESERVE_BYTES
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import GpuBudget, HostBudget, PlanInput

# Until a start has shown it: a scheduler process, and the front (HTTP, tokenizer, detokenizer). Estimates.
RANK_PROCESS_BYTES = 4_000_000_000
FRONT_PROCESS_BYTES = 6_000_000_000
AUTO_RATIO = 2.0  # the default of A's --hicache-ratio, and where B starts to shrink
AUTO_SLACK = 0.95  # B mem_cache/hicache_auto_size.py:97, 1 - _ALLOCATION_SLACK_FRACTION


def budget(inputs: PlanInput, gpu: GpuBudget) -> HostBudget:
    """Return the host memory of the instance on one node, given what its GPUs hold."""
    args, hardware = inputs.args, inputs.hardware
    ranks = args.ranks_on_node
    later = sum(plan.host.claim_bytes for plan in inputs.later)
    others = sum(plan.host.claim_bytes for plan in inputs.others) + later
    available = max(0, _available_bytes(inputs) - others)
    on = args.flag("enable-hierarchical-cache")
    offload = ranks * loaded_weights.host_bytes(args, inputs.shape)
    usable = available - HOST_RESERVE_BYTES - offload
    pool = side = tokens = 0
    ratio = _ratio(inputs, gpu, usable + later) if on else 0.0
    size_gb = float(args.integer("hicache-size")) if on else 0.0
    if on:
        tokens, pool, side = _pools(inputs, gpu, size_gb, ratio)
    side, measured = _known_side_bytes(inputs, pool, side)
    rss = inputs.facts.rss_rank_gb
    process = ranks * int(RANK_PROCESS_BYTES if rss is None else rss * 1e9) + FRONT_PROCESS_BYTES
    window = 0
    if args.flag("weight-loader-disable-mmap"):
        window = ranks * (effective_args.loader_threads(args) + 2) * inputs.shape.largest_file_bytes
    return HostBudget(
        total_bytes=hardware.mem_total_bytes,
        available_bytes=available,
        claimed_by_others_bytes=others,
        ranks=ranks,
        pool_bytes=pool,
        side_bytes=side,
        side_source="measured" if measured else "estimated",
        pools_bytes=ranks * (pool + side),
        reserve_bytes=HOST_RESERVE_BYTES if on else 0,
        process_bytes=process,
        process_source="estimated" if rss is None else "measured",
        computing_bytes=ranks * gpu.claim_bytes if args.on_cpu else 0,
        offload_bytes=offload,
        load_window_bytes=window,
        tokens=tokens,
        unique_tokens=tokens * args.attention_dp * args.replicas,
        size_gb=size_gb,
        ratio=ratio,
        certain_size_bytes=max(0, usable // (2 * ranks - 1)),
        registration_bytes=pool,
    )


def is_auto_sized(args: EffectiveArgs) -> bool:
    """Tell whether the engine shrinks the pool to what is free (B, neither size nor ratio given)."""
    return args.release == NEW and args.value("hicache-ratio") is None and args.integer("hicache-size") == 0


def _available_bytes(inputs: PlanInput) -> int:
    hardware = inputs.hardware
    back = max(0, inputs.release_host_bytes)
    available = min(hardware.mem_total_bytes, hardware.mem_available_bytes + back)
    if hardware.cgroup_available_bytes is not None:
        limit = hardware.cgroup_limit_bytes
        group = hardware.cgroup_available_bytes + back
        available = min(available, group if limit is None else min(limit, group))
    return available


def _ratio(inputs: PlanInput, gpu: GpuBudget, usable_bytes: int) -> float:
    args = inputs.args
    if not is_auto_sized(args):
        return args.number("hicache-ratio", AUTO_RATIO)
    kv = gpu_budget.layout(inputs)
    device = gpu.tokens.high * kv.device_bytes + gpu.state_bytes
    share = max(0, usable_bytes) // args.ranks_on_node * args.number("hicache-host-memory-fraction", 0.8)
    return min(AUTO_RATIO, share * AUTO_SLACK / device) if device > 0 else AUTO_RATIO


def _pools(inputs: PlanInput, gpu: GpuBudget, size_gb: float, ratio: float) -> tuple[int, int, int]:
    """Return (tokens, bytes of the main pool, bytes of all others) of a rank. By ratio the most tokens count."""
    args, kv = inputs.args, gpu_budget.layout(inputs)
    page = args.integer("page-size", 1)
    device = int(gpu.tokens.high)
    main_bytes = kv.full_bytes if kv.has_full else kv.swa_bytes
    if main_bytes <= 0:
        return 0, 0, int(_second_pool_bytes(kv, gpu, args, size_gb, ratio))
    split = 1.0
    if size_gb and args.release == NEW:
        split = _main_share(kv, gpu)
    tokens = kv_pool.host_tokens(size_gb * split, main_bytes, page, device, ratio)
    beside = tokens * (kv.index_bytes + kv.draft_bytes)
    beside += int(_second_pool_bytes(kv, gpu, args, size_gb, ratio))
    return tokens, tokens * main_bytes, beside


def _main_share(kv: KvLayout, gpu: GpuBudget) -> float:
    """Return the part of the size that the main pool gets: B splits it by the pools' sizes on the GPU."""
    main = gpu.tokens.best * (kv.full_bytes if kv.has_full else kv.swa_bytes)
    second = gpu.state_bytes + (gpu.swa_tokens * kv.swa_bytes if kv.has_full else 0)
    return main / (main + second) if main > 0 else 1.0


def _second_pool_bytes(kv: KvLayout, gpu: GpuBudget, args: EffectiveArgs, size_gb: float, ratio: float) -> float:
    """Return the pools of windows and states: A gives each the whole size (hybrid_pool_assembler.py:516, :193)."""
    windows = kv.has_swa and kv.has_full
    if size_gb:
        if args.release == NEW:
            return size_gb * 1e9 * (1 - _main_share(kv, gpu))
        return size_gb * 1e9 * (int(windows) + int(kv.has_state))
    return ratio * (gpu.state_bytes + (gpu.swa_tokens * kv.swa_bytes if windows else 0))


def _known_side_bytes(inputs: PlanInput, pool: int, side: int) -> tuple[int, bool]:
    """Return the side pools of a rank, from what is known of them or from what a start has shown."""
    if inputs.side_pool_bytes_per_rank is not None:
        return (inputs.side_pool_bytes_per_rank if pool else 0), True
    measured, planned = inputs.facts.host_pool_gb, inputs.facts.host_pool_planned_gb
    if measured is None or not pool:
        return side, False
    # Pools grow with the size, so the surplus of that start is taken in proportion.
    surplus = measured * 1e9 / (planned * 1e9 if planned else pool + side)
    return max(side, int((pool + side) * surplus) - pool), surplus > 1
