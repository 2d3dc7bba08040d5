# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan one release as a node does it, and print what it took: python3 -I -B one_plan.py ARCHIVE CASE.

ARCHIVE is the collection's code as a release carries it. CASE is a JSON file: `record` (a release's), `hardware` (path
of a hardware record, in place of what this machine has), `shapes` (directory of the models' records).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def _figure(file: str, pattern: str) -> int:
    found = re.search(pattern, Path("/proc/self", file).read_text(encoding="ascii", errors="replace"))
    assert found, f"/proc/self/{file} has no {pattern}"
    return int(found[1])


def _bytes_read() -> int:
    return _figure("io", r"rchar: (\d+)")


sys.path.insert(0, sys.argv[1])
case = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))

from ansible_collections.headroom.serving.plugins.module_utils import (  # noqa: E402
    hardware,
    hardware_reading,
    model_shape,
    node_plan,
    release_plan,
)
from ansible_collections.headroom.serving.plugins.module_utils.deployment import Settings, Step  # noqa: E402
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance  # noqa: E402
from ansible_collections.headroom.serving.plugins.module_utils.release import Release, Store  # noqa: E402
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState  # noqa: E402

code_bytes = _bytes_read()
release_plan.SHAPES = Path(case["shapes"])
record = case["record"]
node = hardware.from_json(Path(case["hardware"]).read_text(encoding="utf-8"), case["hardware"])
hardware_reading.read = lambda _tools_root: node

dead = UnitState("loaded", "inactive", "dead", "enabled", "", 0, 0, 0, "", "", 0, "")
root = release_plan.SHAPES / "headroom"
release = Release(record["id"], record["name"], "", record, "sglang")
step = Step(Instance(record["name"]), "create", "", Store(root, record["name"]), dead, "", release)
found = node_plan.make(Settings([], root, root / "engines", {}, "sglang", "/"), [step])
# What a module would return, as the text that it would print.
answer = json.dumps([planned.report() for planned in found.planned.values()])
read_bytes = _bytes_read() - code_bytes

[planned] = found.planned.values()
inputs = planned.prepared.inputs
print(
    json.dumps(
        {
            "code_bytes": code_bytes,
            "read_bytes": read_bytes,
            # Not the peak that wait4 tells: that counts the process that started this one as well.
            "peak_bytes": _figure("status", r"VmHWM:\s*(\d+) kB") * 1024,
            "answer_bytes": len(answer),
            "tensors": inputs.shape.tensors,
            "rank_weight_bytes": model_shape.weight_bytes_per_rank(inputs.shape, inputs.args.integer("tp-size")),
            "tokens": planned.plan.tokens.low,
            "refused": sorted({item.id for item in found.findings if item.verdict == "refuse"}),
            "suggestions": len(planned.plan.suggestions),
        }
    )
)
