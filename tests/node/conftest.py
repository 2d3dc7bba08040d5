# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real nodes for tests: containers that booted systemd, reached over SSH, with the CPU engine already installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from node_testing import Node

from devnode import engine, image, model, wheelhouse
from devnode.names import Clone
from devnode.steps import Steps

MakeNode = Callable[..., Node]


@pytest.fixture(scope="session")
def clone() -> Clone:
    """The clone under test."""
    return Clone.here()


@pytest.fixture(scope="session")
def steps(clone: Clone) -> Steps:
    """Where the output of commands goes."""
    return Steps(clone.cache / "logs", quiet=True)


@pytest.fixture(scope="session")
def supplies(clone: Clone, steps: Steps) -> None:
    """What deployments of the demo take from the controller: wheels and the model."""
    wheelhouse.ensure(clone, steps)
    model.ensure(clone, steps)


@pytest.fixture(scope="session")
def bare_image(clone: Clone, steps: Steps) -> str:
    """A Debian with systemd and sshd."""
    return image.ensure_bare(clone, steps)


@pytest.fixture(scope="session")
def engine_image(clone: Clone, steps: Steps) -> str:
    """The same with the demo's engine, as the role sglang_runtime installs it."""
    model.ensure(clone, steps)
    return engine.ensure_image(clone, steps)


@pytest.fixture(scope="session")
def make_node(clone: Clone, steps: Steps) -> Iterator[MakeNode]:
    """Make nodes that are removed when the session ends; a name is used for one node only."""
    made: list[Node] = []

    def make(name: str, image_name: str, *podman_options: str) -> Node:
        node = Node(clone, name)
        node.up(steps, image_name, podman_options)
        made.append(node)
        return node

    yield make
    for node in made:
        node.down()


@pytest.fixture(scope="session")
def node(make_node: MakeNode, engine_image: str) -> Node:
    """A node with the engine, shared by the tests of the server role; each test leaves it without instances."""
    return make_node("t-server", engine_image)


@pytest.fixture
def empty(node: Node) -> Iterator[Node]:
    """The shared node, without instances before and after the test."""
    node.remove_instances()
    yield node
    node.remove_instances()
