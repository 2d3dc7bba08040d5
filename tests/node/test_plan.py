# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan on a real node: it refuses while the old server serves, learns from starts, and guards each later one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from node_testing import Node, tiny

POOLS = {"enable-hierarchical-cache": True, "hicache-size": 500}


@contextmanager
def free_memory(node: Node, mib: int) -> Iterator[None]:
    """Let the node believe that this much of its memory is free: /proc/meminfo is overlaid, as a bind mount may do."""
    node.sh(
        f"sed 's/^MemAvailable:.*/MemAvailable: {mib * 1024} kB/; s/^MemFree:.*/MemFree: 1024 kB/' /proc/meminfo "
        "> /run/meminfo; cp /proc/meminfo /run/meminfo.true; mount --bind /run/meminfo /proc/meminfo"
    )
    try:
        yield
    finally:
        # A unit has mounts of its own and keeps the overlay, so the file itself must tell the truth again.
        node.sh("cat /run/meminfo.true > /run/meminfo; umount /proc/meminfo")


def wait_for(node: Node, script: str, seconds: float = 60) -> str:
    """Wait until a script prints something, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = node.sh(script, check=False)
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{script!r} printed nothing within {seconds} s:\n{node.sh('journalctl -n 40 --no-pager')}")


def test_what_does_not_fit_is_refused_while_the_old_server_serves(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    before = empty.unit("tiny")
    run = empty.deploy(tiny(args=POOLS))
    assert run.status != 0
    assert "hicache-size is 500, for each rank" in run.error and "[hicache.node_budget]" in run.error
    assert "510.8 GB needed" in run.error
    # The findings come as a table before the task fails, and no job was started for it.
    assert "hicache.node_budget" in run.output.split("[ERROR]")[0]
    assert "stopping release" not in run.output and "starting release" not in run.output
    assert empty.unit("tiny") == before
    assert empty.complete("tiny-qwen", "def main(", 4)["usage"]["completion_tokens"] == 4
    assert empty.sh("ls /var/lib/headroom/instances/tiny/releases | wc -l") == "1"


def test_check_mode_tells_the_same_and_leaves_no_trace(empty: Node) -> None:
    empty.sh("rm -rf /var/cache/headroom/shapes")
    run = empty.deploy(tiny(args=POOLS), options=["--check"])
    assert run.status != 0 and "[hicache.node_budget]" in run.error
    assert empty.sh("ls /var/cache/headroom/shapes", check=False) == ""


def test_an_accepted_finding_warns_and_is_shown_by_every_later_status(empty: Node) -> None:
    with free_memory(empty, 30):
        refused = empty.deploy(tiny())
        assert refused.status != 0 and "[host.memory]" in refused.error
        accepted = {"sglang_server_instances": [tiny()], "sglang_server_accept": ["host.memory"]}
        run = empty.play("playbooks/deploy.yml", accepted)
        assert run.status == 0, run.output
        assert "host.memory" in run.output
        again = empty.play("playbooks/deploy.yml", accepted)
        assert again.recap(empty.name)["changed"] == 0
    status = empty.play("playbooks/status.yml")
    row = next(line for line in status.output.splitlines() if " tiny " in line)
    assert row.split()[-1] == "host.memory"
    # What needs no exception any more says so from the next start on.
    assert empty.deploy(tiny(args={"max-total-tokens": 2048})).status == 0
    status = empty.play("playbooks/status.yml")
    assert next(line for line in status.output.splitlines() if " tiny " in line).split()[-1] == "-"


@pytest.mark.parametrize("wrong", ["hicache.node_budgt", "instance.port_taken", "plan.context_exceeds_pool", "all"])
def test_only_findings_of_the_plan_can_be_accepted(empty: Node, wrong: str) -> None:
    run = empty.play("playbooks/deploy.yml", {"sglang_server_accept": [wrong]})
    assert run.status != 0
    assert f"sglang_server_accept names '{wrong}', which is nothing to accept." in run.error


def test_a_start_is_measured_and_the_next_plan_says_so(empty: Node) -> None:
    empty.sh("rm -rf /var/lib/headroom/measured")
    assert empty.deploy(tiny()).status == 0
    kept = json.loads(empty.sh("cat /var/lib/headroom/measured/*.json"))
    assert kept
    second_run = empty.deploy(tiny(args={"max-total-tokens": 2048}))
    assert second_run.status == 0
    plans = "/var/lib/headroom/instances/tiny/plans"
    reports: list[dict[str, Any]] = [
        json.loads(empty.sh(f"cat {plans}/{name}"))["report"] for name in empty.sh(f"ls -tr {plans}").split()
    ]
    first, second = (report["sources"]["facts"] for report in reports)
    assert "no start" in first and "measured" in second
    assert reports[1]["plan"]["tokens"]["best"] == 2048
    assert "tiny: KV tokens as planned: 2,048, planned 2,048 to 2,048" in second_run.output


def test_a_crash_is_followed_by_a_wait_for_memory_that_is_on_its_way_back(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    first = empty.unit("tiny")["MainPID"]
    with free_memory(empty, 5):
        empty.sh(f"kill -9 {first}")
        said = wait_for(empty, "journalctl -u sglang-tiny --no-pager -o cat | grep '^headroom: waiting for memory'")
        assert "(0 of 120 s): tiny: mem-fraction-static is" in said and "of 0.00 GiB free on memory" in said
        assert empty.unit("tiny")["ActiveState"] == "activating"
    wait_for(empty, "journalctl -u sglang-tiny --no-pager -o cat | grep '^headroom: the memory is back after'")
    second = empty.unit("tiny")["InvocationID"]
    wait_for(empty, f"journalctl _SYSTEMD_INVOCATION_ID={second} --no-pager -o cat | grep 'ready to roll'", 300)
    assert empty.unit("tiny")["MainPID"] not in (first, "0")
    assert empty.complete("tiny-qwen", "def main(", 4)["usage"]["completion_tokens"] == 4


@pytest.mark.full
def test_a_boot_without_the_memory_ends_with_the_finding_in_the_journal(empty: Node) -> None:
    assert empty.deploy(tiny()).status == 0
    empty.sh("systemctl stop sglang-tiny")
    with free_memory(empty, 5):
        empty.sh("systemctl start sglang-tiny", check=False)
        said = empty.sh("journalctl -u sglang-tiny --no-pager -o cat | grep '^headroom: refused'")
    assert "[host.memory]" in said
    assert empty.unit("tiny")["ActiveState"] in ("failed", "activating")
