# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the checks of tests/testinfra in a process of their own and follow them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.plugin_utils import verify_connection
from ansible_collections.headroom.serving.plugins.plugin_utils.verify_connection import NODE, Plugin

# What `pip install` is told; the same pins as in the repository's pyproject.toml.
REQUIREMENTS = {"pytest": "pytest==9.2.0", "testinfra": "pytest-testinfra==10.2.2"}
# pytest's exit statuses that are an answer: all passed, some failed.
_ANSWERS = (0, 1)
_NOTHING_SELECTED = 5


@dataclass(frozen=True)
class Check:
    """A check that ended; `journal` are the last lines of the unit of a failed one, by the name of the unit."""

    passed: bool
    title: str
    reason: str
    journal: Mapping[str, str]

    def line(self) -> str:
        """Return the check as a line for people."""
        return f"passed: {self.title}" if self.passed else f"FAILED: {self.title}: {self.reason}"


@dataclass(frozen=True)
class Wanted:
    """What is checked: the instances as the inventory lists them (None: not known), without anything secret."""

    root: str
    instances: Sequence[Mapping[str, Any]] | None
    tests: str = ""

    @classmethod
    def of(cls, root: str, instances: Any, tests: str) -> Wanted:
        """Take from the inventory's list what the checks need and nothing else: instances hold keys."""
        if not isinstance(instances, list):
            return cls(root, None, tests)
        kept = [
            {key: entry[key] for key in ("name", "state", "port") if key in entry}
            for entry in instances
            if isinstance(entry, dict)
        ]
        return cls(root, kept, tests)

    def as_dict(self) -> dict[str, Any]:
        """Return what the suite reads, see its conftest.py."""
        nodes = {} if self.instances is None else {NODE: list(self.instances)}
        return {"root": self.root, "nodes": nodes}


@dataclass
class Report:
    """The checks of a node as they end."""

    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if not check.passed]

    def verdict(self) -> str:
        """Return everything in one line."""
        if not self.failed:
            return f"{len(self.checks)} checks passed"
        which = "; ".join(f"{check.title} ({check.reason})" for check in self.failed)
        return f"{len(self.failed)} of {len(self.checks)} checks failed: {which}"

    def journals(self) -> dict[str, str]:
        """Return the last lines of the units of failed checks, each unit once."""
        found: dict[str, str] = {}
        for check in self.failed:
            found.update(check.journal)
        return found


def suite() -> Path:
    """Return the directory of the checks: plugins/ and tests/ are siblings in a clone and in the collection.

    Raises:
        HeadroomError: If it is not there.
    """
    found = Path(__file__).resolve().parents[2] / "tests" / "testinfra"
    if not (found / "conftest.py").is_file():
        raise HeadroomError(f"the checks are missing: {found} holds no conftest.py; install the collection again")
    return found


def require(find: Callable[[str], object | None] = find_spec) -> None:
    """Make sure that the checks can run.

    Raises:
        HeadroomError: If a package is missing: one line with the command that installs it.
    """
    missing = [module for module in REQUIREMENTS if find(module) is None]
    if missing:
        names = " and ".join(REQUIREMENTS[module].partition("==")[0] for module in missing)
        command = shlex.join([sys.executable, "-m", "pip", "install", *REQUIREMENTS.values()])
        raise HeadroomError(f"verify.yml needs {names} on the controller, beside ansible-core; install with: {command}")


def run(wanted: Wanted, connection: Plugin, become: Plugin | None, show: Callable[[Check], None]) -> Report:
    """Run the checks against one node and return all that ended; `show` gets each as it ends.

    Raises:
        HeadroomError: If the checks can't run at all.
    """
    require()
    report = Report()
    # mkdtemp's directory is private, so is every file in it.
    with tempfile.TemporaryDirectory(prefix="headroom-verify-") as name:
        folder = Path(name)
        control = folder / "ssh"
        files = _write(folder, wanted, verify_connection.inventory(connection, become, str(control)))
        command = _command(files, wanted, plain=verify_connection.is_plain(connection, become))
        with _shared_connection(control), files["output"].open("wb") as output:
            status = _follow(command, files, output, lambda line: _take(parse(line), report, show))
        text = files["output"].read_text(encoding="utf-8", errors="replace")
    if status == _NOTHING_SELECTED:
        raise HeadroomError(f"verify_tests {wanted.tests!r} selects no check; it is an expression as pytest's -k takes")
    if status not in _ANSWERS or not report.checks:
        raise HeadroomError(f"the checks could not run: {_reason(text)}")
    return report


def _take(check: Check, report: Report, show: Callable[[Check], None]) -> None:
    report.checks.append(check)
    show(check)


def _follow(command: Sequence[str], files: Mapping[str, Path], output: IO[bytes], take: Callable[[str], None]) -> int:
    """Run the suite, hand over each line that it writes about a check, and return its exit status."""
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as stream:
        try:
            process = subprocess.Popen(
                command,
                env=_environment(files, f"/dev/fd/{writer}"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
            )
        finally:
            os.close(writer)  # so that the stream ends with the process
        try:
            for line in stream:
                take(line)
            return process.wait()
        finally:
            process.terminate()
            process.wait()


def parse(line: str) -> Check:
    """Return a check from the line that the suite writes about it."""
    event = json.loads(line)
    journal = {title.rpartition(" ")[2]: text for title, text in event["sections"]}
    return Check(event["outcome"] == "passed", event["title"], event["reason"], journal)


def _write(folder: Path, wanted: Wanted, inventory: Mapping[str, Any]) -> dict[str, Path]:
    texts = {
        "inventory": json.dumps(inventory),
        "wanted": json.dumps(wanted.as_dict()),
        # Whatever the user's own settings say, they would be applied twice.
        "ansible": "[defaults]\n",
        "pytest": "[pytest]\n",
        "output": "",
    }
    endings = {"inventory": ".json", "wanted": ".json", "ansible": ".cfg", "pytest": ".ini", "output": ".txt"}
    files = {name: folder / f"{name}{endings[name]}" for name in texts}
    for name, path in files.items():
        path.touch(mode=0o600)
        path.write_text(texts[name], encoding="utf-8")
    return files


def _command(files: Mapping[str, Path], wanted: Wanted, plain: bool) -> list[str]:
    command = [sys.executable, "-P", "-m", "pytest", str(suite()), "-c", str(files["pytest"])]
    # Other plugins that happen to be installed are not asked: pytest-ansible, for one, defines options of testinfra's.
    command += ["-p", "testinfra.plugin", "-p", "no:cacheprovider", "--color=no", "--tb=short", "-q"]
    command += [f"--rootdir={files['pytest'].parent}", "--import-mode=importlib"]
    command += [f"--hosts=ansible://{NODE}", f"--ansible-inventory={files['inventory']}"]
    if not plain:
        command.append("--force-ansible")
    if wanted.tests:
        command += ["-k", wanted.tests]
    return command


def _environment(files: Mapping[str, Path], events: str) -> dict[str, str]:
    dropped = ("ANSIBLE_", "PYTEST_", "HEADROOM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    # testinfra calls ansible-inventory by its name; it lies beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        **kept,
        "PATH": path,
        "ANSIBLE_CONFIG": str(files["ansible"]),
        "HEADROOM_VERIFY": str(files["wanted"]),
        "HEADROOM_VERIFY_EVENTS": events,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # The checks may lie in a folder that is not the user's to write.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@contextmanager
def _shared_connection(control: Path) -> Iterator[None]:
    """End the connection that the commands of the checks share, where there is one."""
    try:
        yield
    finally:
        if control.exists():
            end = ["ssh", "-o", f"ControlPath={control}", "-O", "exit", NODE]
            subprocess.run(end, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _reason(output: str) -> str:
    """Return the line of pytest's output that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E ", "ERROR:", "INTERNALERROR>"))]
    return errors[-1].removeprefix("ERROR:").strip() if errors else (lines or ["pytest said nothing"])[-1]
