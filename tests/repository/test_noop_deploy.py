"""The benchmark reads what Ansible prints, counts what reaches a node, and times no deploy that changed something."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

QUIET = """\

PLAY [Prepare the nodes and prove the new configuration] ***********************

TASK [Check the settings] ******************************************************
ok: [demo]

TASK [headroom.serving.sglang_runtime : Make the directories] ******************
skipping: [demo]

RUNNING HANDLER [headroom.serving.x : Reload] **********************************
ok: [demo]

PLAY RECAP *********************************************************************
demo                       : ok=7    changed=0    unreachable=0    failed=0    skipped=9    rescued=0    ignored=0
gpu-2.example.org          : ok=6    changed=0    unreachable=0    failed=0    skipped=10   rescued=1    ignored=0

"""
BUSY = QUIET.replace("ok=6    changed=0", "ok=6    changed=2")


def _load() -> ModuleType:
    path = ROOT / "benchmarks" / "noop_deploy.py"
    spec = importlib.util.spec_from_file_location("noop_deploy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


noop = _load()


def test_a_recap_is_read_for_every_host() -> None:
    recap = noop.read_recap(QUIET)
    assert recap.announced == 3
    assert set(recap.hosts) == {"demo", "gpu-2.example.org"}
    assert (recap.executed, recap.skipped, recap.changed) == (7, 10, 0)
    noop.require_unchanged(recap)


def test_a_deploy_that_changed_something_is_not_timed() -> None:
    recap = noop.read_recap(BUSY)
    assert recap.changed == 2
    with pytest.raises(noop.BenchmarkError, match=r"changed something \(gpu-2\.example\.org: 2\); deploy once"):
        noop.require_unchanged(recap)


@pytest.mark.parametrize("output", ["", "PLAY RECAP ****\n\n", "skipping: no hosts matched\n"])
def test_a_play_without_hosts_is_no_measurement(output: str) -> None:
    with pytest.raises(noop.BenchmarkError, match="reached no host"):
        noop.read_recap(output)


def test_both_ratios_are_medians() -> None:
    # One slow pair and one slow ping: neither moves the median.
    assert noop.ratios([6.0, 8.0, 30.0], [2.0, 2.0, 3.0]) == {"of_medians": 4.0, "median_of_pairs": 4.0}
    assert noop.ratios([4.0, 8.0, 9.0], [1.0, 4.0, 3.0]) == {"of_medians": 2.67, "median_of_pairs": 3.0}
    with pytest.raises(ValueError, match="zip"):
        noop.ratios([1.0], [])


class Fake:
    """A runner whose commands take the times and print the texts that a test lays down."""

    def __init__(self, deploys: list[tuple[float, str]], trips: int = 2) -> None:
        self.deploys, self.trips, self.order = list(deploys), trips, ""

    def deploy(self, **env: str) -> tuple[float, str]:
        self.order += "d"
        for _trip in range(self.trips if env else 0):
            self._ssh(env, "node", "/bin/sh -c true")
        return self.deploys.pop(0)

    def ping(self, **env: str) -> tuple[float, str]:
        self.order += "p"
        if env:
            self._ssh(env, "node", "/bin/sh -c true")
            self._ssh(env, "-O", "check", "node")
        return 2.0, ""

    def _ssh(self, env: dict[str, str], *arguments: str) -> None:
        # /usr/bin/ssh -V answers without a network; the wrapper has counted by then.
        subprocess.run(
            [env["ANSIBLE_SSH_EXECUTABLE"], "-V", *arguments],
            env={**os.environ, **env},
            capture_output=True,
            check=True,
        )


def _report(capsys: pytest.CaptureFixture[str]) -> tuple[Fake, dict[str, Any]]:
    fake = Fake([(9.0, QUIET), *[(seconds, QUIET) for seconds in (5.0, 6.0, 7.0, 8.0, 30.0)]])
    report: dict[str, Any] = noop.measure(fake, 5)
    capsys.readouterr()
    return fake, report


def test_rounds_alternate_and_the_first_is_not_timed(capsys: pytest.CaptureFixture[str]) -> None:
    fake, report = _report(capsys)
    assert fake.order == "pd" + "pd" * 5
    assert report["deploy"]["all_s"] == [5.0, 6.0, 7.0, 8.0, 30.0]
    assert (report["deploy"]["median_s"], report["deploy"]["min_s"], report["deploy"]["max_s"]) == (7.0, 5.0, 30.0)
    assert report["ratio"] == {"of_medians": 3.5, "median_of_pairs": 3.5, "goal": 12.0}


def test_what_reaches_a_node_is_counted_and_control_commands_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    _fake, report = _report(capsys)
    assert report["deploy"]["ssh_round_trips"] == 2
    assert report["ping"]["ssh_round_trips"] == 1


def test_a_change_in_any_round_ends_the_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(noop.BenchmarkError, match="changed something"):
        noop.measure(Fake([(9.0, QUIET), (5.0, QUIET), (5.0, BUSY)]), 5)
    with pytest.raises(noop.BenchmarkError, match="changed something"):
        noop.measure(Fake([(9.0, BUSY)]), 5)
    capsys.readouterr()


def test_the_report_says_whether_the_goal_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    _fake, report = _report(capsys)
    text = "\n".join(noop.lines(report))
    assert "7.00 s median, 5.00 to 30.00 s; 7 tasks executed, 10 skipped, 2 SSH round trips, changed=0" in text
    assert "goal at most 12: met" in text
    report["ratio"]["median_of_pairs"] = 12.01
    assert "goal at most 12: missed" in "\n".join(noop.lines(report))


def test_main_writes_the_figures_and_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [(4.0, QUIET)] * 6
    monkeypatch.setattr(noop, "Runner", lambda *_arguments: Fake(rounds))
    assert noop.main(["--pairs", "5", "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["ratio"]["of_medians"] == 2.0
    rounds[:] = [(4.0, BUSY)]
    capsys.readouterr()
    assert noop.main([]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "benchmarks/noop_deploy: the deploy changed something (gpu-2.example.org: 2); deploy once, then measure"
    ]


@pytest.mark.parametrize("pairs", ["0", "4", "x"])
def test_too_few_pairs_are_refused(pairs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        noop.main(["--pairs", pairs])
    assert "--pairs" in capsys.readouterr().err
