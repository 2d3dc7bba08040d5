# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of a node in which the CPU engine is already installed, for tests that are not about installing it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from . import image, model, node, venv, wheelhouse
from .names import Clone
from .steps import Steps, as_root

_BUILDER = "engine-builder"
# What makes a node itself: each node that starts from the image gets its own.
_FORGET = ": > /etc/machine-id; rm -rf /etc/ssh/ssh_host_* /root/.ssh /root/.ansible /home/*/.ssh /home/*/.ansible"
# What decides how the installed engine looks: the engine's own files, and the role with the code behind it.
_SOURCES = (
    "scripts/cpu_engine/requirements.lock",
    "scripts/cpu_engine/shim",
    "roles/sglang_runtime",
    *(f"plugins/module_utils/{part}*.py" for part in ("engine", "interpreter", "lock", "os_", "venv", "wheel")),
)


def image_name(clone: Clone) -> str:
    """The engine image's name; its tag is a hash of the bare image and of what the role installs."""
    digest = hashlib.sha256(image.bare_name(clone).encode())
    for source in _SOURCES:
        for path in sorted(clone.root.glob(source)):
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file() and "__pycache__" not in file.parts:
                    digest.update(f"{file.relative_to(clone.root)}\0".encode() + file.read_bytes())
    return clone.image("engine", digest.hexdigest()[:12])


def ensure_image(clone: Clone, steps: Steps) -> str:
    """Install the engine on a bare node by the role and keep the node as an image; returns the image's name."""
    bare = image.ensure_bare(clone, steps)
    with clone.locked("engine-image"):
        name = image_name(clone)
        if not image.exists(name):
            venv.ensure(clone, steps, venv.CONTROLLER)
            wheelhouse.ensure(clone, steps)
            model.ensure(clone, steps)
            node.up(clone, steps, _BUILDER, bare)
            with steps.step("installing the engine for the image of a node with engine"):
                _install(clone, steps)
            with steps.step("keeping that node as an image"):
                node.run_in(clone, _BUILDER, "sh", "-c", _FORGET)
                steps.run(as_root("podman", "stop", clone.container(_BUILDER)), "engine-image")
                steps.run(as_root("podman", "commit", "--quiet", clone.container(_BUILDER), name), "engine-image")
                node.down(clone, _BUILDER)
                image.forget_older(clone, "engine", name)
    return name


def _install(clone: Clone, steps: Steps) -> None:
    folder = clone.cache / "engine-builder"
    folder.mkdir(exist_ok=True)
    inventory = folder / "hosts.json"
    inventory.write_text(json.dumps(node.inventory(clone, _BUILDER)), encoding="utf-8")
    play = {
        "name": "Install the engine of the demo",
        "hosts": _BUILDER,
        "become": True,
        "gather_facts": False,
        "roles": ["headroom.serving.sglang_runtime"],
    }
    playbook = folder / "install.json"
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    steps.run(
        [clone.venv / "bin" / "ansible-playbook", *_inventories(clone, inventory), playbook],
        "engine-image",
        env={"ANSIBLE_CONFIG": str(clone.root / "ansible.cfg")},
    )


def _inventories(clone: Clone, own: Path) -> list[str]:
    # The demo's group_vars hold for every host of the group, wherever the host is from.
    return ["-i", str(clone.root / "inventory" / "demo"), "-i", str(own)]
