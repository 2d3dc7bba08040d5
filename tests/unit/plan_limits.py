# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Odd models and records, read and planned in a process whose memory and time are limited."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import model_shape
from suite import checkpoints

HERE = Path(__file__)
CONFIGS: dict[str, dict[str, Any]] = {
    **json.loads((HERE.parent / "plan/model_configs.json").read_text("utf-8")),
    "Kimi-K2.5": checkpoints.KIMI_K25,
}
TENSORS: list[checkpoints.TensorSpec] = [
    ("model.embed_tokens.weight", "BF16", (640, 1024)),
    ("model.layers.0.self_attn.q_proj.weight", "BF16", (1024, 1024)),
    ("model.layers.0.self_attn.k_proj.weight", "F8_E4M3", (32, 32)),
    ("model.layers.0.mlp.experts.0.up_proj.weight_packed", "I32", (32, 4)),
    ("model.norm.weight", "F32", (32,)),
]
LIMIT_BYTES = 400 * 2**20
MOST_S = 2.0  # of processor time


def outcomes(config: dict[str, Any], changes: list[tuple[list[Any], Any]], **more: Any) -> list[str]:
    """Return what became of each change (of a config: with files, and without), each within time and memory."""
    task = {
        "path": sys.path,
        "limit_bytes": LIMIT_BYTES,
        "config": config,
        "tensors": TENSORS,
        "changes": changes,
        "what": "config",
        **more,
    }
    child = HERE.with_name("plan_child.py")
    done = subprocess.run(
        [sys.executable, str(child)], input=json.dumps(task), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    each = len(told) // max(1, len(changes))
    slow = [(str(changes[turn // each])[:200], spent) for turn, (_text, spent) in enumerate(told) if spent > MOST_S]
    assert not slow
    for text, _spent in told:
        assert text.startswith("planned ") or ("\n" not in text and "[model." in text and len(text) < 1000), text
    return [text for text, _spent in told]


def numbers(tree: Any, above: tuple[Any, ...] = ()) -> list[list[Any]]:
    """Return the places of all numbers in a tree of JSON; of lists only those of the first two entries."""
    if isinstance(tree, dict):
        return [place for key, inner in tree.items() for place in numbers(inner, (*above, key))]
    if isinstance(tree, list):
        return [place for key, inner in enumerate(tree[:2]) for place in numbers(inner, (*above, key))]
    return [list(above)] if isinstance(tree, (int, float)) and not isinstance(tree, bool) else []


def record(name: str, dummy: bool = False) -> dict[str, Any]:
    """Return the record of a model with these few tensors, as the object of its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write(Path(folder), CONFIGS[name], TENSORS)
        found: dict[str, Any] = json.loads(model_shape.to_json(model_shape.from_dir(folder, dummy)))
        return found
