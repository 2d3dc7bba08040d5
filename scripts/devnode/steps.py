# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what is done and how long it took; keep the output of commands in log files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_SHOWN_LINES = 15
_STOP_TIMEOUT_S = 20


class StepError(Exception):
    """A step failed for a reason that its message tells completely."""


class Steps:
    """One run of several steps, which may go on at the same time in threads."""

    def __init__(self, logs: Path, quiet: bool = False) -> None:
        self._logs = logs
        self._quiet = quiet
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def say(self, text: str) -> None:
        """Print one line with the seconds since the run began."""
        if not self._quiet:
            with self._lock:
                # stderr: the standard output of a command belongs to its result
                print(f"[{time.monotonic() - self._start:6.1f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step and tell how long it took."""
        self.say(f"{title} ...")
        begun = time.monotonic()
        yield
        self.say(f"{title}: done in {time.monotonic() - begun:.1f} s")

    def run(
        self,
        command: Sequence[str | Path],
        log: str,
        *,
        stdin: str | None = None,
        output: Path | None = None,
        env: dict[str, str] | None = None,
        each_line: Callable[[str], None] | None = None,
        shielded: bool = False,
    ) -> None:
        """Run a command with its output in logs/`log`.log; StepError with the last lines when it fails.

        `output` takes the standard output instead of the log; `each_line` sees each line of the log as it comes.
        A `shielded` command runs to its end even when this program is interrupted.
        """
        if self._stopped:
            raise KeyboardInterrupt
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f"{log}.log"
        argv = [str(word) for word in command]
        with path.open("a", buffering=1, encoding="utf-8") as text, (output or Path(os.devnull)).open("wb") as result:
            text.write(f"$ {' '.join(argv)}\n")
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=result if output else text if shielded else subprocess.PIPE,
                stderr=subprocess.PIPE if output else subprocess.STDOUT,
                process_group=0,  # Ctrl-C reaches the terminal's foreground group only; stop() decides the rest
                env={**os.environ, **(env or {})},
                text=True,
                errors="replace",
            )
            if not shielded:
                with self._lock:
                    self._children.add(child)
            tail = self._follow(child, stdin, text.write, each_line)
            with self._lock:  # not when interrupted: stop() has to know it
                self._children.discard(child)
        if child.returncode != 0:
            if self._stopped:
                raise KeyboardInterrupt
            tail = tail or path.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
            lines = "".join(f"\n    {line}" for line in tail)
            raise StepError(f"{argv[0]} ended with {child.returncode}; last lines of {path}:{lines}")

    @staticmethod
    def _follow(
        child: subprocess.Popen[str],
        stdin: str | None,
        write: Callable[[str], object],
        each_line: Callable[[str], None] | None,
    ) -> list[str]:
        if stdin is not None and child.stdin:
            child.stdin.write(stdin)
            child.stdin.close()
        tail: list[str] = []
        for line in child.stdout or child.stderr or ():
            write(line)
            tail = [*tail[1 - _SHOWN_LINES :], line.rstrip()]
            if each_line:
                each_line(line.rstrip())
        child.wait()
        return tail

    def stop(self) -> None:
        """End the commands that still run: each leaves a state from which the next run goes on."""
        self._stopped = True
        with self._lock:
            running = [child for child in self._children if child.poll() is None]
            groups = [f"-{child.pid}" for child in running]
        if groups:  # whole groups: mmdebstrap itself waits for its children, whatever it is told
            subprocess.run(as_root("kill", "-INT", "--", *groups), stderr=subprocess.DEVNULL, check=False)
        for child in running:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_STOP_TIMEOUT_S)


def as_root(*command: str | Path) -> list[str]:
    """The command, through sudo when the caller is not root."""
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    return prefix + [str(word) for word in command]


def output_of(*command: str | Path) -> str:
    """The standard output of a short command, stripped; StepError with its last error line when it fails."""
    argv = [str(word) for word in command]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise StepError(f"{' '.join(argv)}: {reason}")
    return done.stdout.strip()
