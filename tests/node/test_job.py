# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work on a real node: it outlives who started it, is followed by anybody, refuses a second one, and may die."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import MakeNode
from node_code import lay_collection
from node_testing import Node

UNIT = "headroom-test"
KEY = "s3cr3t-0123456789"
WORK = """
import time
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

def run(params, progress):
    for number in range(params["steps"]):
        progress(f"step {number}")
        time.sleep(params["seconds"])
    if params.get("refuse"):
        raise refusal("model.missing", "a is b", "Use c.")
    return {"changed": True, "length": len(params["key"])}
"""
CALL = """
import json, sys
sys.path.insert(0, "/root/collection.zip")
from ansible_collections.headroom.serving.plugins.module_utils import job, work_of_a_test
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
try:
    print(json.dumps({call}))
except HeadroomError as error:
    print(json.dumps({{"error": str(error)}}))
"""


@pytest.fixture(scope="module")
def host(make_node: MakeNode, bare_image: str, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A bare node with the collection's code and some work."""
    node = make_node("t-job", bare_image)
    path = tmp_path_factory.mktemp("code") / "collection.zip"
    lay_collection(node, path, "/root/collection.zip", {"work_of_a_test.py": WORK})
    return node


@pytest.fixture(autouse=True)
def _clean(host: Node) -> Iterator[None]:
    yield
    host.sh(f"systemctl stop {UNIT} 2>/dev/null; rm -rf /run/headroom", check=False)


def call(host: Node, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = host.python(CALL.format(call=text))
    return answer


def start(host: Node, steps: int, seconds: float, **more: Any) -> dict[str, Any]:
    params = {"steps": steps, "seconds": seconds, "key": KEY, **more}
    return call(host, f"job.start({UNIT!r}, work_of_a_test.run, {params!r})")


def follow(host: Node, started: dict[str, Any], offset: int = 0, wait_s: float = 10) -> dict[str, Any]:
    return call(host, f"job.follow({started['dir']!r}, {started['unit']!r}, {offset}, {wait_s})")


def follow_to_the_end(host: Node, started: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    lines: list[str] = []
    offset = 0
    while True:
        answer = follow(host, started, offset)
        lines += answer["lines"]
        offset = answer["offset"]
        if answer["finished"]:
            return lines, answer["result"]


def test_work_is_followed_to_its_result_by_processes_that_did_not_start_it(host: Node) -> None:
    started = start(host, 5, 0.2)
    assert started["unit"] == UNIT and started["dir"].startswith(f"/run/headroom/jobs/{UNIT}.")
    lines, result = follow_to_the_end(host, started)
    assert lines == [f"step {number}" for number in range(5)]
    assert result == {"changed": True, "length": len(KEY)}
    # Who follows late or again gets everything from its offset.
    again = follow(host, started, len("step 0\n"))
    assert (again["lines"][0], again["finished"], again["result"]) == ("step 1", True, result)


def test_following_waits_for_the_first_line_only(host: Node) -> None:
    started = start(host, 2, 30)
    began = time.monotonic()
    answer = follow(host, started, 0, 20)
    assert (answer["lines"], answer["finished"], answer["result"]) == (["step 0"], False, None)
    assert time.monotonic() - began < 10
    began = time.monotonic()
    answer = follow(host, started, answer["offset"], 1)
    assert (answer["lines"], answer["finished"]) == ([], False)
    assert 1 <= time.monotonic() - began < 10


def test_secrets_show_nowhere(host: Node) -> None:
    started = start(host, 2, 30)
    follow(host, started)
    assert host.sh(f"stat -c %a /run/headroom/jobs {started['dir']}").split() == ["700", "700"]
    assert sorted(host.sh(f"ls {started['dir']}").split()) == ["code.zip", "progress"]
    pid = host.sh(f"systemctl show --property=MainPID --value {UNIT}")
    shown = host.sh(
        f"systemctl cat {UNIT}; systemctl show {UNIT}; tr '\\0' '\\n' < /proc/{pid}/cmdline; "
        f"tr '\\0' '\\n' < /proc/{pid}/environ; "
        f"journalctl -u {UNIT} --no-pager -o json; grep -r . {started['dir']}/progress"
    )
    assert "step 0" in shown and "code.zip" in shown
    assert KEY not in shown


def test_work_that_is_killed_ends_without_a_result(host: Node) -> None:
    started = start(host, 2, 300)
    first = follow(host, started)
    host.sh(f"systemctl kill --signal=SIGKILL {UNIT}")
    began = time.monotonic()
    answer = follow(host, started, first["offset"], 60)
    assert time.monotonic() - began < 10
    assert answer["finished"] is True
    assert answer["result"] == {
        "failed": True,
        "msg": f"{UNIT}.service ended without a result: see 'journalctl -u {UNIT}'",
    }
    # The next one is not hindered by what is left.
    assert follow_to_the_end(host, start(host, 1, 0))[1]["changed"] is True


def test_a_second_one_is_refused_by_name_while_one_runs(host: Node) -> None:
    started = start(host, 2, 300)
    follow(host, started)
    refused = start(host, 1, 0)
    assert refused["error"].startswith(f"{UNIT}.service is already at work on this node, started by another run: ")
    assert f"journalctl -fu {UNIT}" in refused["error"] and "\n" not in refused["error"]
    assert KEY not in refused["error"]
    assert host.sh("ls /run/headroom/jobs").split() == [started["dir"].rsplit("/", 1)[1]]
    assert host.sh(f"systemctl is-active {UNIT}") == "active"


def test_finished_work_is_forgotten_when_the_next_one_starts(host: Node) -> None:
    first = start(host, 1, 0)
    follow_to_the_end(host, first)
    second = start(host, 1, 0)
    assert second["dir"] != first["dir"]
    assert follow_to_the_end(host, second)[1]["changed"] is True
    assert host.sh("ls /run/headroom/jobs").split() == [second["dir"].rsplit("/", 1)[1]]
    assert "no job directory" in follow(host, first)["error"]


def test_a_refusal_reaches_the_follower_and_the_journal(host: Node) -> None:
    lines, result = follow_to_the_end(host, start(host, 1, 0, refuse=True))
    assert lines == ["step 0"]
    assert (result["failed"], result["msg"]) == (True, "a is b. Use c. [model.missing]")
    assert [item["id"] for item in result["findings"]] == ["model.missing"]
    assert "a is b. Use c. [model.missing]" in host.sh(f"journalctl -u {UNIT} --no-pager -o cat")
    assert json.loads(json.dumps(result)) == result


def test_a_unit_that_systemd_does_not_start(host: Node) -> None:
    path = f"/etc/systemd/system/{UNIT}.service"
    host.sh(f"printf '[Service]\\nExecStart=/bin/true\\n' > {path}; systemctl daemon-reload")
    refused = start(host, 1, 0)
    host.sh(f"rm {path}; systemctl daemon-reload")
    assert refused["error"].startswith(f"systemd does not start {UNIT}.service: ")
    assert "fragment file" in refused["error"] and KEY not in refused["error"]
    assert host.sh("ls /run/headroom/jobs") == ""
