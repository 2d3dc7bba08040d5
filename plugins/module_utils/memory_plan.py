# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: what an instance will need and get on a node, before it is started.

Takes what others have read (arguments, model, hardware, measured facts) and gives bytes, tokens, findings and values
that would fit instead. Verdicts use the unfavourable end of each interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import (
    effective_args,
    gpu_budget,
    gpu_findings,
    host_budget,
    host_findings,
    plan_levers,
    plan_suggestions,
)
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding, refusals
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import (
    Facts,
    GpuBudget,
    HostBudget,
    Interval,
    Plan,
    PlanInput,
    Suggestion,
)

__all__ = [
    "Facts",
    "GpuBudget",
    "HostBudget",
    "Interval",
    "Plan",
    "PlanInput",
    "Suggestion",
    "check",
    "plan",
    "plan_node",
]


def plan(inputs: PlanInput) -> Plan:
    """Plan one instance on one node.

    Figures are in the units that their names say. The findings are in the order GPU, host, levers; those whose ids are
    accepted by `inputs.accept` warn instead of refusing.

    Raises:
        HeadroomError: If a flag has a value that can't be one; what does not fit is a finding, not an error.
    """
    bare = _evaluate(inputs)

    def probe(changes: Mapping[str, Any]) -> Plan:
        args = effective_args.changed(inputs.args, changes, inputs.shape, inputs.hardware, inputs.gpus)
        return _evaluate(replace(inputs, args=args))

    suggestions = plan_suggestions.suggest(bare, inputs, probe)
    return replace(
        bare,
        findings=tuple(_accepted(_with_cure(item, suggestions), inputs.accept) for item in bare.findings),
        suggestions=suggestions,
        accepted=tuple(sorted({item.id for item in refusals(bare.findings)} & set(inputs.accept))),
    )


def plan_node(inputs: Sequence[PlanInput], booted: Sequence[PlanInput] | None = None) -> list[Plan]:
    """Plan all instances of a node that are to run beside each other and don't run yet, in the order of their start.

    Each finds the GPUs as those before it leave them; those after it get a part of what it leaves. The host has to hold
    them all. What fits in this order only is said: after a reboot they start together.

    Args:
        inputs: The instances.
        booted: The same after a reboot, when nothing of them holds memory; `inputs` if None.
    """
    started: list[Plan] = []
    for item in inputs:
        started.append(_evaluate(replace(item, others=(*item.others, *started))))
    plans = [
        plan(replace(item, others=(*item.others, *started[:place]), later=(*item.later, *started[place + 1 :])))
        for place, item in enumerate(inputs)
    ]
    said = start_order(inputs if booted is None else booted, plans)
    return [replace(one, findings=(*one.findings, *more)) for one, more in zip(plans, said)]


def start_order(inputs: Sequence[PlanInput], plans: Sequence[Plan]) -> list[list[Finding]]:
    """Say for each instance what only fits if it starts before those that come later on the same GPUs.

    Args:
        inputs: The instances in the order of their start, as they are when nothing of them holds memory.
        plans: Their plans in that order.
    """
    said: list[list[Finding]] = []
    for place, (own, item) in enumerate(zip(plans, inputs)):
        mates = [other for other in range(len(plans)) if other != place and _share(own, plans[other])]
        behind = [plans[other].name for other in mates if other > place]
        said.append([])
        if not behind:
            continue
        before: list[Plan] = []
        for other in mates:
            before.append(_evaluate(replace(inputs[other], others=(*inputs[other].others, *before))))
        known = {*item.accept, *(one.id for one in refusals(own.findings))}
        last = _evaluate(replace(item, others=(*item.others, *before)))
        new = [one.message.rstrip(".") for one in refusals(last.findings) if one.id not in known]
        if new:
            names = ", ".join(behind)
            said[-1] = [
                finding(
                    "plan.start_order",
                    f"{item.name}: a deploy starts it before {names}, on the same GPU; after a reboot they start "
                    f"together. If {names} {'are' if len(behind) > 1 else 'is'} first: {new[0]}",
                    "Give each GPUs of its own, or fractions and a max-total-tokens that fit in any order.",
                )
            ]
    return said


def check(inputs: PlanInput) -> tuple[Finding, ...]:
    """Return the findings of a plan without the search for values that would fit instead."""
    return tuple(_accepted(item, inputs.accept) for item in _evaluate(inputs).findings)


def _share(one: Plan, other: Plan) -> bool:
    return bool(set(one.gpus) & set(other.gpus))


def _evaluate(inputs: PlanInput) -> Plan:
    gpu = gpu_budget.budget(inputs)
    host = host_budget.budget(inputs, gpu)
    return Plan(
        name=inputs.name,
        engine_version=inputs.args.engine_version,
        gpus=() if inputs.args.on_cpu else tuple(one.index for one in gpu_budget.used_gpus(inputs)),
        gpu=gpu,
        host=host,
        tokens=gpu.tokens,
        host_tokens=host.tokens,
        max_running_requests=gpu.max_running_requests,
        requests_at_context=plan_levers.requests_at_once(inputs, gpu),
        request_tokens=plan_levers.request_tokens(inputs),
        context_tokens=inputs.args.integer("context-length"),
        estimates=plan_levers.estimates(inputs, gpu),
        findings=(
            *gpu_findings.findings(inputs, gpu),
            *host_findings.findings(inputs, gpu, host),
            *plan_levers.findings(inputs, gpu, host),
        ),
    )


def _with_cure(item: Finding, suggestions: Sequence[Suggestion]) -> Finding:
    texts = [one.text for one in suggestions if one.finding == item.id]
    if not texts or item.verdict == "ok":
        return item
    return replace(item, suggestion=" ".join([*texts, item.suggestion]).strip())


def _accepted(item: Finding, accept: Sequence[str]) -> Finding:
    if item.verdict != "refuse" or item.id not in accept:
        return item
    return replace(item, verdict="warn", message=f"{item.message} (accepted)")
