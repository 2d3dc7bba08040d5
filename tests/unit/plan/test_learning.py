# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deploy keeps of a start that it has verified, and of which free memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import measured_facts, processes, transaction
from ansible_collections.headroom.serving.plugins.module_utils.deployment import Settings, Step
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, plan
from ansible_collections.headroom.serving.plugins.module_utils.node_plan import Planned
from ansible_collections.headroom.serving.plugins.module_utils.release import Store
from ansible_collections.headroom.serving.plugins.module_utils.release_plan import Prepared
from ansible_collections.headroom.serving.plugins.module_utils.startup_log import StartupLog
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState
from plan_samples import dense, inputs, planned, seed

DEAD = UnitState("loaded", "inactive", "dead", "enabled", "", 0, 0, 0, "", "", 0, "")
LINES = (
    "[2025-11-30 05:20:00 TP0] Load weight begin. avail mem=93.60 GB",
    "[2025-11-30 05:20:09 TP0] Load weight end. elapsed=9.15 s, type=K, avail mem=21.64 GB, mem usage=71.96 GB.",
    "[2025-11-30 05:20:10 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 116171, KV size: 7.60 GB",
)


def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **plan_of: Any) -> Facts:
    """Return what a plan of an instance, made with `plan_of`, keeps of a start that shows the lines above."""
    monkeypatch.setattr(processes, "largest_rank_bytes", lambda _unit: None)
    item = inputs(seed(0.85))
    one = Planned(Prepared(item, {}, "0a1b"), plan(replace(item, **plan_of)))
    step = Step(Instance("a"), "create", "", Store(tmp_path, "a"), DEAD, "", None)
    log = StartupLog()
    for line in LINES:
        log.feed(line)
    settings = Settings([], tmp_path, tmp_path / "engines", {}, "sglang", "/")
    said: list[str] = []
    transaction._learner(step, one, settings, said.append)(log)
    assert "116,171" in said[0]
    return measured_facts.load(tmp_path / "measured", "0a1b")[0]


def test_what_was_free_is_kept_with_what_was_free_before_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = learned(tmp_path, monkeypatch)
    assert facts.pre_gib == 93.6
    assert facts.overhead_gib == pytest.approx(95.007 - 93.6, abs=0.001)


def test_nobody_knows_what_was_free_where_another_instance_of_the_deploy_started_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = planned({"mem-fraction-static": 0.02}, dense(weights_gib=0.2), name="b", gpus=(0,))
    facts = learned(tmp_path, monkeypatch, others=(other,), facts=Facts(pre_gib=93.6, weights_gib=71.95708))
    assert (facts.pre_gib, facts.overhead_gib) == (93.6, None)
