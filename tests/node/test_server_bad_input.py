# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input on a node that serves: one clear line, nothing started, nothing changed, the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from node_testing import INSTANCES, Node, tiny

# What a refused deploy must leave as it was: files of units and releases, and which run of which unit is active.
_SNAPSHOT = (
    f"find /etc/systemd/system /run/systemd/system {INSTANCES} /opt/headroom -maxdepth 4 -printf '%p %T@ %l\\n' "
    "| sort; "
    "systemctl list-units --all --plain --no-legend 'sglang-*'; "
    "systemctl show --property=InvocationID,ActiveState sglang-good"
)


@pytest.fixture(scope="module")
def serving(node: Node) -> Iterator[Node]:
    """The shared node with one good server, on which every bad deploy is tried."""
    node.remove_instances()
    run = node.deploy(tiny("good"))
    assert run.status == 0, run.output
    yield node
    node.remove_instances()


def _case(name: str, expected: list[str], *instances: dict[str, Any]) -> Any:
    return pytest.param(instances, expected, id=name)


GOOD = tiny("good")


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        _case("unknown key", ["modle_path", "Did you mean 'model_path'?"], {"name": "bad", "modle_path": "/shared/x"}),
        _case("unknown key that is near nothing", ["'zzz'", "Known are: "], GOOD, tiny("bad", port=30001, zzz=1)),
        _case("wrong type", ["port", "'many'", "a whole number"], GOOD, tiny("bad", port="many")),
        _case("args is a list", ["args", "a mapping"], GOOD, {**tiny("bad", port=30001), "args": ["--x"]}),
        _case("no name", ["sglang_server_instances[1]", "'name'"], GOOD, {"model_path": "/shared/tiny-qwen"}),
        _case("name of no unit", ["'Big Name'", "lower-case"], GOOD, tiny("Big Name", port=30001)),
        _case("one name twice", ["'good'", "sglang_server_instances[0]"], GOOD, tiny("good", port=30001)),
        _case("one port twice", ["30000", "(good)", "30001"], GOOD, tiny("bad")),
        _case("no such model", ["/shared/nothing", "/shared exists", "tiny-qwen"],
              GOOD, tiny("bad", port=30001, model_path="/shared/nothing")),
        _case("no config.json", ["/etc", "config.json"], GOOD, tiny("bad", port=30001, model_path="/etc")),
        _case("no such engine", ["'newest'", "default"], GOOD, tiny("bad", port=30001, engine="newest")),
        _case("flag of its own setting", ["--port", "'port'"], GOOD, tiny("bad", port=30001, args={"port": 1})),
        _case("underscores", ["'tp_size'", "'tp-size'"], GOOD, tiny("bad", port=30001, args={"tp_size": 1})),
        _case("key among the flags", ["api-key", "'api_key'"], GOOD, tiny("bad", port=30001, args={"api-key": "k"})),
        _case("token in the environment", ["HF_TOKEN"], GOOD, tiny("bad", port=30001, env={"HF_TOKEN": "hf_1"})),
        _case("host that is none", ["'not a host'"], GOOD, tiny("bad", port=30001, host="not a host")),
        _case("open without a key", ["0.0.0.0", "allow_unauthenticated"],
              GOOD, tiny("bad", port=30001, host="0.0.0.0")),
    ],
)  # fmt: skip
def test_refused_before_anything_is_touched(
    serving: Node, instances: tuple[dict[str, Any], ...], expected: list[str]
) -> None:
    before = serving.sh(_SNAPSHOT)
    run = serving.deploy(*instances)
    assert run.status != 0, run.output
    assert run.recap("t-server")["changed"] == 0
    assert run.output.count("[ERROR]: ") == 1, run.output
    for text in expected:
        assert text in run.error, run.error
    assert "Traceback" not in run.output
    assert serving.sh(_SNAPSHOT) == before


def test_a_variable_that_no_role_knows(serving: Node) -> None:
    run = serving.play("playbooks/deploy.yml", {"sglang_server_instnces": []})
    assert "'sglang_server_instnces'" in run.error
    assert "Did you mean 'sglang_server_instances'?" in run.error


def test_a_model_that_is_not_there_is_told_before_an_engine_is_installed(serving: Node) -> None:
    engine = {
        "lock": "{{ headroom_clone }}/scripts/cpu_engine/requirements.lock",
        "wheelhouse": "{{ headroom_clone }}/.cache/wheelhouse",
        "shim": "{{ headroom_clone }}/scripts/cpu_engine/shim",
    }
    variables = {
        "sglang_runtime_engines": [{"name": "default", **engine}, {"name": "extra", **engine}],
        "sglang_server_instances": [GOOD, tiny("bad", port=30001, engine="extra", model_path="/shared/nothing")],
    }
    before = serving.sh(_SNAPSHOT)
    run = serving.play("playbooks/deploy.yml", variables)
    assert "/shared/nothing" in run.error
    assert run.recap("t-server")["changed"] == 0
    assert serving.sh(_SNAPSHOT) == before


def test_a_port_that_another_process_holds_is_named_with_its_pid(serving: Node) -> None:
    serving.sh("systemd-run --unit=squatter -q python3 -m http.server 30007 --bind 127.0.0.1")
    serving.sh("for i in $(seq 50); do ss -ltn | grep -q :30007 && exit 0; sleep 0.1; done; exit 1")
    pid = serving.sh("systemctl show -p MainPID --value squatter")
    before = serving.sh(_SNAPSHOT)
    try:
        run = serving.deploy(GOOD, tiny("bad", port=30007))
        assert run.status != 0
        assert f"held by python3 (PID {pid})" in run.error
        assert "30007" in run.error
        assert run.recap("t-server")["changed"] == 0
        assert serving.sh(_SNAPSHOT) == before
    finally:
        serving.sh("systemctl stop squatter")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"args": {"no-such-flag": True}}, "unrecognized arguments: --no-such-flag", id="unknown flag"),
        pytest.param({"args": {"context-length": 1000000}}, "context", id="context length above the model's"),
    ],
)
def test_a_start_that_dies_ends_the_play_at_once(serving: Node, changes: dict[str, Any], reason: str) -> None:
    before = serving.unit("good")
    run = serving.deploy(GOOD, tiny("bad", port=30001, **changes))
    assert run.status != 0
    assert run.output.count("[ERROR]: ") == 1, run.output
    assert reason in run.error, run.error
    assert "[start.died]" in run.error
    assert "nothing runs now" in run.error
    # The last line that the dead server wrote, by the clock that node and controller share.
    died = serving.sh("journalctl -u sglang-bad -o json --output-fields=MESSAGE -n 1 | tail -1")
    stamp = int(died.split('"__REALTIME_TIMESTAMP":"', 1)[1].split('"', 1)[0]) / 1e6
    assert run.ended - stamp < 5, f"the play ended {run.ended - stamp:.1f} s after the death"
    assert serving.unit("bad")["LoadState"] == "not-found"
    assert serving.sh(f"ls {INSTANCES}/bad").split() == ["plans", "releases"], (
        "the failed release is kept for inspection with its plan, and nothing else"
    )
    assert serving.unit("good") == before
    serving.sh(f"rm -r {INSTANCES}/bad")
