# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of its own in which odd models and records are read and planned, with a limit of its memory.

Takes a JSON object on its standard input: `path` (for imports), `limit_bytes`, `config`, `tensors` and `changes`, a
list of [place in the config or record, value]. `what` says what the changes are made to: "config" or "record".
Prints, for each change, what became of it and the seconds of processor time that it took.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def changed(whole: Any, place: list[Any], value: Any) -> Any:
    """Return a copy of a tree of JSON with one value set otherwise."""
    if not place:
        return value
    copy = json.loads(json.dumps(whole))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return copy


def main() -> None:
    """Read the task, do it, and print the outcomes as JSON."""
    task = json.load(sys.stdin)
    sys.path[:0] = task["path"]
    resource.setrlimit(resource.RLIMIT_AS, (task["limit_bytes"],) * 2)
    from ansible_collections.headroom.serving.plugins.module_utils import model_shape
    from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
    from plan_samples import gpu, node, planned
    from suite import checkpoints

    hardware = node(*(gpu(index, 143_771, compute_capability=(9, 0)) for index in range(8)), available=1.5e12)
    flags = [
        {"tp-size": 8, "mem-fraction-static": 0.85},
        {"tp-size": 2, "pp-size": 4, "enable-hierarchical-cache": True, "hicache-ratio": 2.0},
        {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True, "speculative-algorithm": "EAGLE"},
    ]

    def judged(read: Callable[[], Any], turn: int) -> list[Any]:
        start = time.process_time()
        try:
            shape = read()
            assert model_shape.from_json(model_shape.to_json(shape)) == shape
            found = planned(flags[turn % len(flags)], shape, hardware)
            outcome = f"planned {found.verdict_of('gpu.no_room_for_kv')}"
        except HeadroomError as error:
            outcome = str(error)
        return [outcome, time.process_time() - start]

    told = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write(Path(folder), task["config"], [(name, kind, tuple(of)) for name, kind, of in task["tensors"]])
        whole = task["config"]
        if task["what"] == "record":
            whole = json.loads(model_shape.to_json(model_shape.from_dir(folder, task["dummy"])))
        for turn, (place, value) in enumerate(task["changes"]):
            text = json.dumps(changed(whole, place, value))
            if task["what"] == "record":
                told.append(judged(lambda: model_shape.from_json(text), turn))  # noqa: B023
                continue
            Path(folder, "config.json").write_text(text, encoding="utf-8")
            told.append(judged(lambda: model_shape.from_dir(folder, False), turn))
            told.append(judged(lambda: model_shape.from_dir(folder, True), turn))
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
