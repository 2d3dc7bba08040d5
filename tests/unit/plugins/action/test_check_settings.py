# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of all settings as a play runs it: real argument specs, real templates, no node."""

from __future__ import annotations

import os
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugin_loader
from ansible.plugins.loader import connection_loader
from ansible.template import Templar, trust_as_template

from ansible_collections.headroom.serving.plugins.action.check_settings import ActionModule

SECRET = "s3cr3t-0123456789"


def run(variables: dict[str, Any], roles: Any = ("sglang_runtime", "sglang_server"), **more: Any) -> dict[str, Any]:
    task = Task.load({"action": "headroom.serving.check_settings", "args": {"roles": list(roles), **more}})
    loader = DataLoader()
    action = ActionModule(
        task=task,
        connection=connection_loader.get("local", PlayContext(), os.devnull),
        play_context=PlayContext(),
        loader=loader,
        templar=Templar(loader=loader, variables=variables),
        shared_loader_obj=plugin_loader,
    )
    result: dict[str, Any] = action.run(task_vars=variables)
    return result


def server(**entry: Any) -> dict[str, Any]:
    return {"sglang_server_instances": [{"name": "a", "model_path": "/m", **entry}]}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        server(),
        server(args={"tp-size": 8}, env={"A": 1}, port=30000, gpus=[0, 1], state="stopped", api_key=SECRET),
        {**server(), "ansible_host": "x", "my_own": 1, "sglangs": 2, "other_sglang_server_x": 3},
        {"sglang_server_instances": []},
        {"sglang_runtime_keep_unused_engines": 2},
    ],
)
def test_good_settings_pass(variables: dict[str, Any]) -> None:
    result = run(variables)
    assert not result.get("failed"), result
    assert (result["changed"], result["findings"]) == (False, [])


@pytest.mark.parametrize(
    ("variables", "kind", "parts"),
    [
        (
            server(modelpath="/m"),
            "settings.unknown",
            ["sglang_server_instances[0] (a): key 'modelpath'", "'model_path'"],
        ),
        (server(prot=1), "settings.unknown", ["key 'prot' is unknown", "'port'"]),
        (
            server(port="http"),
            "settings.invalid",
            ["sglang_server_instances[0] (a).port must be a whole number, not 'http'"],
        ),
        (server(state="on"), "settings.invalid", ["(a).state must be one of started, stopped, absent, not 'on'"]),
        (server(gpus=0), "settings.invalid", ["(a).gpus must be a list, not a number"]),
        (server(args=["--tp", 8]), "settings.invalid", ["(a).args must be a mapping"]),
        ({"sglang_server_instances": {"a": {}}}, "settings.invalid", ["sglang_server_instances must be a list"]),
        ({"sglang_server_instances": [{}]}, "settings.invalid", ["sglang_server_instances[0] has no 'name'"]),
        ({"sglang_server_instances": None}, "settings.invalid", ["sglang_server_instances has no value"]),
        ({"sglang_server_root": None}, "settings.invalid", ["sglang_server_root has no value"]),
        (
            {
                "sglang_server_instances": [
                    {"name": "a", "model_path": "/m", "gpus": [0]},
                    {"name": "a", "model_path": "/m", "gpus": [1], "port": "30001"},
                ]
            },
            "instance.name_duplicate",
            ["'a'", "sglang_server_instances[0]"],
        ),
        (
            server(host="0.0.0.0", allow_unauthenticated="false", model_path="/m"),
            "instance.unauthenticated",
            ["0.0.0.0"],
        ),
        (server(env={"HF_TOKEN": "hidden"}, model_path="/m"), "instance.secret_in_clear", ["HF_TOKEN"]),
        (
            {"sglang_server_instance": []},
            "settings.unknown",
            ["Variable 'sglang_server_instance'", "'sglang_server_instances'"],
        ),
        (
            {"sglang_runtime_engine": []},
            "settings.unknown",
            ["Variable 'sglang_runtime_engine'", "'sglang_runtime_engines'"],
        ),
        ({"sglang_runtime_keep_unused_engines": "some"}, "settings.invalid", ["must be a whole number, not 'some'"]),
        (
            {"sglang_runtime_engines": [{"name": "x", "lok": "y"}]},
            "settings.unknown",
            ["key 'lok' is unknown", "'lock'"],
        ),
    ],
)
def test_one_wrong_setting_is_one_line(variables: dict[str, Any], kind: str, parts: list[str]) -> None:
    result = run(variables)
    assert result["failed"] is True
    assert kind in [item["id"] for item in result["findings"]]
    assert "\n" not in result["msg"]
    for part in parts:
        assert part in result["msg"]


def test_everything_that_is_wrong_is_one_message() -> None:
    result = run({**server(prot=1, gpus=0), "sglang_server_rot": "/x"})
    assert len(result["findings"]) == 3
    assert result["msg"].count("[settings.") == 3


@pytest.mark.parametrize("entry", [{"api_key": [SECRET]}, {"admin_api_key": {"k": SECRET}}, {"apikey": SECRET}])
def test_no_key_is_shown(entry: dict[str, Any]) -> None:
    result = run(server(**entry))
    assert result["failed"] is True
    assert SECRET not in str(result)


@pytest.mark.parametrize(
    ("template", "failed"),
    [("{{ 29000 + 1000 }}", False), ("{{ chosen }}", False), ("{{ word }}", True), ("{{ chosen }}x", True)],
)
def test_templates_are_resolved_first(template: str, failed: bool) -> None:
    variables = {**server(port=trust_as_template(template)), "chosen": 30001, "word": "http"}
    assert bool(run(variables).get("failed")) is failed


def test_variables_of_other_roles_may_be_named() -> None:
    variables = {**server(), "sglang_server_of_another": 1}
    assert run(variables)["failed"] is True
    assert not run(variables, known=["sglang_server_of_another"]).get("failed")


def test_only_the_roles_that_are_named_are_checked() -> None:
    assert not run({"sglang_runtime_engine": []}, roles=["sglang_server"]).get("failed")
