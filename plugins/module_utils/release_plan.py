# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the record of a release to what its plan is made from, before a deploy and before each start alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import (
    effective_args,
    gpu_budget,
    measured_facts,
    model_shape,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import one_line
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.host_findings import counted
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import PlanInput
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape

# Records of models are a cache: whoever removes them only pays for reading the headers again.
SHAPES = Path("/var/cache/headroom/shapes")


@dataclass(frozen=True)
class Prepared:
    """What a plan is made from; `sources` says in words where it came from, `key` names the measured facts."""

    inputs: PlanInput
    sources: Mapping[str, str]
    key: str


def prepare(
    record: Mapping[str, Any],
    node: Hardware,
    root: Path,
    accept: Sequence[str] = (),
    keep: bool = True,
) -> Prepared:
    """Read a release's model and measured facts.

    Args:
        record: The release's record, as release.json holds it.
        node: The hardware.
        root: Directory of the instances, such as /var/lib/headroom.
        accept: Ids of findings that may not refuse.
        keep: Whether what was read of a model may be kept for the next time.

    Raises:
        HeadroomError: If the model can't be read or a flag has no usable value.
    """
    flags = record["args"]
    path = str(record["model"]["path"])
    shape = _shape(path, flags, keep)
    gpus = tuple(record["gpus"] or ())
    version = str(record["engine"]["version"])
    try:
        args = effective_args.resolve(flags, version, shape, node, gpus, record["environment"])
    except HeadroomError as error:
        raise _named(error, str(record["name"])) from None
    key = measured_facts.key(
        args, str(record["model"]["digest"]), str(record["engine"]["id"]), gpu_budget.chosen(node, gpus)
    )
    facts, when = measured_facts.load(root / "measured", key)
    draft = args.text("speculative-draft-model-path")
    inputs = PlanInput(
        name=str(record["name"]),
        args=args,
        shape=shape,
        hardware=node,
        gpus=gpus,
        facts=facts,
        accept=tuple(accept),
        draft_shape=_shape(draft, flags, keep) if draft and Path(draft).is_dir() else None,
        expected_request_tokens=int(record.get("expected_request_tokens") or 0),
    )
    sources = {
        "hardware": f"this node, GPUs by {node.source}" if node.gpus else "this node, which shows no GPU",
        "model": f"{path}, {counted(shape.files, 'file')} of weights" if shape.files else f"{path}, config.json alone",
        "facts": when or "no start of this model, engine and split was measured yet",
    }
    return Prepared(inputs, sources, key)


def _named(error: HeadroomError, instance: str) -> HeadroomError:
    """Return an error about a flag with the instance that has it: a node may have several."""
    where = f"sglang_server_instances ({instance})."
    findings = [replace(item, message=f"{where}{item.message}") for item in error.findings]
    return HeadroomError(one_line(findings), findings)


def accepted(directory: Path) -> list[str]:
    """Return the ids of findings that were accepted when the release in `directory` was deployed."""
    try:
        kept = json.loads((directory.parents[1] / "plans" / f"{directory.name}.json").read_text(encoding="utf-8"))
        return [str(item) for item in kept["accept"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _shape(path: str, flags: Mapping[str, Any], keep: bool) -> ModelShape:
    return model_shape.stored(path, str(SHAPES), flags.get("load-format") == "dummy", keep)
