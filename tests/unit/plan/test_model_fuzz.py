# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a model's directory holds: a shape or one clear finding, never a trace, and never much memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import model_shape, safetensors_headers
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from suite import checkpoints

HERE = Path(__file__)
CONFIGS: dict[str, dict[str, Any]] = json.loads(HERE.with_name("model_configs.json").read_text("utf-8"))
SHARD = "model-00001-of-000002.safetensors"
MOST_MIB = 400
TENSORS: list[checkpoints.TensorSpec] = [
    ("model.embed_tokens.weight", "BF16", (64, 32)),
    ("model.layers.0.self_attn.q_proj.weight", "BF16", (32, 32)),
    ("model.layers.0.self_attn.k_proj.weight", "F8_E4M3", (32, 32)),
    ("model.layers.0.mlp.experts.0.up_proj.weight_packed", "I32", (32, 4)),
    ("model.norm.weight", "F32", (32,)),
]
# Families whose tensors are told from their config; the others go through the headers.
TOLD = ("DeepSeek-V2-Lite", "GLM-4.5", "Mistral-7B-v0.1", "Qwen1.5-MoE-A2.7B", "Qwen3-30B-A3B", "Qwen3-8B")
ODD_VALUES = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**40,
    float("inf"),
    float("nan"),
    "",
    "x",
    "4",
    [],
    [1],
    ["x"],
    {},
    {"a": 1},
)
ODD_BYTES = (b"", b"\x00", b"\xff", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"9" * 30, b"null", b"-1", b"1e9")


def judged(folder: Path, dummy: bool = False) -> str:
    """Return 'shape', or the id of the finding; anything else that happens fails the test."""
    try:
        shape = model_shape.from_dir(str(folder), dummy)
        model_shape.weight_bytes_per_rank(shape, 8, 2, 2, 2)
        assert model_shape.from_json(model_shape.to_json(shape)) == shape
    except HeadroomError as error:
        (item,) = error.findings
        assert item.id.startswith("model.") and "\n" not in str(error) and len(str(error)) < 1000
        return item.id
    return "shape"


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few random changes: cut, drop, repeat, flip or insert."""
    for _turn in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw) + 1)
        to = min(len(raw), at + chance.choice((1, 1, 2, 8, 100)))
        change = chance.randrange(5)
        if change == 0:
            raw = raw[:at]
        elif change == 1:
            raw = raw[:at] + raw[to:]
        elif change == 2:
            raw = raw[:to] + raw[at:to] + raw[to:]
        elif change == 3:
            raw = raw[:at] + bytes(chance.randrange(256) for _byte in raw[at:to]) + raw[to:]
        else:
            raw = raw[:at] + chance.choice(ODD_BYTES) + raw[at:]
    return raw


@pytest.mark.parametrize("seed", range(40))
def test_bytes_of_a_header(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    checkpoints.write(tmp_path, CONFIGS["Qwen3-0.6B"], TENSORS, 2)
    path = tmp_path / SHARD
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    seen = set()
    for _turn in range(50):
        header = mutated(whole[8 : 8 + length], chance)
        stated = len(header) if chance.random() < 0.9 else chance.choice((0, 1, 2**31, 2**63, 2**64 - 1, length + 9))
        path.write_bytes(stated.to_bytes(8, "little") + header + whole[8 + length :])
        seen.add(judged(tmp_path))
    assert "model.weights_damaged" in seen


@pytest.mark.parametrize("seed", range(10))
def test_bytes_of_a_file(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    checkpoints.write(tmp_path, CONFIGS["Qwen3-0.6B"], TENSORS, 2)
    path = tmp_path / chance.choice((SHARD, safetensors_headers.INDEX, "config.json"))
    whole = path.read_bytes()
    for _turn in range(50):
        path.write_bytes(mutated(whole, chance))
        judged(tmp_path)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_values_of_a_config(name: str, tmp_path: Path) -> None:
    """Replace each value, also of nested mappings, by each odd one; then leave it out."""
    checkpoints.write(tmp_path, CONFIGS[name], TENSORS)

    def places(value: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        found = []
        for key, inner in value.items():
            found.append((*above, key))
            if isinstance(inner, dict):
                found += places(inner, (*above, key))
        return found

    path = tmp_path / "config.json"
    for place in places(CONFIGS[name]):
        for odd in (*ODD_VALUES, "left out"):
            config = json.loads(json.dumps(CONFIGS[name]))
            inner = config
            for key in place[:-1]:
                inner = inner[key]
            if odd == "left out":
                del inner[place[-1]]
            else:
                inner[place[-1]] = odd
            path.write_text(json.dumps(config))
            judged(tmp_path, dummy=name in TOLD and place[0] != "vision_config")


@pytest.mark.parametrize("seed", range(20))
def test_offsets_and_shapes(seed: int, tmp_path: Path) -> None:
    """Spans that are shuffled, moved or resized are found, unless the file is still filled by each."""
    chance = random.Random(seed)
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen3-0.6B"]))
    for _turn in range(50):
        cuts = sorted(chance.choices(range(65), k=5))
        spans = list(zip([0, *cuts], [*cuts, 64], strict=True))
        chance.shuffle(spans)
        damaged = chance.random() < 0.5
        if damaged:
            place = chance.randrange(len(spans))
            start, end = spans[place]
            moved = (start + chance.choice((-1, 0, 1)), end + chance.choice((-1, 0, 1)))
            damaged = moved != (start, end)
            spans[place] = moved
        header = {
            f"model.t{number}": {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
            for number, (start, end) in enumerate(spans)
        }
        raw = json.dumps(header).encode()
        (tmp_path / "m.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(64))
        want = "model.weights_damaged" if damaged else "shape"
        assert judged(tmp_path) == want, spans


def _many(folder: Path) -> None:
    tensors: list[checkpoints.TensorSpec] = [
        (f"model.layers.{n // 1000}.mlp.experts.{n % 1000}.up_proj.weight_packed", "I32", (2048, 896))
        for n in range(300_000)
    ]
    checkpoints.write(folder, CONFIGS["Qwen3-30B-A3B"], tensors)


def _written(folder: Path, raw: bytes) -> None:
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)


def _index(folder: Path, raw: bytes) -> None:
    _written(folder, b"{}")
    (folder / safetensors_headers.INDEX).write_bytes(raw)


LARGE = safetensors_headers.LARGEST_HEADER_BYTES
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "300000 tensors": (_many, "shape"),
    "1600000 tensors": (
        lambda folder: _written(
            folder,
            b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
            + b"".join(b',"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(1_600_000))
            + b"}",
        ),
        "model.weights_damaged",
    ),
    "spaces": (lambda folder: _written(folder, b" " * LARGE), "model.weights_damaged"),
    "spaces in an object": (lambda folder: _written(folder, b"{" + b" " * (LARGE - 1)), "model.weights_damaged"),
    "objects in objects": (lambda folder: _written(folder, b'{"a":' * (LARGE // 5)), "model.weights_damaged"),
    "a long list": (lambda folder: _written(folder, b'{"a":[' + b"0," * (LARGE // 2 - 9)), "model.weights_damaged"),
    "a long shape": (
        lambda folder: _written(folder, b'{"a":{"dtype":"U8","shape":[' + b"1," * (LARGE // 2 - 50) + b"1]}}"),
        "model.weights_damaged",
    ),
    "a long name": (lambda folder: _written(folder, b'{"' + b"n" * (LARGE - 9) + b'":{}}'), "model.weights_damaged"),
    "backslashes": (lambda folder: _written(folder, b'{"' + b"\\" * (LARGE - 9) + b'":{}}'), "model.weights_damaged"),
    "long metadata": (
        lambda folder: _written(folder, b'{"__metadata__":{"k":"' + b'\\"' * (LARGE // 2 - 20) + b'"}}'),
        "model.weights_damaged",
    ),
    "some metadata": (
        lambda folder: _written(folder, b'{"__metadata__":{"k":"' + b'\\"' * 3_000_000 + b'"}}'),
        "shape",
    ),
    "an index of spaces": (lambda folder: _index(folder, b" " * LARGE), "model.weights_damaged"),
    "an index of objects": (
        lambda folder: _index(folder, b'{"weight_map":{' + b'"a":{},' * (LARGE // 7 - 9)),
        "model.weights_damaged",
    ),
    "an index too long": (lambda folder: os.truncate(_touched(folder), 10**12), "model.weights_damaged"),
    "a config of lists": (
        lambda folder: (folder / "config.json").write_bytes(b"[" + b"[]," * 1_300_000 + b"0]"),
        "model.no_config",
    ),
}


def _touched(folder: Path) -> Path:
    _index(folder, b"")
    return folder / safetensors_headers.INDEX


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_memory(case: str, tmp_path: Path) -> None:
    """In a process of its own, whose peak is known."""
    make, want = HOSTILE[case]
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen3-0.6B"]))
    make(tmp_path)
    script = textwrap.dedent(
        """
        import json, pathlib, re, sys
        sys.path[:0] = json.loads(sys.argv[2])
        from ansible_collections.headroom.serving.plugins.module_utils import errors, model_shape
        try:
            model_shape.from_dir(sys.argv[1])
            found = "shape"
        except errors.HeadroomError as error:
            found = error.findings[0].id
        # Not ru_maxrss, which begins with the peak of the process that started this one.
        status = pathlib.Path("/proc/self/status").read_text()
        print(found, int(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1]) // 1024)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), json.dumps(sys.path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    for path in tmp_path.iterdir():
        path.unlink()  # pytest keeps directories of several runs
    assert done.returncode == 0, done.stderr
    found, mib = done.stdout.split()
    assert found == want
    assert int(mib) < MOST_MIB
