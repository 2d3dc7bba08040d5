# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import sys

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.plugin_utils import verify_suite
from ansible_collections.headroom.serving.plugins.plugin_utils.verify_suite import Check, Report, Wanted, parse


def event(title: str, outcome: str = "passed", reason: str = "", **journal: str) -> str:
    sections = [[f"journal of {unit}", text] for unit, text in journal.items()]
    return json.dumps({"test": "t", "outcome": outcome, "title": title, "reason": reason, "sections": sections})


def test_a_passed_check_is_its_title() -> None:
    assert parse(event("tiny: the unit is active")).line() == "passed: tiny: the unit is active"


def test_a_failed_check_has_its_reason_and_the_journal() -> None:
    check = parse(event("tiny: it serves", "failed", "it is dead", unit="last words"))
    assert check.line() == "FAILED: tiny: it serves: it is dead"
    assert check.journal == {"unit": "last words"}


def test_the_verdict_counts_and_names() -> None:
    report = Report(
        [Check(True, "a", "", {}), Check(False, "b", "why", {"u": "x"}), Check(False, "c", "so", {"u": "x"})]
    )
    assert report.verdict() == "2 of 3 checks failed: b (why); c (so)"
    assert report.journals() == {"u": "x"}
    assert Report([Check(True, "a", "", {})]).verdict() == "1 checks passed"


def test_nothing_secret_of_an_instance_is_written() -> None:
    listed = [{"name": "a", "port": 1, "state": "started", "api_key": "secret", "env": {"A": "secret"}}, "no mapping"]
    wanted = Wanted.of("/r", listed, "")
    assert wanted.as_dict() == {"root": "/r", "nodes": {"node": [{"name": "a", "port": 1, "state": "started"}]}}


@pytest.mark.parametrize("listed", [None, "text"])
def test_without_a_list_nothing_is_expected(listed: object) -> None:
    assert Wanted.of("/r", listed, "").as_dict() == {"root": "/r", "nodes": {}}


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ({"pytest"}, "pytest"),
        ({"testinfra"}, "pytest-testinfra"),
        ({"pytest", "testinfra"}, "pytest and pytest-testinfra"),
    ],
)
def test_what_is_missing_comes_with_the_command(missing: set[str], names: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        verify_suite.require(lambda module: None if module in missing else object())
    packages = " ".join(verify_suite.REQUIREMENTS.values())
    assert str(caught.value) == (
        f"verify.yml needs {names} on the controller, beside ansible-core; "
        f"install with: {sys.executable} -m pip install {packages}"
    )


def test_nothing_is_said_where_nothing_is_missing() -> None:
    verify_suite.require(lambda _module: object())


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("x\nERROR: testinfra finds no node: no inventory\n", "testinfra finds no node: no inventory"),
        ("E   ImportError: no\nsomething else\n", "E   ImportError: no"),
        ("last words\n\n", "last words"),
        ("", "pytest said nothing"),
    ],
)
def test_a_run_without_checks_says_why(output: str, reason: str) -> None:
    assert verify_suite._reason(output) == reason
