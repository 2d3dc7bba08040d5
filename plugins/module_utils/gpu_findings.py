# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be said about an instance's GPUs."""

from __future__ import annotations

import math

from ansible_collections.headroom.serving.plugins.module_utils import gpu_budget, gpu_slack
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, Verdict, finding
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu
from ansible_collections.headroom.serving.plugins.module_utils.kv_pool import GIB
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import GpuBudget, PlanInput

# A GPU with less than this in use holds nothing that counts: drivers keep some MiB.
IDLE_BYTES = GIB
# SGLang leaves its default this much below its own reserve, as it takes it off the total and not off what is free.
_RESERVE_SHARE = 0.95
# Where nothing was measured, this much of it must be left: the case of docs/plan.md died at 0.45 of it and ran at 0.77.
_UNMEASURED_SHARE = 0.5
_BALANCE = 0.9  # A model_executor/model_runner.py:1276, B distributed/bootstrap.py:444


def findings(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    """Return the findings about GPUs and what fits on them."""
    if inputs.args.on_cpu:
        return [*_fraction(inputs, gpu), *_fit(inputs, gpu)]
    there = _there(inputs)
    if there:
        return there
    return [*_others(inputs), *_fraction(inputs, gpu), *_fit(inputs, gpu), *_slack(inputs, gpu)]


def _there(inputs: PlanInput) -> list[Finding]:
    ranks = inputs.args.ranks_on_node
    gpus = gpu_budget.chosen(inputs.hardware, inputs.gpus)
    if not gpus:
        known = ", ".join(str(gpu.index) for gpu in inputs.hardware.gpus)
        reason = (
            f"the instance names GPUs {list(inputs.gpus)}, the node has {known}" if known else "the node shows none"
        )
        return [
            finding(
                "gpu.none",
                f"{inputs.name}: no GPU to run on: {reason}",
                "Install the driver, name GPUs that exist, or set 'device: cpu'.",
            )
        ]
    missing = [index for index in inputs.gpus if index not in {gpu.index for gpu in gpus}]
    needed = max(inputs.args.gpu_places) + 1
    if len(gpus) < needed or missing:
        named = f"; GPUs {missing} do not exist" if missing else ""
        first, step = inputs.args.integer("base-gpu-id"), inputs.args.integer("gpu-id-step", 1)
        spread = f" from base-gpu-id {first} on with gpu-id-step {step}" if needed > ranks else ""
        lower = ", lower base-gpu-id or gpu-id-step" if needed > ranks else ""
        return [
            finding(
                "gpu.too_few",
                f"{inputs.name}: {ranks} ranks on this node{spread} need {needed} GPUs, {len(gpus)} are there{named}",
                f"Set tp-size x pp-size to {len(gpus)} a node{lower}, or name more GPUs.",
            )
        ]
    models = sorted({(gpu.name, gpu.total_bytes // GIB) for gpu in gpu_budget.used_gpus(inputs)})
    if len({name for name, _gib in models}) > 1:
        kinds = ", ".join(f"{name} ({gib} GiB)" for name, gib in models)
        return [
            finding(
                "gpu.mixed_gpus",
                f"{inputs.name}: its GPUs differ: {kinds}. All ranks get what the smallest has, and kernels may lack",
                "Give the instance GPUs of one model by 'gpus'.",
            )
        ]
    return []


def _holders(gpu: Gpu) -> str:
    shown = sorted(gpu.processes, key=lambda process: -process.used_bytes)[:4]
    if not shown:
        return "no process is shown"
    return ", ".join(f"PID {one.pid} {one.command or 'unknown'} ({one.used_bytes / GIB:.1f} GiB)" for one in shown)


def _others(inputs: PlanInput) -> list[Finding]:
    """Say who else holds memory: a start fails if that leaves the GPUs unequal."""
    gpus = gpu_budget.used_gpus(inputs)
    free = {gpu.index: gpu_budget.free_bytes(inputs, gpu) for gpu in gpus}
    most = max(free.values())
    found: list[Finding] = []
    for gpu in gpus:
        foreign = gpu.used_bytes - inputs.release_gpu_bytes.get(gpu.index, 0)
        claimed = gpu_budget.claimed_bytes(inputs, gpu.index)
        before = ", ".join(plan.name for plan in inputs.others if gpu.index in plan.gpus)
        after = ", ".join(plan.name for plan in inputs.later if gpu.index in plan.gpus)
        first = [f"{before}, started before it, which will take {claimed / GIB:.1f} GiB"] if before else []
        then = [f"{after}, started after it, which will get a part of what is left"] if after else []
        if first or then:
            found.append(
                finding(
                    "gpu.shared_by_instances",
                    f"{inputs.name}: GPU {gpu.index} is also for {', and for '.join([*first, *then])}",
                    "Give each instance GPUs of its own, or fractions that fit one after the other.",
                )
            )
        if free[gpu.index] < _BALANCE * most:
            held = "" if foreign <= IDLE_BYTES else f" {foreign / GIB:.1f} GiB are held: {_holders(gpu)}."
            found.append(
                finding(
                    "gpu.unbalanced",
                    f"{inputs.name}: GPU {gpu.index} has {free[gpu.index] / GIB:.1f} GiB free, another of the instance "
                    f"{most / GIB:.1f}: SGLang refuses GPUs that differ by more than a tenth.{held}",
                    "End what holds the memory.",
                )
            )
        elif foreign > IDLE_BYTES:
            found.append(
                finding(
                    "gpu.foreign_memory",
                    f"{inputs.name}: GPU {gpu.index}: {foreign / GIB:.1f} GiB are held by others: {_holders(gpu)}. "
                    "KV gets that much less, times the fraction",
                    "End what holds the memory, or plan with it.",
                )
            )
    return found


def _fraction(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    entry = inputs.args["mem-fraction-static"]
    if entry.origin == "given":
        return []
    text = f"{inputs.name}: mem-fraction-static is not set; SGLang {inputs.args.engine_version} computes "
    where = "this node" if inputs.args.on_cpu else "these GPUs"
    return [
        finding(
            "gpu.fraction_computed", f"{text}{gpu.fraction:.3f} for this model and {where} (rule of {entry.source})"
        )
    ]


def _fit(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    name, fraction = inputs.name, gpu.fraction
    room = gpu.pre_bytes.low * fraction
    weights = gpu.weights_bytes.high + gpu.draft_weight_bytes + gpu.multimodal_bytes
    if gpu.tokens.low <= 0:
        least = math.ceil(gpu.minimum_fraction * 1000) / 1000
        where = "memory" if inputs.args.on_cpu else "each GPU"
        return [
            finding(
                "gpu.no_room_for_kv",
                f"{name}: mem-fraction-static is {fraction:.3f}: of {gpu.pre_bytes.low / GIB:.2f} GiB free on {where} "
                f"that is {room / GIB:.2f} GiB, and the weights take {weights / GIB:.2f} GiB. The least fraction that "
                f"leaves anything for KV is {least:.3f}",
            )
        ]
    found = _peak(inputs, gpu)
    window = max((group.window_tokens for group in inputs.shape.groups if group.kind == "swa"), default=0)
    if gpu.swa_tokens and window and gpu.swa_tokens <= window + inputs.args.integer("page-size", 1):
        # B model_executor/pool_configurator.py:210 raises; A hangs in its warm-up.
        found.append(
            finding(
                "gpu.window_pool_too_small",
                f"{name}: the pool of the sliding-window layers holds {gpu.swa_tokens:,} tokens, less than a window of "
                f"{window:,}: no request could ever run",
            )
        )
    if any(group.kind == "linear" for group in inputs.shape.groups) and gpu.max_running_requests < 1:
        found.append(
            finding(
                "gpu.state_cache_too_small",
                f"{name}: {gpu.states} states of linear attention fit, too few for one request",
            )
        )
    return found


def _peak(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    if gpu.load_peak_bytes <= gpu.pre_bytes.low:
        return []
    where = "a rank's share of memory" if inputs.args.on_cpu else "each GPU"
    return [
        finding(
            "gpu.load_peak",
            f"{inputs.name}: SGLang quantises the weights after it has loaded them as they are: that takes "
            f"{gpu.load_peak_bytes / GIB:.2f} GiB, and {gpu.pre_bytes.low / GIB:.2f} GiB are free on {where}",
            "Use a checkpoint that is quantised already, more GPUs, or 'load-format: layered' with torchao-config.",
        )
    ]


def _slack(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    if gpu.pre_bytes.low <= 0:
        return []
    slack, need, reserve = gpu.slack_bytes.low, gpu.need_bytes, gpu.reserve_bytes
    new = gpu_slack.unmeasured(inputs.args, inputs.shape)
    least = max(need, reserve * _UNMEASURED_SHARE) if new else need
    verdict: Verdict = "ok"
    if slack < least:
        verdict = "refuse"
    elif slack < reserve * _RESERVE_SHARE:
        verdict = "warn"
    if verdict == "ok":
        return []
    parts = (
        ("table of requests", gpu.request_table_bytes),
        ("decode graphs", gpu.decode_graph_bytes),
        ("a prefill chunk", gpu.chunk_bytes),
        ("images", gpu.vision_bytes),
        ("workspace", gpu.workspace_bytes),
        ("NCCL", gpu.communicator_bytes),
        ("KV beyond the budget", gpu.overflow_bytes),
        ("fragments", gpu.fragment_bytes),
    )
    named = ", ".join(f"{what} {size / GIB:.1f}" for what, size in parts if size >= 0.05 * GIB)
    estimate = f"the {need / GIB:.2f} GiB that the rest needs by estimate ({named})"
    if slack < need:
        said = f"That is less than {estimate}; SGLang itself would reserve {reserve / GIB:.1f}"
    elif verdict == "refuse":
        said = (
            f"That holds {estimate}, but is less than half of the {reserve / GIB:.1f} that SGLang would reserve, and "
            f"the estimate was never compared with a start of this kind: {', '.join(new)}"
        )
    else:
        said = f"That holds, but with little to spare, {estimate}; SGLang itself would reserve {reserve / GIB:.1f}"
    return [
        finding(
            "gpu.slack",
            f"{inputs.name}: mem-fraction-static is {gpu.fraction:.3f}: it leaves {slack / GIB:.2f} GiB a GPU beside "
            f"weights and KV. {said}",
            verdict=verdict,
        )
    ]
