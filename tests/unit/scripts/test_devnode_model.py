# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tiny model is the same bytes every time, and its files agree with each other."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
from pathlib import Path

import pytest

from devnode import model, venv
from devnode.names import Clone
from devnode.steps import Steps


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two checkpoints, each written by a process of its own."""
    clone = Clone.here()
    venv.ensure_bootstrap(clone, Steps(clone.cache / "logs", quiet=True))
    folders = [tmp_path_factory.mktemp("model") for _copy in range(2)]
    for folder in folders:
        command = [str(clone.bootstrap / "bin" / "python"), "-m", "devnode.model", str(folder)]
        env = {"PYTHONPATH": str(clone.root / "scripts"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, env=env, check=True)
    return folders


def test_the_same_bytes_every_time(made: list[Path]) -> None:
    one, two = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} for folder in made
    )
    assert one == two
    assert set(one) == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip


def test_the_weights_are_what_the_config_says(made: list[Path]) -> None:
    content = (made[0] / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    found = {name: tuple(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}
    assert found == model.shapes()
    assert {tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"} == {"F32"}
    config = json.loads((made[0] / "config.json").read_text(encoding="utf-8"))
    assert config["num_hidden_layers"] == 2
    assert found["lm_head.weight"] == (config["vocab_size"], config["hidden_size"])


def test_the_tokenizer_fills_the_vocabulary(made: list[Path]) -> None:
    tokenizer = json.loads((made[0] / "tokenizer.json").read_text(encoding="utf-8"))
    assert len(tokenizer["model"]["vocab"]) == model.VOCABULARY
    special = {entry["content"]: entry["id"] for entry in tokenizer["added_tokens"]}
    config = json.loads((made[0] / "config.json").read_text(encoding="utf-8"))
    assert special[model.END_OF_TURN] == config["eos_token_id"]
    assert special[model.END] == config["bos_token_id"]
