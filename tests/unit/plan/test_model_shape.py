# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's directory: which files count, what is wrong with it, and the record that saves reading it again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import model_shape, safetensors_headers, weight_parts
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from suite import checkpoints

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("model_configs.json").read_text("utf-8"))
CONFIG = {**CONFIGS["Qwen3-0.6B"], "num_hidden_layers": 4}
TENSORS: list[checkpoints.TensorSpec] = [
    ("model.embed_tokens.weight", "BF16", (3072, 1024)),
    *((f"model.layers.{layer}.mlp.up_proj.weight", "BF16", (3072, 1024)) for layer in range(4)),
    ("model.norm.weight", "BF16", (1024,)),
]
SHARD = "model-{:05}-of-000004.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoints.write(tmp_path / "model", CONFIG, TENSORS, 4)
    return tmp_path / "model"


def refused(folder: Path, dummy: bool = False) -> tuple[str, str]:
    """Return id and text of the one finding with which a directory is refused."""
    with pytest.raises(HeadroomError) as caught:
        model_shape.from_dir(str(folder), dummy)
    (item,) = caught.value.findings
    assert item.verdict == "refuse" and item.suggestion and "\n" not in str(caught.value)
    return item.id, str(caught.value)


def edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    """Change the index of a directory."""
    path = folder / safetensors_headers.INDEX
    whole = json.loads(path.read_text())
    change(whole["weight_map"])
    path.write_text(json.dumps(whole))


def test_a_whole_directory(folder: Path) -> None:
    shape = model_shape.from_dir(str(folder))
    assert (shape.files, shape.tensors) == (4, 6)
    assert shape.sharded_bytes == 5 * 3072 * 1024 * 2
    assert shape.replicated_bytes == 2048
    assert shape.total_bytes == shape.sharded_bytes + shape.replicated_bytes
    assert shape.largest_file_bytes == max(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert shape.approximate == ()


def test_one_file_without_an_index(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, CONFIG, TENSORS, index=False)
    assert model_shape.from_dir(str(tmp_path)).files == 1


def test_links_are_followed(folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    assert model_shape.from_dir(str(linked)).total_bytes == model_shape.from_dir(str(folder)).total_bytes


def test_files_that_the_index_does_not_name_do_not_count(folder: Path) -> None:
    whole = model_shape.from_dir(str(folder))
    (folder / "consolidated.safetensors").write_bytes(b"not even one")
    (folder / ".cache.safetensors").write_bytes(b"hidden")
    (folder / "pytorch_model.bin").write_bytes(b"other")
    again = model_shape.from_dir(str(folder))
    assert (again.parts, again.files) == (whole.parts, 4)


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / SHARD.format(3)).unlink()
    kind, text = refused(folder)
    assert kind == "model.weights_missing"
    assert "of 4 files that the index names, 1 are not there: model-00003-of-000004.safetensors" in text


def test_many_missing_shards_are_counted(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.rename(path.with_suffix(".part"))
    (folder / "x.safetensors").write_bytes(b"")
    assert "4 are not there" in refused(folder)[1] and "and 1 more" in refused(folder)[1]


def test_a_link_to_nowhere_is_named(folder: Path) -> None:
    shard = folder / SHARD.format(2)
    shard.unlink()
    shard.symlink_to("../../blobs/0123")
    kind, text = refused(folder)
    assert kind == "model.weights_missing" and "is a link to ../../blobs/0123, which is not there" in text
    (folder / safetensors_headers.INDEX).unlink()
    assert refused(folder) == (kind, text)


def test_a_tensor_that_its_file_lacks_is_named(folder: Path) -> None:
    edit_index(folder, lambda weights: weights.update({"model.extra": SHARD.format(1)}))
    kind, text = refused(folder)
    assert kind == "model.weights_missing"
    assert "'model.extra' in model-00001-of-000004.safetensors, which does not hold it" in text


def test_a_tensor_that_the_index_does_not_name_is_loaded_all_the_same(folder: Path) -> None:
    edit_index(folder, lambda weights: weights.pop("model.norm.weight"))
    assert model_shape.from_dir(str(folder)).tensors == 6


@pytest.mark.parametrize("index", [True, False])
def test_a_tensor_in_two_files(folder: Path, index: bool) -> None:
    (folder / SHARD.format(2)).write_bytes((folder / SHARD.format(1)).read_bytes())
    if not index:
        (folder / safetensors_headers.INDEX).unlink()
    kind, text = refused(folder)
    assert kind == "model.weights_mixed" and "'model.embed_tokens.weight'" in text


@pytest.mark.parametrize("by", [1, 100, 10**6])
def test_a_shard_that_is_cut_off_is_named(folder: Path, by: int) -> None:
    shard = folder / SHARD.format(4)
    os.truncate(shard, max(0, shard.stat().st_size - by))
    kind, text = refused(folder)
    assert kind == "model.weights_damaged" and str(shard) in text


def test_a_shard_that_is_too_long_is_named(folder: Path) -> None:
    shard = folder / SHARD.format(4)
    os.truncate(shard, shard.stat().st_size + 1)
    assert "its header accounts for" in refused(folder)[1]


def test_a_directory_without_weights(tmp_path: Path) -> None:
    assert refused(tmp_path)[0] == "model.no_config"
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert refused(tmp_path)[0] == "model.weights_missing"
    shape = model_shape.from_dir(str(tmp_path), dummy=True)
    assert (shape.files, shape.largest_file_bytes) == (0, 0) and shape.total_bytes > 0
    assert refused(tmp_path / "gone")[0] == "model.missing"


def test_weights_that_nothing_tells_of(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Llama-3.1-8B-AWQ"]))
    kind, text = refused(tmp_path, dummy=True)
    assert kind == "model.weights_format" and "can't be told from config.json alone" in text


def test_gguf(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    kind, text = refused(tmp_path)
    assert kind == "model.weights_format" and "GGUF" in text


def test_bin_files_of_a_known_family(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(10))
    (tmp_path / "training_args.bin").write_bytes(bytes(10))
    shape = model_shape.from_dir(str(tmp_path))
    assert shape.files == 1 and shape.approximate
    assert shape.parts == model_shape.from_dir(str(tmp_path), dummy=True).parts


def test_bin_files_of_another_family(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "bloom"}))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(10_000))
    shape = model_shape.from_dir(str(tmp_path))
    assert (shape.sharded_bytes, shape.replicated_bytes, shape.total_bytes) == (10_400, 2**29, 10_000)
    assert "estimated from the files' sizes" in shape.approximate[0]


def test_more_tensors_than_any_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_parts, "MOST_TENSORS", 5)
    assert "over 5 tensors" in refused(folder)[1]


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_record_gives_back_the_shape(name: str, tmp_path: Path) -> None:
    checkpoints.write(tmp_path, CONFIGS[name], TENSORS)
    shape = model_shape.from_dir(str(tmp_path))
    assert model_shape.from_json(model_shape.to_json(shape)) == shape


def test_a_record_takes_the_place_of_the_headers(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    shape = model_shape.stored(str(folder), str(store))
    assert shape == model_shape.from_dir(str(folder))
    assert [path.name for path in store.iterdir()] == [f"{shape.key}.json"]
    monkeypatch.setattr(safetensors_headers, "tensors", lambda _path: pytest.fail("headers were read again"))
    assert model_shape.stored(str(folder), str(store)) == shape


@pytest.mark.parametrize("what", ["time", "size", "new", "gone", "config", "dummy"])
def test_a_change_of_any_file_makes_a_record_old(what: str, folder: Path, tmp_path: Path) -> None:
    before = model_shape.stored(str(folder), str(tmp_path / "store")).key
    shard = folder / SHARD.format(1)
    if what == "time":
        os.utime(shard, ns=(1, 1))
    elif what == "size":
        (folder / "tokenizer.json").write_text("{}")
        before = model_shape.stored(str(folder), str(tmp_path / "store")).key
        (folder / "tokenizer.json").write_text("{ }")
    elif what == "new":
        (folder / "hf_quant_config.json").write_text("{}")
    elif what == "gone":
        (folder / safetensors_headers.INDEX).unlink()
    elif what == "config":
        (folder / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 5}))
    after = model_shape.stored(str(folder), str(tmp_path / "store"), what == "dummy")
    assert after.key != before
    assert len(list((tmp_path / "store").iterdir())) >= 2


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 99}', "\ud800"])
def test_a_damaged_record_only_costs_time(content: str, folder: Path, tmp_path: Path) -> None:
    shape = model_shape.stored(str(folder), str(tmp_path / "store"))
    record = tmp_path / "store" / f"{shape.key}.json"
    record.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert model_shape.stored(str(folder), str(tmp_path / "store")) == shape
    assert model_shape.from_json(record.read_text()) == shape


def test_a_store_that_cannot_be_written_only_costs_time(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert model_shape.stored(str(folder), str(tmp_path / "file" / "store")) == model_shape.from_dir(str(folder))


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("layers"), "lacks layers"),
        (_without("parts"), "lacks parts"),
        (lambda record: record.update(format=0), "has format 0; this collection reads format 1"),
        (lambda record: record.update(layers="4"), "has '4' for layers; it must be a whole number"),
        (lambda record: record.update(layers=True), "has True for layers"),
        (lambda record: record.update(groups=5), "has 5 for groups"),
        (lambda record: record.update(groups=[5]), "has 5 for groups[0]; it must be a mapping"),
        (lambda record: record["groups"][0].update(kind="other"), "groups[0].kind is 'other'; known are mha, mla"),
        (lambda record: record["groups"][0].pop("layers"), "lacks groups[0].layers"),
        (lambda record: record["parts"][0].update(draft=0), "has 0 for parts[0].draft; it must be true or false"),
        (lambda record: record["allocations"][0].update(count=None), "has None for allocations[0].count"),
    ],
)
def test_a_record_that_is_none(change: Callable[[dict[str, Any]], object], message: str, folder: Path) -> None:
    record = json.loads(model_shape.to_json(model_shape.from_dir(str(folder))))
    change(record)
    with pytest.raises(HeadroomError) as caught:
        model_shape.from_json(json.dumps(record), "r.json")
    assert caught.value.findings[0].id == "model.record_invalid"
    assert message in str(caught.value) and "r.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "null", "[" * 100_000])
def test_a_text_that_is_no_record(text: str) -> None:
    with pytest.raises(HeadroomError, match=r"\[model\.record_invalid\]"):
        model_shape.from_json(text)


def test_a_record_has_a_few_kilobytes(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, checkpoints.KIMI_K25, checkpoints.kimi_k25(), 64)
    shape = model_shape.from_dir(str(tmp_path))
    assert isinstance(shape, ModelShape)
    assert len(model_shape.to_json(shape)) < 20_000
