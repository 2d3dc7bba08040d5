# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers of safetensors files: what a whole one says, and that a damaged one is named as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import safetensors_headers
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.safetensors_headers import Tensor

TWO = {
    "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
}


def written(folder: Path, header: Any, content_bytes: int = 16, length: int | None = None) -> Path:
    """Write a file with a header given as data, text or bytes."""
    raw = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    path = folder / "model.safetensors"
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(content_bytes))
    return path


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(TWO),
        json.dumps(TWO, separators=(",", ":")) + "   ",
        json.dumps(TWO, indent=3),
        json.dumps({"__metadata__": {"format": "pt"}, **TWO}),
        json.dumps({"__metadata__": {}, **TWO}),
        json.dumps({**TWO, "__metadata__": {"a": 'x"{}\\"y\\\\', 'k"': "}", "n": "\n"}}, indent=1),
        json.dumps({name: dict(reversed(entry.items())) for name, entry in TWO.items()}),
        json.dumps(dict(reversed(TWO.items()))),
    ],
)
def test_any_layout_of_a_whole_header_is_read(tmp_path: Path, text: str) -> None:
    found = {tensor.name: tensor for tensor in safetensors_headers.tensors(written(tmp_path, text))}
    assert found == {"a.weight": Tensor("a.weight", "BF16", (2, 3), 6, 12), "b": Tensor("b", "F32", (), 1, 4)}


@pytest.mark.parametrize("name", ['say "x"', "back\\slash", "tab\tline\n", "ü.weight", "嵌入", "{a}:[1]", ""])
def test_names_may_hold_anything(tmp_path: Path, name: str) -> None:
    header = {name: {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]}}
    for ascii_only in (True, False):
        path = written(tmp_path, json.dumps(header, ensure_ascii=ascii_only))
        assert [tensor.name for tensor in safetensors_headers.tensors(path)] == [name]


def test_a_file_without_tensors(tmp_path: Path) -> None:
    assert list(safetensors_headers.tensors(written(tmp_path, "{}", 0))) == []
    assert list(safetensors_headers.tensors(written(tmp_path, {"__metadata__": {"a": "b"}}, 0))) == []


@pytest.mark.parametrize(
    ("kind", "length", "size"), [("F4", 5, 3), ("F6_E2M3", 4, 3), ("F8_E8M0", 3, 3), ("I64", 0, 0)]
)
def test_elements_that_are_no_whole_bytes(tmp_path: Path, kind: str, length: int, size: int) -> None:
    header = {"a": {"dtype": kind, "shape": [length], "data_offsets": [0, size]}}
    (tensor,) = safetensors_headers.tensors(written(tmp_path, header, size))
    assert (tensor.elements, tensor.size_bytes) == (length, size)


def entry(**changes: Any) -> dict[str, Any]:
    """Return a header of one tensor of 16 bytes with some members changed, or left out if None."""
    whole = {"dtype": "U8", "shape": [16], "data_offsets": [0, 16], **changes}
    return {"t": {key: value for key, value in whole.items() if value is not None}}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (entry(dtype="BF17"), "the type 'BF17'"),
        (entry(dtype=5), "in a way that can't be understood"),
        (entry(dtype=None), "without dtype"),
        (entry(shape=None, dtype=None), "without dtype and shape"),
        (entry(data_offsets=None), "without data_offsets"),
        (entry(shape=[15]), "but it has 15 bytes"),
        (entry(shape=[-16]), "can't be understood"),
        (entry(shape=["16"]), "can't be understood"),
        (entry(shape=[2.5]), "can't be understood"),
        (entry(shape=[1] * 17), "impossible shape"),
        (entry(shape=[10**30]), "impossible shape"),
        (entry(shape=[2**62, 2**62]), "but it has"),
        (entry(data_offsets=[0]), "can't be understood"),
        (entry(data_offsets=[16, 0]), "lies in bytes 16 to 0"),
        (entry(data_offsets=[-1, 15]), "can't be understood"),
        ('{"t":{"shape":[16],"dtype":"U8","dtype":"I8","data_offsets":[0,16]}}', "gives dtype of 't' twice"),
        (entry(data_offsets=[16, 32]), "32 bytes of tensors are announced and 16 are there"),
        (entry(data_offsets=[0, 10**25]), "can't be understood"),
        (entry(shape=[8], data_offsets=[0, 8]), "has 16 bytes of tensors and its header accounts for 8"),
        (entry(shape=[8], data_offsets=[8, 16]), "leave a gap at byte 0"),
        (entry(other=1), "can't be understood"),
        ({"t": 1}, "breaks off or is no JSON"),
        ({"t": {}}, "can't be understood"),
        ({"__metadata__": {"a": 1}}, "metadata that is no mapping of texts"),
        ({"__metadata__": {"a": {"b": "c"}}}, "metadata that is no mapping of texts"),
        ('{"__metadata__":{"a":"b', "breaks off"),
        ('{"__metadata__":{"a":"b"', "breaks off"),
        ([], "no JSON object"),
        ("", "no JSON object"),
        ("nonsense", "no JSON object"),
        ('{"a', "breaks off"),
        ("{", "breaks off"),
        ("{,}", "breaks off"),
        (json.dumps(entry()) + "x", "text behind its header"),
        (b'{"\xff":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}', "no UTF-8"),
        (b"\x00" * 64, "no JSON object"),
    ],
)
def test_a_header_that_contradicts_itself(tmp_path: Path, header: Any, message: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        list(safetensors_headers.tensors(written(tmp_path, header)))
    assert [item.id for item in caught.value.findings] == ["model.weights_damaged"]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("first", "second"), [((0, 8), (4, 12)), ((0, 8), (0, 8)), ((8, 16), (0, 9))])
def test_tensors_that_overlap(tmp_path: Path, first: tuple[int, int], second: tuple[int, int]) -> None:
    header = {
        name: {"dtype": "U8", "shape": [span[1] - span[0]], "data_offsets": list(span)}
        for name, span in (("a", first), ("b", second))
    }
    with pytest.raises(HeadroomError, match="has tensors that overlap"):
        list(safetensors_headers.tensors(written(tmp_path, header)))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b"1234567", "has 7 bytes"),
        ((50).to_bytes(8, "little") + b"{}", "announces a header of 50"),
        ((2**63).to_bytes(8, "little") + b"{}", "more than the format allows"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "more than the format allows"),
    ],
)
def test_a_file_that_is_cut_off_or_something_else(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    with pytest.raises(HeadroomError, match=message) as caught:
        list(safetensors_headers.tensors(path))
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_and_a_link_to_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(HeadroomError, match="is not there") as caught:
        list(safetensors_headers.tensors(path))
    assert caught.value.findings[0].id == "model.weights_missing"
    path.symlink_to("../blobs/abc")
    with pytest.raises(HeadroomError, match=r"is a link to \.\./blobs/abc, which is not there"):
        list(safetensors_headers.tensors(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(HeadroomError, match="can't be read"):
        list(safetensors_headers.tensors(path))


def test_an_index(tmp_path: Path) -> None:
    assert safetensors_headers.read_index(tmp_path) is None
    path = tmp_path / safetensors_headers.INDEX
    want = {"a": "1.safetensors", 'b"': "2.safetensors"}
    path.write_text(json.dumps({"metadata": {"total_size": 5}, "weight_map": want}, indent=2))
    assert safetensors_headers.read_index(tmp_path) == want
    path.write_text('{"weight_map":{}}')
    assert safetensors_headers.read_index(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no weight_map"),
        ("[]", "has no weight_map"),
        ('{"weight_map":null}', "has no weight_map"),
        ('{"weight_map":{"a":1}}', "is no index from byte"),
        ('{"weight_map":{"a":"b"', "is no index from byte"),
        ('{"weight_map":{"a":"../b"}}', "'../b', which is no file"),
        ('{"weight_map":{"a":"/etc/passwd"}}', "'/etc/passwd', which is no file"),
        ('{"weight_map":{"a":""}}', "'', which is no file"),
        ('{"weight_map":{"a":".."}}', "'..', which is no file"),
    ],
)
def test_an_index_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / safetensors_headers.INDEX).write_text(text)
    with pytest.raises(HeadroomError) as caught:
        safetensors_headers.read_index(tmp_path)
    assert caught.value.findings[0].id == "model.weights_damaged"
    assert message in str(caught.value)


def test_an_index_that_is_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / safetensors_headers.INDEX).symlink_to("gone")
    with pytest.raises(HeadroomError, match="is a link to gone"):
        safetensors_headers.read_index(tmp_path)


def test_every_type_is_as_wide_as_the_library_says() -> None:
    for name, bits in safetensors_headers.BITS.items():
        digits = name.lstrip("BFUIC").split("_")[0]
        assert bits == (int(digits) if digits.isdigit() else 8), name
