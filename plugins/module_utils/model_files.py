# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of a model's directory SGLang loads, and the key that changes when one of them does.

Mirrors sglang/srt/model_loader/loader.py (_prepare_weights) and weight_utils.py (filter_duplicate_safetensors_files)
of 0.5.14 and 0.5.23: safetensors before .bin and .pt; with an index, only the files that it names.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import safetensors_headers
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

# A part of the key: the same files must be read again where another version of this code reads them otherwise.
_READER = 1


class ModelFiles:
    """The files of weights of one model.

    `weights` has path and bytes of each file of weights in the directory, and after `index()` only of those that
    count. `format` is "safetensors", "bin", "gguf", "dummy" or "" where there are no weights.
    """

    def __init__(self, folder: Path, architecture: str, dummy: bool) -> None:
        self.folder = folder
        self.architecture = architecture
        found, stamps = _listing(folder)
        self.format = "dummy" if dummy else next((kind for kind in ("safetensors", "bin", "gguf") if found[kind]), "")
        self.weights: list[tuple[Path, int]] = [] if dummy else found.get(self.format, [])
        self.key = hashlib.sha256(json.dumps([_READER, self.format, stamps]).encode()).hexdigest()[:32]

    def index(self) -> dict[str, str] | None:
        """Read the index, and leave in `weights` the files that it names; None where there is no index.

        Raises:
            HeadroomError: With `model.weights_missing` for files that are named and not there.
        """
        named = safetensors_headers.read_index(self.folder)
        if named is None:
            return None
        wanted = set(named.values())
        there = {path.name for path, _size in self.weights}
        lacking = sorted(wanted - there)
        if lacking:
            first = self.folder / lacking[0]
            if len(lacking) == 1 and first.is_symlink():
                raise safetensors_headers.missing(first)
            shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
            raise refusal(
                "model.weights_missing",
                f"{self.folder}: of {len(wanted)} files that the index names, {len(lacking)} are not there: {shown}.",
                "Copy or download the missing files of the model.",
            )
        self.weights = [(path, size) for path, size in self.weights if path.name in wanted]
        return named


def _listing(folder: Path) -> tuple[dict[str, list[tuple[Path, int]]], list[tuple[str, int, int]]]:
    """Return the files of weights by format, and name, size and time of each file that says what the model is."""
    found: dict[str, list[tuple[Path, int]]] = {"safetensors": [], "bin": [], "gguf": []}
    stamps: list[tuple[str, int, int]] = []
    kinds = {".safetensors": "safetensors", ".bin": "bin", ".pt": "bin", ".pth": "bin", ".gguf": "gguf"}
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        raise refusal(
            "model.missing", f"{folder} can't be listed: {error.strerror or error}.", "Let the account read it."
        ) from error
    for name in names:
        path = folder / name
        kind = kinds.get(path.suffix)
        if name.startswith(".") or not (kind or path.suffix == ".json"):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            # Without an index each file counts; with one, it says whether this one is missed.
            if kind and not (folder / safetensors_headers.INDEX).exists():
                raise safetensors_headers.missing(path) from None
            continue
        except OSError as error:
            raise refusal(
                "model.missing", f"{path} can't be read: {error.strerror or error}.", "Let the account read it."
            ) from error
        if not path.is_file():
            continue
        stamps.append((name, status.st_size, status.st_mtime_ns))
        # Optimizer states and arguments of a training run are no weights.
        if kind and not (kind == "bin" and name.startswith(("training_args", "optimizer", "scheduler"))):
            found[kind].append((path, status.st_size))
    return found, stamps
