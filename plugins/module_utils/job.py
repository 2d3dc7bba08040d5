# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work on a node: a function in a transient systemd unit of its own, followed from outside.

The work must outlive the SSH connection that asked for it, so it does not run in the module's process. `start` copies
the module's own code beside a private parameter file and lets systemd run the entry; `follow` reads its progress and
result.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import own_code
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

JOBS = Path("/run/headroom/jobs")
_POLL_S = 0.1
# sys.argv: the code archive, the job's directory
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from ansible_collections.headroom.serving.plugins.module_utils import job; job.main(sys.argv[2])"
)

Progress = Callable[[str], None]
Entry = Callable[[dict[str, Any], Progress], dict[str, Any]]


def start(unit: str, entry: Entry, params: dict[str, Any], jobs: Path = JOBS) -> dict[str, str]:
    """Run `entry(params, progress)` in the transient unit `unit` and return at once.

    Args:
        unit: Name of the unit without `.service`; while it runs, a second job of that name is refused.
        entry: A function of a module in module_utils; it raises HeadroomError for foreseen failures.
        params: Plain data; may hold secrets: the file is private to root and removed once it was read.
        jobs: Parent directory of job directories.

    Returns:
        `dir` and `unit` of the job, as `follow` takes them.

    Raises:
        HeadroomError: If a job of that name runs already or systemd refuses the unit.
    """
    jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_finished(unit, jobs)
    directory = jobs / f"{unit}.{secrets.token_hex(4)}"
    directory.mkdir(mode=0o700)
    own_code.write(directory / "code.zip")
    work = {"entry": f"{entry.__module__}:{entry.__name__}", "params": params}
    _write_private(directory / "work.json", json.dumps(work))
    command = ["systemd-run", f"--unit={unit}", "--collect", "--quiet", "--service-type=exec"]
    command += ["--property=KillMode=mixed", "--setenv=PYTHONUNBUFFERED=1", "--setenv=LC_ALL=C.UTF-8"]
    command += [f"--description=headroom.serving: {unit}", "--", sys.executable, "-B", "-c", _BOOTSTRAP]
    command += [str(directory / "code.zip"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(directory, ignore_errors=True)
        if _is_active(unit):
            raise HeadroomError(
                f"{unit}.service is already at work on this node, started by another run: "
                f"follow it with 'journalctl -fu {unit}' and run again when it has ended"
            )
        raise HeadroomError(f"systemd does not start {unit}.service: {done.stderr.strip() or done.stdout.strip()}")
    return {"dir": str(directory), "unit": unit}


def follow(directory: str, unit: str, offset: int, wait_s: float) -> dict[str, Any]:
    """Return the progress lines after `offset`, waiting up to `wait_s` seconds for the first one or the end.

    Returns:
        `lines` (text), `offset` (bytes, for the next call), `finished` and, when finished, `result`.

    Raises:
        HeadroomError: If there is no such job.
    """
    job = Path(directory)
    if not job.is_dir():
        raise HeadroomError(f"no job directory {directory} on this node: was the node rebooted?")
    deadline = time.monotonic() + wait_s
    while True:
        # The unit's state is read first: an ended unit can't write a result afterwards.
        ended = not _is_active(unit)
        result = _result(job)
        lines, offset = _lines(job / "progress", offset)
        if result is None and ended:
            result = {"failed": True, "msg": f"{unit}.service ended without a result: see 'journalctl -u {unit}'"}
        if lines or result is not None or time.monotonic() > deadline:
            return {"lines": lines, "offset": offset, "finished": result is not None, "result": result}
        time.sleep(_POLL_S)


def main(directory: str) -> None:
    """Run the work of a job directory: the entry point inside the transient unit."""
    job = Path(directory)
    work = json.loads((job / "work.json").read_text(encoding="utf-8"))
    (job / "work.json").unlink()
    with (job / "progress").open("a", encoding="utf-8", errors="backslashreplace") as stream:

        def progress(line: str) -> None:
            stream.write(line.replace("\n", " ") + "\n")
            stream.flush()

        result = _run(work, progress)
    _write_private(job / "result.json", json.dumps(result))
    if result.get("failed"):
        # The unit's own journal must tell what the controller, if it is gone, can't.
        sys.stderr.write(f"{result['msg']}\n")
        raise SystemExit(1)


def _run(work: dict[str, Any], progress: Progress) -> dict[str, Any]:
    module_name, function_name = work["entry"].split(":")
    try:
        function: Entry = getattr(import_module(module_name), function_name)
        return function(work["params"], progress)
    except HeadroomError as error:
        findings = [item.as_dict() for item in error.findings]
        return {**error.result, "failed": True, "msg": str(error), "findings": findings}
    except Exception as error:  # noqa: BLE001  the journal gets the trace, the user one line
        traceback.print_exc()
        return {"failed": True, "msg": f"internal error in {work['entry']}: {type(error).__name__}: {error}"}


def _forget_finished(unit: str, jobs: Path) -> None:
    if _is_active(unit):
        return
    for old in jobs.glob(f"{unit}.*"):
        shutil.rmtree(old, ignore_errors=True)


def _is_active(unit: str) -> bool:
    done = subprocess.run(
        ["systemctl", "show", "--property=ActiveState", "--value", f"{unit}.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() in ("active", "activating", "deactivating", "reloading")


def _result(job: Path) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads((job / "result.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return data


def _lines(path: Path, offset: int) -> tuple[list[str], int]:
    """Return the complete lines after `offset` (bytes) and the offset behind them."""
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
    except FileNotFoundError:
        return [], offset
    whole = data.rfind(b"\n") + 1
    return data[:whole].decode("utf-8", "replace").splitlines(), offset + whole


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, and that is there whole or not at all."""
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    draft.rename(path)
