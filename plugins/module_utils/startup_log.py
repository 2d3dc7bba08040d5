# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the log of a starting SGLang says: the phase it is in, how far it is, and which lines tell why it failed.

The messages are those of SGLang 0.5.14 and 0.5.23 (sglang/srt: model_executor/model_runner.py,
entrypoints/http_server.py, mem_cache/memory_pool.py, distributed/bootstrap.py).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from ansible_collections.headroom.serving.plugins.module_utils.start_facts import FactsReader

READY = "ready"
_KEPT_LINES = 400


@dataclass(frozen=True)
class Phase:
    """A part of the start; `pattern` is the message that begins it."""

    id: str
    label: str
    pattern: str


# In the order in which a start goes through them; a phase never goes back.
PHASES = (
    Phase("launch", "starting Python and importing SGLang", r"^$"),
    Phase("distributed", "joining the ranks", r"Init (torch distributed|parallel) begin"),
    Phase("weights", "loading weights", r"Load weight begin"),
    Phase("kv_cache", "allocating the KV cache", r"Load weight end"),
    Phase("graphs", "capturing CUDA graphs", r"Capture .*graphs? begin"),
    Phase("http", "opening the HTTP server", r"Started server process|Waiting for application startup"),
    Phase("warmup", "warming up", r"Uvicorn running on|Application startup complete"),
    Phase(READY, "ready", r"The server is fired up and ready to roll"),
)
_ORDER = {phase.id: index for index, phase in enumerate(PHASES)}
# What the check of the memory before each start says of its progress.
_WAITING = re.compile(r"^headroom: (waiting for memory.*|the memory is back.*)")
_COMPILED = [(phase, re.compile(phase.pattern)) for phase in PHASES]
_SHARDS = re.compile(r"(?:loading shards|checkpoint shards).*?(\d+)%")

# A line that says why: an exception's last line, argparse's verdict, systemd's, the kernel's or SGLang's own last word.
_CAUSE = re.compile(
    r"^(?:\S+ )?(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception|Exit|Interrupt)(?:: .|$)"
    r"|^headroom: refused: |: error: |Failed (?:at step|to execute)|CUDA out of memory|OutOfMemory|out of memory"
    r"|Not enough (?:host |GPU )?memory|Rank \d+ scheduler died|NCCL error|watchdog timeout|No space left"
    r"|address already in use|Fatal Python error|Segmentation fault|killed by the OOM killer|result 'oom-kill'"
)
# What the other ranks and the parent say once one of them has died: the reason only if nothing else is given.
_AFTERMATH = re.compile(
    r"Rank \d+ scheduler died|NCCL error|DistBackendError|DistNetworkError|Connection (?:reset|closed|refused)"
    r"|BrokenPipeError|CancelledError|KeyboardInterrupt|watchdog timeout|result 'oom-kill'"
)
_BARE = re.compile(r"^(?:\S+ )?[\w.]*(?:Error|Exception|Exit|Interrupt)$")
# Wrappers and echoes: true, but never the reason.
_NOISE = re.compile(
    r"^\s+|^Traceback|^During handling|^The above exception|Received sigquit|Subprocess .* crashed|SIGQUIT"
    r"|killed by(?! the OOM killer)|kill_process_tree called"
    r"|^usage: |^\[--|leaked (?:semaphore|shared_memory)|Consumed .* CPU time|Main process exited"
    r"|Failed with result (?!'oom-kill')|EOFError|DeprecationWarning|UserWarning|FutureWarning"
)
_PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[^\]]*)\]\s*")


class StartupLog:
    """Reads the lines of one start in their order; `facts` reads the figures in them."""

    def __init__(self) -> None:
        self.facts = FactsReader()
        self.phase = PHASES[0]
        self.percent: int | None = None
        self._waiting = ""
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)

    def feed(self, line: str) -> bool:
        """Take one line; return whether phase or progress moved."""
        self.facts.feed(line)
        if line.strip():
            self._kept.append(line.rstrip())
        waiting = _WAITING.search(line)
        if waiting:
            self._waiting = waiting[1]
            return True
        for phase, pattern in _COMPILED:
            if _ORDER[phase.id] > _ORDER[self.phase.id] and pattern.search(line):
                self.phase, self.percent = phase, None
                return True
        shards = _SHARDS.search(line) if self.phase.id == "weights" else None
        if shards and int(shards.group(1)) != self.percent:
            self.percent = int(shards.group(1))
            return True
        return False

    @property
    def is_ready(self) -> bool:
        """Whether the server said that it serves."""
        return self.phase.id == READY

    def describe(self) -> str:
        """Return the phase, with its progress where the log gives one."""
        if self._waiting and self.phase is PHASES[0]:
            return self._waiting
        return self.phase.label if self.percent is None else f"{self.phase.label}: {self.percent} %"

    def relevant(self, count: int = 3) -> list[str]:
        """Return up to `count` lines that most likely say why a start failed, in their order.

        The last line that names a cause; without one the last lines that are no noise.
        """
        lines = _without_ignored([_PREFIX.sub("", line) for line in self._kept])
        causes = [index for index, line in enumerate(lines) if _CAUSE.search(line) and not _NOISE.search(line)]
        causes = [index for index in causes if not _AFTERMATH.search(lines[index])] or causes
        if causes:
            return [_with_source(lines, causes[-1])]
        telling = [line for line in lines if not _NOISE.search(line)]
        return (telling or lines)[-count:]


def _without_ignored(lines: list[str]) -> list[str]:
    """Leave out exceptions that Python itself ignored: they come while a process ends, after the one that ended it."""
    kept: list[str] = []
    ignored = False
    for line in lines:
        if line.startswith("Exception ignored in"):
            ignored = True
        elif not ignored:
            kept.append(line)
        elif not line.startswith((" ", "Traceback")):
            ignored = False  # this line is the ignored exception itself
    return kept


def _with_source(lines: list[str], index: int) -> str:
    """Return a line; for an exception without a text (a failed assert) with the line of source that raised it."""
    if not _BARE.match(lines[index]):
        return lines[index]
    for line in reversed(lines[:index]):
        if not line.startswith(" "):
            break
        if line.strip(" ~^"):
            return f"{lines[index]}: {line.strip()}"
    return lines[index]
