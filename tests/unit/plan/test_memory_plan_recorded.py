# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan against starts of a real SGLang on an H200 that were recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, Plan
from plan_samples import GIB, MIB, RECORDED, inputs, planned, recorded_model, recorded_node

STARTS = {start["name"]: start for start in RECORDED["starts"]}
WITH_TOKENS = [name for name, start in STARTS.items() if start["tokens"]]
SERVED = [name for name, start in STARTS.items() if start["served"]]


def planned_start(start: dict[str, Any], measured: bool) -> Plan:
    node = recorded_node(start)
    if start["gpu_mib"]["used"]:
        # That start waited until the memory of the one before had come back.
        whole = node.gpus[0]
        node = replace(node, gpus=(replace(whole, used_bytes=0, free_bytes=143_156 * MIB),))
    facts = Facts(pre_gib=start["pre_gib"], weights_gib=start["weights_gib"]) if measured else Facts()
    return planned(start["args"], recorded_model(start["model"]), node, RECORDED["engine"], facts)


def test_there_are_starts_to_compare_with() -> None:
    assert len(STARTS) == 10
    assert len(WITH_TOKENS) == 6
    assert len(SERVED) == 5


@pytest.mark.parametrize("name", WITH_TOKENS)
def test_tokens_given_what_the_log_said(name: str) -> None:
    start = STARTS[name]
    found = planned_start(start, measured=True)
    assert found.tokens.best == pytest.approx(start["tokens"], rel=0.005)
    assert found.origin == "measured"
    assert found.max_running_requests == pytest.approx(start["max_running_requests"], rel=0.005)


@pytest.mark.parametrize("name", WITH_TOKENS)
def test_tokens_from_the_shape_alone(name: str) -> None:
    start = STARTS[name]
    found = planned_start(start, measured=False)
    assert found.tokens.low <= start["tokens"] <= found.tokens.high
    assert found.origin == "estimated"
    assert found.gpu.pre_bytes.best / GIB == pytest.approx(start["pre_gib"], rel=0.01)
    assert found.gpu.weights_bytes.best / GIB == pytest.approx(start["weights_gib"], rel=0.005, abs=0.01)
    if start["tokens"] * found.gpu.cell_bytes >= 0.4 * found.gpu.pre_bytes.best:
        assert found.tokens.best == pytest.approx(start["tokens"], rel=0.03)


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("name", SERVED)
def test_no_start_that_served_is_refused(name: str, measured: bool) -> None:
    found = planned_start(STARTS[name], measured)
    assert found.verdict != "refuse", [item.line() for item in found.findings]


@pytest.mark.parametrize("name", [name for name in WITH_TOKENS if STARTS[name]["ready_gib"]])
def test_the_slack_holds_what_was_really_taken(name: str) -> None:
    start = STARTS[name]
    found = planned_start(start, measured=True)
    kv_gib = start["tokens"] * found.gpu.cell_bytes / GIB
    left_gib = start["ready_gib"]
    if start["free_after_load_mib"]:
        left_gib = min(left_gib, start["free_after_load_mib"] / 1024)
    taken_gib = start["pre_gib"] - start["weights_gib"] - kv_gib - left_gib
    need_gib = found.gpu.need_bytes / GIB
    assert taken_gib <= need_gib + 0.05
    assert need_gib <= taken_gib + 1.6


@pytest.mark.parametrize(
    ("name", "kind"),
    [("err-small-f", "gpu.no_room_for_kv"), ("mla-hicache300", "hicache.node_budget")],
)
@pytest.mark.parametrize("measured", [True, False])
def test_starts_that_died_of_memory_are_refused(name: str, kind: str, measured: bool) -> None:
    assert planned_start(STARTS[name], measured).verdict_of(kind) == "refuse"


def test_the_least_fraction_is_the_one_that_sglang_named() -> None:
    found = planned_start(STARTS["err-small-f"], measured=True)
    assert "0.207" in STARTS["err-small-f"]["error"]
    assert found.gpu.minimum_fraction == pytest.approx(0.2067, abs=0.0005)


def test_a_start_without_a_gpu() -> None:
    start = STARTS["err-nogpu"]
    node = replace(recorded_node(start), gpus=())
    found = planned(start["args"], recorded_model(start["model"]), node, RECORDED["engine"])
    assert found.verdict_of("gpu.none") == "refuse"


def test_a_flag_that_sglang_does_not_know_changes_no_size() -> None:
    start = STARTS["err-flag"]
    model, node = recorded_model(start["model"]), recorded_node(start)
    known = {name: value for name, value in start["args"].items() if name != "mem-fraction-statik"}
    assert planned(start["args"], model, node).gpu == planned(known, model, node).gpu


@pytest.mark.parametrize("name", SERVED)
def test_effective_values_are_those_that_the_server_reported(name: str) -> None:
    start = STARTS[name]
    found = inputs(start["args"], recorded_model(start["model"]), recorded_node(start), RECORDED["engine"]).args
    said, graphs = start["effective"], start["graphs"]
    for flag, value in said.items():
        assert found.value(flag.replace("_", "-")) == value, flag
    assert found.value("cuda-graph-max-bs-decode") == graphs["decode"]["max_bs"]
    assert found.value("cuda-graph-backend-decode") == graphs["decode"]["backend"]
    assert found.value("cuda-graph-max-bs-prefill") == graphs["prefill"]["max_bs"]
    assert found.value("cuda-graph-backend-prefill") == graphs["prefill"]["backend"]


def test_the_pool_of_the_recorded_host_tier() -> None:
    start = STARTS["starved-hicache"]
    found = planned_start(start, measured=True)
    assert found.host.pools_bytes / 1e9 == pytest.approx(start["host_pool_gb"], abs=0.005)
