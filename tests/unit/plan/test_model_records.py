# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record that was written reads back, and one of no model is refused by the name of the field that says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_limits import CONFIGS, numbers, outcomes, record

from ansible_collections.headroom.serving.plugins.module_utils import model_bounds, model_shape
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

NUMBERS = (-(10**30), -2, -1, 0, 1, 10**4, 10**9, 10**15 + 1, 10**40, 1.5, True, None, "4", [], {})


@pytest.mark.parametrize("name", ["Qwen3-8B", "DeepSeek-V3.2", "Qwen3-Next-80B", "gpt-oss-120b", "Kimi-K2.5"])
def test_numbers_of_a_record(name: str) -> None:
    """What is refused names the field; what is taken is planned."""
    dummy = name == "Qwen3-8B"
    changes = [(place, value) for place in numbers(record(name, dummy)) for value in NUMBERS]
    told = outcomes(CONFIGS[name], changes, what="record", dummy=dummy)
    assert any(text.startswith("planned") for text in told)
    for (place, value), text in zip(changes, told, strict=True):
        if not isinstance(value, int) or isinstance(value, bool) or not -2 < value < 10**30:
            field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).lstrip(".")
            assert f" {field} is " in text or f" for {field};" in text or "has format" in text, (field, value, text)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (["vocab_size"], 0, "vocab_size is 0; it must be from 1 to 100,000,000"),
        (["layers"], 0, "layers is 0; it must be from 1 to 10,000"),
        (["hidden_size"], -7, "hidden_size is -7; it must be from 1 to"),
        (["context_tokens"], 0, "context_tokens is 0; it must be from 1"),
        (["attention_heads"], 0, "attention_heads is 0; it must be from 1"),
        (["kv_heads"], 0, "kv_heads is 0; it must be from 1"),
        (["dtype"], "int3", "dtype is 'int3'; known are bfloat16, float16"),
        (["kv_cache_quant"], "int4", "kv_cache_quant is 'int4'; it must be empty or fp8"),
        (["architecture"], "", "architecture is ''; it must be a name"),
        (["quantization"], "x" * 300, "quantization is 'xxx"),
        (["key"], "a\nb", r"key is 'a\nb'; it must be a name"),
        (["approximate"], [5], "approximate[0] is 5; it must be one line"),
        (["approximate"], ["a\nb"], r"approximate[0] is 'a\nb'"),
        (["sharded_bytes"], -1, "sharded_bytes is -1; it must be from 0 to 1,000,000,000,000,000"),
        (["total_bytes"], 10**16, "total_bytes is 10000000000000000; it must be from 0 to"),
        (["groups"], [], "groups has 0 entries; there must be from 1 to 16"),
        (["groups", 0, "kind"], "moe", "groups[0].kind is 'moe'; known are mha, mla, swa, linear"),
        (["groups", 0, "layers"], 37, "groups[0].layers is 37; it must be from 1 to 36"),
        (["groups", 0, "head_dim"], 0, "groups[0].head_dim is 0; it must be from 1"),
        (["groups", 0, "state_bytes"], -5, "groups[0].state_bytes is -5"),
        (["parts", 0, "kind"], "x", "parts[0].kind is 'x'; known are absorbed, attention"),
        (["parts", 0, "layers"], 37, "parts[0].layers is 37"),
        (["parts", 0, "first_layer"], 36, "parts[0].first_layer is 36; it must be from -1 to 35"),
        (["parts", 0, "bytes_per_layer"], -1, "parts[0].bytes_per_layer is -1"),
        (["allocations", 0, "count"], 10**9, "allocations[0].count is 1000000000; it must be from 1 to 220,000"),
        (["allocations", 0, "count"], 220_000, "allocations[].count is 220,"),
        (["allocations", 0, "size_bytes"], -1, "allocations[0].size_bytes is -1"),
        (["allocations", 0, "kind"], "x", "allocations[0].kind is 'x'"),
    ],
)
def test_a_record_of_no_model(place: list[Any], value: Any, said: str) -> None:
    whole = record("Qwen3-8B", dummy=True)
    inner: Any = whole
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(HeadroomError) as caught:
        model_shape.from_json(json.dumps(whole), "r.json")
    assert said in str(caught.value) and str(caught.value).startswith("r.json ")
    assert [item.id for item in caught.value.findings] == ["model.record_invalid"]


def test_a_record_longer_than_any() -> None:
    with pytest.raises(HeadroomError, match="has 8,000,001 letters, more than any record"):
        model_shape.from_json(" " * 8_000_001)


def test_a_number_of_a_million_digits() -> None:
    """Python 3.9 takes minutes to read one as a whole number."""
    text = json.dumps({**record("Qwen3-8B", dummy=True), "layers": -77}).replace("-77", "9" * 1_000_000)
    with pytest.raises(HeadroomError, match="has inf for layers; it must be a whole number"):
        model_shape.from_json(text)


def test_the_longest_record_reads_back() -> None:
    whole = record("Qwen3-8B", dummy=True)
    part = {"kind": "vision_replicated", "first_layer": -1, "layers": 1, "bytes_per_layer": 10**15}
    whole["parts"] = [{**part, "draft": False, "stored": False}] * model_bounds.PARTS
    item = {"kind": "vision_replicated", "size_bytes": 10**15, "count": 10, "draft": False}
    whole["allocations"] = [item] * model_bounds.ALLOCATIONS
    whole["approximate"] = ["\u00fc" * 1000] * 20
    shape = model_shape.from_json(json.dumps(whole))
    text = model_shape.to_json(shape)
    assert len(text) < 8_000_000 and model_shape.from_json(text) == shape


def test_the_largest_records_are_planned_in_no_time() -> None:
    """Layers and matrices of which no two are alike, without a pipeline and with one."""
    alike = {"layers": 1, "draft": False, "stored": True}
    parts = [
        {"kind": kind, "first_layer": layer, "bytes_per_layer": 10**6 + layer, **alike}
        for kind in ("mlp", "attention", "replicated")
        for layer in range(model_bounds.LAYERS)
    ]
    matrices = [{"kind": "mlp", "size_bytes": 9 * 2**20 + 257 * n, "count": 10, "draft": False} for n in range(20_000)]
    whole = {
        **record("Qwen3-8B", dummy=True),
        "layers": model_bounds.LAYERS,
        "parts": parts,
        "allocations": matrices,
    }
    told = outcomes(CONFIGS["Qwen3-8B"], [([], whole)] * 2, what="record", dummy=True)
    assert all(text.startswith("planned") for text in told)


def test_models_that_differ_in_parts_only_are_told_apart() -> None:
    shape = model_shape.from_json(json.dumps(record("Qwen3-8B", dummy=True)))
    other = replace(shape, parts=shape.parts[1:])
    assert hash(shape) == hash(other) and shape != other
    assert model_shape.weight_bytes_per_rank(shape, 2) > model_shape.weight_bytes_per_rank(other, 2)


def test_what_no_record_may_hold_is_refused_in_a_directory_too(tmp_path: Path) -> None:
    figures = {"hidden_size": 10**6, "intermediate_size": 10**6, "num_hidden_layers": 5000}
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["Qwen3-8B"], **figures}))
    with pytest.raises(HeadroomError) as caught:
        model_shape.from_dir(str(tmp_path), dummy=True)
    assert [item.id for item in caught.value.findings] == ["model.config_invalid"]
    what = "with 5,000 layers, 0 experts, sides of 1,000,000 and 1,000,000, a vocabulary of 151,936, what no model is"
    assert f"config.json describes, {what}: sharded_bytes is 3" in str(caught.value)
