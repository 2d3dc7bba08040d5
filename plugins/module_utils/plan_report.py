# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as plain data, with everything it was made from: what modules return and reports are written from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.plan_types import Plan, PlanInput

FORMAT = 1


def as_dict(inputs: PlanInput, plan: Plan, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return a plan with its inputs; figures are in the units that their names say.

    Args:
        inputs: What the plan was made from.
        plan: The plan.
        sources: Where `hardware`, `model` and measured `facts` came from, in words.
    """
    effective = {
        name: {"value": entry.value, "origin": entry.origin, "source": entry.source}
        for name, entry in sorted(inputs.args.items())
    }
    return {
        "format": FORMAT,
        "instance": inputs.name,
        "engine_version": inputs.args.engine_version,
        "sources": dict(sources),
        "effective": effective,
        "accepted": list(plan.accepted),
        "plan": plan.as_dict(),
    }
