# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node, deployed as root, then seen the same from every way in which the playbooks can be called."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_testing import Node, clean_environment, tiny

SETTINGS = {"sglang_server_instances": [tiny()]}


@pytest.fixture(scope="module")
def deployed(node: Node) -> Iterator[Node]:
    """The shared node with the demo's instance, deployed over a connection as root."""
    node.remove_instances()
    run = node.play("playbooks/deploy.yml", SETTINGS, user="root")
    assert run.status == 0, run.output
    assert run.recap(node.name)["changed"] == 1, run.output
    yield node
    node.remove_instances()


@pytest.fixture(scope="module")
def installed(deployed: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder into which the built collection was installed."""
    folder = tmp_path_factory.mktemp("installed")
    galaxy = str(deployed.clone.venv / "bin" / "ansible-galaxy")
    for command in (
        [galaxy, "collection", "build", "--output-path", str(folder), str(deployed.clone.root)],
        [galaxy, "collection", "install", "--no-deps", "-p", str(folder / "collections"),
         str(folder / "headroom-serving-0.1.0.tar.gz")],
    ):  # fmt: skip
        done = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("playbook", ["deploy", "status", "verify"])
def test_inside_playbooks(deployed: Node, playbook: str) -> None:
    run = deployed.play(f"{playbook}.yml", SETTINGS, cwd=deployed.clone.root / "playbooks")
    assert run.status == 0, run.output
    assert run.recap(deployed.name)["changed"] == 0, run.output


@pytest.mark.parametrize("playbook", ["deploy", "status", "verify"])
def test_from_an_installed_collection(deployed: Node, installed: Path, playbook: str) -> None:
    # Pipelining is a setting of the clone's ansible.cfg, which is not there; everything must work without it.
    run = deployed.play(
        f"headroom.serving.{playbook}",
        SETTINGS,
        cwd=installed,
        env={"ANSIBLE_COLLECTIONS_PATH": str(installed / "collections")},
    )
    assert run.status == 0, run.output
    assert run.recap(deployed.name)["changed"] == 0, run.output


def test_as_an_unprivileged_user_with_sudo_after_root(deployed: Node) -> None:
    run = deployed.play("playbooks/deploy.yml", SETTINGS, "--check", "--diff", user="admin")
    assert run.recap(deployed.name)["changed"] == 0, run.output
