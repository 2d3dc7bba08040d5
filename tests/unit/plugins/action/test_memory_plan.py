# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of the plan, as a play would make it: with records and no node, and with a node that is played."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugin_loader
from ansible.plugins.loader import connection_loader
from ansible.template import Templar

from ansible_collections.headroom.serving.plugins.action.memory_plan import ActionModule

HERE = str(Path(__file__).parent)
SECRET = "s3cr3t-0123456789"
KIMI = {"tp-size": 8, "mem-fraction-static": 0.88, "enable-hierarchical-cache": True, "hicache-size": 26}
TOO_MUCH = {**KIMI, "mem-fraction-static": 0.93, "hicache-size": 300}
RECORDS = {"hardware_record": "records/blackwell/hardware.json", "model_record": "records/blackwell/model.json"}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
}  # fmt: skip
Result = dict[str, Any]


def entry(args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "kimi", "model_path": "/nowhere/kimi", "args": KIMI if args is None else args, **more}


def make(args: dict[str, Any], variables: dict[str, Any], check_mode: bool = False) -> Any:
    """Return the action of a task whose connection can't be used."""
    loader = DataLoader()
    # Where the playbook lies is elsewhere than where the command is given.
    loader.set_basedir(HERE)
    action = ActionModule(
        task=Task.load({"action": "debug", "args": args, "check_mode": check_mode}),
        connection=connection_loader.get("ssh", PlayContext(), os.devnull),
        play_context=PlayContext(),
        loader=loader,
        templar=Templar(loader=loader, variables=variables),
        shared_loader_obj=plugin_loader,
    )

    def forbidden(*_arguments: Any, **_more: Any) -> Any:
        raise AssertionError("the node was asked")

    action._execute_module = forbidden
    action._low_level_execute_command = forbidden
    action._connection._connect = forbidden
    action._connection.exec_command = forbidden
    return action


def offline(
    *entries: dict[str, Any], variables: dict[str, Any] | None = None, check: bool = False, **more: Any
) -> Result:
    known = {"inventory_hostname": "gpu1", **(variables or {})}
    args = {"instances": list(entries), "offline": True, **RECORDS, **more}
    result: Result = make(args, known, check).run(task_vars=known)
    assert result["changed"] is False
    return result


class Node:
    """A node that answers the module with what it was given."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def run(self, *entries: dict[str, Any], variables: dict[str, Any] | None = None, **more: Any) -> Result:
        known = {"inventory_hostname": "gpu1", **(variables or {})}
        action = make({"instances": list(entries), **more}, known)
        action._execute_module = self._execute
        result: Result = action.run(task_vars=known)
        return result

    def _execute(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> Result:
        self.asked.append((module_name, module_args, task_vars))
        return json.loads(json.dumps(self.answer))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return an instance with room for everything: its model is a config.json, its weights are made up."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    args = {"load-format": "dummy", "mem-fraction-static": 0.8, "context-length": 8192}
    return {"name": "small", "model_path": str(folder), "args": args, "gpus": [0]}


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Result]]:
    """Return what the module would answer: reports of plans that warn and that refuse."""
    return {
        "warn": offline(entry(), fail=False)["reports"],
        "refuse": offline(entry(TOO_MUCH), fail=False)["reports"],
    }


@pytest.mark.parametrize("check", [False, True])
def test_records_are_enough(check: bool, capsys: pytest.CaptureFixture[str]) -> None:
    result = offline(entry(), check=check)
    assert not result.get("failed")
    (report,) = result["reports"]
    assert (report["instance"], report["engine_version"]) == ("kimi", "0.5.23")
    assert report["plan"]["gpu"]["weights_bytes"]["best"] / 2**30 == pytest.approx(71.95708, rel=0.005)
    assert result["findings"] == report["plan"]["findings"]
    assert result["report_files"] == []
    out = capsys.readouterr().out
    assert "\ngpu1: kimi, SGLang 0.5.23: " in out
    assert "record records/blackwell/hardware.json" in out and "record records/blackwell/model.json" in out
    assert "Memory of each of GPUs 0 to 7, GiB" in out and "note: " in out


def test_a_plan_that_refuses_fails_once_all_of_it_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    result = offline(entry(TOO_MUCH))
    assert result["failed"] is True
    assert "2,410.7 GB needed, 408 GB available" in result["msg"] and "\n" not in result["msg"]
    assert {"gpu.slack", "hicache.node_budget"} == {item["id"] for item in result["findings"]}
    assert "[gpu.slack]; " in result["msg"] and result["msg"].endswith("[hicache.node_budget]")
    assert "reports" not in result
    out = capsys.readouterr().out
    assert "gpu1: kimi, SGLang 0.5.23: refuse" in out and "Memory of the host" in out and "note: " in out


def test_a_refusal_may_be_kept_from_failing() -> None:
    result = offline(entry(TOO_MUCH), fail=False)
    assert not result.get("failed")
    assert result["reports"][0]["plan"]["verdict"] == "refuse"
    assert "refuse" in [item["verdict"] for item in result["findings"]]


def test_what_is_accepted_does_not_fail() -> None:
    result = offline(entry(TOO_MUCH), accept=["gpu.slack", "hicache.node_budget"])
    assert not result.get("failed")
    assert result["reports"][0]["accepted"] == ["gpu.slack", "hicache.node_budget"]


def test_as_a_preflight_only_what_warns_or_refuses_is_shown(
    small: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    result = offline(small, model_record="", scope="changes")
    assert [report["plan"]["verdict"] for report in result["reports"]] == ["ok"]
    assert capsys.readouterr().out == ""
    assert not offline(entry(), scope="changes").get("failed")
    out = capsys.readouterr().out
    assert "gpu1: kimi, SGLang 0.5.23: warn" in out and "  warn  " in out
    assert "Memory of" not in out and "note: " not in out
    for fail in (True, False):
        result = offline(entry(TOO_MUCH), scope="changes", fail=fail)
        assert result["failed"] is True and "[hicache.node_budget]" in result["msg"]
        out = capsys.readouterr().out
        assert "hicache.node_budget" in out and "Memory of" not in out


def test_each_node_is_one_block_with_all_of_its_instances(
    small: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    mapping = {"kimi": RECORDS["model_record"]}
    result = offline(entry(port=1, gpus=list(range(8))), small, model_record=mapping, fail=False)
    assert [report["instance"] for report in result["reports"]] == ["kimi", "small"]
    out = capsys.readouterr().out
    assert out.index("gpu1: kimi, ") < out.index("gpu1: small, ")


def test_a_node_without_instances_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    result = offline(entry(state="absent"))
    assert (result["reports"], result["findings"]) == ([], [])
    assert "gpu1: no instance is to run here" in capsys.readouterr().out
    offline(scope="changes")
    assert capsys.readouterr().out == ""


def test_the_engines_are_the_nodes_and_else_the_roles() -> None:
    engines = [{"name": "default", "lock": "engines/sglang-0.5.14.lock"}]
    result = offline(entry(), variables={"sglang_runtime_engines": engines})
    assert result["reports"][0]["engine_version"] == "0.5.14"


def test_paths_are_found_as_a_roles_files_are_and_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Path(__file__).parents[4] / "roles/sglang_server/files" / RECORDS["hardware_record"]
    (tmp_path / "mine.json").write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    assert offline(entry(), hardware_record=str(tmp_path / "mine.json"))["reports"]
    assert offline(entry(), hardware_record="mine.json")["failed"] is True
    monkeypatch.chdir(tmp_path)
    assert offline(entry(), hardware_record="mine.json")["reports"]


def test_reports_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = offline(entry(), report_dir=str(tmp_path / "new"))
    assert result["report_files"] == [str(tmp_path / "new" / name) for name in ("gpu1.kimi.json", "gpu1.kimi.html")]
    out = capsys.readouterr().out
    assert all(f"  written: {path}\n" in out for path in result["report_files"])
    data = json.loads((tmp_path / "new/gpu1.kimi.json").read_text(encoding="utf-8"))
    assert data["node"] == "gpu1"
    assert data["plan"] == result["reports"][0]["plan"]
    before = [(Path(path).read_bytes(), Path(path).stat().st_mtime_ns) for path in result["report_files"]]
    offline(entry(), report_dir=str(tmp_path / "new"))
    assert [(Path(path).read_bytes(), Path(path).stat().st_mtime_ns) for path in result["report_files"]] == before


def test_a_plan_that_refuses_is_written_too(tmp_path: Path) -> None:
    result = offline(entry(TOO_MUCH), report_dir=str(tmp_path))
    assert result["failed"] is True and len(result["report_files"]) == 2
    assert json.loads((tmp_path / "gpu1.kimi.json").read_text(encoding="utf-8"))["plan"]["verdict"] == "refuse"


def test_a_report_that_can_not_be_written_hides_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_self: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = offline(entry(), report_dir=str(tmp_path))
    assert result["failed"] is True
    assert result["msg"].startswith(f"plan_report_dir is '{tmp_path}': it can't be written: No space left on device. ")
    assert "Memory of the host" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"hardware_record": ""}, "plan_hardware_record is not set"),
        ({"hardware_record": None}, "plan_hardware_record is not set"),
        ({"hardware_record": "absent.json"}, "plan_hardware_record is 'absent.json', which is no file"),
        (
            {"hardware_record": "records/blackwell/model.json"},
            "plan_hardware_record 'records/blackwell/model.json' lacks",
        ),
        (
            {"model_record": "records/blackwell/hardware.json"},
            "plan_model_record 'records/blackwell/hardware.json' lacks",
        ),
        ({"model_record": ""}, "kimi: plan_model_record is not set, and model_path '/nowhere/kimi' is no folder"),
        ({"model_record": {"kim": "x"}}, "plan_model_record names the instance 'kim'"),
        ({"model_record": HERE}, f"plan_model_record '{HERE}': "),
        ({"report_dir": __file__}, f"plan_report_dir is '{__file__}': it is no directory."),
        (
            {"report_dir": f"{__file__}/x"},
            f"plan_report_dir is '{__file__}/x': it lies below '{__file__}', which is no",
        ),
        ({"offline": "maybe"}, "plan_offline is 'maybe', which is neither true nor false."),
        ({"fail": "maybe"}, "fail is 'maybe', which is neither true nor false."),
        ({"scope": "some"}, "value of scope must be one of: changes, all, got: some"),
        ({"variables": {"sglang_runtime_engines": []}}, "kimi: the engine 'default' is not in sglang_runtime_engines"),
    ],
)
def test_what_can_not_be_used_is_one_line(more: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = offline(entry(), **more)
    assert result["failed"] is True
    assert result["msg"].startswith(said)
    assert "\n" not in result["msg"]
    assert capsys.readouterr().out == ""


def test_the_node_is_asked_once_with_the_modules_own_options(reports: dict[str, list[Result]]) -> None:
    node = Node(changed=False, reports=reports["warn"], findings=[])
    result = node.run(entry(), root="/r", accept=["gpu.slack"], scope="all", **RECORDS, report_dir="", fail=True)
    assert result["reports"] == reports["warn"]
    assert result["findings"] == reports["warn"][0]["plan"]["findings"]
    ((name, args, variables),) = node.asked
    assert name == "headroom.serving.memory_plan"
    wanted = {"instances": [entry()], "root": "/r", "accept": ["gpu.slack"], "scope": "all"}
    assert args == wanted
    assert variables["ansible_no_target_syslog"] is True


def test_what_the_node_found_beside_its_plans_is_told_and_refuses(
    reports: dict[str, list[Result]], capsys: pytest.CaptureFixture[str]
) -> None:
    own = reports["warn"][0]["plan"]["findings"]
    lost = {"id": "model.no_config", "verdict": "refuse", "message": "b has no config.json.", "suggestion": "Copy it."}
    seen = {"id": "gpu.lost", "verdict": "warn", "message": "GPU 3 does not answer", "suggestion": ""}
    result = Node(changed=False, reports=reports["warn"], findings=[lost, *own, seen]).run(entry(), scope="changes")
    assert result["failed"] is True
    assert result["msg"] == "b has no config.json. Copy it. [model.no_config]"
    out = capsys.readouterr().out
    assert out.count("model.no_config") == out.count("gpu.lost") == 1
    assert out.index("refuse   model.no_config") < out.index("gpu.lost")
    fine = Node(changed=False, reports=reports["warn"], findings=[*own, seen]).run(entry(), scope="changes")
    assert fine["findings"] == [*own, seen] and "failed" not in fine


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("scope", ["all", "changes"])
def test_a_refusal_of_the_node_fails_with_its_reason(
    reports: dict[str, list[Result]], failed: bool, scope: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"failed": True, "msg": "x"} if failed else {}
    result = Node(changed=False, reports=reports["refuse"], **answer).run(entry(), scope=scope)
    assert result["failed"] is True
    assert result["msg"].endswith("[hicache.node_budget]")
    assert "gpu1: kimi, SGLang 0.5.23: refuse" in capsys.readouterr().out


def test_a_failure_of_the_node_is_handed_on(
    reports: dict[str, list[Result]], capsys: pytest.CaptureFixture[str]
) -> None:
    result = Node(failed=True, msg="no systemd", findings=[]).run(entry())
    assert (result["failed"], result["msg"]) == (True, "no systemd")
    assert capsys.readouterr().out == ""
    result = Node(failed=True, msg="half way", reports=reports["warn"]).run(entry())
    assert (result["failed"], result["msg"]) == (True, "half way")


def test_reports_of_a_node_are_written_here(tmp_path: Path, reports: dict[str, list[Result]]) -> None:
    result = Node(changed=False, reports=reports["warn"]).run(entry(), report_dir=str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu1.kimi.html", "gpu1.kimi.json"]
    assert len(result["report_files"]) == 2


def test_a_report_directory_is_judged_before_the_node_is_asked() -> None:
    node = Node(changed=False, reports=[])
    assert node.run(entry(), report_dir=__file__)["failed"] is True
    assert node.asked == []


def test_no_key_is_shown_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"api_key": SECRET, "admin_api_key": f"{SECRET}-admin"}
    for args in (KIMI, TOO_MUCH, {**KIMI, "pp-size": 99}):
        assert SECRET not in str(offline(entry(args, **keys), report_dir=str(tmp_path)))
    for path in tmp_path.iterdir():
        assert SECRET not in path.read_text(encoding="utf-8")
    assert SECRET not in capsys.readouterr().out
