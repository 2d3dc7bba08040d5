# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans on a terminal: what is said, in which order, and how wide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets, plan_text

Report = dict[str, Any]


def test_the_first_line_names_node_instance_engine_and_verdict(refused: Report, fine: Report) -> None:
    assert plan_text.whole(refused, "gpu1", 100)[0] == "gpu1: a, SGLang 0.5.23: refuse"
    assert plan_text.whole(fine, "gpu2", 100)[0] == "gpu2: a, SGLang 0.5.23: ok"


def test_sources_and_bands_are_told(refused: Report) -> None:
    lines = [" ".join(line.split()) for line in plan_text.whole(refused, "gpu1", 200)[1:5]]
    assert lines[:3] == ["hardware record hw.json", "model record model.json", "facts none"]
    assert lines[3].startswith("figures free memory before the weights: ")
    assert " +- " in lines[3] and "(estimated)" in lines[3]


def test_each_figure_of_the_budgets_is_in_the_tables(refused: Report) -> None:
    lines = plan_text.whole(refused, "gpu1", 120)
    gpu, slack, host = plan_budgets.of(refused)
    for budget, rows in ((gpu, gpu.visible()), (slack, [slack["reserve"]])):
        for row in rows:
            expected, worst = (budget.shown(size) for size in row.pair)
            assert any(line.split() == [*row.label.split(), expected, worst] for line in lines), row.label
    for row in host.visible():
        assert any(line.split() == [*row.label.split(), host.shown(row.worst_bytes)] for line in lines), row.label


def test_figures_stand_under_each_other(refused: Report) -> None:
    lines = plan_text.whole(refused, "gpu1", 120)
    start = next(place for place, line in enumerate(lines) if line.startswith("  Memory of the host"))
    block = lines[start : lines.index("", start)]
    assert len({len(line) for line in block}) == 1
    assert block[-1].lstrip().startswith("left over") and " -2," in block[-1]


def test_what_it_gives(refused: Report, fine: Report) -> None:
    tokens = refused["plan"]["tokens"]
    gains = dict(plan_text.gains(refused))
    assert gains["KV tokens"] == f"{tokens['low']:,} to {tokens['high']:,}, {tokens['best']:,} expected"
    assert gains["tokens of the host tier"] == f"{refused['plan']['host_tokens']:,}"
    assert gains["requests at a time"].startswith("0 of 262,144 tokens (the whole context), ")
    assert "tokens of the host tier" not in dict(plan_text.gains(fine))
    assert "16,384 tokens (the whole context)" in dict(plan_text.gains(fine))["requests at a time"]


def test_a_measured_count_is_one_figure_and_an_expected_length_is_named(fine: Report) -> None:
    fine["plan"].update(tokens={"low": 9, "best": 9, "high": 9}, request_tokens=3, requests_at_context=3)
    gains = dict(plan_text.gains(fine))
    assert gains["KV tokens"] == "9"
    assert gains["requests at a time"].startswith("3 of 3 tokens (the expected length), ")


def test_memory_of_the_load_is_told_where_there_is_any(plan_of: Callable[..., Report]) -> None:
    found = plan_of(**{"weight-loader-disable-mmap": True})
    assert dict(plan_text.gains(found))["host memory while loading"].endswith(" GB")


def test_refusals_come_first_then_warnings_and_notes_last(refused: Report) -> None:
    refused["plan"]["findings"].reverse()
    lines = plan_text.whole(refused, "gpu1", 100)
    marks = [line.split()[0] for line in lines if line.startswith(("  refuse", "  warn", "  note:"))]
    assert marks == sorted(marks, key=["refuse", "warn", "note:"].index)
    assert marks.count("refuse") == 2 and marks.count("note:") == 3
    text = " ".join(" ".join(lines).split())
    assert "2,410.7 GB needed, 408 GB available" in text
    assert "-> Largest hicache-size that passes: " in text
    assert "note: latent KV (MLA) is whole on each rank" in text
    for kind in ("gpu.slack", "hicache.node_budget", "[plan.copies_per_rank]"):
        assert kind in text


@pytest.mark.parametrize("width", [60, 79, 132])
def test_no_line_is_wider_than_the_terminal(refused: Report, width: int) -> None:
    lines = plan_text.whole(refused, "gpu1", width)
    assert max(map(len, lines)) <= max(width, 79)
    assert max(map(len, plan_text.concerns(refused, "gpu1", width))) <= max(width, 79)
    wide = plan_text.whole(refused, "gpu1", 400)
    assert len(wide) < len(lines)


def test_what_was_accepted_is_told(plan_of: Callable[..., Report]) -> None:
    found = plan_of(**{"hicache-size": 300}, accept=["hicache.node_budget"])
    assert found["plan"]["verdict"] == "warn"
    lines = plan_text.whole(found, "gpu1", 100)
    assert any(line.split() == ["accepted", "hicache.node_budget"] for line in lines)


def test_concerns_are_the_findings_alone(refused: Report, fine: Report) -> None:
    assert plan_text.concerns(fine, "gpu1", 100) == []
    lines = plan_text.concerns(refused, "gpu1", 100)
    assert lines[0] == "gpu1: a, SGLang 0.5.23: refuse"
    assert lines[1].split()[:2] == ["verdict", "finding"]
    assert not any("note:" in line or "GiB  " in line for line in lines)
