# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node and its instances, as the node's own records tell of them; everything is asked through testinfra."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testinfra.host import Host

UNITS = "/etc/systemd/system"
_SCRIPTS = Path(__file__).parent / "on_node"


def on_node(host: Host, script: str, *arguments: str) -> Any:
    """Run one of the scripts of on_node/ by the node's Python and return what it prints.

    Raises:
        AssertionError: If the script fails.
    """
    text = (_SCRIPTS / f"{script}.py").read_text(encoding="utf-8")
    done = host.run(" ".join(["python3 -c", *["%s"] * (1 + len(arguments))]), text, *arguments)
    assert done.rc == 0, f"{script} on the node ends with {done.rc}: {_last_line(done.stderr)}"
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Instance:
    """One instance; `state` is started or stopped, as the inventory says or, without one, the unit's enablement."""

    host: Host
    root: str
    name: str
    state: str
    enabled: str
    current: str
    last_good: str
    release: Mapping[str, Any]
    measured: Mapping[str, Any]

    @property
    def unit(self) -> str:
        """The unit's name."""
        return f"sglang-{self.name}.service"

    @property
    def directory(self) -> str:
        """The directory of the current release."""
        return f"{self.root}/instances/{self.name}/releases/{self.current}"

    @property
    def credentials(self) -> str:
        """The file of the release's keys."""
        return f"{self.directory}/credentials.yaml"

    @property
    def user(self) -> str:
        """The service account."""
        return str(self.release["user"])

    @property
    def has_keys(self) -> bool:
        """Whether the server is given a file of keys."""
        return "--config" in self.release["argv"]

    def properties(self, *names: str) -> dict[str, str]:
        """Return properties of the unit as systemd has them loaded."""
        shown = self.host.check_output(f"systemctl show --property={','.join(names)} %s", self.unit)
        return dict(line.split("=", 1) for line in shown.splitlines())

    def loaded(self, name: str) -> Any:
        """Return one property of the loaded service in full; `systemctl show` joins words without quotes."""
        path = "".join(char if char.isalnum() else f"_{ord(char):02x}" for char in self.unit)
        answer = self.host.check_output(
            "busctl --json=short get-property org.freedesktop.systemd1 %s org.freedesktop.systemd1.Service %s",
            f"/org/freedesktop/systemd1/unit/{path}",
            name,
        )
        return json.loads(answer)["data"]

    def processes(self) -> list[dict[str, Any]]:
        """Return the processes of the unit, the main one first.

        Raises:
            AssertionError: If there is none.
        """
        main = int(self.properties("MainPID")["MainPID"])
        found: list[dict[str, Any]] = on_node(self.host, "processes", self.unit)
        assert main in [process["pid"] for process in found], f"{self.unit} has no main process"
        return sorted(found, key=lambda process: process["pid"] != main)

    def ask(self, question: str) -> dict[str, Any]:
        """Ask the server from its own node, see on_node/ask.py."""
        answer: dict[str, Any] = on_node(self.host, "ask", self.directory, question)
        return answer

    def leaks(self, where: str) -> list[str]:
        """Return where the release's keys can be read, see on_node/leaks.py."""
        found: list[str] = on_node(self.host, "leaks", self.directory, self.unit, where)
        return found

    def journal(self, lines: int = 20) -> str:
        """Return the last lines that the unit wrote."""
        done = self.host.run(f"journalctl --unit=%s --quiet --no-pager --output=cat --lines={lines}", self.unit)
        return str(done.stdout).strip()


@dataclass(frozen=True)
class Node:
    """A node; `problem` says why it can't be checked, `expected` is what the inventory lists, where one is known."""

    host: Host
    root: str
    problem: str = ""
    instances: Sequence[Instance] = ()
    expected: Sequence[Mapping[str, Any]] | None = None
    unreadable: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name by which testinfra reaches the node."""
        return str(self.host.backend.get_hostname())


def read_node(host: Host, root: str, expected: Sequence[Mapping[str, Any]] | None) -> Node:
    """Return a node with everything that it records of its instances."""
    try:
        found = on_node(host, "records", root)
    except AssertionError as error:
        return Node(host, root, str(error))
    except Exception as error:  # noqa: BLE001  each back end has its own exceptions, all of them mean the same here
        return Node(host, root, f"the node can't be reached: {_reason(error)}")
    if found["uid"] != 0:
        problem = "the checks read what only root may: add --sudo, or set ansible_become for the ansible back end"
        return Node(host, root, problem)
    none_wanted = expected and all(entry.get("state") == "absent" for entry in expected)
    if not found["instances"] and not none_wanted:
        problem = f"no instance has been deployed to this node: there is none in {root}/instances"
        return Node(host, root, problem, expected=expected)
    states = {str(entry["name"]): str(entry.get("state") or "started") for entry in expected or ()}
    instances = [
        Instance(
            host=host,
            root=root,
            state=states.get(entry["name"], "stopped" if entry["enabled"] == "disabled" else "started"),
            **entry,
        )
        for entry in found["instances"]
    ]
    whole = [instance for instance in instances if instance.release]
    unreadable = [instance.name for instance in instances if not instance.release]
    return Node(host, root, "", whole, expected, unreadable)


def _reason(error: Exception) -> str:
    # The ssh back end raises the whole result of the command, the text of the script included.
    result = error.args[0] if error.args else None
    return _last_line(str(getattr(result, "stderr", None) or error)) or type(error).__name__


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
