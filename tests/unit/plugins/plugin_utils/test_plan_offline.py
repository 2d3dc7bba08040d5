# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan without the node is the plan that the node would make of the same facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_offline
from ansible_collections.headroom.serving.plugins.plugin_utils.plan_offline import Request

Report = dict[str, Any]
ROLES = Path(__file__).parents[4] / "roles"
KIMI = {"tp-size": 8, "mem-fraction-static": 0.88, "enable-hierarchical-cache": True, "hicache-size": 26}
ENGINES = [
    {"name": "default", "lock": "engines/sglang-0.5.23.lock"},
    {"name": "old", "lock": "engines/sglang-0.5.14.lock"},
]


CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
}  # fmt: skip


def find_record(path: str) -> str:
    return str(ROLES / "sglang_server/files" / path)


def find_lock(path: str) -> str:
    return str(ROLES / "sglang_runtime/files" / path)


def planned(*entries: dict[str, Any], **more: Any) -> list[Report]:
    values: dict[str, Any] = {
        "engines": ENGINES,
        "accept": [],
        "hardware_record": "records/blackwell/hardware.json",
        "model_record": "records/blackwell/model.json",
    }
    return plan_offline.reports(Request(entries, **{**values, **more}), find_record, find_lock)


def entry(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "model_path": "/nowhere/m", "args": KIMI, **more}


def test_it_is_the_plan_of_the_same_facts(plan_of: Callable[..., Report]) -> None:
    (found,) = planned(entry())
    same = plan_of()
    assert found["plan"] == same["plan"]
    assert found["sources"] == {
        "hardware": "record records/blackwell/hardware.json",
        "model": "record records/blackwell/model.json",
        "facts": "nothing measured: an offline plan knows estimates only",
    }
    assert (found["instance"], found["engine_version"]) == ("a", "0.5.23")


def test_each_instance_follows_its_engine() -> None:
    assert [report["engine_version"] for report in planned(entry(engine="old"))] == ["0.5.14"]


def test_only_what_is_to_run_is_planned_and_in_its_order() -> None:
    found = planned(
        entry("c", port=1, gpus=[0]),
        entry("b", state="stopped"),
        entry("x", state="absent"),
        entry("a", port=2, gpus=[1]),
    )
    assert [report["instance"] for report in found] == ["c", "a"]
    assert planned(entry(state="stopped")) == []
    assert planned() == []


def test_instances_of_one_node_count_with_each_other() -> None:
    both = planned(entry("b", port=1), entry("a", port=2))
    for report in both:
        assert report["plan"]["host"]["claimed_by_others_bytes"] > 200 * 10**9
        assert "gpu.shared_by_instances" in [item["id"] for item in report["plan"]["findings"]]


def test_gpus_environment_and_expected_length_are_the_instances() -> None:
    (found,) = planned(entry(gpus=[1, 2], expected_request_tokens=1_000, args={**KIMI, "tp-size": 2}))
    assert found["plan"]["gpus"] == [1, 2]
    assert found["plan"]["request_tokens"] == 1_000
    (found,) = planned(entry(env={"SGLANG_VLM_CACHE_SIZE_MB": "500"}))
    assert found["plan"]["gpu"]["multimodal_bytes"] == 500 * 2**20


def test_what_is_accepted_warns() -> None:
    (found,) = planned(entry(args={**KIMI, "hicache-size": 300}), accept=["hicache.node_budget"])
    assert found["accepted"] == ["hicache.node_budget"]
    assert "refuse" not in [
        item["verdict"] for item in found["plan"]["findings"] if item["id"] == "hicache.node_budget"
    ]


def test_a_model_whose_weights_are_made_up_needs_its_config_only(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (found,) = planned(entry(model_path=str(tmp_path), args={"load-format": "dummy"}), model_record="")
    assert found["plan"]["gpu"]["weights_bytes"]["best"] > 2**30
    assert found["sources"]["model"] == f"folder {tmp_path} of the controller"
    speculative = {
        "load-format": "dummy",
        "speculative-algorithm": "EAGLE",
        "speculative-draft-model-path": "/nowhere/d",
    }
    (found,) = planned(entry(model_path=str(tmp_path), args=speculative), model_record="")
    assert "plan.draft_unknown" in [item["id"] for item in found["plan"]["findings"]]


@pytest.mark.parametrize(
    ("entries", "more", "said"),
    [
        (
            [entry(args={**KIMI, "mem-fraction-static": "much"})],
            {},
            "sglang_server_instances (a): args.mem-fraction-static",
        ),
        ([entry(args={**KIMI, "pp-size": 99})], {}, "sglang_server_instances (a): args.pp-size is 99"),
        ([entry(port=0)], {}, "sglang_server_instances[0] (a).port 0 is no TCP port."),
        ([entry(engine="new")], {}, "a: the engine 'new' is not in sglang_runtime_engines"),
        ([entry()], {"model_record": {"b": "x"}}, "plan_model_record names the instance 'b'"),
        ([entry()], {"hardware_record": ""}, "plan_hardware_record is not set"),
        ([], {"hardware_record": "absent.json"}, "plan_hardware_record is 'absent.json', which can't be read"),
    ],
)
def test_what_can_not_be_used_is_one_line(entries: list[dict[str, Any]], more: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        planned(*entries, **more)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_no_key_is_in_a_report() -> None:
    found = planned(entry(api_key="s3cr3t-key", admin_api_key="s3cr3t-admin", env={"A_B": "not-shown"}))
    assert "s3cr3t" not in json.dumps(found)
    assert "not-shown" not in json.dumps(found)
