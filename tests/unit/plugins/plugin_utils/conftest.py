# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of real plans, made from the records that come with the collection."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import (
    effective_args,
    hardware,
    memory_plan,
    model_shape,
    plan_report,
)

RECORDS = Path(__file__).parents[4] / "roles/sglang_server/files/records/blackwell"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
# What plans of these say: the command that died of memory, the same within bounds, and a small model with room for all.
REFUSED = {"mem-fraction-static": 0.93, "hicache-size": 300}
SMALL = {"model": "small", "tp-size": 4, "mem-fraction-static": 0.8, "context-length": 16384}
Report = dict[str, Any]


@pytest.fixture(scope="session")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Report]:
    """Return a function from flags to a report, as it is after a journey through JSON.

    `model="small"` takes a small model instead of the record's; `gpus=0` a node without GPUs; `accept` ids.
    """
    folder = tmp_path_factory.mktemp("small")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    node = hardware.from_json((RECORDS / "hardware.json").read_text(encoding="utf-8"))
    shapes = {
        "kimi": model_shape.from_json((RECORDS / "model.json").read_text(encoding="utf-8")),
        "small": model_shape.from_dir(str(folder), dummy=True),
    }
    kimi = {"tp-size": 8, "mem-fraction-static": 0.88, "enable-hierarchical-cache": True, "hicache-size": 26}

    def report(model: str = "kimi", gpus: int = 8, version: str = "0.5.23", name: str = "a", **more: Any) -> Report:
        accept = tuple(more.pop("accept", ()))
        where = replace(node, gpus=node.gpus[:gpus], topology=())
        args = effective_args.resolve({**(kimi if model == "kimi" else {}), **more}, version, shapes[model], where)
        inputs = memory_plan.PlanInput(name=name, args=args, shape=shapes[model], hardware=where, accept=accept)
        (plan,) = memory_plan.plan_node([inputs])
        sources = {"hardware": "record hw.json", "model": "record model.json", "facts": "none"}
        found: Report = json.loads(json.dumps(plan_report.as_dict(inputs, plan, sources)))
        return found

    return report


@pytest.fixture
def refused(plan_of: Callable[..., Report]) -> Report:
    """Return the report of the command that asks for more than there is, on the GPUs and on the host."""
    return plan_of(**REFUSED)


@pytest.fixture
def fine(plan_of: Callable[..., Report]) -> Report:
    """Return the report of a server with room for everything."""
    return plan_of(**SMALL)
