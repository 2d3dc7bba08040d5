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
    """Plan the instances of a node that a deploy would start, one after the other in the order of the steps.

    Memory of what the deploy stops counts as free, and that of what it replaces once its turn has come; that of all
    others counts as taken.

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
    plans, order = _in_turn(starting, first, found)
    for step in staying:
        _as_started(step, steps, ending, found, first, plans)
    if staying:
        _say_start_order(steps, found, first, plans)
    planned = {name: Planned(replace(found.prepared[name], inputs=first[name]), plan) for name, plan in plans.items()}
    findings = [*found.findings, *(item for plan in plans.values() for item in plan.findings)]
    if any(not one.prepared.inputs.args.on_cpu for one in planned.values()):
        findings = [*_accepted(hardware.findings(found.hardware), settings.accept), *findings]
    findings += _accepted(order, settings.accept)
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


def _as_started(
    step: Step,
    steps: Sequence[Step],
    ending: set[str],
    found: _Node,
    inputs: dict[str, PlanInput],
    plans: dict[str, Plan],
) -> None:
    """Plan what runs and stays as if it started now, in its place: what comes later holds nothing of a GPU yet."""
    place = steps.index(step)
    units = ending | {step.unit_name}
    gpu_bytes, _host = found.given_back(units | {one.unit_name for one in steps[place + 1 :]})
    for name, own in found.inputs([step], units).items():
        # What stays is in the facts of the hardware, so only those that start are claims.
        before, after = (
            tuple(plans[one.instance.name] for one in part if one.action in _STARTS and one.instance.name in plans)
            for part in (steps[:place], steps[place + 1 :])
        )
        inputs[name] = replace(own, release_gpu_bytes=gpu_bytes, others=before, later=after)
        plans[name] = memory_plan.plan(inputs[name])


def _say_start_order(
    steps: Sequence[Step], found: _Node, inputs: Mapping[str, PlanInput], plans: dict[str, Plan]
) -> None:
    """Add what a reboot may do to those that start beside what stays."""
    names = [step.instance.name for step in steps if step.instance.name in plans]
    gpu_bytes, _host = found.given_back({step.unit_name for step in steps})
    booted = [replace(inputs[name], release_gpu_bytes=gpu_bytes, others=(), later=()) for name in names]
    for name, more in zip(names, memory_plan.start_order(booted, [plans[name] for name in names])):
        if more and not any(item.id == "plan.start_order" for item in plans[name].findings):
            plans[name] = replace(plans[name], findings=(*plans[name].findings, *more))


def _in_turn(
    starting: Sequence[Step], inputs: dict[str, PlanInput], found: _Node
) -> tuple[dict[str, Plan], list[Finding]]:
    """Plan each in its turn: present releases of those that come later still run then.

    Return the plans by name, and what fits in the end, but not on the way. `inputs` become those of the plans.
    """
    ended = dict(inputs)
    still: dict[str, list[Step]] = {}
    for place, step in enumerate(starting):
        running = [one for one in starting[place + 1 :] if not one.unit.is_dead]
        if step.instance.name in inputs and running:
            still[step.instance.name] = running
            held, _host = found.given_back({one.unit_name for one in running})
            own = inputs[step.instance.name]
            gpus = {index: size - held.get(index, 0) for index, size in own.release_gpu_bytes.items()}
            inputs[step.instance.name] = replace(own, release_gpu_bytes=gpus)
    plans = dict(zip(inputs, memory_plan.plan_node(list(inputs.values()), list(ended.values()))))
    tight = {name: _refused(plans, inputs, name, running, found) for name, running in still.items()}
    if not any(tight.values()):
        return plans, []
    in_the_end = dict(zip(ended, memory_plan.plan_node(list(ended.values()))))
    said = []
    for name, refused in tight.items():
        known = {item.id for item in refusals(in_the_end[name].findings)}
        names = ", ".join(one.instance.name for one in still[name])
        said += [
            finding(
                "plan.order",
                f"{item.message.rstrip('.')}, as long as the present release of {names} still runs: it comes later",
                f"List {name} behind {names}, or set {names} to 'state: stopped' for one deploy.",
            )
            for kind, item in refused.items()
            if kind not in known
        ]
    if said:
        inputs.update(ended)
        return in_the_end, said
    return plans, []


def _refused(
    plans: Mapping[str, Plan], inputs: Mapping[str, PlanInput], name: str, running: Sequence[Step], found: _Node
) -> dict[str, Finding]:
    """Return by id what refuses an instance in its turn, with the present releases of some that come later held."""
    own = inputs[name]
    _gpus, held = found.given_back({one.unit_name for one in running})
    names = list(plans)
    before = tuple(plans[other] for other in names[: names.index(name)])
    now = memory_plan.check(replace(own, release_host_bytes=own.release_host_bytes - held, others=before))
    return {item.id: item for item in refusals((*plans[name].findings, *now))}


def _accepted(findings: Sequence[Finding], accept: Sequence[str]) -> list[Finding]:
    return [
        replace(item, verdict="warn") if item.verdict == "refuse" and item.id in accept else item for item in findings
    ]
