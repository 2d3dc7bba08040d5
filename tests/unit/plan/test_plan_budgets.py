"""Budgets part by part of every kind of model: nothing is lost and nothing is counted twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plan_samples as samples
from ansible_collections.headroom.serving.plugins.module_utils import plan_report
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, plan_node
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets, plan_page, plan_text

MODELS: dict[str, ModelShape] = {
    "dense": samples.dense(),
    "latent": samples.KIMI,
    "indexed": samples.latent(index=128, weights_gib=300.0),
    "hybrid": samples.HYBRID,
    "windowed": samples.WINDOWED,
    "drafted": samples.dense(draft_layers=1, draft_bytes=2 * samples.GIB),
}


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25, deadline=None)
@given(
    version=st.sampled_from([samples.OLD, samples.NEW]),
    fraction=st.floats(0.3, 0.99),
    tp=st.sampled_from([1, 2, 8]),
    hicache_gb=st.sampled_from([0, 10, 300]),
    limit=st.sampled_from([None, 5_000]),
    measured=st.booleans(),
    twice=st.booleans(),
)
def test_parts_add_up(
    name: str,
    version: str,
    fraction: float,
    tp: int,
    hicache_gb: int,
    limit: int | None,
    measured: bool,
    twice: bool,
) -> None:
    args: dict[str, Any] = {**samples.seed(fraction, hicache_gb), "tp-size": tp}
    if limit:
        args["max-total-tokens"] = limit
    if name == "drafted":
        args["speculative-algorithm"] = "EAGLE"
    facts = Facts(pre_gib=93.6, weights_gib=20.0) if measured else Facts()
    one = samples.inputs(args, MODELS[name], version=version, facts=facts)
    every = [one, samples.inputs(args, MODELS[name], version=version, facts=facts, name="b")] if twice else [one]
    report = json.loads(json.dumps(plan_report.as_dict(one, plan_node(every)[0], {})))
    for budget, whole in zip(plan_budgets.of(report), ("total", "slack", "total"), strict=True):
        for end in (0, 1):
            parts = [row.pair[end] for row in budget.parts]
            assert min(parts) >= 0, budget
            assert sum(parts) + budget["left"].pair[end] == budget[whole].pair[end], budget
    gpu = plan_budgets.of(report)[0]
    plan = report["plan"]["gpu"]
    kept = sum(gpu[key].expected_bytes for key in ("kv", "draft_kv", "states"))
    assert kept <= plan["kv_bytes"] + plan["draft_kv_bytes"] + plan["state_bytes"]
    assert plan_page.render(report, "node") and plan_text.whole(report, "node", 80)
