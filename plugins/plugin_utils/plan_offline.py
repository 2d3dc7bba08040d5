# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the instances of a node on the controller, from records instead of the node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import (
    effective_args,
    instances,
    memory_plan,
    model_shape,
    plan_report,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import one_line, refusals
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import PlanInput
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_records
from ansible_collections.headroom.serving.plugins.plugin_utils.controller_files import Find

_FACTS = "nothing measured: an offline plan knows estimates only"


@dataclass(frozen=True)
class Request:
    """What is to be planned.

    `entries` and `engines` are sglang_server_instances and sglang_runtime_engines; `model_record` is a path, or a
    mapping from instances to paths.
    """

    entries: Sequence[Mapping[str, Any]]
    engines: Sequence[Mapping[str, Any]]
    accept: Sequence[str]
    hardware_record: str
    model_record: Any


def reports(request: Request, find_record: Find, find_lock: Find) -> list[dict[str, Any]]:
    """Return the reports of all instances that are to run, in their order.

    Args:
        request: What is to be planned.
        find_record: Returns the absolute path of a record, or raises LookupError.
        find_lock: The same for locks.

    Raises:
        HeadroomError: For settings or files that can't be used; what does not fit is a finding of a report.
    """
    found, findings = instances.normalise(request.entries)
    bad = refusals(findings)
    if bad:
        raise HeadroomError(one_line(bad), bad)
    plan_records.check_names(request.model_record, [item.name for item in found])
    node = plan_records.read_hardware(find_record, request.hardware_record)
    expected = {str(entry.get("name")): int(entry.get("expected_request_tokens") or 0) for entry in request.entries}
    inputs: list[PlanInput] = []
    sources: list[dict[str, str]] = []
    for item in found:
        if item.state != "started":
            continue
        version = plan_records.engine_version(find_lock, request.engines, item.engine, item.name)
        dummy = item.args.get("load-format") == "dummy"
        shape, origin = plan_records.read_model(find_record, request.model_record, item.name, item.model_path, dummy)
        inputs.append(_input(item, version, shape, node, tuple(request.accept), expected[item.name]))
        sources.append({"hardware": f"record {request.hardware_record}", "model": origin, "facts": _FACTS})
    plans = memory_plan.plan_node(inputs)
    # As a node would send them.
    plain: list[dict[str, Any]] = json.loads(
        json.dumps([plan_report.as_dict(*parts) for parts in zip(inputs, plans, sources)])
    )
    return plain


def _input(
    item: Instance, version: str, shape: ModelShape, node: Hardware, accept: tuple[str, ...], expected_tokens: int
) -> PlanInput:
    gpus = item.gpus or ()
    try:
        args = effective_args.resolve(item.args, version, shape, node, gpus, item.env)
    except HeadroomError as error:
        raise HeadroomError(f"{instances.SETTING} ({item.name}): {error}", error.findings) from None
    draft = args.text("speculative-draft-model-path")
    return PlanInput(
        name=item.name,
        args=args,
        shape=shape,
        hardware=node,
        gpus=gpus,
        accept=accept,
        draft_shape=model_shape.from_dir(draft) if draft and Path(draft).is_dir() else None,
        expected_request_tokens=expected_tokens,
    )
