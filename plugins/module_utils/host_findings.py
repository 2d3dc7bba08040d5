# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be said about the host memory of an instance."""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW
from ansible_collections.headroom.serving.plugins.module_utils.host_budget import is_auto_sized
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import GpuBudget, HostBudget, PlanInput

# Drivers from this branch on fail to pin so much in one call (cudaHostRegister); B pins in pieces of 256 GB.
_REGISTRATION_BRANCH = 580
_REGISTRATION_BYTES = 512 * 2**30
_OVERHEAD = 1.02


def gb(size_bytes: float) -> str:
    """Return bytes as decimal GB with one digit, none if it is 0; what is less than 0.1 GB with two that count."""
    size = size_bytes / 1e9
    return f"{size:.2g}" if 0 < size < 0.1 else f"{size:,.1f}".removesuffix(".0")


def counted(count: int, what: str) -> str:
    """Return a number with its noun, which takes an s unless there is one of it."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def findings(inputs: PlanInput, gpu: GpuBudget, host: HostBudget) -> list[Finding]:
    """Return the findings about host memory."""
    found = [*_load_window(inputs, host), *_offload(inputs, host)]
    if not inputs.args.flag("enable-hierarchical-cache"):
        return [*found, *_not_enabled(inputs), *_without_pools(inputs, host)]
    return [
        *found,
        *_needs_gpu(inputs),
        *_radix(inputs),
        *_node_budget(inputs, host),
        *_lower_bound(inputs, gpu, host),
        *_race(inputs, host),
        *_registration(inputs, host),
        *_overhead(inputs, host),
        *_memlock(inputs, host),
    ]


def _setting(inputs: PlanInput, host: HostBudget) -> str:
    if host.size_gb:
        return f"{inputs.name}: hicache-size is {host.size_gb:g}"
    if is_auto_sized(inputs.args):
        return f"{inputs.name}: the engine would size the host pools itself, at {host.ratio:.2f} times the GPU's"
    return f"{inputs.name}: hicache-ratio is {host.ratio:g}"


def _sum(host: HostBudget) -> str:
    side = f" + {gb(host.side_bytes)} GB of side pools" if host.side_bytes else ""
    more = f" + {gb(host.offload_bytes)} GB of offloaded weights" if host.offload_bytes else ""
    ranks = counted(host.ranks, "rank")
    return f"{ranks} on this node x ({gb(host.pool_bytes)} GB{side}) + SGLang's reserve of 10 GiB{more}"


def _node_budget(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    need, available = host.needed_bytes, host.available_bytes
    others = (
        f", after {gb(host.claimed_by_others_bytes)} GB for other instances" if host.claimed_by_others_bytes else ""
    )
    usable = f"{gb(max(0, available - host.reserve_bytes - host.offload_bytes))} GB usable after the reserve{others}"
    if need > available or host.pool_bytes <= 0:
        return [
            finding(
                "hicache.node_budget",
                f"{_setting(inputs, host)}, for each rank: {_sum(host)}: {gb(need)} GB needed, {gb(available)} GB "
                f"available ({usable})",
            )
        ]
    if need + host.process_bytes > available:
        origin = "measured" if host.process_source == "measured" else "an estimate"
        return [
            finding(
                "hicache.node_budget",
                f"{_setting(inputs, host)}, for each rank: {_sum(host)}: {gb(need)} of {gb(available)} GB available "
                f"({usable}). The processes' own memory, {gb(host.process_bytes)} GB ({origin}), does not fit",
                verdict="warn",
            )
        ]
    return []


def _needs_gpu(inputs: PlanInput) -> list[Finding]:
    if not inputs.args.on_cpu:
        return []
    text = f"{inputs.name}: enable-hierarchical-cache needs a GPU to copy from, and the device is cpu"
    return [finding("hicache.needs_gpu", text, "Remove enable-hierarchical-cache.")]


def _radix(inputs: PlanInput) -> list[Finding]:
    if not inputs.args.flag("disable-radix-cache"):
        return []
    # A server_args.py:5939, B arg_groups/kv_cache_hook.py:395
    return [
        finding(
            "hicache.needs_radix_cache",
            f"{inputs.name}: enable-hierarchical-cache and disable-radix-cache exclude each other: the host tier is a "
            "tier of the radix cache",
            "Remove one of them.",
        )
    ]


def _lower_bound(inputs: PlanInput, gpu: GpuBudget, host: HostBudget) -> list[Finding]:
    if not host.tokens or is_auto_sized(inputs.args):
        return []
    new = inputs.args.release == NEW
    # By ratio the pool follows the GPU's real tokens, so the band does not matter.
    device = int(gpu.tokens.high)
    if host.tokens > device:
        return []
    what = (
        "the tier then keeps little that the GPU does not"
        if new
        else "SGLang ends with an AssertionError after the load"
    )
    return [
        finding(
            "hicache.host_smaller_than_device",
            f"{_setting(inputs, host)}: the host pool holds {host.tokens:,} tokens, the GPU's up to {device:,}: {what}",
            verdict="warn" if new else "refuse",
        )
    ]


def _race(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    pool = host.pool_bytes + host.side_bytes
    if inputs.args.release != NEW or is_auto_sized(inputs.args) or pool <= host.certain_size_bytes:
        return []
    if host.needed_bytes > host.available_bytes:
        return []
    return [
        finding(
            "hicache.race",
            f"{_setting(inputs, host)}: {gb(pool)} GB a rank. Each rank of SGLang {inputs.args.engine_version} "
            f"compares its pool with what is free divided by {host.ranks}, while others already allocate: only up to "
            f"{gb(host.certain_size_bytes)} GB is sure to pass, more fails now and then",
        )
    ]


def _registration(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    branch = inputs.hardware.driver_version.partition(".")[0]
    if inputs.args.release == NEW or not branch.isdigit() or int(branch) < _REGISTRATION_BRANCH:
        return []
    if host.registration_bytes < _REGISTRATION_BYTES:
        return []
    return [
        finding(
            "hicache.single_registration",
            f"{_setting(inputs, host)}: SGLang pins "
            f"{host.registration_bytes / 2**30:,.1f} GiB in one call; driver {inputs.hardware.driver_version} is known "
            "to fail from 512 GiB on",
        )
    ]


def _overhead(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    measured, planned = inputs.facts.host_pool_gb, inputs.facts.host_pool_planned_gb
    if measured is None or not host.pool_bytes:
        return []
    planned = planned or host.size_gb or host.pool_bytes / 1e9
    if measured <= planned * _OVERHEAD:
        return []
    return [
        finding(
            "hicache.pool_overhead",
            f"{inputs.name}: a rank's host pools took {measured:,.2f} GB where {planned:,.2f} were planned, "
            f"{(measured / planned - 1) * 100:.0f} % more: pools beside the KV (indexer, draft, states). This plan "
            "counts them",
        )
    ]


def _memlock(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    limit = inputs.hardware.memlock_hard_bytes
    if inputs.args.on_cpu:
        return []  # nothing is copied to a GPU, so nothing is pinned
    if limit is None or limit >= host.pool_bytes + host.side_bytes:
        return []
    return [
        finding(
            "host.memlock",
            f"{inputs.name}: the host pools are pinned, {gb(host.pool_bytes + host.side_bytes)} GB a rank; the node "
            f"lets no process lock more than {limit:,} bytes",
            "Raise the hard limit of the container or virtual machine; the unit asks for LimitMEMLOCK=infinity.",
        )
    ]


def _load_window(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    if host.load_window_bytes <= host.available_bytes:
        return []
    largest = inputs.shape.largest_file_bytes
    parts = host.load_window_bytes // max(1, largest) // host.ranks
    return [
        finding(
            "host.load_window",
            f"{inputs.name}: weight-loader-disable-mmap reads whole files into memory, {counted(host.ranks, 'rank')} x "
            f"{parts} files x {gb(largest)} GB: {gb(host.load_window_bytes)} GB needed, {gb(host.available_bytes)} GB "
            "available",
        )
    ]


def _offload(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    """Say what offloaded weights take; PyTorch rounds what it pins up to powers of two (CachingHostAllocator)."""
    need, available = host.offload_bytes, host.available_bytes
    if not need:
        return []
    size = inputs.args.integer("cpu-offload-gb")
    said = (
        f"{inputs.name}: cpu-offload-gb is {size}, for each rank: {counted(host.ranks, 'rank')} on this node keep "
        f"{gb(need)} GB of weights in the host's memory, {gb(available)} GB are available"
    )
    cure = "Lower cpu-offload-gb, or free memory on the node."
    if need > available:
        return [finding("host.offload", said, cure)]
    if 2 * need + host.process_bytes > available:
        rounded = "Pinned memory is rounded up to powers of two, so that it may be up to twice as much, and processes"
        return [finding("host.offload", f"{said}. {rounded} take {gb(host.process_bytes)} GB", cure, verdict="warn")]
    return [finding("host.offload", said, verdict="ok")]


def _not_enabled(inputs: PlanInput) -> list[Finding]:
    named = sorted(flag for flag in inputs.args.given if flag.startswith("hicache-"))
    if not named:
        return []
    verb = "has" if len(named) == 1 else "have"
    return [
        finding(
            "hicache.not_enabled",
            f"{inputs.name}: the hierarchical cache is off: {', '.join(named)} {verb} no effect",
            "Set 'enable-hierarchical-cache: true', or remove it.",
        )
    ]


def _without_pools(inputs: PlanInput, host: HostBudget) -> list[Finding]:
    need, available = host.computing_bytes, host.available_bytes
    if need > available:
        return [
            finding(
                "host.memory",
                f"{inputs.name}: weights and KV take {gb(need)} GB of host memory, {gb(available)} GB are available",
            )
        ]
    if need + host.process_bytes > available:
        what = f"weights and KV take {gb(need)} GB, " if need else ""
        return [
            finding(
                "host.memory",
                f"{inputs.name}: {what}its processes {gb(host.process_bytes)} GB ({host.process_source}): "
                f"{gb(need + host.process_bytes)} GB of host memory, {gb(available)} GB are available",
                "Lower max-total-tokens or mem-fraction-static, or free memory."
                if need
                else "Free memory on the node.",
                verdict="warn",
            )
        ]
    return []
