# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model directories on a real disk, read as root and judged as the service account."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import model_dir

WHERE = "sglang_server_instances (a).model_path"
ROOT = os.geteuid() == 0


@pytest.fixture
def share() -> Iterator[Path]:
    """A directory that every account can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="headroom-model-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def model(share: Path) -> Path:
    path = share / "model"
    (path / "original").mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    (path / "model-00001-of-00002.safetensors").write_bytes(b"x" * 1000)
    (path / "model-00002-of-00002.safetensors").write_bytes(b"x" * 500)
    (path / "tokenizer.json").write_text("{}")
    (path / "original" / "consolidated.pt").write_bytes(b"x" * 7)
    for item in [path, *path.rglob("*")]:
        item.chmod(0o755 if item.is_dir() else 0o644)
    return path


def inspect(path: Path | str, user: str = "nobody") -> model_dir.ModelDir:
    found, findings = model_dir.inspect(WHERE, str(path), user)
    assert findings == []
    assert found is not None
    return found


def refused(path: Path | str, user: str = "nobody") -> tuple[str, str, str]:
    found, findings = model_dir.inspect(WHERE, str(path), user)
    assert found is None
    (item,) = findings
    assert item.verdict == "refuse" and item.message.startswith(WHERE) and "\n" not in item.line()
    return item.id, item.message, item.suggestion


def test_a_model(model: Path) -> None:
    found = inspect(model)
    assert (found.path, found.weight_bytes, found.architecture) == (str(model), 1507, "Qwen3ForCausalLM")
    assert len(found.digest) == 64


@pytest.mark.parametrize("name", ["a.safetensors", "pytorch_model.bin", "x.pt", "q4.gguf", "deep/er/a.safetensors"])
def test_what_counts_as_weights(model: Path, name: str) -> None:
    (model / name).parent.mkdir(parents=True, exist_ok=True)
    (model / name).write_bytes(b"x" * 10)
    assert inspect(model).weight_bytes == 1517


@pytest.mark.parametrize("name", ["a.json", "a.safetensors.index.json", "a.txt", "bin", "a.py", "a.png"])
def test_what_does_not(model: Path, name: str) -> None:
    (model / name).write_bytes(b"x" * 10)
    assert inspect(model).weight_bytes == 1507


@pytest.mark.parametrize(
    ("architectures", "shown"),
    [
        (["A"], "A"),
        (["A", "B"], "A"),
        ([], "unknown"),
        (None, "unknown"),
        ("Qwen", "unknown"),
        ({"a": 1}, "unknown"),
        (5, "unknown"),
        ([None], "None"),
        ({}, "unknown"),
    ],
)
def test_the_architecture(model: Path, architectures: object, shown: str) -> None:
    (model / "config.json").write_text(json.dumps({"architectures": architectures}))
    assert inspect(model).architecture == shown


def _touch(model: Path) -> None:
    for path in [model, *model.rglob("*")]:
        os.utime(path, (1, 1))


def _rewrite_same_size(model: Path) -> None:
    (model / "tokenizer.json").write_text("[]")


def _hidden(model: Path) -> None:
    (model / ".cache" / "huggingface").mkdir(parents=True)
    (model / ".cache" / "huggingface" / "x.safetensors").write_bytes(b"x")
    (model / ".gitattributes").write_text("x")
    (model / ".nfs000001").write_bytes(b"x" * 99)


def _empty_folder(model: Path) -> None:
    (model / "empty").mkdir()


def _move(model: Path) -> None:
    shutil.copytree(model, model.parent / "copy")
    shutil.rmtree(model)
    (model.parent / "copy").rename(model)


@pytest.mark.parametrize("change", [_touch, _rewrite_same_size, _hidden, _empty_folder, _move])
def test_the_digest_does_not_change_with(model: Path, change: Callable[[Path], None]) -> None:
    before = inspect(model)
    change(model)
    assert inspect(model) == before


def _grow(model: Path) -> None:
    (model / "tokenizer.json").write_text("{ }")


def _add(model: Path) -> None:
    (model / "extra.txt").write_text("")


def _remove(model: Path) -> None:
    (model / "tokenizer.json").unlink()


def _rename(model: Path) -> None:
    (model / "tokenizer.json").rename(model / "tokeniser.json")


def _swap_sizes(model: Path) -> None:
    first, second = (model / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    first.rename(model / "x")
    second.rename(first)
    (model / "x").rename(second)


def _into_folder(model: Path) -> None:
    (model / "tokenizer.json").rename(model / "original" / "tokenizer.json")


@pytest.mark.parametrize("change", [_grow, _add, _remove, _rename, _swap_sizes, _into_folder])
def test_the_digest_changes_with(model: Path, change: Callable[[Path], None]) -> None:
    before = inspect(model).digest
    change(model)
    assert inspect(model).digest != before


def test_the_digest_does_not_depend_on_where_the_model_lies(model: Path) -> None:
    other = model.parent / "elsewhere"
    shutil.copytree(model, other)
    assert inspect(other).digest == inspect(model).digest


def test_links_to_files_count_as_files(model: Path) -> None:
    before = inspect(model)
    blob = model.parent / "blob"
    (model / "tokenizer.json").rename(blob)
    (model / "tokenizer.json").symlink_to(blob)
    assert inspect(model) == before


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "tokenizer.json", "sub/part.safetensors"])
def test_a_link_to_nothing_is_named(model: Path, name: str) -> None:
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(model.parent / "pruned")
    kind, message, suggestion = refused(model)
    assert kind == "model.missing"
    assert name in message
    assert suggestion


def test_hidden_links_to_nothing_are_no_part_of_a_model(model: Path) -> None:
    before = inspect(model)
    (model / ".cache").mkdir()
    (model / ".cache" / "lock").symlink_to("nothing")
    (model / ".nfs1").symlink_to("nothing")
    assert inspect(model) == before


@pytest.mark.parametrize("path", ["model", "./model", "../model", "", "~/model", "org/name"])
def test_a_path_that_is_not_absolute(path: str) -> None:
    assert refused(path) == ("model.missing", f"{WHERE} {path!r} is not an absolute path.", "Give the full path.")


def test_a_path_that_is_not_there_tells_what_is(share: Path) -> None:
    for name in ("kimi", "qwen", "a-file"):
        (share / name).mkdir() if name != "a-file" else (share / name).write_text("")
    kind, message, cure = refused(share / "quen")
    assert (kind, message) == ("model.missing", f"{WHERE} {str(share / 'quen')!r} is no directory on this node.")
    assert cure == f"{share} exists; it holds kimi, qwen."


def test_a_share_that_is_not_mounted(share: Path) -> None:
    (share / "mnt").mkdir()
    kind, _message, cure = refused(share / "mnt" / "models" / "qwen")
    assert kind == "model.missing"
    assert cure == f"{share / 'mnt'} exists; it is empty: is the share mounted?"


def test_a_directory_of_many_shows_a_few(share: Path) -> None:
    for number in range(30):
        (share / f"m{number:02}").mkdir()
    assert refused(share / "x")[2] == f"{share} exists; it holds m00, m01, m02, m03, m04."


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_path_that_is_no_directory(share: Path, kind: str) -> None:
    path = share / "model"
    path.write_text("x") if kind == "file" else path.symlink_to(share / "gone")
    assert refused(path)[0] == "model.missing"


def test_no_config(model: Path) -> None:
    (model / "config.json").unlink()
    kind, message, cure = refused(model)
    assert (kind, message) == ("model.no_config", f"{WHERE} {str(model)!r} has no config.json.")
    assert "config.json and weights" in cure


@pytest.mark.parametrize(
    "content", [b"", b"{", b"{'a': 1}", b"\xff\xfe", b'{"a": 1', b"version https://git-lfs", b"[" * 100_000]
)
def test_a_config_that_is_no_json(model: Path, content: bytes) -> None:
    (model / "config.json").write_bytes(content)
    kind, message, cure = refused(model)
    assert kind == "model.no_config"
    assert f"{model}/config.json can't be read" in message
    assert cure == "Copy the model again."


@pytest.mark.parametrize("content", ["[]", "5", "null", '"x"', "true"])
def test_a_config_that_is_no_object(model: Path, content: str) -> None:
    (model / "config.json").write_text(content)
    assert refused(model)[:2] == ("model.no_config", f"{WHERE}: {model}/config.json is no JSON object.")


def test_a_config_that_is_a_directory(model: Path) -> None:
    (model / "config.json").unlink()
    (model / "config.json").mkdir()
    assert refused(model)[0] == "model.no_config"


@pytest.mark.parametrize("name", ["config.json", "model-00002-of-00002.safetensors", "original/consolidated.pt"])
def test_a_file_that_the_account_cannot_read(model: Path, name: str) -> None:
    (model / name).chmod(0o600)
    if not ROOT:
        inspect(model)
        return
    kind, message, cure = refused(model)
    assert (kind, message) == ("model.missing", f"{WHERE}: the account 'nobody' can't read {model / name}.")
    assert "chmod o+rX" in cure


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o744])
@pytest.mark.parametrize("name", ["", "original"])
def test_a_directory_that_the_account_cannot_list(model: Path, name: str, mode: int) -> None:
    (model / name).chmod(mode)
    if ROOT:
        assert f"can't read {model / name}" in refused(model)[1]
    (model / name).chmod(0o755)
    inspect(model)


def test_a_directory_above_that_the_account_cannot_pass(model: Path) -> None:
    model.parent.chmod(0o700)
    if ROOT:
        assert refused(model)[0] == "model.missing"
    inspect(model, "root")


def test_the_groups_of_the_account_count(model: Path) -> None:
    if ROOT:
        for path in [model, *model.rglob("*")]:
            os.chown(path, 0, 65534)
            path.chmod(0o750 if path.is_dir() else 0o640)
    inspect(model)


def test_hidden_files_need_not_be_readable(model: Path) -> None:
    (model / ".lock").write_text("")
    (model / ".lock").chmod(0o600)
    inspect(model)


def test_an_account_that_does_not_exist_yet_is_not_asked(model: Path) -> None:
    (model / "tokenizer.json").chmod(0o600)
    inspect(model, "account-of-no-node")


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\nb", b" trailing ", "é日本".encode(), b"$(id)", b'"quoted"'])
def test_files_with_odd_names(model: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(model) + b"/" + name))
    before = inspect(model).digest
    path.write_text("")
    path.chmod(0o644)
    assert inspect(model).digest != before
    path.chmod(0o600)
    if ROOT:
        found, findings = model_dir.inspect(WHERE, str(model), "nobody")
        assert found is None and [item.id for item in findings] == ["model.missing"]
