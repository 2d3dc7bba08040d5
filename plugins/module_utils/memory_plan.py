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
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, refusals
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import (
    Facts,
    GpuBudget,
    HostBudget,
    Interval,
    Plan,
    PlanInput,
    Suggestion,
)

__all__ = ["Facts", "GpuBudget", "HostBudget", "Interval", "Plan", "PlanInput", "Suggestion", "plan", "plan_node"]


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


def plan_node(inputs: Sequence[PlanInput]) -> list[Plan]:
    """Plan all instances of a node that are to run beside each other and don't run yet.

    Each is planned with the claims of all others taken off, so the order of the instances decides nothing.
    """
    alone = [_evaluate(replace(item, others=())) for item in inputs]
    return [
        plan(replace(item, others=(*item.others, *alone[:place], *alone[place + 1 :])))
        for place, item in enumerate(inputs)
    ]


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
