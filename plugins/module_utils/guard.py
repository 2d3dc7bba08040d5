# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check before each start of a unit, at boot and after a crash as well: does the release still fit right now?

Runs as ExecStartPre by the engine's own Python, from a copy of this code that lies with the release. Memory of a server
that has just ended comes back late, so it waits for it; what it says goes to the journal.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import (
    hardware,
    memory_plan,
    own_code,
    release_plan,
    unit_policy,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, refusals
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import PlanInput

FILE = "guard.pyz"
# The `__main__.py` of its copy.
ENTRY = f"import sys; from {own_code.ROOMS} import guard; sys.exit(guard.main(sys.argv[1]))\n"
# In front of what the guard says, by which the watch of a start knows its lines.
MARK = "headroom:"
_POLL_S = 1.0
_TELL_EVERY_S = 10.0
# What can change by waiting: memory that others hold. A missing GPU or a bad flag stays what it is.
_PASSING = (
    "gpu.slack",
    "gpu.no_room_for_kv",
    "gpu.load_peak",
    "gpu.unbalanced",
    "hicache.node_budget",
    "host.memory",
    "host.load_window",
    "host.offload",
)
Say = Callable[[str], None]


def main(directory: str) -> int:
    """Check the release in `directory`; return the exit status: 0 to start, 1 to refuse."""
    try:
        return check(Path(directory), _say)
    except HeadroomError as error:
        # Neither the node's memory nor the model can be read: the server itself will say more than a guess here.
        _say(f"the memory could not be checked: {error}")
    except Exception:  # noqa: BLE001  a fault of the check must never keep a good server down
        traceback.print_exc()
        _say("the memory could not be checked, which is a fault of the check; starting all the same")
    return 0


def check(
    directory: Path,
    say: Say,
    read: Callable[[], Hardware] = hardware.read,
    limit_s: float = unit_policy.GUARD_LIMIT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Plan a release with the memory that is free now, and wait for what may still come back.

    Args:
        directory: The release, with its release.json.
        say: Takes the lines.
        read: Reads the hardware; called once a second while it waits.
        limit_s: Seconds to wait for memory.
        sleep: Waits.

    Returns:
        0 if it fits, 1 if not.

    Raises:
        HeadroomError: If something can't be read.
    """
    record = json.loads((directory / "release.json").read_text(encoding="utf-8"))
    root = directory.parents[3]
    accept = release_plan.accepted(directory)
    began = time.monotonic()
    told: float | None = None
    while True:
        node = read()
        inputs = release_plan.prepare(record, node, root, accept).inputs
        refused = refusals(memory_plan.plan(inputs).findings)
        if not refused:
            if told is not None:
                say(f"the memory is back after {time.monotonic() - began:.0f} s")
            return 0
        now = time.monotonic()
        if now - began >= limit_s or not _may_pass(refused, inputs):
            for item in refused:
                say(f"refused: {item.line()}")
            return 1
        if told is None or now - told >= _TELL_EVERY_S:
            told = now
            say(f"waiting for memory ({now - began:.0f} of {limit_s:.0f} s): {refused[0].message} {_holders(node)}")
        sleep(_POLL_S)


def _may_pass(refused: Sequence[Finding], inputs: PlanInput) -> bool:
    """Whether waiting can help: not if it is no matter of memory, nor if it would not fit with nobody else there."""
    if not all(item.id in _PASSING for item in refused):
        return False
    node = inputs.hardware
    alone = replace(
        inputs,
        release_gpu_bytes={gpu.index: gpu.used_bytes for gpu in node.gpus},  # never what the driver keeps for itself
        release_host_bytes=node.mem_total_bytes - node.mem_available_bytes,
    )
    return not refusals(memory_plan.plan(alone).findings)


def _holders(node: Hardware) -> str:
    """Name who holds memory of GPUs, the biggest first."""
    held = sorted(
        ((process.used_bytes, gpu.index, process) for gpu in node.gpus for process in gpu.processes),
        key=lambda one: -one[0],
    )
    named = [
        f"GPU {index}: PID {process.pid} {process.unit or process.command or 'unknown'} ({size / 2**30:.1f} GiB)"
        for size, index, process in held[:4]
    ]
    return f"Held by {', '.join(named)}." if named else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{MARK} {line}\n")
    sys.stdout.flush()
