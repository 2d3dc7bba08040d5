# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door to systemctl and journalctl."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

UNIT_DIRECTORY = Path("/etc/systemd/system")
RUNTIME_DIRECTORY = Path("/run/systemd/system")
# A start waits for what the unit is ordered after, such as a share that is still being mounted.
_BEGIN_S = 100
_PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainCode,ExecMainStatus,MainPID,InvocationID,"
    "ActiveEnterTimestamp,NRestarts,ControlGroup"
)


@dataclass(frozen=True)
class UnitState:
    """What systemd says of a unit; the names are those of `systemctl show`."""

    load: str
    active: str
    sub: str
    enabled: str
    result: str
    exit_code: int
    exit_status: int
    main_pid: int
    invocation: str
    since: str
    restarts: int
    control_group: str

    @property
    def exists(self) -> bool:
        """Whether systemd has a unit of this name, running or not."""
        return self.load == "loaded"

    @property
    def is_active(self) -> bool:
        """Whether the main process runs."""
        return self.active == "active"

    @property
    def is_dead(self) -> bool:
        """Whether no process of the unit runs and none is about to."""
        return self.active in ("inactive", "failed")


def state(unit: str) -> UnitState:
    """Return the state of a unit, which need not exist.

    Raises:
        HeadroomError: If systemd does not answer.
    """
    text = _systemctl("show", f"--property={_PROPERTIES}", unit)
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return UnitState(
        load=values.get("LoadState", ""),
        active=values.get("ActiveState", ""),
        sub=values.get("SubState", ""),
        enabled=values.get("UnitFileState", ""),
        result=values.get("Result", ""),
        exit_code=int(values.get("ExecMainCode") or 0),
        exit_status=int(values.get("ExecMainStatus") or 0),
        main_pid=int(values.get("MainPID") or 0),
        invocation=values.get("InvocationID", ""),
        since=values.get("ActiveEnterTimestamp", ""),
        restarts=int(values.get("NRestarts") or 0),
        control_group=values.get("ControlGroup", ""),
    )


def trial_drop_in(unit: str) -> Path:
    """Return where the drop-in lies that keeps systemd from restarting a release on trial; it goes with a reboot."""
    return RUNTIME_DIRECTORY / f"{unit}.d" / "50-trial.conf"


def daemon_reload() -> None:
    """Make systemd read all unit files again."""
    _systemctl("daemon-reload")


def start(unit: str) -> UnitState:
    """Start a unit whatever failed before and return the state of the new run.

    What the unit does is not waited for: its ExecStartPre alone may take minutes, and says why in the journal.

    Raises:
        HeadroomError: If systemd can't start it, or does not begin to within the time that it may wait for mounts.
    """
    # Starts of a deploy count into the start limit too: without this a repaired release could be refused.
    _run("reset-failed", unit)
    before = state(unit).invocation
    _systemctl("start", "--no-block", unit)
    deadline = time.monotonic() + _BEGIN_S
    while time.monotonic() < deadline:
        found = state(unit)
        if found.invocation not in ("", before):
            return found
        time.sleep(0.05)
    raise HeadroomError(f"systemd did not begin to start {unit} within {_BEGIN_S} s: see 'systemctl list-jobs'")


def stop(unit: str) -> None:
    """Stop a unit and wait until all its processes have ended, at most its TimeoutStopSec."""
    _systemctl("stop", unit)


def enable(unit: str) -> None:
    """Let the unit start at boot."""
    _systemctl("enable", "--quiet", unit)


def disable(unit: str) -> None:
    """Let the unit no longer start at boot."""
    _systemctl("disable", "--quiet", unit)


def _systemctl(*arguments: str) -> str:
    done = _run(*arguments)
    if done.returncode != 0:
        reason = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise HeadroomError(f"systemctl {' '.join(arguments)}: {reason}")
    return done.stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HeadroomError("systemctl is not on this node: instances are systemd units") from None


class Journal:
    """The lines that one run of a unit writes, as they come; use it as a context manager."""

    def __init__(self, invocation: str) -> None:
        self._invocation = invocation
        self._buffer = b""

    def __enter__(self) -> Journal:
        # The second match is what systemd itself says of the run, such as a failure to execute the command.
        self._process = subprocess.Popen(
            ["journalctl", "--follow", "--lines=all", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE",
             f"_SYSTEMD_INVOCATION_ID={self._invocation}", "+", f"INVOCATION_ID={self._invocation}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._stream = cast(IO[bytes], self._process.stdout)
        os.set_blocking(self._stream.fileno(), False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._stream.close()

    def lines(self) -> Iterator[str]:
        """Yield the lines that have come since the last call, without waiting."""
        while True:
            try:
                data = os.read(self._stream.fileno(), 65536)
            except BlockingIOError:
                data = b""
            if not data:
                return
            self._buffer += data
            *whole, self._buffer = self._buffer.split(b"\n")
            for record in whole:
                yield from message(record)


def message(record: bytes) -> list[str]:
    """Return the lines of one JSON record of the journal.

    A message with control characters comes as a list of bytes; progress bars put many states, separated by carriage
    returns, into one message.
    """
    if not record.strip():
        return []
    value = json.loads(record).get("MESSAGE")
    if isinstance(value, list):
        value = bytes(value).decode("utf-8", "replace")
    return [line for line in (value or "").replace("\r", "\n").split("\n") if line.strip()]
