# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a node as it is now: what its instances will need, given what runs, what ends, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import (
    hardware,
    hardware_reading,
    memory_plan,
    plan_report,
    release_plan,
    unit_memory,
)
from ansible_collections.headroom.serving.plugins.module_utils.deployment import Settings, Step
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding, refusals
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Plan, PlanInput
from ansible_collections.headroom.serving.plugins.module_utils.release_plan import Prepared

_STARTS = ("create", "replace", "start")


@dataclass(frozen=True)
class Planned:
    """An instance's plan with what it was made from."""

    prepared: Prepared
    plan: Plan

    def report(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plan_report.as_dict(self.prepared.inputs, self.plan, self.prepared.sources)


@dataclass(frozen=True)
class NodePlan:
    """The plans of a node's instances by name, and all that is to be said about them."""

    planned: Mapping[str, Planned]
    findings: Sequence[Finding]


def make(settings: Settings, steps: Sequence[Step], everything: bool = False, keep: bool = True) -> NodePlan:
    """Plan the instances of a node that a deploy would start.

    Memory of what the deploy stops or replaces counts as free, that of all others as taken.

    Args:
        settings: The settings that the steps follow from; `accept` holds ids of findings that may not refuse.
        steps: What a deploy would do.
        everything: Whether to plan instances that run and stay as well, as if they were started now.
        keep: Whether what was read of a model may be kept for the next plan.

    Raises:
        HeadroomError: If the host's memory can't be read.
    """
    starting = [step for step in steps if step.release and step.action in _STARTS]
    staying = [step for step in steps if step.release and step.action not in _STARTS] if everything else []
    if not starting and not staying:
        return NodePlan({}, [])
    found = _Node(settings, hardware_reading.read(settings.engines_root.parent), keep)
    ending = {step.unit_name for step in steps if step.action in (*_STARTS, "stop", "remove")}
    first = found.inputs(starting, ending)
    plans = dict(zip(first, memory_plan.plan_node(list(first.values()))))
    for step in staying:
        for name, inputs in found.inputs([step], ending | {step.unit_name}).items():
            first[name] = replace(inputs, others=tuple(plans[one.instance.name] for one in starting if _in(one, plans)))
            plans[name] = memory_plan.plan(first[name])
    planned = {name: Planned(replace(found.prepared[name], inputs=first[name]), plan) for name, plan in plans.items()}
    findings = [*found.findings, *(item for plan in plans.values() for item in plan.findings)]
    if any(not one.prepared.inputs.args.on_cpu for one in planned.values()):
        findings = [*_accepted(hardware.findings(found.hardware), settings.accept), *findings]
    findings += _accepted(_in_order(starting, first, plans, found), settings.accept)
    return NodePlan(planned, findings)


class _Node:
    """Collects what plans are made from; what can't be read becomes a finding."""

    def __init__(self, settings: Settings, node: Hardware, keep: bool) -> None:
        self.hardware = node
        self.findings: list[Finding] = []
        self.prepared: dict[str, Prepared] = {}
        self._settings = settings
        self._keep = keep

    def inputs(self, steps: Sequence[Step], ending: set[str]) -> dict[str, PlanInput]:
        """Return the inputs of instances by name, given the units that will have ended."""
        found = {}
        gpu_bytes, host_bytes = self.given_back(ending)
        for step in steps:
            try:
                record = step.release.record if step.release else {}
                settings = self._settings
                one = release_plan.prepare(record, self.hardware, settings.root, settings.accept, self._keep)
            except HeadroomError as error:
                self.findings += error.findings
            else:
                self.prepared[step.instance.name] = one
                found[step.instance.name] = replace(
                    one.inputs, release_gpu_bytes=gpu_bytes, release_host_bytes=host_bytes
                )
        return found

    def given_back(self, units: set[str]) -> tuple[dict[int, int], int]:
        """Return what units give back when they end: bytes by the GPU's index, bytes of the host."""
        return unit_memory.of_gpus(self.hardware, units), unit_memory.of_host(units)


def _in(step: Step, plans: Mapping[str, Plan]) -> bool:
    return step.instance.name in plans


def _in_order(
    starting: Sequence[Step], inputs: Mapping[str, PlanInput], plans: Mapping[str, Plan], found: _Node
) -> list[Finding]:
    """Say what fits in the end, but not while the present release of an instance that comes later still runs."""
    said = []
    for place, step in enumerate(starting):
        later = [one for one in starting[place + 1 :] if not one.unit.is_dead]
        if not later or not _in(step, plans):
            continue
        held_gpus, held_host = found.given_back({one.unit_name for one in later})
        own = inputs[step.instance.name]
        gpus = {index: size - held_gpus.get(index, 0) for index, size in own.release_gpu_bytes.items()}
        before = tuple(plans[one.instance.name] for one in starting[:place] if _in(one, plans))
        now = memory_plan.plan(
            replace(
                own,
                release_gpu_bytes=gpus,
                release_host_bytes=own.release_host_bytes - held_host,
                others=before,
            )
        )
        known = {item.id for item in refusals(plans[step.instance.name].findings)}
        names = ", ".join(one.instance.name for one in later)
        said += [
            finding(
                "plan.order",
                f"{item.message.rstrip('.')}, as long as the present release of {names} still runs: it comes later",
                f"List {step.instance.name} behind {names}, or set {names} to 'state: stopped' for one deploy.",
            )
            for item in refusals(now.findings)
            if item.id not in known
        ]
    return said


def _accepted(findings: Sequence[Finding], accept: Sequence[str]) -> list[Finding]:
    return [
        replace(item, verdict="warn") if item.verdict == "refuse" and item.id in accept else item for item in findings
    ]
