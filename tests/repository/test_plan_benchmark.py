"""The benchmark plans what it says, tells a refusal from anything else, and shows each figure against its goal."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite import checkpoints

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = """\

PLAY [Prepare the nodes and prove the new configuration] ***********************

TASK [Check the settings] ******************************************************
ok: [bench-plan]

TASK [headroom.serving.sglang_runtime : Ask the node what the runtime lacks] ***
ok: [bench-plan]

TASK [headroom.serving.sglang_server : Plan the memory of what would start] ****
[ERROR]: Task failed: tiny: hicache-size is 500, for each rank: 510.8 GB needed [hicache.node_budget]

PLAY RECAP *********************************************************************
bench-plan                 : ok=7    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0

"""
ITS_LINE = "ValueError: Not enough host memory available. Requesting 500.00 GB but only have 7.35 GB free."
ITS_LOG = (
    f"[2026-11-30 10:15:06] Scheduler hit an exception: Traceback (most recent call last):\n{ITS_LINE}\n\nKilled\n"
)


@pytest.fixture(scope="module")
def plan() -> Iterator[ModuleType]:
    """The benchmark, found as it finds its own parts: in its directory."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("plan")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_a_plan_is_measured_in_a_process_of_its_own(
    plan: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three layers and 16 experts of the same kind: 300 tensors instead of 200,000.
    text = {**checkpoints.KIMI_K25["text_config"], "num_hidden_layers": 3, "n_routed_experts": 16}
    monkeypatch.setitem(checkpoints.KIMI_K25, "text_config", text)
    found = plan.plan_costs.measure(2, tmp_path)
    assert len(found["first"]) == len(found["later"]) == 2
    headers = sum(int.from_bytes(path.open("rb").read(8), "little") for path in tmp_path.glob("model/*.safetensors"))
    assert headers > 10_000
    for first, later in zip(found["first"], found["later"], strict=True):
        assert first.read_mb * 1e6 > headers
        assert 0 < later.read_mb < first.read_mb
        assert first.cpu_s > 0 and later.memory_mb > 5 and later.code_mb > 0.5
    assert found["files"] == plan.plan_costs.SHARDS == len(list(tmp_path.glob("model/*.safetensors")))
    assert found["found"]["tensors"] == len(list(checkpoints.kimi_k25()))
    # The settings that do not fit reached the plan.
    assert "hicache.node_budget" in found["found"]["refused"] and found["found"]["suggestions"] > 0


def test_a_plan_that_fails_is_no_measurement(
    plan: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case.json").write_text("{}")
    with pytest.raises(plan.BenchmarkError, match=r"one_plan\.py ended with 1"):
        plan.plan_costs.run_one(ROOT / "playbooks" / "collections", tmp_path / "case.json")
    assert "KeyError" in capfd.readouterr().err


def test_a_deploy_counts_only_if_it_refused_and_touched_nothing(plan: ModuleType) -> None:
    require = plan.plan_refusals.require_refused
    require(2, DEPLOY)
    for status, output in (
        (0, DEPLOY),
        (2, DEPLOY.replace("hicache.node_budget", "instance.port_taken")),
        (2, DEPLOY.replace("changed=0", "changed=1")),
        (2, DEPLOY.replace("[ERROR]", "    [bench-plan] tiny: stopping release 0123456789ab\n[ERROR]")),
    ):
        with pytest.raises(plan.BenchmarkError, match="did not just refuse"):
            require(status, output)


def test_sglang_counts_only_if_it_says_why(plan: ModuleType) -> None:
    assert plan.plan_refusals.its_reason(9, ITS_LOG) == ITS_LINE
    for status, output in ((0, ITS_LOG), (2, "launch_server.py: error: unrecognized arguments"), (9, "")):
        with pytest.raises(plan.BenchmarkError, match="did not refuse by itself"):
            plan.plan_refusals.its_reason(status, output)


@pytest.mark.parametrize(
    ("status", "answer", "good"),
    [
        (0, {"status": 0, "text": ""}, True),
        (0, {"status": 0, "text": "headroom: the memory is back after 3 s"}, False),
        (0, {"status": 1, "text": ""}, False),
        (1, {"status": 1, "text": "headroom: refused: tiny: too much. [hicache.node_budget]"}, True),
        (1, {"status": 1, "text": "headroom: refused: tiny: no such GPU. [gpu.none]"}, False),
        (1, {"status": 0, "text": "headroom: the memory could not be checked"}, False),
        (None, {"status": 0, "text": '{"findings": [{"id": "hicache.node_budget"}]}'}, True),
        (None, {"status": 1, "text": "Traceback"}, False),
    ],
)
def test_what_runs_on_the_node_counts_only_with_the_answer_that_belongs_to_it(
    plan: ModuleType, status: int | None, answer: dict[str, Any], good: bool
) -> None:
    if good:
        plan.plan_refusals.require_answer("it", answer, status)
        return
    with pytest.raises(plan.BenchmarkError, match="it did not answer as expected"):
        plan.plan_refusals.require_answer("it", answer, status)


def test_a_plays_time_is_told_by_task(plan: ModuleType) -> None:
    seconds = {"PLAY [": 0.5, "Check the settings": 0.51, "Ask the node": 0.55, "Plan the": 1.0, "PLAY RECAP": 1.75}
    stamped = [
        (next((at for start, at in seconds.items() if start in line), 0.0), line) for line in DEPLOY.splitlines()
    ]
    assert plan.plan_refusals.phases(stamped, 2.0) == {
        "Ansible starts": 0.51,
        "Ask the node what the runtime lacks": 0.45,
        "Plan the memory of what would start": 0.75,
        "other tasks": 0.04,
        "Ansible ends": 0.25,
    }
    assert plan.plan_refusals.phases([(0.4, "no such playbook")], 0.5) == {"all": 0.5}


def test_sglang_is_started_as_the_release_is_with_what_does_not_fit(plan: ModuleType) -> None:
    argv = ["/opt/e/venv/bin/python", "-m", "sglang.launch_server", "--port", "30000", "--device", "cpu"]
    record = {"argv": argv, "environment": {"HOME": "/var/lib/sglang", "A": "b c"}, "user": "sglang"}
    command = plan.plan_refusals.own_command(record)
    assert command[:5] == ["runuser", "-u", "sglang", "--", "env"]
    assert command[5:8] == ["-i", "HOME=/var/lib/sglang", "A=b c"]
    assert command[8:] == [
        *("/opt/e/venv/bin/python", "-m", "sglang.launch_server", "--port", "31000", "--device", "cpu"),
        *("--enable-hierarchical-cache", "--hicache-size", "500"),
    ]
    assert record["argv"] == argv and argv[4] == "30000"


@pytest.mark.parametrize(
    ("value", "at_most", "shown"),
    [
        (1.5, False, "1.50 s    below 3 s      [##########..........]   50%  met"),
        (0.01, False, "0.01 s    below 3 s      [#...................]    0%  met"),
        (3.0, False, "3.00 s    below 3 s      [####################]  100%  missed"),
        (3.0, True, "3.00 s    at most 3 s    [####################]  100%  met"),
        (6.3, True, "6.30 s    at most 3 s    [###################>]  210%  missed"),
    ],
)
def test_a_figure_is_shown_against_its_goal(plan: ModuleType, value: float, at_most: bool, shown: str) -> None:
    assert plan.Row("first plan", "CPU", value, "s", 3, at_most).line().endswith(shown)


def test_a_figure_without_a_goal_has_neither_bar_nor_verdict(plan: ModuleType) -> None:
    assert plan.Row("check before a start", "wall", 0.123, "s").line().split() == [
        *("check", "before", "a", "start", "wall", "0.12", "s")
    ]


def figures(seconds: float) -> dict[str, float]:
    return {"cpu_s": seconds, "wall_s": seconds, "memory_mb": 20.0}


REFUSALS: dict[str, Any] = {
    # One slow pair moves no median.
    "ours_s": [2.0, 2.4, 9.0],
    "its_s": [12.0, 12.0, 40.0],
    "module": [figures(0.3), figures(0.36), figures(3)],
    "guard": [figures(0.1), figures(0.1), figures(1)],
    "guard_refusal": [figures(0.12), figures(0.12), figures(1)],
    "phases": [{"Ansible starts": 0.5}, {"Ansible starts": 0.7}, {"Ansible starts": 0.6, "a task": 3.0}],
    "reason": ITS_LINE,
}


def test_the_ratio_is_that_of_the_whole_deploy(plan: ModuleType) -> None:
    rows = {(row.what, row.kind): row for row in plan.refusal_rows(REFUSALS)}
    ratio = rows["deploy / SGLang", "ratio"]
    # Of the medians it is 0.2, and so it is of the middle pair: the less favourable one is told.
    assert (ratio.value, ratio.goal, ratio.is_met) == (0.2, 0.1, False)
    assert rows["memory_plan / SGLang", "ratio"].value == pytest.approx(0.03)
    assert rows["check / SGLang", "ratio"].value == pytest.approx(0.01)
    assert rows["check before a start", "CPU"].value == 0.1
    notes = plan.refusal_notes(REFUSALS)
    assert "Ansible starts 0.60 s, a task 0.00 s" in notes[0] and ITS_LINE in notes[1]


def test_figures_are_medians_of_each_column(plan: ModuleType) -> None:
    cost = plan.Cost
    costs = [cost(1, 50, 80, 3, 1), cost(9, 54, 70, 3, 9), cost(2, 53, 90, 3, 2)]
    assert plan.median(costs) == cost(2, 53, 80, 3, 2)
    rows = plan.cost_rows({"first": costs, "later": costs})
    assert [(row.what, row.kind, row.value, row.is_met) for row in rows] == [
        ("first plan", "CPU", 2, True),
        ("first plan", "read", 53, True),
        ("first plan", "memory", 80, True),
        ("later plan", "CPU", 2, False),
        ("later plan", "read", 53, False),
        ("later plan", "memory", 80, False),
    ]


def test_main_writes_all_figures_and_fails_in_one_line(
    plan: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = plan.Cost(1, 50, 80, 3, 1)
    told = {"tensors": 208_550, "rank_weight_bytes": 2**30, "refused": ["gpu.slack"], "suggestions": 5}
    costs = {"first": [cost], "later": [cost], "files": 64, "bytes": 595e9, "found": told}
    monkeypatch.setattr(plan.plan_costs, "in_scratch", lambda _rounds: costs)
    monkeypatch.setattr(plan.plan_refusals, "measure", lambda _rounds: REFUSALS)
    assert plan.main(["--json", str(tmp_path / "out.json")]) == 0
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert written["first"] == [dataclasses.asdict(cost)] and written["refusals"]["its_s"] == REFUSALS["its_s"]
    out = capsys.readouterr().out
    assert "64 files, 595.0 GB, 208,550 tensors, 1.000 GiB of weights a rank; refused for gpu.slack" in out
    assert "load average" in out and "deploy / SGLang" in out

    def fail(_rounds: int) -> None:
        raise plan.BenchmarkError("the first deploy failed")

    monkeypatch.setattr(plan.plan_refusals, "measure", fail)
    assert plan.main(["--without-node"]) == 0
    assert "deploy / SGLang" not in capsys.readouterr().out
    assert plan.main([]) == 1
    assert capsys.readouterr().err.splitlines() == ["benchmarks/plan: the first deploy failed"]


@pytest.mark.parametrize("option", ["--rounds", "--refusals"])
def test_no_rounds_are_refused(plan: ModuleType, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plan.main([option, "0"])
    assert option in capsys.readouterr().err
