"""Show which check runs and for how long, and keep each check's whole output in a log file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HEARTBEAT_S = 30.0
_SHOWN_LINES = 400
_TIDY_UP_S = 30.0

# What to show at once of a line of output; None for nothing.
Shown = Callable[[str], str | None]


@dataclass
class _Running:
    """A command at work."""

    name: str
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    shown_at: float = field(default_factory=time.monotonic)

    def last_line(self) -> str:
        return next((line.strip() for line in reversed(self.output) if line.strip()), "no output yet")


class Progress:
    """The terminal of one run; safe to use from several threads."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._at_work: list[_Running] = []
        self._begun: set[str] = set()

    def say(self, text: str, output: str = "") -> None:
        """Print one line with the seconds since the run began and, below it, what a tool said."""
        lines = output.rstrip().splitlines()
        if len(lines) > _SHOWN_LINES:
            lines = [f"({len(lines) - _SHOWN_LINES} more lines before these: see {self._logs})", *lines[-_SHOWN_LINES:]]
        stamp = f"[{time.monotonic() - self._started:6.1f} s] "
        with self._lock:
            print("\n".join([stamp + text, *(f"    {line}" for line in lines)]), flush=True)

    def run(
        self, name: str, command: Sequence[str], cwd: Path, env: Mapping[str, str], shown: Shown | None = None
    ) -> tuple[int, str]:
        """Run a command to its end and return its exit status and its output.

        Args:
            name: Name of the check, which is also the log's.
            command: The command line; it gets no standard input.
            cwd: Where it runs.
            env: Its whole environment.
            shown: Says what to show of each line at once. When nothing was shown for half a minute, the last line
                of the output is, so that nobody has to guess whether it hangs.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        with self._lock:
            mode = "a" if name in self._begun else "w"
            self._begun.add(name)
        with (self._logs / f"{name}.log").open(mode, encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            # Known to `stop` as soon as it is there.
            with self._lock:
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    # A group of its own: what a check started is ended with it.
                    start_new_session=True,
                )
                running = _Running(name, process)
                self._at_work.append(running)
            threading.Thread(target=self._beat, args=(running,), daemon=True).start()
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                running.output.append(line)
                text = shown(line.rstrip()) if shown else None
                if text is not None:
                    running.shown_at = time.monotonic()
                    self.say(f"{name}: {text}")
            process.wait()
            with self._lock:
                self._at_work.remove(running)
        return process.returncode, "".join(running.output)

    def stop(self) -> None:
        """End the commands that still run, with what they started; each gets time to tidy up first."""
        with self._lock:
            at_work = list(self._at_work)
        for number, patience in ((signal.SIGINT, _TIDY_UP_S), (signal.SIGTERM, _TIDY_UP_S), (signal.SIGKILL, 0.0)):
            deadline = time.monotonic() + patience
            for running in at_work:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.process.pid, number)
            while any(map(_has_members, at_work)) and time.monotonic() < deadline:
                time.sleep(0.1)

    def _beat(self, running: _Running) -> None:
        while running.process.poll() is None:
            time.sleep(0.5)
            now = time.monotonic()
            if now - running.shown_at >= _HEARTBEAT_S:
                running.shown_at = now
                self.say(f"{running.name}: {now - running.started:.0f} s so far; {running.last_line()[:140]}")


def _has_members(running: _Running) -> bool:
    """Return whether the command, or anything it started in its process group, is still there."""
    running.process.poll()
    try:
        os.killpg(running.process.pid, 0)
    except ProcessLookupError:
        return False
    return True
