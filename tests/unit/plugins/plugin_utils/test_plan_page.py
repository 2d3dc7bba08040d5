# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a plan: whole, harmless, to scale, and with the figures of its JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets, plan_files, plan_page
from ansible_collections.headroom.serving.plugins.plugin_utils.plan_style import STYLE

Report = dict[str, Any]
VOID = {"meta", "rect", "line"}
ODD = """<script>alert("x")</script> & 'it' {style} %s"""


class Page(HTMLParser):
    """The elements of a page in their order, with attributes and text; open and close tags must match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[dict[str, Any]] = []
        self.inside: list[int] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        place = len(self.elements)
        self.elements.append({"tag": tag, "text": "", "in": [*self.inside], **dict(attrs)})
        if tag not in VOID:
            self.open.append(tag)
            self.inside.append(place)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append({"tag": tag, "text": "", "in": [*self.inside], **dict(attrs)})

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.inside.pop()

    def handle_data(self, data: str) -> None:
        for place in self.inside:
            self.elements[place]["text"] += data

    def all(self, tag: str, css: str = "", within: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the elements of a tag that have this class and lie in this element."""
        place = None if within is None else next(n for n, one in enumerate(self.elements) if one is within)
        return [
            one
            for one in self.elements
            if one["tag"] == tag
            and (not css or css in (one.get("class") or "").split())
            and (place is None or place in one["in"])
        ]

    def bars(self) -> list[dict[str, Any]]:
        found = self.all("svg")
        assert len(found) == 3
        return found


def percent(text: str) -> float:
    assert text.endswith("%")
    return float(text[:-1])


@pytest.fixture(params=["refused", "fine"])
def report(request: pytest.FixtureRequest) -> Report:
    found: Report = request.getfixturevalue(request.param)
    return found


def test_a_page_needs_nothing_else(report: Report) -> None:
    text = plan_page.render(report, "gpu1")
    page = Page(text)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    tags = {one["tag"] for one in page.elements}
    assert tags & {"script", "link", "img", "iframe", "object", "embed", "form", "a"} == set()
    assert not re.search(r"https?:|//[a-z]|@import|javascript:|data:|url\((?!#hatch-)", text)
    assert {"charset": "utf-8"}.items() <= page.all("meta")[0].items()
    policy = next(one for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert not any(name.startswith("on") or name == "style" for one in page.elements for name in one)


def test_what_others_have_written_stays_text(refused: Report) -> None:
    plain = Page(plan_page.render(refused, "gpu1"))
    refused["instance"] = ODD
    refused["engine_version"] = refused["sources"]["model"] = ODD
    for finding in refused["plan"]["findings"]:
        finding.update({key: ODD for key in ("id", "message", "suggestion") if finding[key]})
    refused["plan"]["estimates"] = [ODD]
    refused["effective"]["dtype"].update(value=ODD, source=ODD)
    text = plan_page.render(refused, ODD)
    page = Page(text)
    assert "<script" not in text
    assert [one["tag"] for one in page.elements] == [one["tag"] for one in plain.elements]
    assert page.all("h1")[0]["text"] == f"{ODD} on {ODD}"
    assert [one["text"] for one in page.all("code")] == [ODD] * len(refused["plan"]["findings"])
    assert page.all("title")[0]["text"] == f"{ODD} on {ODD}: memory plan"


def test_verdict_findings_and_sources_are_told(refused: Report) -> None:
    page = Page(plan_page.render(refused, "gpu1"))
    assert page.all("h1")[0]["text"] == "a on gpu1"
    (verdict,) = page.all("p", "verdict")
    assert (verdict["text"], verdict["class"]) == ("refuse", "verdict refuse")
    badges = [one["text"] for one in page.all("span", "verdict")]
    assert badges == sorted(badges, key=["refuse", "warn"].index) and badges.count("refuse") == 2
    codes = [one["text"] for one in page.all("code")]
    assert sorted(codes) == sorted(item["id"] for item in refused["plan"]["findings"])
    whole = page.all("body")[0]["text"]
    assert "2,410.7 GB needed, 408 GB available" in whole
    for text in (*refused["sources"].values(), *refused["plan"]["estimates"], "SGLang 0.5.23"):
        assert text in whole


def test_a_plan_without_concerns_says_so(fine: Report) -> None:
    page = Page(plan_page.render(fine, "gpu1"))
    assert page.all("p", "verdict")[0]["text"] == "ok"
    assert "Nothing speaks against it." in page.all("body")[0]["text"]
    assert page.all("span", "verdict") == []


def test_bars_are_to_scale_and_without_gaps(report: Report) -> None:
    page = Page(plan_page.render(report, "gpu1"))
    for drawn, budget in zip(page.bars(), plan_budgets.of(report), strict=True):
        parts = page.all("rect", "part", within=drawn)
        (frame,) = page.all("rect", "frame", within=drawn)
        reached = 0.0
        for part in parts:
            assert percent(part["x"]) == pytest.approx(reached, abs=2e-4)
            reached += percent(part["width"])
        drawn = sum(int(part["data-bytes"]) for part in parts)
        assert drawn == sum(row.worst_bytes for row in budget.parts)
        end = budget["slack" if budget.key == "slack" else "total"].worst_bytes
        reserve = budget["reserve"].worst_bytes if budget.key == "slack" else 0
        scale = max(drawn, end, reserve)
        assert reached == pytest.approx(100 * drawn / scale, abs=1e-3)
        assert percent(frame["width"]) == pytest.approx(100 * end / scale, abs=1e-3)
        for part in parts:
            assert percent(part["width"]) == pytest.approx(100 * int(part["data-bytes"]) / scale, abs=1e-4)
        assert max(percent(part["x"]) + percent(part["width"]) for part in parts) <= 100.001


def test_what_goes_beyond_the_memory_is_marked(refused: Report, fine: Report) -> None:
    page = Page(plan_page.render(refused, "gpu1"))
    for drawn, budget in zip(page.bars(), plan_budgets.of(refused), strict=True):
        (over,) = page.all("rect", "over", within=drawn)
        assert int(over["data-bytes"]) == -budget["left"].worst_bytes
        assert over["fill"] == f"url(#hatch-{budget.key})"
        assert [one["id"] for one in page.all("pattern", within=drawn)] == [f"hatch-{budget.key}"]
        (frame,) = page.all("rect", "frame", within=drawn)
        assert over["x"] == frame["width"]
        (text,) = page.all("text", "excess", within=drawn)
        assert text["text"] == f"{budget.shown(-budget['left'].worst_bytes)} {budget.unit} too much"
        assert " more than there is." in page.all("desc", within=drawn)[0]["text"]
    page = Page(plan_page.render(fine, "gpu1"))
    assert page.all("rect", "over") == page.all("text", "excess") == page.all("pattern") == []


def test_limits_are_drawn_where_they_are(fine: Report) -> None:
    page = Page(plan_page.render(fine, "gpu1"))
    gpu, _slack, host = plan_budgets.of(fine)
    labels = [[one["text"] for one in page.all("text", "limit", within=drawn)] for drawn in page.bars()]
    share = gpu["free"].worst_bytes - gpu["slack"].worst_bytes
    assert labels[0] == [
        f"memory of the GPU: {gpu.shown(gpu['total'].worst_bytes)} GiB",
        f"free before the weights: {gpu.shown(gpu['free'].worst_bytes)} GiB",
        f"for weights and KV: {gpu.shown(share)} GiB",
    ]
    assert labels[1][1].startswith("what SGLang itself would reserve: ")
    assert labels[2] == ["memory of the host: 412.3 GB", "available: 408.0 GB"]
    lines = page.all("line", "limit", within=page.bars()[2])
    total = host["total"].worst_bytes
    assert percent(lines[3]["x1"]) == pytest.approx(100 * (total - host["available"].worst_bytes) / total, abs=1e-3)
    assert percent(lines[3]["x2"]) == pytest.approx(100)


def test_the_label_of_a_limit_far_to_the_right_ends_with_it(fine: Report) -> None:
    fine["plan"]["host"]["available_bytes"] = fine["plan"]["host"]["total_bytes"] // 10
    page = Page(plan_page.render(fine, "gpu1"))
    total, available = page.all("text", "limit", within=page.bars()[2])
    assert (total["x"], total.get("text-anchor")) == ("0.0000%", None)
    assert (percent(available["x"]), available["text-anchor"]) == (pytest.approx(100), "end")


def test_each_bar_has_words_for_those_who_do_not_see_it(report: Report) -> None:
    page = Page(plan_page.render(report, "gpu1"))
    ids = [one["id"] for one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    for drawn, budget in zip(page.bars(), plan_budgets.of(report), strict=True):
        assert drawn["role"] == "img"
        title, description = drawn["aria-labelledby"].split()
        (title_element,), (description_element,) = page.all("title", within=drawn), page.all("desc", within=drawn)
        assert (title_element["id"], description_element["id"]) == (title, description)
        assert title_element["text"] == f"{budget.title}, in the worst case"
        for row in budget.rows:
            if row.kind == "part" and row.worst_bytes and budget.key != "gpu":
                assert f"{row.label} {budget.shown(row.worst_bytes)} {budget.unit}" in description_element["text"]
    for table in page.all("table"):
        heads = page.all("th", within=table)
        assert {one.get("scope") for one in heads} == {"col", "row"}


def test_tables_have_the_figures_of_the_json(report: Report) -> None:
    page = Page(plan_page.render(report, "gpu1"))
    budgets = json.loads(plan_files.as_json(report, "gpu1"))["budgets"]
    tables = page.all("table", "budget")
    for table, key in zip(tables, ("gpu", "slack", "host"), strict=True):
        budget = budgets[key]
        digits = 2 if budget["unit"] == "GiB" else 1
        known = {
            row["label"]: [
                f"{row[name] / budget['unit_bytes']:,.{digits}f}" for name in ("expected_bytes", "worst_bytes")
            ]
            for row in budget["rows"]
        }
        seen = 0
        for line in page.all("tr", within=table)[1:]:
            label = page.all("th", within=line)[0]
            swatches = page.all("span", "swatch", within=label)
            name = label["text"].removeprefix(swatches[0]["text"]) if swatches else label["text"]
            figures = [one["text"] for one in page.all("td", within=line)]
            if name == "all else, see below":
                continue
            assert known[name][: len(figures)] == figures
            seen += 1
        assert seen >= 4


def test_letters_of_a_bar_are_those_of_its_table(report: Report) -> None:
    page = Page(plan_page.render(report, "gpu1"))
    for drawn, table in zip(page.bars(), page.all("table", "budget"), strict=True):
        swatches = {one["class"].split()[1]: one["text"] for one in page.all("span", "swatch", within=table)}
        assert sorted(swatches.values()) == [chr(ord("A") + place) for place in range(len(swatches))]
        letters = {
            one["class"].split()[1].replace("l-", "p-"): one["text"] for one in page.all("text", "letter", within=drawn)
        }
        assert letters and letters.items() <= swatches.items()
        assert set(swatches) <= {one["class"].split()[1] for one in page.all("rect", "part", within=drawn)}


def test_every_part_has_a_colour_of_its_own_within_its_bar(plan_of: Callable[..., Report]) -> None:
    colours = {}
    for names, colour in re.findall(r"^((?:\.p-\w+(?:, )?)+) \{ fill: (#[0-9a-f]{6});", STYLE, re.MULTILINE):
        colours.update({name.strip(" .")[2:]: colour for name in names.split(",")})
    gpu, slack, host = plan_budgets.of(plan_of())
    need = {row.key for row in slack.parts}
    for keys in (
        [*(row.key for row in gpu.parts if row.key not in need), "need"],
        [*need],
        [row.key for row in host.parts],
    ):
        assert set(keys) <= set(colours)
    # Parts that are usually there together; the rarest share a colour with one they are never seen with.
    for keys in (
        ("outside", "weights", "multimodal", "kv", "need"),
        need - {"overflow"},
        [row.key for row in host.parts],
    ):
        assert len({colours[key] for key in keys}) == len(keys)


def test_light_dark_and_paper_are_provided_for() -> None:
    for wanted in (
        "color-scheme: light dark",
        "prefers-color-scheme: dark",
        "@media print",
        "print-color-adjust: exact",
    ):
        assert wanted in STYLE


def test_flags_are_listed_with_their_origin(refused: Report) -> None:
    page = Page(plan_page.render(refused, "gpu1"))
    (table,) = page.all("table", "flags")
    rows = {
        page.all("th", within=line)[0]["text"]: [one["text"] for one in page.all("td", within=line)]
        for line in page.all("tr", within=table)[1:]
    }
    assert rows["mem-fraction-static"] == ["0.93", "given", "args"]
    assert rows["enable-hierarchical-cache"][0] == "true"
    unset = [name for name, entry in refused["effective"].items() if entry["value"] is None]
    assert unset and not set(unset) & set(rows)


@pytest.mark.parametrize(
    "more", [{"gpus": 0}, {"model": "small", "gpus": 0, "device": "cpu", "mem-fraction-static": 0.5}]
)
def test_a_plan_without_gpus_has_a_page_too(plan_of: Callable[..., Report], more: dict[str, Any]) -> None:
    page = Page(plan_page.render(plan_of(**more), "gpu1"))
    for drawn in page.bars():
        for one in (*page.all("rect", within=drawn), *page.all("line", within=drawn)):
            for name in ("x", "x1", "x2", "width"):
                if str(one.get(name, "")).endswith("%"):
                    assert 0 <= percent(one[name]) <= 100.001


def test_the_same_report_gives_the_same_page(report: Report) -> None:
    again = json.loads(json.dumps(report))
    assert plan_page.render(again, "gpu1") == plan_page.render(report, "gpu1")
