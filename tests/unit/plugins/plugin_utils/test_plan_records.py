# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan without a host is made from: read, or refused in one line that says what would work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_records

ROLES = Path(__file__).parents[4] / "roles"
RECORDS = ROLES / "sglang_server/files/records/blackwell"
HARDWARE = (RECORDS / "hardware.json").read_text(encoding="utf-8")
ENGINES = [
    {"name": "default", "lock": "engines/sglang-0.5.23.lock"},
    {"name": "old", "lock": "engines/sglang-0.5.14.lock"},
]
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
}  # fmt: skip


def find(path: str) -> str:
    for folder in (RECORDS, ROLES / "sglang_runtime/files"):
        if (folder / path).exists():
            return str(folder / path)
    raise LookupError(path)


def line(call: Any, *arguments: Any) -> str:
    """Return the one line that a call ends with."""
    with pytest.raises(HeadroomError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    assert caught.value.findings
    return str(caught.value)


@pytest.mark.parametrize("wrap", [lambda record: record, lambda record: {"changed": False, "hardware": record}])
def test_hardware_is_read_as_the_module_returns_it_and_as_it_is(tmp_path: Path, wrap: Any) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(wrap(json.loads(HARDWARE))), encoding="utf-8")
    found = plan_records.read_hardware(find, str(path))
    assert len(found.gpus) == 8
    assert found == plan_records.read_hardware(find, "hardware.json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "as a whole is no object"),
        ("3", "as a whole is no object"),
        ("{}", "lacks format"),
        ('{"hardware": []}', "as a whole is no object"),
        ('{"hardware": {"format": 1}}', "lacks gpus"),
        ('{"format": 99, "gpus": []}', "has the format 99, this version reads 1"),
        (HARDWARE.replace('"free_bytes": ', '"free_bytes": -', 1), "has gpus[0].free_bytes = -"),
    ],
)
def test_hardware_that_is_no_record(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    said = line(plan_records.read_hardware, find, str(path))
    assert said.startswith(f"plan_hardware_record '{path}' ")
    assert reason in said
    assert said.endswith("Give the JSON that hardware_info returns. [settings.invalid]")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with (tmp_path / "large").open("wb") as handle:
        handle.truncate(9_400_000_000)
    for path, reason in (
        ("absent.json", "is no file on the controller"),
        (str(tmp_path), "can't be read on the controller: Is a directory"),
        (str(tmp_path / "binary"), "is no text"),
        (str(tmp_path / "large"), "has 9,400 MB, and a record has kilobytes"),
    ):
        said = line(plan_records.read_hardware, str if path.startswith("/") else find, path)
        assert said.startswith(f"plan_hardware_record is '{path}', which {reason}. Give the JSON that ")


def test_without_a_record_of_hardware_there_is_no_offline_plan() -> None:
    said = line(plan_records.read_hardware, find, "")
    assert said.startswith("plan_hardware_record is not set") and "hardware_info" in said


def test_models_come_from_records_folders_and_the_models_own_path(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    folder = str(tmp_path)
    for record, path, layers, origin in (
        ("model.json", "/nowhere", 61, "record model.json"),
        ({"a": "model.json"}, folder, 61, "record model.json"),
        ({"b": "model.json"}, folder, 28, f"folder {folder} of the controller"),
        ({"a": ""}, folder, 28, f"folder {folder} of the controller"),
        (folder, "/nowhere", 28, f"folder {folder} of the controller"),
        ("", folder, 28, f"folder {folder} of the controller"),
        (None, folder, 28, f"folder {folder} of the controller"),
    ):
        shape, said = plan_records.read_model(find, record, "a", path, True)
        assert (shape.layers, said) == (layers, origin)


@pytest.mark.parametrize(
    ("record", "path", "said", "kind"),
    [
        ("", "/nowhere", "a: plan_model_record is not set, and model_path '/nowhere' is no folder", "model.missing"),
        ({}, "/nowhere", "a: plan_model_record.a is not set, and model_path '/nowhere' is", "model.missing"),
        ("{empty}", "/m", "plan_model_record '{empty}': {empty} has no config.json.", "model.no_config"),
        ("", "{empty}", "a: model_path '{empty}': {empty} has no config.json.", "model.no_config"),
        ({"a": "x.json"}, "/m", "plan_model_record.a is 'x.json', which is no file on the", "settings.invalid"),
        ("hardware.json", "/m", "plan_model_record 'hardware.json' lacks architecture.", "model.record_invalid"),
        ("{text}", "/m", "plan_model_record '{text}' is no JSON", "model.record_invalid"),
        ("{folder}", "/m", "plan_model_record '{folder}': {folder}", "model."),
    ],
)
def test_models_that_can_not_be_read(tmp_path: Path, record: Any, path: str, said: str, kind: str) -> None:
    names = {name: str(tmp_path / name) for name in ("empty", "text", "folder")}
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("model", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").write_text("{", encoding="utf-8")
    given = record.format(**names) if isinstance(record, str) else record
    told = line(plan_records.read_model, find_any, given, "a", path.format(**names), False)
    assert told.startswith(said.format(**names))
    assert f"[{kind}" in told


def find_any(path: str) -> str:
    return path if path.startswith("/") and Path(path).exists() else find(path)


def test_a_mapping_names_instances_of_the_node() -> None:
    plan_records.check_names({"a": "x"}, ["a", "b"])
    plan_records.check_names("x", [])
    plan_records.check_names(None, [])
    said = line(plan_records.check_names, {"a": "x", "kim": "x"}, ["a", "kimi"])
    assert said.startswith(
        "plan_model_record names the instance 'kim', which this node does not have. Its instances: a,"
    )
    assert line(plan_records.check_names, {"a": "x"}, []).endswith("Its instances: none. [settings.unknown]")
    assert line(plan_records.check_names, [1], ["a"]).startswith("plan_model_record is [1], which is no path.")


def test_the_version_is_what_the_lock_pins() -> None:
    assert plan_records.engine_version(find, ENGINES, "default", "a") == "0.5.23"
    assert plan_records.engine_version(find, ENGINES, "old", "a") == "0.5.14"


@pytest.mark.parametrize(
    ("engines", "said"),
    [
        (
            [],
            "a: the engine 'x' is not in sglang_runtime_engines, whose locks tell the version of SGLang. It is empty.",
        ),
        (
            ENGINES,
            "a: the engine 'x' is not in sglang_runtime_engines, whose locks tell the version of SGLang. It has d",
        ),
        (
            [{"name": "x", "lock": "tools.lock"}],
            "sglang_runtime_engines[x].lock is 'tools.lock', which pins no sglang.",
        ),
        ([{"name": "x", "lock": "no.lock"}], "sglang_runtime_engines[x].lock is 'no.lock', which can't be read on the"),
        ([{"name": "x"}], "sglang_runtime_engines[0].lock is missing."),
    ],
)
def test_engines_without_a_lock_that_tells_the_version(engines: Any, said: str) -> None:
    assert line(plan_records.engine_version, find, engines, "x", "a").startswith(said)
