# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings: one catalogue, ids that stay, one line for people."""

from __future__ import annotations

import re

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import findings
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import CATALOGUE, Finding, finding
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal


@pytest.mark.parametrize("kind_id", sorted(CATALOGUE))
def test_an_entry_of_the_catalogue_is_complete(kind_id: str) -> None:
    kind = CATALOGUE[kind_id]
    assert kind.id == kind_id
    assert re.fullmatch(r"[a-z]+(\.[a-z_]+)+", kind_id)
    assert kind.verdict in ("ok", "warn", "refuse")
    assert kind.title and not kind.title.endswith(".") and "\n" not in kind.title
    assert kind.text.endswith(".") and "\n" not in kind.text


def test_no_id_stands_twice() -> None:
    assert len(CATALOGUE) == len(findings._KINDS)


@pytest.mark.parametrize("kind_id", ["", "model", "model.", "Model.missing", "model.missing ", "start.Died"])
def test_an_id_that_is_not_in_the_catalogue(kind_id: str) -> None:
    with pytest.raises(KeyError):
        finding(kind_id, "x")


@pytest.mark.parametrize(
    ("message", "suggestion", "line"),
    [
        ("a is b", "", "a is b. [model.missing]"),
        ("a is b.", "", "a is b. [model.missing]"),
        ("a is b", "Use c.", "a is b. Use c. [model.missing]"),
        ("a is b.", "Use c.", "a is b. Use c. [model.missing]"),
        ("a is b!", "Use c.", "a is b! Use c. [model.missing]"),
        ("is a b?", "Use c", "is a b? Use c [model.missing]"),
    ],
)
def test_a_finding_is_one_line(message: str, suggestion: str, line: str) -> None:
    assert finding("model.missing", message, suggestion).line() == line


def test_the_verdict_is_the_kinds_unless_a_case_is_milder_or_harsher() -> None:
    assert finding("model.missing", "x").verdict == "refuse"
    assert finding("instance.unlisted", "x").verdict == "warn"
    assert finding("model.missing", "x", verdict="warn").verdict == "warn"
    assert finding("instance.unlisted", "x", verdict="refuse").verdict == "refuse"


def test_only_refusals_forbid_and_keep_their_order() -> None:
    many = [
        Finding("b.b", "refuse", "second"),
        Finding("a.a", "warn", "warned"),
        Finding("a.b", "ok", "fine"),
        Finding("a.c", "refuse", "first", "Do it."),
    ]
    assert [item.message for item in findings.refusals(many)] == ["second", "first"]
    assert findings.one_line(many) == "second. [b.b]; first. Do it. [a.c]"
    assert findings.one_line(many[1:3]) == "" == findings.one_line([])


def test_as_plain_data() -> None:
    assert finding("model.missing", "x", "y").as_dict() == {
        "id": "model.missing",
        "verdict": "refuse",
        "message": "x",
        "suggestion": "y",
    }


def test_an_error_carries_its_findings() -> None:
    items = [finding("model.missing", "x"), finding("start.died", "y")]
    error = HeadroomError("one line", items)
    assert str(error) == "one line"
    assert error.findings == tuple(items)
    assert HeadroomError("alone").findings == ()


def test_a_refusal_is_an_error_of_one_finding() -> None:
    error = refusal("model.missing", "a is b", "Use c.")
    assert str(error) == "a is b. Use c. [model.missing]"
    assert [item.id for item in error.findings] == ["model.missing"]
