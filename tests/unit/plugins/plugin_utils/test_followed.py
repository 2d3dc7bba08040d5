# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of long work, with a scripted node: what is shown, what is asked again, what is returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.headroom.serving.plugins.plugin_utils import followed
from ansible_collections.headroom.serving.plugins.plugin_utils.followed import FollowedAction

JOB = {"dir": "/run/headroom/jobs/unit.01", "unit": "unit"}
FOLLOW = "headroom.serving.job_follow"


class Scripted(FollowedAction):
    """An action whose node answers from a list; what it was asked and what it showed are kept."""

    def __init__(self, *answers: Any) -> None:  # no task, no connection: neither is used
        self.answers = iter(answers)
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.shown: list[str] = []

    def _execute_module(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> Any:
        self.asked.append((module_name, dict(module_args), task_vars))
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def show(self, task_vars: dict[str, Any], line: str) -> None:
        assert task_vars["inventory_hostname"] == "n1"
        self.shown.append(line)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    now = [0.0]
    monkeypatch.setattr(followed.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(followed.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    yield


def call(action: Scripted) -> dict[str, Any]:
    return action.call("x.y.z", {"a": 1}, {"inventory_hostname": "n1"})


def going(offset: int, *lines: str) -> dict[str, Any]:
    return {"lines": list(lines), "offset": offset, "finished": False, "result": None}


def ended(offset: int, result: dict[str, Any], *lines: str) -> dict[str, Any]:
    return {"lines": list(lines), "offset": offset, "finished": True, "result": result}


@pytest.mark.parametrize(
    "answer",
    [{"changed": False}, {"changed": True, "x": 1}, {"failed": True, "msg": "no"}, {"job": None, "changed": False}],
)
def test_without_a_job_one_call_is_all(answer: dict[str, Any]) -> None:
    action = Scripted(answer)
    assert call(action) == {key: value for key, value in answer.items() if key != "job"}
    assert len(action.asked) == 1
    assert action.asked[0][:2] == ("x.y.z", {"a": 1})


def test_a_failed_module_is_not_followed() -> None:
    action = Scripted({"failed": True, "msg": "no", "job": JOB})
    assert call(action)["msg"] == "no"
    assert len(action.asked) == 1


def test_the_nodes_syslog_is_told_nothing_of_the_arguments() -> None:
    action = Scripted({"changed": False})
    call(action)
    assert action.asked[0][2]["ansible_no_target_syslog"] is True
    assert action.asked[0][2]["inventory_hostname"] == "n1"


def test_a_job_is_followed_from_where_it_was_left() -> None:
    action = Scripted(
        {"job": JOB, "changed": True, "work": True},
        going(10, "one", "two"),
        going(10),
        going(25, "three"),
        ended(30, {"changed": True, "instances": []}, "last"),
    )
    assert call(action) == {"changed": True, "work": True, "instances": []}
    assert action.shown == ["one", "two", "three", "last"]
    assert [args for name, args, _vars in action.asked[1:] if name == FOLLOW] == [
        {**JOB, "offset": offset} for offset in (0, 10, 10, 25)
    ]


@pytest.mark.parametrize("result", [{"failed": True, "msg": "died", "findings": []}, {"changed": False}])
def test_the_jobs_result_wins(result: dict[str, Any]) -> None:
    found = call(Scripted({"job": JOB, "changed": True}, ended(0, result)))
    assert {key: found[key] for key in result} == result
    assert "job" not in found


def test_a_job_that_is_gone_fails() -> None:
    found = call(Scripted({"job": JOB, "changed": True}, {"failed": True, "msg": "no job directory"}))
    assert (found["failed"], found["msg"]) == (True, "no job directory")


@pytest.mark.parametrize("times", [1, 5, 59])
def test_a_lost_connection_is_tried_again(times: int) -> None:
    lost = [AnsibleConnectionFailure("gone")] * times
    action = Scripted({"job": JOB}, going(5, "one"), *lost, ended(9, {"changed": True}, "two"))
    assert call(action)["changed"] is True
    assert action.shown[0] == "one" and action.shown[-1] == "two"
    assert action.shown[1:-1] == ["connection lost; unit goes on by itself, trying again"] * times
    assert action.asked[-1][1]["offset"] == 5


def test_each_loss_has_its_own_patience() -> None:
    lost = [AnsibleConnectionFailure("gone")] * 50
    assert call(Scripted({"job": JOB}, *lost, going(1), *lost, going(2), *lost, ended(3, {"changed": False})))


def test_a_connection_that_stays_lost_ends_it() -> None:
    action = Scripted({"job": JOB}, *[AnsibleConnectionFailure("gone")] * 1000)
    with pytest.raises(AnsibleConnectionFailure):
        call(action)
    assert 55 < len(action.shown) < 70


def test_a_connection_that_is_lost_before_the_job_began_is_no_job_to_follow() -> None:
    with pytest.raises(AnsibleConnectionFailure):
        call(Scripted(AnsibleConnectionFailure("gone")))
