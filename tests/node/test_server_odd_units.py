# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that are to stop or go, however odd what systemd knows of them is; no engine is needed for that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import MakeNode
from node_code import lay_collection
from node_testing import Node

UNIT = "sglang-odd.service"
FILE = f"/etc/systemd/system/{UNIT}"
APPLY = """
import json, sys
sys.path.insert(0, "/root/collection.zip")
from ansible_collections.headroom.serving.plugins.module_utils import deployment, transaction
params = {{"instances": [{{"name": "odd", "state": {state!r}, "purge": {purge}}}], "root": "/var/lib/headroom",
          "engines_root": "/opt/headroom/engines", "engines": {{}}, "user": "sglang", "home": "/var/lib/sglang"}}
planned = deployment.outcome(deployment.prepare(deployment.Settings.of(params), True))
done = transaction.run(params, lambda line: None)
again = deployment.outcome(deployment.prepare(deployment.Settings.of(params), True))
print(json.dumps([planned["instances"][0]["action"], done["changed"], again["changed"]]))
"""
# What happened to a unit before, by hand or by accident.
MAKE = f"printf '[Service]\\nExecStart=/bin/sleep 600\\n[Install]\\nWantedBy=multi-user.target\\n' > {FILE}; "
RELOAD_AND_RUN = f"systemctl daemon-reload; systemctl enable --now --quiet {UNIT};"
RUN = f"{MAKE} {RELOAD_AND_RUN}"
STORIES = {
    "runs": RUN,
    "runs, not enabled": f"{MAKE} systemctl daemon-reload; systemctl start {UNIT}",
    "enabled only": f"{MAKE} systemctl daemon-reload; systemctl enable --quiet {UNIT}",
    "file deleted": f"{RUN} rm {FILE}; systemctl daemon-reload",
    "file deleted, not reloaded": f"{RUN} rm {FILE}",
    "failed": f"{MAKE} sed -i 's,/bin/sleep 600,/bin/false,' {FILE}; {RELOAD_AND_RUN} sleep 0.3",
}


@pytest.fixture(scope="module")
def host(make_node: MakeNode, bare_image: str, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A bare node with the collection's code."""
    node = make_node("t-odd", bare_image)
    lay_collection(node, tmp_path_factory.mktemp("code") / "collection.zip", "/root/collection.zip")
    return node


@pytest.fixture(autouse=True)
def _clean(host: Node) -> Iterator[None]:
    yield
    host.remove_instances()


def apply(host: Node, state: str, purge: bool = False) -> Any:
    return host.python(APPLY.format(state=state, purge=purge))


def known_release(host: Node) -> None:
    host.sh(
        "d=/var/lib/headroom/instances/odd; mkdir -p $d/releases/0123456789ab; "
        "echo '{}' > $d/releases/0123456789ab/release.json; ln -s releases/0123456789ab $d/current"
    )


@pytest.mark.parametrize(("story", "state"), list(itertools.product(STORIES, ("stopped", "absent"))))
def test_afterwards_nothing_runs_or_starts_at_boot(host: Node, story: str, state: str) -> None:
    known_release(host)
    host.sh(STORIES[story])
    action, changed, again = apply(host, state)
    assert (action, changed, again) == ("stop" if state == "stopped" else "remove", True, False)
    found = host.unit("odd", "ActiveState,UnitFileState,MainPID")
    assert found["ActiveState"] in ("inactive", "failed") and found["MainPID"] == "0"
    assert found["UnitFileState"] in ("", "disabled")
    if state == "absent":
        assert host.sh(f"ls {FILE}", check=False) == ""
        assert host.sh("ls /var/lib/headroom/instances/odd") == "releases"


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_nothing_there_is_nothing_to_do(host: Node, state: str) -> None:
    assert apply(host, state) == ["none", False, False]


def test_absent_keeps_the_releases_until_they_are_purged(host: Node) -> None:
    known_release(host)
    assert apply(host, "absent") == ["remove", True, False]
    assert host.sh("ls /var/lib/headroom/instances/odd/releases") == "0123456789ab"
    assert apply(host, "absent", purge=True) == ["remove", True, False]
    assert host.sh("ls /var/lib/headroom/instances") == ""


@pytest.mark.parametrize("content", ["", "{", "[]", '{"served_name": "m"}', None])
def test_a_damaged_release_does_not_hide_the_others_from_the_status(host: Node, content: str | None) -> None:
    known_release(host)
    record = "/var/lib/headroom/instances/odd/releases/0123456789ab/release.json"
    host.sh(f"rm {record}" if content is None else f"printf %s '{content}' > {record}")
    host.sh(STORIES["runs"])
    rows = host.python(
        'import json, sys; sys.path.insert(0, "/root/collection.zip"); from pathlib import Path\n'
        "from ansible_collections.headroom.serving.plugins.module_utils import status\n"
        'print(json.dumps([status.cells(row.as_dict()) for row in status.rows(Path("/var/lib/headroom"))]))'
    )
    assert [row[0] for row in rows] == ["odd"]
    assert rows[0][2] == "active (running)"
