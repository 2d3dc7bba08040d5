# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a GPU: what is free before the weights, what fits as KV, and what the slack must hold.

`fraction x pre` is for weights and KV; all that SGLang allocates later comes out of the slack, `pre x (1 - fraction)`
(A model_executor/model_runner_kv_cache_mixin.py:85-120, B mem_cache/kv_cache_configurator.py:2990-3060).
"""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils import effective_args, gpu_slack, kv_pool, loaded_weights
from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu, Hardware
from ansible_collections.headroom.serving.plugins.module_utils.kv_pool import GIB, KvLayout
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import (
    ModelShape,
    draft_bytes_per_rank,
)
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import (
    Facts,
    GpuBudget,
    Interval,
    PlanInput,
    Source,
)

# Measured with 0.5.14 on an H200: free memory falls by this before the weights, whatever the model.
CONTEXT_GIB = 0.67
# NCCL's first communicators, once there is more than one rank: measured with two ranks over NVLink, and what the case
# of eight GPUs over PCIe amounts to.
NVLINK_COMMUNICATOR_GIB, COMMUNICATOR_GIB = 0.85, 0.70
# Bands of an estimate: the truth is within 1 % of free memory and 0.5 % of weights.
PRE_BAND = 0.0099
WEIGHTS_BAND = 0.0049
# Bands of a measured figure: the log rounds to 0.01 GiB, and a start differs from the next by as much.
PRE_MEASURED_GIB = 0.02
WEIGHTS_MEASURED_GIB = 0.01
# SGLang keeps 1 - fraction of a free memory that it read earlier, up to this much above the one that the log gives, by
# the recorded starts. Where KV was measured, that counts for the difference of the fractions only.
PRE_UNSAID_GIB = 0.1
PRE_DRIFT_GIB = 0.004  # what two starts differ by: allocations of the driver are multiples of 2 MiB
# What a start may have shown to go before the weights: at least a context, at most this much more than the estimate.
# Anything else is what somebody took or gave back between the reading and the start.
OVERHEAD_LEAST_GIB, OVERHEAD_MORE_GIB = 0.3, 1.5
_MULTIMODAL_CACHE_MIB = 100  # B mem_cache/kv_cache_configurator.py:210, SGLANG_VLM_CACHE_SIZE_MB
_MULTIMODAL_TRANSPORT_MIB = 1024  # B :212, SGLANG_MM_FEATURE_CACHE_MB


def chosen(hardware: Hardware, gpus: tuple[int, ...]) -> list[Gpu]:
    """Return the instance's GPUs in the order in which it sees them: its own, or by index if it names none."""
    if not gpus:
        return sorted(hardware.gpus, key=lambda gpu: gpu.index)
    return sorted((gpu for gpu in hardware.gpus if gpu.index in gpus), key=lambda gpu: gpus.index(gpu.index))


def used_gpus(inputs: PlanInput) -> list[Gpu]:
    """Return the GPUs on which ranks will be: the first ones that the instance has, or as base-gpu-id and step say."""
    gpus = chosen(inputs.hardware, inputs.gpus)
    return [gpus[place] for place in inputs.args.gpu_places if place < len(gpus)]


def free_bytes(inputs: PlanInput, gpu: Gpu) -> int:
    """Return what will be free on a GPU once the outgoing release has ended, without other instances' claims."""
    free = min(gpu.total_bytes, gpu.free_bytes + max(0, inputs.release_gpu_bytes.get(gpu.index, 0)))
    return max(0, free - claimed_bytes(inputs, gpu.index))


def claimed_bytes(inputs: PlanInput, index: int) -> int:
    """Return what other instances that are to run and start before this one will take of a GPU."""
    return sum(plan.gpu.claim_bytes + int(CONTEXT_GIB * GIB) for plan in inputs.others if index in plan.gpus)


def budget(inputs: PlanInput) -> GpuBudget:
    """Return the memory of the instance's fullest GPU; on a CPU that of a rank."""
    args, shape = inputs.args, inputs.shape
    pre, pre_source = _pre_gib(inputs)
    draft_gib, draft_layers = _draft(inputs)
    multimodal_gib = _multimodal_gib(args, shape)
    weights, weights_source = _weights_gib(inputs, draft_gib + multimodal_gib)
    kv = kv_pool.layout(shape, args, inputs.draft_shape if effective_args.uses_draft(args) else None, draft_layers)
    fraction = args.number("mem-fraction-static")
    by_log = (pre_source, weights_source) == ("measured", "measured")
    unsaid_gib = max(0.0, 1 - fraction) * PRE_UNSAID_GIB if by_log else 0.0
    room = _room_gib(inputs, pre, pre_source) or Interval(
        fraction * pre.low - weights.high - draft_gib - multimodal_gib - unsaid_gib,
        fraction * pre.best - weights.best - draft_gib - multimodal_gib,
        fraction * pre.high - weights.low - draft_gib - multimodal_gib,
    )
    # More room may hold one more state of linear attention and fewer tokens, which only a narrow band can miss.
    state_gib = 2 * kv.state_request_bytes / GIB if weights_source == "measured" else 0.0
    best = kv_pool.pools(room.best, kv, args)
    low, high = kv_pool.pools(room.low - state_gib, kv, args), kv_pool.pools(room.high + state_gib, kv, args)
    requests = kv_pool.max_running_requests(best.tokens, best.states, kv, args)
    most = max(requests, kv_pool.max_running_requests(high.tokens, high.states, kv, args))
    return GpuBudget(
        total_bytes=min((gpu.total_bytes for gpu in used_gpus(inputs)), default=0),
        pre_bytes=pre.scaled(GIB),
        pre_source=pre_source,
        fraction=fraction,
        weights_bytes=weights.scaled(GIB),
        weights_source=weights_source,
        draft_weight_bytes=int(draft_gib * GIB),
        multimodal_bytes=int(multimodal_gib * GIB),
        cell_bytes=kv.budget_bytes,
        kv_bytes=best.kv_bytes,
        draft_kv_bytes=best.draft_bytes,
        state_bytes=best.state_bytes,
        tokens=Interval(low.tokens, best.tokens, high.tokens),
        swa_tokens=best.swa_tokens,
        states=best.states,
        max_running_requests=requests,
        overflow_bytes=int(best.tokens * max(0.0, kv.device_bytes - kv.budget_bytes)),
        slack_bytes=pre.scaled((1 - fraction) * GIB),
        reserve_bytes=int(effective_args.reserved_mib(args, shape, inputs.hardware) * 2**20),
        claimed_by_others_bytes=max((claimed_bytes(inputs, gpu.index) for gpu in used_gpus(inputs)), default=0),
        minimum_fraction=(weights.high + draft_gib + multimodal_gib) / pre.low if pre.low > 0 else 1.0,
        load_peak_bytes=0 if weights_source == "measured" else loaded_weights.peak_bytes(args, shape),
        **gpu_slack.parts(inputs, most, int(high.tokens)),
    )


def layout(inputs: PlanInput) -> KvLayout:
    """Return the bytes of KV of a token, for other rooms that need them."""
    draft = inputs.draft_shape if effective_args.uses_draft(inputs.args) else None
    return kv_pool.layout(inputs.shape, inputs.args, draft, _draft(inputs)[1])


def free_gib(inputs: PlanInput) -> float:
    """Return what will be free on the instance's fullest GPU before it starts."""
    return min((free_bytes(inputs, gpu) for gpu in used_gpus(inputs)), default=0) / GIB


def overhead_gib(inputs: PlanInput) -> float:
    """Return the estimate of what goes before the weights: CUDA's context and communicators."""
    return CONTEXT_GIB + _communicator_gib(inputs)


def is_overhead(gib: float, estimate_gib: float) -> bool:
    """Whether context and communicators can have taken so much where the estimate is `estimate_gib`."""
    return OVERHEAD_LEAST_GIB <= gib <= estimate_gib + OVERHEAD_MORE_GIB


def _pre_gib(inputs: PlanInput) -> tuple[Interval, Source]:
    """Return the free memory of the fullest GPU before the weights, as far as it is known what others leave by then."""
    pre, source = _pre_expected(inputs)
    less, more = _doubtful_gib(inputs)
    if not less and not more:
        return pre, source
    low, high = max(0.0, pre.low - less), pre.high + more * (1 + PRE_BAND)
    return Interval(low, (low + high) / 2, high), "estimated"


def _doubtful_gib(inputs: PlanInput) -> tuple[float, float]:
    """Return how much less and more may be free than instances on the same GPU are expected to leave."""
    gpus = used_gpus(inputs)
    if inputs.args.on_cpu or not inputs.others or not gpus:
        return 0.0, 0.0
    fullest = min(gpus, key=lambda gpu: free_bytes(inputs, gpu)).index
    claims = [plan.gpu.claim_interval for plan in inputs.others if fullest in plan.gpus]
    return sum(one.high - one.best for one in claims) / GIB, sum(one.best - one.low for one in claims) / GIB


def _pre_expected(inputs: PlanInput) -> tuple[Interval, Source]:
    """Return the free memory of the fullest GPU before the weights: what is free now, less what a start showed to go.

    That holds whatever others held at that start and hold now.
    """
    if inputs.args.on_cpu:
        return _around(_cpu_free_gib(inputs)), "estimated"
    free, facts = free_gib(inputs), inputs.facts
    if facts.overhead_gib is None:
        return _pre_by_itself(inputs, free)
    pre = max(0.0, free - facts.overhead_gib)
    if any(claimed_bytes(inputs, gpu.index) for gpu in used_gpus(inputs)):
        return _around(pre), "estimated"  # what others will take is an estimate
    if facts.pre_gib is not None and abs(pre - facts.pre_gib) <= PRE_MEASURED_GIB:
        pre = facts.pre_gib  # the driver says 10 MiB less of the processes than they give back
    return Interval(max(0.0, pre - PRE_MEASURED_GIB), pre, pre + PRE_MEASURED_GIB), "measured"


def _pre_by_itself(inputs: PlanInput, free: float) -> tuple[Interval, Source]:
    """Return the same where nobody knows how much was free before the start that showed it.

    So it counts if it is what is free now less a context and communicators. If that is less than the estimate of them,
    it may as well be that somebody holds the difference now, which only the low end knows then.
    """
    expected, measured = overhead_gib(inputs), inputs.facts.pre_gib
    estimate = _around(max(0.0, free - expected))
    if measured is None or measured * (1 - PRE_BAND) > estimate.best or not is_overhead(free - measured, expected):
        return estimate, "estimated"
    high = measured + PRE_MEASURED_GIB
    if measured > estimate.best + PRE_UNSAID_GIB:
        return Interval(estimate.low, measured, high), "estimated"
    return Interval(measured - PRE_MEASURED_GIB, measured, high), "measured"


def _around(gib: float) -> Interval:
    return Interval(gib * (1 - PRE_BAND), gib, gib * (1 + PRE_BAND))


def _communicator_gib(inputs: PlanInput) -> float:
    if inputs.args.ranks < 2:
        return 0.0
    hardware = inputs.hardware
    mine = {gpu.index for gpu in used_gpus(inputs)}
    rows = [row for gpu, row in zip(hardware.gpus, hardware.topology) if gpu.index in mine]
    linked = any(link == "NVL" for row in rows for gpu, link in zip(hardware.gpus, row) if gpu.index in mine)
    return NVLINK_COMMUNICATOR_GIB if linked else COMMUNICATOR_GIB


def _cpu_free_gib(inputs: PlanInput) -> float:
    # A utils/common.py:612: available memory, split evenly over the NUMA nodes.
    hardware = inputs.hardware
    free = min(hardware.mem_total_bytes, hardware.mem_available_bytes + inputs.release_host_bytes)
    free -= sum(plan.host.claim_bytes for plan in inputs.others)
    return max(0.0, free / max(1, hardware.numa_nodes) / GIB)


def _static_gib(facts: Facts) -> Interval | None:
    """Return all that is taken before the KV: what a start had for both, less what KV got of it.

    That is exact to a page, where the log's own figure of the weights is to 0.01 GiB and leaves out what is allocated
    between them and the KV.
    """
    if facts.kv_gib is None or facts.kv_fraction is None or facts.pre_gib is None:
        return None
    best = facts.kv_fraction * facts.pre_gib - facts.kv_gib
    half = facts.kv_fraction * PRE_MEASURED_GIB + facts.kv_page_gib / 2
    return Interval(best - half, best, best + half)


def _room_gib(inputs: PlanInput, pre: Interval, pre_source: Source) -> Interval | None:
    """Return what is left for KV by what it got at another fraction; None if that was not measured."""
    static, facts = _static_gib(inputs.facts), inputs.facts
    if static is None or facts.kv_fraction is None:
        return None
    fraction = inputs.args.number("mem-fraction-static")
    best = fraction * pre.best - static.best
    if pre_source == "measured":
        # The same unknown in both starts: it cancels out as far as the fractions are the same.
        half = abs(fraction - facts.kv_fraction) * PRE_UNSAID_GIB + facts.kv_page_gib / 2
        half += fraction * _drift_gib(inputs)
        return Interval(best - half, best, best + half)
    return Interval(fraction * pre.low - static.high, best, fraction * pre.high - static.low)


def _drift_gib(inputs: PlanInput) -> float:
    """Return by how much free memory may differ from what a start with the same before it found."""
    facts = inputs.facts
    if facts.overhead_gib is None or facts.pre_gib is None:
        return PRE_DRIFT_GIB
    moved = abs(free_gib(inputs) - facts.overhead_gib - facts.pre_gib)
    return PRE_DRIFT_GIB + min(moved, PRE_MEASURED_GIB)


def _weights_gib(inputs: PlanInput, beside_gib: float) -> tuple[Interval, Source]:
    """Return the weights of a rank; `beside_gib` is what a draft model and images take like them."""
    static = _static_gib(inputs.facts)
    if static is not None:
        low, best, high = (max(0.0, gib - beside_gib) for gib in (static.low, static.best, static.high))
        return Interval(low, best, high), "measured"
    measured = inputs.facts.weights_gib
    if measured is not None:
        low = max(0.0, measured - WEIGHTS_MEASURED_GIB)
        return Interval(low, measured, measured + WEIGHTS_MEASURED_GIB), "measured"
    loaded = loaded_weights.of(inputs.args, inputs.shape)
    low, high = loaded.low * (1 - WEIGHTS_BAND) / GIB, loaded.high * (1 + WEIGHTS_BAND) / GIB
    return Interval(low, loaded.best / GIB, high), "estimated"


def _draft(inputs: PlanInput) -> tuple[float, int]:
    """Return (GiB of a draft model's weights on a rank, layers of a draft inside the target's own checkpoint)."""
    if not effective_args.uses_draft(inputs.args):
        return 0.0, 0
    estimate, layers = _draft_estimate(inputs)
    measured = inputs.facts.draft_weights_gib
    return (estimate if measured is None else measured), layers


def _draft_estimate(inputs: PlanInput) -> tuple[float, int]:
    args = inputs.args
    if inputs.draft_shape is not None:
        return _split_bytes(args, inputs.draft_shape) / GIB, 0
    tp, ep = args.integer("tp-size", 1), args.integer("ep-size", 1)
    own = 0 if args.text("speculative-draft-model-path") else inputs.shape.draft_layers
    if own:
        whole = effective_args.uses_all_to_all(args)
        return draft_bytes_per_rank(
            loaded_weights.typed(inputs.shape, args), tp, ep, args.attention_dp, whole
        ) / GIB, own
    # Neither read nor in the model's own files: a layer of the model stands in for it.
    return _split_bytes(args, inputs.shape) / max(1, inputs.shape.layers) / GIB, 1


def _split_bytes(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return a draft's weights on a rank; what SGLang quantises or offloads of them is not taken off."""
    return loaded_weights.split_bytes(args, loaded_weights.typed(shape, args))


def _multimodal_gib(args: EffectiveArgs, shape: ModelShape) -> float:
    """Return what B takes off the KV for images (kv_cache_configurator.py:202-219); A takes nothing."""
    if args.release != NEW or not effective_args.uses_vision(args, shape):
        return 0.0
    mib = _env_mib(args, "SGLANG_VLM_CACHE_SIZE_MB", _MULTIMODAL_CACHE_MIB)
    if args.text("mm-feature-transport") in ("cuda_ipc", "cuda_vmm"):
        mib += _env_mib(args, "SGLANG_MM_FEATURE_CACHE_MB", _MULTIMODAL_TRANSPORT_MIB)
    return mib / 1024


def _env_mib(args: EffectiveArgs, name: str, default: int) -> int:
    text = str(args.env.get(name, "")).strip()
    return int(text) if text.isdigit() else default
