# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be true of a node as a whole."""

from __future__ import annotations

import pytest
from deployed import Node


def test_node_has_instances(node: Node) -> None:
    """The node can be asked and has an instance."""
    if node.problem:
        pytest.fail(node.problem, pytrace=False)
    if node.unreadable:
        names = ", ".join(node.unreadable)
        pytest.fail(f"the current release of {names} has no readable release.json: deploy again", pytrace=False)


def test_instances_are_the_listed_ones(listed: Node) -> None:
    """The instances that run are exactly those that the inventory lists as started."""
    assert listed.expected is not None
    wanted = {
        f"{entry['name']} on port {entry.get('port') or 30000}"
        for entry in listed.expected
        if (entry.get("state") or "started") == "started"
    }
    running = {
        f"{instance.name} on port {instance.release['port']}"
        for instance in listed.instances
        if instance.properties("ActiveState")["ActiveState"] == "active"
    }
    absent = {str(entry["name"]) for entry in listed.expected if entry.get("state") == "absent"}
    left = sorted(absent & {instance.name for instance in listed.instances})
    missing, more = sorted(wanted - running), sorted(running - wanted)
    assert not missing, f"listed in sglang_server_instances but not running: {', '.join(missing)}"
    assert not more, f"running but not listed as started in sglang_server_instances: {', '.join(more)}"
    assert not left, f"listed with state: absent but still there: {', '.join(left)}"


def test_no_unit_of_a_job_failed(sound: Node) -> None:
    """No unit of a job of the collection has failed."""
    shown = sound.host.check_output("systemctl list-units --all --plain --no-legend --state=failed 'headroom-*'")
    failed = [line.split()[0] for line in shown.splitlines()]
    assert not failed, f"failed: {', '.join(failed)}; see 'journalctl -u {failed[0]}'"


def test_no_job_was_left_half_way(sound: Node) -> None:
    """No job of the collection ended without a result."""
    jobs = sound.host.check_output("find /run/headroom/jobs -mindepth 1 -maxdepth 1 -type d 2>/dev/null || true")
    lost = []
    for directory in jobs.splitlines():
        unit = directory.rpartition("/")[2].rpartition(".")[0] + ".service"
        running = sound.host.run("systemctl is-active --quiet %s", unit).rc == 0
        if not running and not sound.host.file(f"{directory}/result.json").exists:
            lost.append(unit)
    assert not lost, f"ended without a result: {', '.join(lost)}; see 'journalctl -u {lost[0]}', then deploy again"
