# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the actions of instances and status show on the controller."""

from __future__ import annotations

import os
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugin_loader
from ansible.plugins.loader import connection_loader
from ansible.template import Templar

from ansible_collections.headroom.serving.plugins.action import sglang_instances, sglang_status
from ansible_collections.headroom.serving.plugins.module_utils import status

VARIABLES = {"inventory_hostname": "gpu1"}
ROW = {
    "name": "a", "release": "0123456789ab", "unit": "active (running)", "since": "Mon", "serving": "yes",
    "model": "qwen", "port": 30000,
    "kv_tokens": 159072, "running": 1, "queued": None, "accepted": [],
}  # fmt: skip


def make(kind: Any, check_mode: bool) -> Any:
    """Return an action as a play would make it."""
    task = Task.load({"action": "debug", "args": {"instances": []}, "check_mode": check_mode})
    connection = connection_loader.get("local", PlayContext(), os.devnull)
    loader = DataLoader()
    return kind(
        task=task,
        connection=connection,
        play_context=PlayContext(),
        loader=loader,
        templar=Templar(loader=loader),
        shared_loader_obj=plugin_loader,
    )


def answer(action: Any, result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Let an action's node answer with `result`; return the list that what is asked goes to."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        assert task_vars["inventory_hostname"] == "gpu1"
        asked.append((module_name, module_args))
        return dict(result)

    action._execute_module = execute
    return asked


def instances_action(result: dict[str, Any], check_mode: bool) -> tuple[dict[str, Any], list[str]]:
    action = make(sglang_instances.ActionModule, check_mode)
    asked = answer(action, result)
    shown: list[str] = []
    action.show = lambda _variables, line: shown.append(line)
    returned = action.run(None, VARIABLES)
    assert asked == [("headroom.serving.sglang_instances", {"instances": []})]
    return returned, shown


def row(name: str, action: str, release: str) -> dict[str, Any]:
    return {"name": name, "action": action, "release": release, "previous": "", "reason": "why"}


@pytest.mark.parametrize(
    ("check_mode", "result", "shown"),
    [
        (True, {"changed": True, "instances": [row("a", "create", "0123")]}, ["a: create (release 0123): why"]),
        (True, {"changed": True, "instances": [row("a", "remove", "")]}, ["a: remove (release -): why"]),
        (True, {"changed": False, "instances": []}, []),
        (
            True,
            {"changed": False, "instances": [row("a", "none", "1"), row("b", "stop", "2")]},
            ["a: none (release 1): why", "b: stop (release 2): why"],
        ),
        (True, {"failed": True, "msg": "no"}, []),
        (False, {"changed": False, "instances": [row("a", "none", "1")]}, []),
        (False, {"failed": True, "msg": "no"}, []),
    ],
)
def test_check_mode_shows_a_line_for_each_instance(check_mode: bool, result: dict[str, Any], shown: list[str]) -> None:
    returned, lines = instances_action(result, check_mode)
    assert returned == result
    assert lines == shown


def status_action(result: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    action = make(sglang_status.ActionModule, False)
    asked = answer(action, result)
    returned = action.run(None, VARIABLES)
    assert [name for name, _args in asked] == ["headroom.serving.sglang_status"]
    return returned, capsys.readouterr().out


def test_the_status_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"changed": False, "instances": [ROW, {**ROW, "name": "b", "kv_tokens": None}]}
    returned, out = status_action(result, capsys)
    assert returned == result
    lines = out.splitlines()
    assert lines[1] == "gpu1:"
    assert " ".join(lines[2].split()) == " ".join(status.HEADER)
    assert "159,072" in lines[4] and lines[4].startswith("  a ") and lines[5].startswith("  b ")


def test_the_status_of_a_node_without_instances(capsys: pytest.CaptureFixture[str]) -> None:
    _returned, out = status_action({"changed": False, "instances": []}, capsys)
    assert "gpu1:\n  no instance has been deployed here\n" in out


def test_a_status_that_failed_shows_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    returned, out = status_action({"failed": True, "msg": "no systemd"}, capsys)
    assert returned == {"failed": True, "msg": "no systemd"}
    assert out == ""
