# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo's real engine on a bare node: killed in the middle, then installed, then left alone."""

from __future__ import annotations

import json
import threading
import time

import pytest
from conftest import MakeNode
from node_testing import Node, Run

from devnode.names import Clone

pytestmark = pytest.mark.full

PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "become": True,
        "tasks": [{"ansible.builtin.import_role": {"name": "headroom.serving.sglang_runtime"}}],
    }
]


@pytest.fixture(scope="module")
def bare(clone: Clone, supplies: None, make_node: MakeNode, bare_image: str) -> Node:  # noqa: ARG001
    """A bare node that nobody else uses."""
    node = make_node("t-real", bare_image)
    (node.folder / "play.json").write_text(json.dumps(PLAY), encoding="utf-8")
    return node


def play(node: Node) -> Run:
    """Run the role with the demo's settings."""
    return node.play(node.folder / "play.json")


def test_a_real_engine_killed_while_it_compiles_is_installed_by_the_next_run(bare: Node) -> None:
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(play(bare)))
    thread.start()
    try:
        progress = "cat /run/headroom/jobs/headroom-engine-*/progress 2>/dev/null || true"
        while "compiling: " not in bare.sh(progress):
            assert thread.is_alive(), runs[0].output
            time.sleep(0.5)
        bare.sh("systemctl kill --signal=SIGKILL --kill-whom=all 'headroom-engine-*.service'")
    finally:
        thread.join(60)
    assert runs[0].status == 2 and "ended without a result" in runs[0].error
    half = bare.sh("cd /opt/headroom/engines && ls -d [0-9a-f]*")
    assert bare.sh(f"ls /opt/headroom/engines/{half}").split() == ["lock.txt", "venv"]
    assert bare.sh("ls /opt/headroom/engines/names") == ""

    run = play(bare)
    assert run.status == 0, run.output
    assert "sending" not in run.output
    assert f"removing what an interrupted installation left in /opt/headroom/engines/{half}" in run.output
    record = json.loads(bare.sh("cat /opt/headroom/engines/names/default/engine.json"))
    assert (record["id"], record["version"]) == (half, "0.5.14")
    # The engine and the installer's cache hold each file once.
    alone = int(bare.sh("du -sm /opt/headroom/engines | cut -f1"))
    together = int(bare.sh("du -scm /opt/headroom/engines /opt/headroom/cache | tail -n 1 | cut -f1"))
    assert together < alone * 1.1


def test_a_run_that_changes_nothing_is_short(bare: Node) -> None:
    run = play(bare)
    assert run.status == 0 and run.recap(bare.name)["changed"] == 0
