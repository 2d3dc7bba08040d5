# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a whole node: what ends gives its memory back, what stays keeps it, and the order of replacing counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import (
    hardware_reading,
    node_plan,
    release_plan,
    unit_memory,
)
from ansible_collections.headroom.serving.plugins.module_utils.deployment import Settings, Step
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance
from ansible_collections.headroom.serving.plugins.module_utils.node_plan import NodePlan
from ansible_collections.headroom.serving.plugins.module_utils.release import Release, Store
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState
from plan_samples import CONFIG, GIB, MIB, gpu, node, process

HICACHE = {"enable-hierarchical-cache": True}
ONE_GPU = {"mem-fraction-static": 0.85, "load-format": "dummy", "max-running-requests": 64}
DEAD = UnitState("loaded", "inactive", "dead", "enabled", "", 0, 0, 0, "", "", 0, "")
RUNS = replace(DEAD, active="active", sub="running")


class World:
    """A node with a model, whose hardware and held memory a test decides."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = tmp_path
        self.hardware: Hardware = node(gpu(0))
        self.reads = 0
        self.host_bytes: Mapping[str, int] = {}
        model = tmp_path / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(CONFIG))
        self.model = str(model)
        self.settings = Settings([], tmp_path / "headroom", tmp_path / "opt" / "engines", {}, "sglang", "/")
        self.shapes = tmp_path / "shapes"
        monkeypatch.setattr(release_plan, "SHAPES", self.shapes)
        monkeypatch.setattr(hardware_reading, "read", self._read)
        monkeypatch.setattr(unit_memory, "of_host", lambda units: sum(self.host_bytes.get(unit, 0) for unit in units))

    def _read(self, tools_root: Path) -> Hardware:
        assert tools_root == self.root / "opt"
        self.reads += 1
        return self.hardware

    def step(self, name: str, action: str, unit: UnitState = DEAD, **args: Any) -> Step:
        gpus, model = args.pop("gpus", None), args.pop("model", self.model)
        record = {
            "name": name,
            "args": {**ONE_GPU, **args},
            "environment": {},
            "gpus": gpus,
            "engine": {"id": "e", "version": "0.5.14"},
            "model": {"path": model, "digest": "d" * 64},
        }
        gone = action in ("stop", "remove")
        release = None if gone else Release("0123456789ab", name, "", record, "sglang")
        store = Store(self.settings.root, name)
        return Step(Instance(name, gpus=gpus), action, "", store, unit, "", release)

    def make(self, *steps: Step, **options: Any) -> NodePlan:
        return node_plan.make(self.settings, steps, **options)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def ids(found: NodePlan, verdict: str) -> list[str]:
    return sorted({item.id for item in found.findings if item.verdict == verdict})


@pytest.mark.parametrize("actions", [[], ["none"], ["check", "none"], ["stop"], ["remove", "repair"]])
def test_without_a_start_nothing_is_read(world: World, actions: list[str]) -> None:
    found = world.make(*(world.step(f"i{place}", action, RUNS) for place, action in enumerate(actions)))
    assert (found.planned, list(found.findings), world.reads) == ({}, [], 0)


@pytest.mark.parametrize("action", ["create", "replace", "start"])
def test_a_start_is_planned(world: World, action: str) -> None:
    found = world.make(world.step("a", action))
    assert ids(found, "refuse") == []
    assert list(found.planned) == ["a"] and world.reads == 1
    report = found.planned["a"].report()
    assert report["instance"] == "a" and report["plan"]["tokens"]["low"] > 400_000
    assert report["effective"]["mem-fraction-static"]["origin"] == "given"
    assert "1 files" not in report["sources"]["model"] and "config.json alone" in report["sources"]["model"]


@pytest.mark.parametrize(
    ("action", "holder", "refused"),
    [
        ("replace", "sglang-a.service", []),
        ("create", "sglang-b.service", ["gpu.no_room_for_kv", "gpu.slack"]),
        ("start", "", ["gpu.no_room_for_kv", "gpu.slack"]),
    ],
)
def test_only_what_ends_gives_its_memory_of_a_gpu_back(
    world: World, action: str, holder: str, refused: list[str]
) -> None:
    held = replace(gpu(0, used_mib=90_000), processes=())
    held = replace(held, processes=(replace(process(1, 90_000), unit=holder),))
    world.hardware = node(held)
    found = world.make(world.step("a", action, RUNS if action == "replace" else DEAD))
    assert ids(found, "refuse") == refused


@pytest.mark.parametrize("action", ["stop", "remove"])
def test_what_stops_gives_its_memory_back(world: World, action: str) -> None:
    world.hardware = node(gpu(0), available=15e9)
    pools = {**HICACHE, "hicache-size": 100}
    assert ids(world.make(world.step("a", "create", **pools)), "refuse") == ["hicache.node_budget"]
    world.host_bytes = {"sglang-b.service": 200 * 10**9}
    world.hardware = node(gpu(0), available=15e9, mem_total_bytes=300 * 10**9)
    assert ids(world.make(world.step("b", action, RUNS), world.step("a", "create", **pools)), "refuse") == []
    assert ids(world.make(world.step("b", "none", RUNS), world.step("a", "create", **pools)), "refuse") == [
        "hicache.node_budget"
    ]


def test_instances_that_start_together_share_the_host(world: World) -> None:
    world.hardware = node(gpu(0), gpu(1), available=230e9)
    pools = {**HICACHE, "hicache-size": 150}
    alone = world.make(world.step("a", "create", gpus=(0,), **pools))
    assert ids(alone, "refuse") == []
    both = world.make(*(world.step(name, "create", gpus=(place,), **pools) for place, name in enumerate("ab")))
    assert ids(both, "refuse") == ["hicache.node_budget"]
    assert {item.message.split(":")[0] for item in both.findings if item.verdict == "refuse"} == {"a", "b"}


def test_what_fits_only_once_a_later_instance_was_replaced_is_said(world: World) -> None:
    """a grows while b shrinks: together they fit, but a is first and b still holds its old pools then."""
    world.hardware = node(gpu(0), gpu(1), available=40e9, mem_total_bytes=400 * 10**9)
    world.host_bytes = {"sglang-a.service": 10 * 10**9, "sglang-b.service": 300 * 10**9}
    grows = world.step("a", "replace", RUNS, gpus=(0,), **HICACHE, **{"hicache-size": 150})
    shrinks = world.step("b", "replace", RUNS, gpus=(1,), **HICACHE, **{"hicache-size": 100})
    first = world.make(grows, shrinks)
    assert ids(first, "refuse") == ["plan.order"]
    (said,) = [item for item in first.findings if item.id == "plan.order"]
    assert "present release of b still runs" in said.message and "List a behind b" in said.suggestion
    assert ids(world.make(shrinks, grows), "refuse") == []


def holding(*held: tuple[str, int]) -> Hardware:
    """A node of one GPU, of which units hold so many MiB."""
    processes = tuple(
        replace(process(place, mib), unit=f"sglang-{name}.service") for place, (name, mib) in enumerate(held)
    )
    return node(gpu(0, used_mib=sum(mib for _name, mib in held), processes=processes))


def test_a_present_release_that_is_replaced_later_still_holds_its_part_of_the_gpu(world: World) -> None:
    """a starts while b still runs; what a then gets is what is told, though more will be free in the end."""
    half = {"mem-fraction-static": 0.5}
    world.hardware = holding(("a", 20_000), ("b", 30_000))
    steps = world.step("a", "replace", RUNS, **half), world.step("b", "replace", RUNS, **half)
    found = world.make(*steps)
    assert ids(found, "refuse") == []
    first, second = (found.planned[name].plan for name in "ab")
    assert first.gpu.pre_bytes.best == pytest.approx((97_887 - 600 - 30_000) * MIB - 0.67 * GIB, rel=0.001)
    assert second.gpu.pre_bytes.high < (97_887 - 600) * MIB - first.gpu.fraction * first.gpu.pre_bytes.best
    alone = world.make(steps[0]).planned["a"].plan
    assert alone.tokens == first.tokens
    assert "plan.order" not in {item.id for item in found.findings}


def test_what_a_gpu_holds_in_the_end_only_is_said(world: World) -> None:
    world.hardware = holding(("b", 80_000))
    small = {"mem-fraction-static": 0.4}
    found = world.make(world.step("a", "create", **small), world.step("b", "replace", RUNS, **small))
    assert ids(found, "refuse") == ["plan.order"]
    (said,) = [item for item in found.findings if item.id == "plan.order"]
    assert "of 16.05 GiB free" in said.message and "present release of b still runs" in said.message
    # The plan that is shown is the one that would come true in the other order of things.
    assert found.planned["a"].plan.tokens.low > 100_000


def test_a_reboot_starts_together_what_was_started_in_turn(world: World) -> None:
    small, large = {"mem-fraction-static": 0.35}, {"mem-fraction-static": 0.8}
    found = world.make(world.step("a", "create", **small), world.step("b", "create", **large))
    assert ids(found, "refuse") == []
    (said,) = [item for item in found.findings if item.id == "plan.start_order"]
    assert said.verdict == "warn" and said.message.startswith("a: ")
    # What b held before does not count after a reboot.
    world.hardware = holding(("b", 8_000))
    again = world.make(world.step("a", "create", **small), world.step("b", "replace", RUNS, **large))
    assert [item.message for item in again.findings if item.id == "plan.start_order"] == [said.message]


def test_everything_plans_in_the_place_of_each(world: World) -> None:
    """a and b run and share the GPU: each is told what it would get if all were started in turn."""
    world.hardware = holding(("a", 40_000), ("b", 40_000))
    small, large = {"mem-fraction-static": 0.35}, {"mem-fraction-static": 0.8}
    steps = world.step("a", "none", RUNS, **small), world.step("b", "none", RUNS, **large)
    found = world.make(*steps, everything=True)
    assert ids(found, "refuse") == []
    first, second = (found.planned[name].plan for name in "ab")
    assert first.gpu.pre_bytes.best == pytest.approx((97_887 - 600) * MIB - 0.67 * GIB, rel=0.001)
    assert second.gpu.pre_bytes.best == pytest.approx((97_887 - 600 - 40_000) * MIB - 0.67 * GIB, rel=0.001)
    assert [item.message[:2] for item in found.findings if item.id == "plan.start_order"] == ["a:"]
    started = world.make(steps[0], world.step("b", "replace", RUNS, **large), everything=True)
    assert list(started.planned) == ["b", "a"]
    assert started.planned["a"].plan.tokens == first.tokens
    assert [item.message[:2] for item in started.findings if item.id == "plan.start_order"] == ["a:"]


def test_everything_plans_what_runs_and_stays_as_if_it_started_now(world: World) -> None:
    held = gpu(0, used_mib=85_000, processes=(replace(process(1, 85_000), unit="sglang-a.service"),))
    world.hardware = node(held)
    found = world.make(world.step("a", "none", RUNS), everything=True)
    assert ids(found, "refuse") == []
    assert found.planned["a"].plan.gpu.pre_bytes.best == pytest.approx((97_887 - 600) * MIB - 0.67 * GIB, rel=0.001)


def test_a_model_that_can_not_be_read_does_not_hide_the_others(world: World, tmp_path: Path) -> None:
    world.hardware = node(gpu(0), gpu(1))
    (tmp_path / "broken").mkdir()
    broken = world.step("a", "create", gpus=(0,), model=str(tmp_path / "broken"))
    found = world.make(broken, world.step("b", "create", gpus=(1,)))
    assert list(found.planned) == ["b"]
    assert [item.id for item in found.findings if item.verdict == "refuse"] == ["model.no_config"]


def test_accepted_findings_warn_and_are_told(world: World) -> None:
    world.settings = replace(world.settings, accept=("gpu.slack", "plan.order"))
    found = world.make(world.step("a", "create", **{"mem-fraction-static": 0.995}))
    assert ids(found, "refuse") == []
    assert "gpu.slack" in ids(found, "warn")
    assert found.planned["a"].report()["accepted"] == ["gpu.slack"]


def test_what_was_accepted_without_need_is_not_told(world: World) -> None:
    world.settings = replace(world.settings, accept=("gpu.slack", "hicache.node_budget"))
    assert world.make(world.step("a", "create")).planned["a"].report()["accepted"] == []


@pytest.mark.parametrize("keep", [True, False])
def test_what_was_read_of_the_model_is_kept_only_if_it_may(world: World, keep: bool) -> None:
    world.make(world.step("a", "create"), keep=keep)
    assert world.shapes.is_dir() is keep


@pytest.mark.parametrize(("cpu", "told"), [(True, []), (False, ["gpu.lost"])])
def test_broken_gpus_concern_only_who_uses_gpus(world: World, cpu: bool, told: list[str]) -> None:
    world.hardware = node(gpu(0), notes=("gpu.lost: GPU 3 does not answer",))
    args = {"device": "cpu", "max-total-tokens": 4096} if cpu else {}
    found = world.make(world.step("a", "create", **args))
    assert [item.id for item in found.findings if item.id == "gpu.lost"] == told


def test_a_flag_without_a_usable_value_is_named_with_its_instance(world: World) -> None:
    world.hardware = node(gpu(0), gpu(1))
    wrong = world.step("a", "create", gpus=(0,), **{"max-total-tokens": "lots"})
    found = world.make(wrong, world.step("b", "create", gpus=(1,)))
    (said,) = [item for item in found.findings if item.verdict == "refuse"]
    assert said.message.startswith("sglang_server_instances (a).args.max-total-tokens is 'lots'")
    assert list(found.planned) == ["b"]
