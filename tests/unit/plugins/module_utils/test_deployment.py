# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deploy does with an instance: the whole table of decisions, and what a release is made of."""

from __future__ import annotations

import itertools
import json
import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import deployment, instances, unit_policy
from ansible_collections.headroom.serving.plugins.module_utils.deployment import Deployment, Settings, Step
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance
from ansible_collections.headroom.serving.plugins.module_utils.release import Release, Store
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState

KEY = "s3cr3t-0123456789"
ME = pwd.getpwuid(os.geteuid()).pw_name


def state(load: str = "loaded", active: str = "active", enabled: str = "enabled") -> UnitState:
    return UnitState(load, active, "running", enabled, "success", 0, 0, 0, "", "", 0, "")


RUNS = state()
STARTS = state(active="activating")
STOPS = state(active="deactivating")
FAILED = state(active="failed")
DEAD = state(active="inactive")
GONE = state("not-found", "inactive", "")
DELETED = state("not-found", "active", "")
BY_HAND = state(enabled="disabled")
OFF = state(active="inactive", enabled="disabled")


@pytest.mark.parametrize(
    ("unit", "current", "same_file", "answers", "expected"),
    [
        # No release yet: whatever runs under that name is not ours.
        (GONE, "", False, False, "create"),
        (RUNS, "", False, False, "create"),
        (FAILED, "", False, False, "create"),
        (RUNS, "", True, True, "create"),
        # Another release.
        (RUNS, "old", True, True, "replace"),
        (RUNS, "old", False, False, "replace"),
        (STARTS, "old", True, False, "replace"),
        (FAILED, "old", True, False, "replace"),
        (GONE, "old", False, False, "replace"),
        (OFF, "old", True, False, "replace"),
        # The same release.
        (RUNS, "new", True, True, "none"),
        (RUNS, "new", True, False, "check"),
        (STARTS, "new", True, False, "check"),
        (STOPS, "new", True, False, "check"),
        (BY_HAND, "new", True, True, "repair"),
        (BY_HAND, "new", True, False, "repair"),
        (RUNS, "new", False, True, "repair"),
        (STARTS, "new", False, False, "repair"),
        (DELETED, "new", False, True, "repair"),
        (DEAD, "new", True, False, "start"),
        (OFF, "new", True, False, "start"),
        (FAILED, "new", True, False, "start"),
        (FAILED, "new", False, False, "replace"),
        (DEAD, "new", False, False, "replace"),
        (GONE, "new", False, False, "replace"),
        # Not enabled in the way that survives a reboot.
        (state(enabled="enabled-runtime"), "new", True, True, "repair"),
        (state(enabled="static"), "new", True, True, "repair"),
        (state(enabled=""), "new", True, True, "repair"),
    ],
)
def test_an_instance_that_is_meant_to_run(
    unit: UnitState, current: str, same_file: bool, answers: bool, expected: str
) -> None:
    action, reason = deployment.decide(Instance("a"), "new", current, unit, same_file, answers)
    assert action == expected
    assert reason and "\n" not in reason


@pytest.mark.parametrize(
    ("unit", "same_file", "answers", "expected"),
    [
        (RUNS, True, True, "replace"),
        (RUNS, False, True, "replace"),
        (RUNS, True, False, "replace"),
        (BY_HAND, True, True, "replace"),
        (DEAD, True, False, "start"),
    ],
)
def test_a_server_that_was_started_with_other_settings(
    unit: UnitState, same_file: bool, answers: bool, expected: str
) -> None:
    action, _reason = deployment.decide(Instance("a"), "new", "new", unit, same_file, answers, same_process=False)
    assert action == expected


RECORD = {"argv": ["/v/bin/python", "-m", "sglang.launch_server", "--port", "1"], "environment": {"A": "1", "B": "x y"}}


@pytest.mark.parametrize(
    ("cmdline", "environ", "same"),
    [
        (RECORD["argv"], ["A=1", "B=x y", "INVOCATION_ID=abc"], True),
        (RECORD["argv"], [], True),
        ([*RECORD["argv"][:-1], "2"], ["A=1", "B=x y"], False),
        (RECORD["argv"][:-2], ["A=1", "B=x y"], False),
        ([*RECORD["argv"], "--x"], ["A=1", "B=x y"], False),
        (RECORD["argv"], ["A=1"], False),
        (RECORD["argv"], ["A=2", "B=x y"], False),
        (["sglang::http_server"], ["A=2"], True),
        ([], [], True),
    ],
)
def test_whether_a_process_runs_a_release(tmp_path: Path, cmdline: list[str], environ: list[str], same: bool) -> None:
    for name, words in (("cmdline", cmdline), ("environ", environ)):
        (tmp_path / name).write_bytes("".join(f"{word}\0" for word in words).encode())
    assert deployment._same_process(tmp_path, RECORD) is same


def test_a_process_that_has_ended_or_a_damaged_record_decide_nothing(tmp_path: Path) -> None:
    assert deployment._same_process(tmp_path / "gone", RECORD) is True
    (tmp_path / "cmdline").write_bytes(b"/v/bin/python\0-x\0")
    (tmp_path / "environ").write_bytes(b"")
    assert deployment._same_process(tmp_path, {}) is True


@pytest.mark.parametrize(
    ("unit", "current", "stopped", "absent"),
    [
        (GONE, "", "none", "none"),
        (GONE, "old", "none", "remove"),
        (RUNS, "old", "stop", "remove"),
        (RUNS, "", "stop", "remove"),
        (STARTS, "old", "stop", "remove"),
        (STOPS, "old", "stop", "remove"),
        (DEAD, "old", "stop", "remove"),
        (FAILED, "old", "stop", "remove"),
        (BY_HAND, "old", "stop", "remove"),
        (OFF, "old", "none", "remove"),
        (OFF, "", "none", "remove"),
        (state(active="failed", enabled="disabled"), "old", "none", "remove"),
        (DELETED, "old", "stop", "remove"),
        (DELETED, "", "stop", "remove"),
        (state("not-found", "activating", ""), "", "stop", "remove"),
    ],
)
def test_an_instance_that_is_not_meant_to_run(unit: UnitState, current: str, stopped: str, absent: str) -> None:
    for same_file, answers in itertools.product((True, False), repeat=2):
        for wanted, expected in (("stopped", stopped), ("absent", absent)):
            action, reason = deployment.decide(Instance("a", state=wanted), "", current, unit, same_file, answers)
            assert action == expected
            assert reason


def test_a_restart_needs_another_release_or_a_dead_unit() -> None:
    """Over the whole table: a server of the wanted release that runs is never started anew."""
    for load, active, enabled, same_file, answers in itertools.product(
        ("loaded", "not-found", "masked"),
        ("active", "activating", "deactivating", "reloading"),
        ("enabled", "disabled", "static", ""),
        (True, False),
        (True, False),
    ):
        unit = state(load, active, enabled)
        action, _reason = deployment.decide(Instance("a"), "new", "new", unit, same_file, answers)
        assert action in ("none", "repair", "check")
        assert (action == "none") == (same_file and enabled == "enabled" and answers)


@pytest.mark.parametrize(
    ("active", "is_active", "is_dead"),
    [
        ("active", True, False),
        ("activating", False, False),
        ("deactivating", False, False),
        ("reloading", False, False),
        ("inactive", False, True),
        ("failed", False, True),
        ("", False, False),
    ],
)
def test_what_systemds_states_mean(active: str, is_active: bool, is_dead: bool) -> None:
    assert (state(active=active).is_active, state(active=active).is_dead) == (is_active, is_dead)


@pytest.mark.parametrize(
    ("load", "exists"), [("loaded", True), ("not-found", False), ("masked", False), ("error", False), ("", False)]
)
def test_a_unit_that_is_there(load: str, exists: bool) -> None:
    assert state(load).exists is exists


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A node with two models and two engines."""
    for name, size in (("one", 10), ("two", 11)):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text('{"architectures": ["A"]}')
        (tmp_path / "models" / name / "a.safetensors").write_bytes(b"x" * size)
    for name in ("default", "next"):
        path = tmp_path / "engines" / f"id-{name}"
        path.mkdir(parents=True)
        (path / "engine.json").write_text("{}")
        (tmp_path / "engines" / "names").mkdir(exist_ok=True)
        (tmp_path / "engines" / "names" / name).symlink_to(f"../id-{name}")
    return Settings([], tmp_path / "root", tmp_path / "engines", {}, ME, "/var/lib/sglang")


def render(settings: Settings, check_mode: bool = False, **changes: Any) -> Release:
    models = settings.engines_root.parent / "models"
    entry = {
        "name": "a",
        "model_path": str(models / "one"),
        "args": {"tp-size": 2, "dtype": "auto"},
        "env": {"A": "1", "B": "2"},
    }
    (instance,), found = instances.normalise([{**entry, **changes}])
    assert found == []
    wanted, limit, found = deployment._render(settings, instance, Store(settings.root, instance.name), check_mode)
    assert found == [] and wanted is not None
    assert limit == (changes.get("start_timeout_s") or 900)
    return wanted


def model(settings: Settings, name: str) -> str:
    return str(settings.engines_root.parent / "models" / name)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"args": {"dtype": "auto", "tp-size": 2}}, id="order of args"),
        pytest.param({"env": {"B": "2", "A": "1"}}, id="order of env"),
        pytest.param({"env": {"B": 2, "A": 1}}, id="numbers as text"),
        pytest.param({"args": {"dtype": "auto", "tp-size": 2, "enable-metrics": False}}, id="a flag that is off"),
        pytest.param({"start_timeout_s": 5}, id="time limit"),
        pytest.param({"purge": True}, id="purge"),
        pytest.param({"allow_unauthenticated": True}, id="allow_unauthenticated"),
        pytest.param({"served_name": "one"}, id="served name said aloud"),
        pytest.param({"port": 30000}, id="port said aloud"),
        pytest.param({"engine": "default"}, id="engine said aloud"),
    ],
)
def test_the_id_does_not_change_with(settings: Settings, changes: dict[str, Any]) -> None:
    assert render(settings, **changes).id == render(settings).id


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"args": {"tp-size": 1, "dtype": "auto"}}, id="a flag's value"),
        pytest.param({"args": {"tp-size": 2}}, id="a flag less"),
        pytest.param({"args": {"tp-size": 2, "dtype": "auto", "enable-metrics": True}}, id="a flag more"),
        pytest.param({"env": {"A": "1"}}, id="a variable less"),
        pytest.param({"env": {"A": "1", "B": "3"}}, id="a variable's value"),
        pytest.param({"port": 30001}, id="port"),
        pytest.param({"host": "127.0.0.2"}, id="host"),
        pytest.param({"served_name": "other"}, id="served name"),
        pytest.param({"gpus": []}, id="no GPU"),
        pytest.param({"gpus": [0]}, id="a GPU"),
        pytest.param({"engine": "next"}, id="engine"),
        pytest.param({"api_key": KEY}, id="a key"),
        pytest.param({"admin_api_key": KEY}, id="a key for administration"),
    ],
)
def test_the_id_changes_with(settings: Settings, changes: dict[str, Any]) -> None:
    assert render(settings, **changes).id != render(settings).id


def test_the_id_changes_with_the_model_the_account_and_its_home(settings: Settings) -> None:
    ids = {
        render(settings).id,
        render(settings, model_path=model(settings, "two")).id,
        render(replace(settings, home="/srv/sglang")).id,
        render(replace(settings, user="account-of-no-node")).id,
        render(settings, api_key=KEY).id,
        render(settings, api_key=KEY + "0").id,
        render(settings, admin_api_key=KEY).id,
        render(settings, api_key=KEY, admin_api_key=KEY).id,
    }
    assert len(ids) == 8


def test_the_id_changes_when_the_weights_do(settings: Settings) -> None:
    before = render(settings)
    (Path(model(settings, "one")) / "a.safetensors").write_bytes(b"x" * 12)
    assert render(settings).id != before.id


@pytest.mark.parametrize("keys", [{}, {"api_key": KEY}])
def test_the_id_does_not_change_when_comments_and_limits_of_restarts_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str]
) -> None:
    before = render(settings, **keys)
    monkeypatch.setattr(unit_policy, "START_LIMIT_BURST", 99)
    monkeypatch.setattr(unit_policy, "_SANDBOX", [("#", "Another reason."), *unit_policy._SANDBOX])
    after = render(settings, **keys)
    assert after.id == before.id
    assert after.unit_text != before.unit_text


def test_a_release_without_keys_starts_the_engine_itself(settings: Settings) -> None:
    wanted = render(settings)
    engine = settings.engines_root / "id-default"
    assert wanted.credentials == ""
    assert wanted.record["argv"] == [
        f"{engine}/venv/bin/python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        model(settings, "one"),
        "--served-model-name",
        "one",
        "--host",
        "127.0.0.1",
        "--port",
        "30000",
        "--dtype",
        "auto",
        "--tp-size",
        "2",
    ]
    assert wanted.record["engine"] == {"id": "id-default", "name": "default", "path": str(engine), "version": ""}
    assert wanted.record["has_api_key"] is False
    assert not (settings.root / "salt").exists()


@pytest.mark.parametrize(
    ("keys", "file"),
    [
        ({"api_key": KEY}, {"api-key": KEY}),
        ({"admin_api_key": KEY}, {"admin-api-key": KEY}),
        ({"api_key": KEY, "admin_api_key": KEY[::-1]}, {"api-key": KEY, "admin-api-key": KEY[::-1]}),
    ],
)
def test_keys_reach_the_server_by_a_file_alone(settings: Settings, keys: dict[str, str], file: dict[str, str]) -> None:
    wanted = render(settings, **keys)
    directory = Store(settings.root, "a").path(wanted.id)
    assert json.loads(wanted.credentials) == file
    argv = wanted.record["argv"]
    assert argv[1] == f"{directory}/launch.py" and argv[argv.index("--config") + 1] == f"{directory}/credentials.yaml"
    for secret in keys.values():
        assert secret not in wanted.unit_text
        assert secret not in json.dumps(wanted.record)
        assert secret not in repr(wanted)
    # The record has the name and place of the keys only.
    assert wanted.record["has_api_key"] is ("api_key" in keys)


def test_check_mode_on_a_new_node_writes_nothing(settings: Settings) -> None:
    wanted = render(settings, check_mode=True, api_key=KEY)
    assert not settings.root.exists()
    assert wanted.id == "new", "an id that a real run will not have must not be shown"


def test_an_engine_that_this_run_installs_counts_in_check_mode(settings: Settings) -> None:
    path = settings.engines_root / "planned"
    planned = replace(settings, engines={"new": {"id": "planned", "path": str(path)}})
    assert render(planned, check_mode=True, engine="new").record["engine"]["id"] == "planned"
    instance = Instance("a", engine="new")
    assert deployment._engine(planned, instance, "x", False)[0] is None
    path.mkdir()
    (path / "engine.json").write_text("{}")
    assert deployment._engine(planned, instance, "x", False)[0] == {"id": "planned", "path": str(path), "version": ""}


def test_the_engine_of_this_run_counts_before_the_nodes(settings: Settings) -> None:
    path = settings.engines_root / "id-next"
    planned = replace(settings, engines={"default": {"id": "id-next", "path": str(path)}})
    (path / "engine.json").write_text('{"version": "0.5.14"}')
    found = deployment._engine(planned, Instance("a"), "x", False)[0]
    assert found == {"id": "id-next", "path": str(path), "version": "0.5.14"}


@pytest.mark.parametrize("damage", ["unknown name", "half installed", "dangling"])
def test_an_engine_that_is_not_installed(settings: Settings, damage: str) -> None:
    name = {"unknown name": "other", "half installed": "next", "dangling": "next"}[damage]
    if damage == "half installed":
        (settings.engines_root / "id-next" / "engine.json").unlink()
    elif damage == "dangling":
        (settings.engines_root / "id-next").rename(settings.engines_root / "moved")
    engine, (item,) = deployment._engine(settings, Instance("a", engine=name), "instances (a)", False)
    assert engine is None
    assert (item.id, item.message) == ("engine.missing", f"instances (a).engine {name!r} is not installed.")
    assert item.suggestion == "This node has default, next."


def test_a_node_without_engines(tmp_path: Path) -> None:
    bare = Settings([], tmp_path, tmp_path / "engines", {}, ME, "/h")
    _engine, (item,) = deployment._engine(bare, Instance("a"), "x", False)
    assert "list it in sglang_runtime_engines" in item.suggestion


def test_model_and_engine_are_both_told(settings: Settings) -> None:
    instance = Instance("a", model_path="/nothing/here", engine="other")
    wanted, _limit, found = deployment._render(settings, instance, Store(settings.root, "a"), True)
    assert wanted is None
    assert [item.id for item in found] == ["model.missing", "engine.missing"]
    assert all(item.message.startswith("sglang_server_instances (a).") for item in found)


def test_instances_that_the_inventory_no_longer_lists(settings: Settings) -> None:
    for name in ("a", "b", "c"):
        store = Store(settings.root, name)
        store.save(Release("0123456789ab", name, "u", {}, ME))
        store.switch("current", "0123456789ab")
    found = deployment._unlisted(replace(settings, instances=[{"name": "b", "state": "absent"}]))
    assert [(item.id, item.verdict) for item in found] == [("instance.unlisted", "warn")] * 2
    assert ["'a'" in found[0].message, "'c'" in found[1].message] == [True, True]
    assert "state: absent" in found[0].suggestion


def step(settings: Settings, action: str, unit: UnitState = RUNS, wanted: Release | None = None) -> Step:
    name = "of-no-node-at-all"
    return Step(Instance(name), action, "why", Store(settings.root, name), unit, "0123456789ab", wanted)


@pytest.mark.parametrize(
    ("actions", "changed", "work"),
    [
        ([], False, False),
        (["none"], False, False),
        (["check"], False, True),
        (["none", "check"], False, True),
        *[([action], True, True) for action in ("create", "replace", "start", "repair", "stop", "remove")],
        (["none", "stop"], True, True),
    ],
)
def test_the_outcome(settings: Settings, actions: list[str], changed: bool, work: bool) -> None:
    result = deployment.outcome(Deployment([step(settings, action) for action in actions], []))
    assert (result["changed"], result["work"]) == (changed, work)
    assert [row["action"] for row in result["instances"]] == actions
    assert len(result["diff"]) == sum(action not in ("none", "check") for action in actions)


def test_the_diff_of_a_first_release_is_its_unit_without_any_key(settings: Settings) -> None:
    wanted = render(settings, api_key=KEY)
    result = deployment.outcome(Deployment([step(settings, "create", GONE, wanted)], []))
    (diff,) = result["diff"]
    assert diff["before"] == "" and diff["before_header"] == "sglang-of-no-node-at-all.service"
    assert diff["after"] == wanted.unit_text + "\n# active, enabled\n"
    assert KEY not in json.dumps(result)
    assert result["instances"][0]["release"] == wanted.id
    assert result["instances"][0]["previous"] == "0123456789ab"


def test_the_settings_of_a_module() -> None:
    params = {
        "instances": [{"name": "a"}],
        "root": "/r",
        "engines_root": "/e",
        "engines": None,
        "user": "u",
        "home": "/h",
    }
    assert Settings.of(params) == Settings([{"name": "a"}], Path("/r"), Path("/e"), {}, "u", "/h")
