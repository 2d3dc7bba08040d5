# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures that no model has, in a config.json, a header or a record: a finding that names them, in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_limits import CONFIGS, TENSORS, numbers, outcomes

from ansible_collections.headroom.serving.plugins.module_utils import (
    model_bounds,
    model_config,
    model_shape,
    rank_weights,
    safetensors_headers,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.tensor_parts import Places
from suite import checkpoints

# One of each way to be built; the first is told from its config alone.
NAMES = (
    "Qwen3-8B",
    "DeepSeek-V3",
    "DeepSeek-V3.2",
    "Gemma-3-27B",
    "Qwen3-Next-80B",
    "Kimi-K2.5",
    "gpt-oss-120b",
    "GLM-4.5",
    "Nemotron-Nano-9B-v2",
    "Kimi-Linear-48B",
    "MiMo-V2-Flash",
    "Qwen2.5-Omni-7B",
)
NUMBERS = (0, -1, 10**6, 10**9, 10**12, 10**40, 0.5, 1e6, 1e300, -2.5, float("inf"), float("nan"), "4", [], [5], {})


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_a_config(name: str) -> None:
    changes = [(place, value) for place in numbers(CONFIGS[name]) for value in NUMBERS]
    told = outcomes(CONFIGS[name], changes)
    assert any(text.startswith("planned") for text in told)
    for (place, value), text in zip(changes, told[::2], strict=True):
        layers = place[-1] == "num_hidden_layers" and place[0] not in ("vision_config", "thinker_config")
        if layers and value in (10**6, 10**9, 10**12):
            assert (
                f"num_hidden_layers is {int(value)}; it must be a whole number from 1 to 10,000, the most that" in text
            )


def test_models_as_large_as_may_be() -> None:
    """All equal, and built so that each layer differs from the next."""
    changes: list[tuple[list[Any], Any]] = [(["num_hidden_layers"], model_bounds.LAYERS)]
    for name in ("DeepSeek-V2-Lite", "GLM-4.5"):
        assert outcomes(CONFIGS[name], changes)[1] == "planned refuse"
    small = {**CONFIGS["Qwen3-8B"], "hidden_size": 1024, "intermediate_size": 1088, "head_dim": 128}
    assert outcomes(small, changes)[1].startswith("planned")
    odd = {**CONFIGS["Qwen3-30B-A3B"], "num_hidden_layers": model_bounds.LAYERS}
    told = outcomes(odd, [(["decoder_sparse_step"], 2), (["mlp_only_layers"], list(range(model_bounds.LAYERS)))])
    assert [told[1], told[3]] == ["planned refuse", "planned refuse"]


def test_long_lists_and_letters_of_a_config() -> None:
    words, figures = ["full_attention"] * 200_000, [1] * 1_000_000
    for name, place, value, said in (
        ("Qwen3-30B-A3B", "mlp_only_layers", figures, "mlp_only_layers has 1,000,000 entries; 10,000 layers are"),
        ("Qwen3-8B", "layer_types", words, "layer_types has 200,000 entries; 10,000 layers are the most"),
        ("MiMo-V2-Flash", "hybrid_layer_pattern", figures, "hybrid_layer_pattern has 1,000,000 entries"),
        ("Nemotron-Nano-9B-v2", "hybrid_override_pattern", "M" * 3_000_000, "pattern has 3,000,000 letters; 10,000"),
        ("Qwen3-8B", "architectures", ["X" * 1_000_000], "architectures[0] is 'XXX"),
        ("Qwen3-8B", "architectures", ["a\nb"], r"architectures[0] is 'a\nb'; that is no name of one"),
    ):
        found = outcomes(CONFIGS[name], [([place], value)])
        assert said in found[1] or said in found[0], (place, found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": 1_000_001}, "hidden_size is 1000001; it must be a whole number from 1 to 1,000,000, the most"),
        ({"vocab_size": 10**9}, "vocab_size is 1000000000; it must be a whole number from 1 to 100,000,000"),
        ({"max_position_embeddings": 10**10}, "max_position_embeddings is 10000000000; it must be a whole number"),
        ({"num_experts": 10**6}, "num_experts is 1000000; it must be a whole number from 0 to 100,000"),
        ({"rope_scaling": {"factor": 1e308}}, "factor is 1e+308, which makes the context inf tokens"),
        ({"rope_scaling": {"factor": 1e-9}}, "factor is 1e-09, which makes the context 4.1e-05 tokens; it must be"),
    ],
)
def test_a_figure_that_no_model_has_is_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["Qwen3-8B"], **change}))
    with pytest.raises(HeadroomError) as caught:
        model_shape.from_dir(str(tmp_path), dummy=True)
    assert said in str(caught.value) and "Copy or download" in str(caught.value)
    assert [item.id for item in caught.value.findings] == ["model.config_invalid"]


@pytest.mark.parametrize("digits", [400, 1_500_000])
@pytest.mark.parametrize("place", ["hidden_size", "factor", "partial_rotary_factor"])
def test_numbers_of_many_digits(place: str, digits: int, tmp_path: Path) -> None:
    """Python 3.9 takes minutes to read them as whole numbers, and none fits a float."""
    config = {**CONFIGS["Qwen3-8B"], place: -77, "rope_scaling": {"type": "yarn", place: -77}}
    (tmp_path / "config.json").write_text(json.dumps(config).replace("-77", "9" * digits))
    try:
        shape = model_shape.from_dir(str(tmp_path), dummy=True)
    except HeadroomError as error:
        assert place == "hidden_size" and "hidden_size is inf" in str(error)
    else:
        assert place != "hidden_size" and shape.context_tokens == 40_960


def test_layers_named_twice_count_once(tmp_path: Path) -> None:
    config = json.loads(json.dumps(CONFIGS["Kimi-Linear-48B"]))
    config["linear_attn_config"]["kda_layers"] *= 3
    checkpoints.write(tmp_path, config, TENSORS)
    assert [group.layers for group in model_shape.from_dir(str(tmp_path)).groups] == [7, 20]


def test_the_number_of_a_layer_may_have_any_length(tmp_path: Path) -> None:
    """Escaped digits make names of more digits than Python turns into a number."""
    places = Places(model_config.parse(CONFIGS["Qwen3-8B"]))
    assert places.of(f"model.layers.{'9' * 5000}.mlp.up_proj.weight").layer == -1
    entry = b'"model.layers.%s.x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}' % (
        b"\\u0039".join([b"9" * 4000] * 3)
    )
    header = b"{%s}" % entry
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen3-8B"]))
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"x")
    shape = model_shape.from_dir(str(tmp_path))
    assert max(len(reason) for reason in shape.approximate) < 500
    assert model_shape.from_json(model_shape.to_json(shape)) == shape


def test_a_tensor_twice_in_one_file(tmp_path: Path) -> None:
    entry = b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    header = b"{%s,%s}" % (entry, entry)
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen3-8B"]))
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(HeadroomError, match=r"m\.safetensors holds the tensor 'a' twice.*\[model\.weights_damaged\]"):
        model_shape.from_dir(str(tmp_path))


def test_an_index_of_more_tensors_than_any_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_bounds, "TENSORS", 5)
    path = tmp_path / safetensors_headers.INDEX
    path.write_text(json.dumps({"weight_map": {str(number): "m" for number in range(5)}}))
    assert len(safetensors_headers.read_index(tmp_path) or ()) == 5
    path.write_text(json.dumps({"weight_map": {str(number): "m" for number in range(6)}}))
    with pytest.raises(HeadroomError, match="names over 5 tensors, more than any model has"):
        safetensors_headers.read_index(tmp_path)


def test_matrices_that_all_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are played through, and a record of them reads back."""
    monkeypatch.setattr(model_bounds, "ALLOCATIONS", 3)
    tensors: list[checkpoints.TensorSpec] = [
        (f"model.layers.{layer}.mlp.up_proj.weight", "BF16", (1024, 1024 + layer)) for layer in range(5)
    ]
    checkpoints.write(tmp_path, CONFIGS["Qwen3-8B"], tensors)
    shape = model_shape.from_dir(str(tmp_path))
    assert len(shape.allocations) == 3
    assert any("as so many differ" in reason for reason in shape.approximate)


def straight(sizes: list[int]) -> int:
    """Return what is left of 20 MiB blocks, in the plainest way."""
    free: list[int] = []
    for size in sizes:
        fitting = [place for place, left in enumerate(free) if left >= size]
        if fitting:
            free[min(fitting, key=free.__getitem__)] -= size
        else:
            free.append(20 * 2**20 - size)
    return sum(free)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(2**20 + 1, 10 * 2**20 - 1), st.integers(1, 9)), max_size=8))
def test_blocks_are_filled_as_if_tried_one_by_one(sizes: list[tuple[int, int]]) -> None:
    rounds = [size for turn in range(9) for size, count in sizes if count > turn]
    assert list(rank_weights.in_turns(sizes)) == rounds
    assert rank_weights.left_in_blocks(rounds) == straight(rounds)
