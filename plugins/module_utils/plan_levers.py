# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the levers of a plan do and don't do: requests that can run, what the host tier is for, and on what it rests."""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils import effective_args, loaded_weights
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW, OLD
from ansible_collections.headroom.serving.plugins.module_utils.host_findings import counted, gb
from ansible_collections.headroom.serving.plugins.module_utils.kv_pool import GIB
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import GpuBudget, HostBudget, PlanInput


def request_tokens(inputs: PlanInput) -> int:
    """Return the length of the requests that are counted: the expected one, or the whole context."""
    return max(1, inputs.expected_request_tokens or inputs.args.integer("context-length", 1))


def requests_at_once(inputs: PlanInput, gpu: GpuBudget) -> int:
    """Return how many such requests the KV holds at a time, over all copies of the pool."""
    args = inputs.args
    held = min(int(gpu.tokens.low) // request_tokens(inputs), gpu.max_running_requests)
    return held * args.attention_dp * args.replicas


def estimates(inputs: PlanInput, gpu: GpuBudget) -> tuple[str, ...]:
    """Return what the plan rests on, with the band of each figure."""
    said = []
    for name, interval, source in (
        ("free memory before the weights", gpu.pre_bytes, gpu.pre_source),
        ("weights of a rank", gpu.weights_bytes, gpu.weights_source),
    ):
        half = (interval.high - interval.low) / 2 / GIB
        said.append(f"{name}: {interval.best / GIB:.2f} GiB +- {half:.2f} ({source})")
    if gpu.weights_source == "estimated":
        said += [
            f"the weights are an estimate: {reason}" for reason in loaded_weights.reasons(inputs.args, inputs.shape)
        ]
    said += [f"the model's figures are estimates: {reason}" for reason in inputs.shape.approximate]
    return tuple(said)


def findings(inputs: PlanInput, gpu: GpuBudget, host: HostBudget) -> list[Finding]:
    """Return what should be known though it forbids nothing."""
    found = _engine(inputs) + _weights(inputs, gpu) + _draft(inputs, gpu)
    if gpu.tokens.low > 0:
        found += _requests(inputs, gpu) + _limits(inputs, gpu)
    if host.tokens:
        found += _host_tier(inputs, gpu, host)
    return found


def _engine(inputs: PlanInput) -> list[Finding]:
    version = inputs.args.engine_version
    if version in (OLD, NEW):
        return []
    return [
        finding(
            "plan.engine_unknown",
            f"{inputs.name}: this plan follows SGLang {inputs.args.release}; the sizes of {version} were "
            "never compared with it",
            "Compare the plan with what the server reports after its first start.",
        )
    ]


def _weights(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    """Say where flags make of the weights what only a start will show."""
    reasons = loaded_weights.reasons(inputs.args, inputs.shape)
    if gpu.weights_source == "measured" or not reasons:
        return []
    low, high = gpu.weights_bytes.low / GIB, gpu.weights_bytes.high / GIB
    return [
        finding(
            "plan.weights_uncertain",
            f"{inputs.name}: the weights take {low:.2f} to {high:.2f} GiB a rank: {'; '.join(reasons)}. "
            "The plan judges by the most",
            "The first start shows it, and later plans know.",
        )
    ]


def _requests(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    length, context, tokens = request_tokens(inputs), inputs.args.integer("context-length"), int(gpu.tokens.low)
    count = requests_at_once(inputs, gpu)
    which = "expected" if inputs.expected_request_tokens else "the model's whole context"
    found = [
        finding(
            "plan.requests_at_context",
            f"{inputs.name}: {tokens:,} KV tokens hold {counted(count, 'request')} of {length:,} tokens ({which}) at a "
            f"time; SGLang runs at most {gpu.max_running_requests:,}",
        )
    ]
    if tokens < context:
        found.append(
            finding(
                "plan.context_exceeds_pool",
                f"{inputs.name}: the context is {context:,} tokens, the KV pool holds {tokens:,}: a longer request is "
                "rejected, whatever the host tier holds",
                f"Set 'context-length' to {tokens} or less, so that clients are told, or give KV more room.",
            )
        )
    return found


def _limits(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    found = []
    limit = inputs.args.value("max-total-tokens")
    # Whether the limit binds is seen without it: what fits is then more than the limit.
    if limit is not None and gpu.tokens.low < limit - inputs.args.integer("page-size", 1):
        found.append(
            finding(
                "plan.limit_above_pool",
                f"{inputs.name}: max-total-tokens is {limit:,}, and {int(gpu.tokens.low):,} tokens fit: it can only "
                "lower the pool",
                "Raise mem-fraction-static where the plan allows it, or remove the limit.",
            )
        )
    asked = inputs.args.value("max-running-requests")
    shards = inputs.args.attention_dp * inputs.args.replicas
    if asked is not None and gpu.max_running_requests < int(asked) // shards:
        found.append(
            finding(
                "plan.requests_lowered",
                f"{inputs.name}: max-running-requests is {asked}; SGLang will lower it to {gpu.max_running_requests}, "
                "as no more have room",
            )
        )
    return found


def _host_tier(inputs: PlanInput, gpu: GpuBudget, host: HostBudget) -> list[Finding]:
    args = inputs.args
    found = [
        finding(
            "plan.prefix_cache_only",
            f"{inputs.name}: the host tier keeps {host.unique_tokens:,} tokens of prefixes that come again. It does "
            f"not raise how many requests run at a time: that stays with the GPU's {int(gpu.tokens.low):,} tokens",
        )
    ]
    heads = [group.kv_heads for group in inputs.shape.groups if group.kind in ("mha", "swa")]
    copies = effective_args.is_mla(inputs.shape) or any(count < args.attention_tp for count in heads)
    if copies and args.attention_tp > 1:
        why = (
            "latent KV (MLA) is whole on each rank" if effective_args.is_mla(inputs.shape) else "KV heads are repeated"
        )
        found.append(
            finding(
                "plan.copies_per_rank",
                f"{inputs.name}: {why}: {host.ranks} pools of {gb(host.pool_bytes)} GB hold copies, "
                f"{host.unique_tokens:,} tokens in all",
                "Data parallel attention or FP8 KV would hold more in the same memory.",
            )
        )
    return found


def _draft(inputs: PlanInput, gpu: GpuBudget) -> list[Finding]:
    if not effective_args.uses_draft(inputs.args):
        return []
    numbers = f"{gpu.draft_weight_bytes / GIB:.2f} GiB of weights and {gpu.draft_kv_bytes / GIB:.2f} GiB of KV a GPU"
    if inputs.draft_shape is None and (
        inputs.args.text("speculative-draft-model-path") or not inputs.shape.draft_layers
    ):
        return [
            finding(
                "plan.draft_unknown",
                f"{inputs.name}: the draft model {inputs.args.text('speculative-draft-model-path')!r} was not read; "
                f"one layer of the model stands in for it: {numbers}",
                "Make the draft model's folder readable on the node.",
            )
        ]
    return [finding("plan.draft_counted", f"{inputs.name}: the draft model takes {numbers}, counted here")]
