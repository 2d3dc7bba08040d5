# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One test for each check and instance of the nodes that testinfra's options name.

Environment:
    HEADROOM_VERIFY: a JSON file with what is expected: `root`, the root directory of the instances (default
        /var/lib/headroom), and `nodes`, for each node the list of its instances as {name, state, port}. Without it the
        ansible back end takes the inventory's lists, as far as they are written out.
    HEADROOM_VERIFY_EVENTS: a file that gets one JSON object for each check as it ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import testinfra

# With pytest's import mode "importlib" the modules beside this file are not found by themselves.
sys.path.insert(0, str(Path(__file__).parent))

from deployed import Instance, Node, read_node

_NODES = pytest.StashKey[list[Node]]()
# Which nodes and which instances a check takes, by the name of its argument.
_NODE_CHOICES = {
    "node": lambda node: isinstance(node, Node),
    "sound": lambda node: not node.problem,
    "listed": lambda node: not node.problem and node.expected is not None,
}
_CHOICES = {
    "instance": lambda instance: bool(instance.release),
    "running": lambda instance: instance.state == "started",
    "stopped": lambda instance: instance.state == "stopped",
    "keyed": lambda instance: instance.has_keys,
    "locked": lambda instance: instance.state == "started" and instance.release["has_api_key"],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each check its nodes or instances; one that has none is left out, see pytest_collection_modifyitems."""
    nodes = _nodes(metafunc.config)
    for argument, is_for in _NODE_CHOICES.items():
        if argument in metafunc.fixturenames:
            _parametrize(metafunc, argument, {node.name: node for node in nodes if is_for(node)})
    for argument, fits in _CHOICES.items():
        if argument in metafunc.fixturenames:
            found = {f"{node.name}-{item.name}": item for node in nodes for item in node.instances if fits(item)}
            _parametrize(metafunc, argument, found)


def _parametrize(metafunc: pytest.Metafunc, argument: str, values: Mapping[str, Any]) -> None:
    # pytest would report a check without values as skipped, as if something had been left undone.
    metafunc.parametrize(argument, list(values.values()) or [None], ids=list(values) or ["none"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the checks that no node or instance asks for."""
    items[:] = [item for item in items if _subject(item) is not None]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the last lines of the unit's journal to a failed check of it, and tell of each check that ended."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    subject = _subject(item)
    if report.failed and isinstance(subject, Instance):
        report.sections.append((f"journal of {subject.unit}", _journal(subject)))
    if report.when == "call" or not report.passed:
        _tell(report, item.originalname, _title(item, subject))  # type: ignore[attr-defined]


def _nodes(config: pytest.Config) -> list[Node]:
    """Return the nodes that testinfra's options name; they are read once."""
    if _NODES not in config.stash:
        option = config.option
        try:
            hosts = testinfra.get_hosts(
                option.hosts.split(",") if option.hosts else [None],
                connection=option.connection,
                ssh_config=option.ssh_config,
                ssh_identity_file=option.ssh_identity_file,
                sudo=option.sudo,
                sudo_user=option.sudo_user,
                ansible_inventory=option.ansible_inventory,
                force_ansible=option.force_ansible,
            )
        except (RuntimeError, AssertionError) as error:
            raise pytest.UsageError(f"testinfra finds no node: {error}") from None
        if not hosts:
            raise pytest.UsageError(f"--hosts={option.hosts} matches no node")
        settings = _settings()
        root = str(settings.get("root") or "/var/lib/headroom")
        config.stash[_NODES] = [read_node(host, root, _expected(host, settings)) for host in hosts]
    return config.stash[_NODES]


def _settings() -> dict[str, Any]:
    path = os.environ.get("HEADROOM_VERIFY")
    if not path:
        return {}
    settings: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return settings


def _expected(host: Any, settings: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return what the inventory lists for a node, None where it is not known."""
    listed = (settings.get("nodes") or {}).get(host.backend.get_hostname())
    if listed is None and host.backend.HAS_RUN_ANSIBLE:
        listed = host.backend.get_variables().get("sglang_server_instances")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        return None
    picked = [{key: entry[key] for key in ("name", "state", "port") if key in entry} for entry in listed]
    # What an inventory computes is not known here.
    return None if "{{" in json.dumps(picked) else picked


def _subject(item: pytest.Item) -> Any:
    """Return the node or instance that a check is about, None where there is none."""
    parameters = item.callspec.params  # type: ignore[attr-defined]
    return next(parameters[name] for name in (*_NODE_CHOICES, *_CHOICES) if name in parameters)


def _title(item: pytest.Item, subject: Any) -> str:
    """Return a check in words: its docstring, with the instance in front and what else it is about behind."""
    text = (item.function.__doc__ or item.name).splitlines()[0].rstrip(".")  # type: ignore[attr-defined]
    text = text[:1].lower() + text[1:]
    more = [value for value in item.callspec.params.values() if isinstance(value, str)]  # type: ignore[attr-defined]
    text += f" ({'='.join(more)})" if more else ""
    return f"{subject.name}: {text}" if isinstance(subject, Instance) else text


def _journal(instance: Instance) -> str:
    try:
        return instance.journal() or "(it has written nothing)"
    except Exception as error:  # noqa: BLE001  the check's own failure is what counts
        return f"(can't be read: {error})"


def _tell(report: pytest.TestReport, test: str, title: str) -> None:
    path = os.environ.get("HEADROOM_VERIFY_EVENTS")
    if not path:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = "" if report.passed else str(getattr(crash, "message", report.longrepr)).strip()
    for kind in ("AssertionError: ", "Failed: "):
        reason = reason[len(kind) :] if reason.startswith(kind) else reason
    event = {
        "test": test,
        "outcome": report.outcome,
        "title": title,
        "reason": reason.splitlines()[0] if reason else "",
        "seconds": round(report.duration, 2),
        "sections": [list(section) for section in report.sections if section[0].startswith("journal of ")],
    }
    with open(path, "a", encoding="utf-8") as stream:  # noqa: PTH123  may be a pipe
        stream.write(json.dumps(event) + "\n")
