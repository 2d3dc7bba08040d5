# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check before each start: what it waits for, what it refuses, and that a fault of its own stops nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import guard, measured_facts, release_plan
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.start_facts import StartFacts
from plan_samples import CONFIG, MIB, gpu, node, process

ARGS = {"mem-fraction-static": 0.85, "load-format": "dummy", "max-running-requests": 64}
FREE = node(gpu(0))
OTHERS = node(
    gpu(0, used_mib=95_000, processes=(process(4242, 94_000, "python3"), process(7, 10))),
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_plan, "SHAPES", tmp_path / "shapes")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A release on a node's disk."""
    return make(tmp_path, ARGS)


def make(tmp_path: Path, args: dict[str, Any], accept: tuple[str, ...] = (), gpus: list[int] | None = None) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    instance = tmp_path / "headroom" / "instances" / "a"
    path = instance / "releases" / "0123456789ab"
    path.mkdir(parents=True)
    record = {
        "id": path.name,
        "name": "a",
        "args": args,
        "environment": {},
        "gpus": gpus,
        "engine": {"id": "e", "version": "0.5.14"},
        "model": {"path": str(model), "digest": "d" * 64},
    }
    (path / "release.json").write_text(json.dumps(record))
    (instance / "plans").mkdir()
    (instance / "plans" / f"{path.name}.json").write_text(json.dumps({"accept": list(accept)}))
    return path


class Clock:
    """Hands out one state of the node after the other; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: Hardware) -> None:
        self.states: Iterator[Hardware] = iter(states)
        self.last = states[0]
        self.now = 0.0
        self.lines: list[str] = []
        monkeypatch.setattr(guard.time, "monotonic", lambda: self.now)

    def read(self) -> Hardware:
        self.last = next(self.states, self.last)
        return self.last

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def check(self, directory: Path, limit_s: float = 120) -> int:
        return guard.check(directory, self.lines.append, self.read, limit_s, self.sleep)


def test_what_fits_starts_at_once_and_without_a_word(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, FREE)
    assert clock.check(directory) == 0
    assert clock.lines == [] and clock.now == 0


def test_memory_that_comes_back_is_waited_for(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, *[OTHERS] * 25, FREE)
    assert clock.check(directory) == 0
    assert clock.now == 25
    assert [line.split(":")[0] for line in clock.lines] == [
        "waiting for memory (0 of 120 s)",
        "waiting for memory (10 of 120 s)",
        "waiting for memory (20 of 120 s)",
        "the memory is back after 25 s",
    ]
    assert "PID 4242 python3 (91.8 GiB)" in clock.lines[0]


def test_memory_that_stays_away_is_refused_with_the_finding_and_who_holds_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, OTHERS)
    assert clock.check(directory, limit_s=30) == 1
    assert clock.now == 30
    waiting, refused = clock.lines[:-2], clock.lines[-2:]
    assert [line.split(":")[0] for line in refused] == ["refused", "refused"]
    assert "[gpu.no_room_for_kv]" in refused[0] and "[gpu.slack]" in refused[1]
    assert all("PID 4242" in line for line in waiting)


def test_what_no_waiting_changes_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, FREE)
    assert clock.check(make(tmp_path, ARGS, gpus=[3])) == 1
    assert clock.now == 0
    assert "[gpu.none]" in clock.lines[0]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"mem-fraction-static": 0.995}, "gpu.slack"),
        ({"mem-fraction-static": 0.1}, "gpu.no_room_for_kv"),
        ({"enable-hierarchical-cache": True, "hicache-size": 900}, "hicache.node_budget"),
    ],
)
def test_what_would_not_fit_with_nobody_else_there_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], kind: str
) -> None:
    clock = Clock(monkeypatch, OTHERS)
    assert clock.check(make(tmp_path, {**ARGS, **changes})) == 1
    assert clock.now == 0
    assert any(kind in line for line in clock.lines)


def test_what_the_driver_keeps_for_itself_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = gpu(0, used_mib=40_000, free_bytes=(97_887 - 40_000 - 10_000) * MIB, processes=(process(1, 40_000),))
    args = {**ARGS, "mem-fraction-static": 0.172}
    clock = Clock(monkeypatch, node(held))
    assert clock.check(make(tmp_path, args)) == 1
    assert clock.now == 0
    clock = Clock(monkeypatch, node(replace(held, used_bytes=50_000 * MIB)), node(gpu(0)))
    assert clock.check(tmp_path / "headroom/instances/a/releases/0123456789ab") == 0
    assert clock.now == 1


def learn_beside_others(directory: Path, knows_free: bool) -> None:
    """Keep a start of the same model at 0.85 while others held 60,000 MiB: 35.74 GiB were free before its weights."""
    record = json.loads((directory / "release.json").read_text())
    busy = node(gpu(0, used_mib=60_000, processes=(process(4242, 60_000),)))
    record["args"] = {**record["args"], "mem-fraction-static": 0.85}
    root = directory.parents[3]
    before = release_plan.prepare(record, busy, root)
    shown = StartFacts(fraction=0.85, pre_gib=35.74, weights_gib=15.27, tokens=109_500)
    setting = measured_facts.setting(before.inputs)
    if not knows_free:
        setting = replace(setting, free_gib=None)
    measured_facts.save(root / "measured", before.key, shown, setting, None, 1764480000.0)
    assert release_plan.prepare(record, busy, root).inputs.facts.kv_fraction == 0.85


@pytest.mark.parametrize("knows_free", [True, False])
def test_memory_that_others_held_at_the_measured_start_is_not_missing_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_free: bool
) -> None:
    # With what was free then 0.4 would be less than the weights; with what is free now it is plenty.
    path = make(tmp_path, {**ARGS, "mem-fraction-static": 0.4})
    learn_beside_others(path, knows_free)
    clock = Clock(monkeypatch, FREE)
    assert clock.check(path) == 0
    assert clock.lines == [] and clock.now == 0


@pytest.mark.parametrize("knows_free", [True, False])
def test_memory_that_others_hold_again_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_free: bool
) -> None:
    path = make(tmp_path, {**ARGS, "mem-fraction-static": 0.4})
    learn_beside_others(path, knows_free)
    busy = node(gpu(0, used_mib=60_000, processes=(process(4242, 60_000),)))
    clock = Clock(monkeypatch, busy, busy, busy, FREE)
    assert clock.check(path) == 0
    assert clock.now == 3
    assert "[gpu.no_room_for_kv]" not in clock.lines[-1] and "back after 3 s" in clock.lines[-1]
    clock = Clock(monkeypatch, busy)
    assert clock.check(path, limit_s=5) == 1
    assert any("gpu.no_room_for_kv" in line for line in clock.lines)


@pytest.mark.parametrize(("accept", "status"), [((), 1), (("gpu.slack",), 0), (("host.memory",), 1)])
def test_what_was_accepted_at_the_deploy_is_accepted_at_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: tuple[str, ...], status: int
) -> None:
    clock = Clock(monkeypatch, FREE)
    args = {**ARGS, "mem-fraction-static": 0.995}
    assert clock.check(make(tmp_path, args, accept), limit_s=5) == status


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu-offload-gb": 60},
        {"enable-hierarchical-cache": True, "hicache-size": 200},
    ],
)
def test_memory_of_the_host_is_waited_for_whatever_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Pinned pools of the server before come back late, too."""
    held = node(gpu(0), available=9e9, mem_total_bytes=510 * 10**9)
    clock = Clock(monkeypatch, held, held, node(gpu(0), available=500e9))
    assert clock.check(make(tmp_path, {**ARGS, **changes})) == 0
    assert clock.now == 2


def test_the_cpu_engine_is_checked_against_the_hosts_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, {"device": "cpu", "load-format": "dummy", "max-total-tokens": 4096})
    small, big = node(available=9e9, mem_total_bytes=64 * 10**9), node(available=64e9)
    clock = Clock(monkeypatch, small, small, big)
    assert clock.check(path) == 0
    assert clock.now == 2


@pytest.mark.parametrize("text", ["", "{", "{}", "[]"])
def test_a_fault_of_the_check_keeps_no_server_down(
    directory: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (directory / "release.json").write_text(text)
    assert guard.main(str(directory)) == 0
    assert "headroom: the memory could not be checked" in capsys.readouterr().out


def test_what_can_not_be_read_keeps_no_server_down(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any) -> int:
        raise HeadroomError("/proc/meminfo can't be read")

    monkeypatch.setattr(guard, "check", fail)
    assert guard.main(str(directory)) == 0
    assert "headroom: the memory could not be checked: /proc/meminfo can't be read" in capsys.readouterr().out


def test_the_exit_status_is_what_the_check_says(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "check", lambda path, say: (say(str(path)), 1)[1])
    assert guard.main(str(directory)) == 1
    assert capsys.readouterr().out == f"headroom: {directory}\n"
