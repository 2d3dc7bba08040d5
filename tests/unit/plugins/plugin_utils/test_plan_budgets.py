# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets part by part: they add up to what is there, and say what the plan says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets
from ansible_collections.headroom.serving.plugins.plugin_utils.plan_budgets import Budget

Report = dict[str, Any]
PAGE_BYTES = 64 * 2**20
CASES: dict[str, dict[str, Any]] = {
    "as in the inventory": {},
    "too much of both": {"mem-fraction-static": 0.93, "hicache-size": 300},
    "no room for KV": {"mem-fraction-static": 0.7},
    "no host tier": {"enable-hierarchical-cache": False},
    "held to fewer tokens": {"max-total-tokens": 20_000},
    "by ratio": {"hicache-size": 0, "hicache-ratio": 1.5},
    "older engine": {"version": "0.5.14"},
    "small": {"model": "small", "tp-size": 1, "mem-fraction-static": 0.8},
    "on the processor": {"model": "small", "gpus": 0, "device": "cpu", "mem-fraction-static": 0.5},
    "no GPU at all": {"gpus": 0},
}


@pytest.fixture(params=CASES)
def report(request: pytest.FixtureRequest, plan_of: Callable[..., Report]) -> Report:
    return plan_of(**CASES[request.param])


def ends(budget: Budget, key: str) -> tuple[int, int]:
    return budget[key].expected_bytes, budget[key].worst_bytes


def test_parts_and_what_is_left_are_all_there_is(report: Report) -> None:
    for budget, whole in zip(plan_budgets.of(report), ("total", "slack", "total"), strict=True):
        for end in (0, 1):
            parts = sum(row.pair[end] for row in budget.parts)
            assert parts + budget["left"].pair[end] == budget[whole].pair[end], budget.key
        assert min(size for row in budget.parts for size in row.pair) >= 0, budget.key


def test_figures_are_the_plans(report: Report) -> None:
    gpu, slack, host = plan_budgets.of(report)
    plan = report["plan"]
    assert ends(gpu, "free") == (int(plan["gpu"]["pre_bytes"]["best"]), int(plan["gpu"]["pre_bytes"]["low"]))
    assert ends(gpu, "weights") == (
        int(plan["gpu"]["weights_bytes"]["best"]),
        int(plan["gpu"]["weights_bytes"]["high"]),
    )
    assert ends(slack, "reserve") == (plan["gpu"]["reserve_bytes"],) * 2
    need = sum(row.worst_bytes for row in slack.parts if row.key != "excess")
    assert need == plan["gpu"]["need_bytes"]
    assert host["available"].worst_bytes == plan["host"]["available_bytes"]
    needed = sum(host[key].worst_bytes for key in ("pools", "side_pools", "computing", "reserve"))
    assert needed == plan["host"]["needed_bytes"]


def test_what_is_left_of_the_slack_is_what_the_plan_judges_by(report: Report) -> None:
    gpu, slack, _host = plan_budgets.of(report)
    short = slack["excess"].worst_bytes
    assert slack["left"].worst_bytes == report["plan"]["gpu"]["left_bytes"] - short
    if not report["plan"]["gpu"]["kv_bytes"]:
        return
    assert gpu["left"].worst_bytes - gpu["spare"].worst_bytes <= slack["left"].worst_bytes
    assert short == 0


def test_kv_as_expected_is_the_plans_and_less_in_the_worst_case(plan_of: Callable[..., Report]) -> None:
    found = plan_of()
    gpu = plan_budgets.of(found)[0]
    assert gpu["kv"].expected_bytes == found["plan"]["gpu"]["kv_bytes"]
    worst = found["plan"]["tokens"]["low"] * found["plan"]["gpu"]["cell_bytes"]
    assert worst <= gpu["kv"].worst_bytes < worst + found["plan"]["gpu"]["cell_bytes"]
    assert gpu["spare"].expected_bytes < PAGE_BYTES


def test_a_limit_of_tokens_leaves_room_that_is_nobodys_part_of_kv(plan_of: Callable[..., Report]) -> None:
    gpu = plan_budgets.of(plan_of(**{"max-total-tokens": 20_000}))[0]
    assert gpu["spare"].worst_bytes > 2**30
    assert "spare" in [row.key for row in gpu.visible()]


def test_weights_beyond_their_share_take_of_the_slack(plan_of: Callable[..., Report]) -> None:
    gpu, slack, _host = plan_budgets.of(plan_of(**{"mem-fraction-static": 0.7}))
    assert slack["excess"].worst_bytes > slack["excess"].expected_bytes > 2**30
    assert gpu["kv"].expected_bytes == gpu["kv"].worst_bytes == 0
    assert gpu["left"].worst_bytes == slack["left"].worst_bytes


def test_what_is_too_much_is_negative(refused: Report) -> None:
    _gpu, slack, host = plan_budgets.of(refused)
    assert slack["left"].worst_bytes < 0
    assert host.shown(host["pools"].worst_bytes + host["reserve"].worst_bytes) == "2,410.7"
    assert host.shown(host["available"].worst_bytes) == "408.0"
    assert host["left"].worst_bytes < -(2_000 * 10**9)


def test_parts_of_nothing_are_not_shown(fine: Report) -> None:
    gpu, _slack, host = plan_budgets.of(fine)
    assert {"draft_weights", "states", "multimodal", "spare"} & {row.key for row in gpu.visible()} == set()
    assert {"pools", "side_pools", "reserve"} & {row.key for row in host.visible()} == set()
    assert {"total", "free", "slack", "left", "weights", "kv"} <= {row.key for row in gpu.visible()}


def test_titles_say_whose_memory_it_is(plan_of: Callable[..., Report]) -> None:
    titles = {name: plan_budgets.of(plan_of(**CASES[name]))[0].title for name in CASES}
    assert titles["as in the inventory"] == "Memory of each of GPUs 0 to 7"
    assert titles["small"] == titles["no GPU at all"] == "Memory of the GPU"
    assert titles["on the processor"] == "Memory of a rank"


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([3], "GPU 3"), ([0, 1], "GPUs 0, 1"), ([2, 3, 4], "GPUs 2 to 4"), ([0, 2, 3], "GPUs 0, 2, 3")],
)
def test_names_of_gpus(indexes: list[int], text: str) -> None:
    assert plan_budgets.gpu_names(indexes) == text
