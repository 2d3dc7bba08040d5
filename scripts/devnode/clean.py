# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what this clone made, and nothing else: its containers, its images, .cache and .venv."""

from __future__ import annotations

import shutil
import subprocess
import sys

from .names import Clone
from .steps import Steps, as_root, output_of


def clean(clone: Clone, steps: Steps) -> None:
    """Remove everything that is named after the clone; nothing to remove is fine."""
    sys.dont_write_bytecode = True  # else the next import would make .cache/pycache again
    prefix = f"headroom-{clone.id}-"
    if shutil.which("podman"):
        for container in _named("ps", "--all", form="{{.Names}}", prefix=prefix):
            steps.say(f"removing container {container}")
            output_of(*as_root("podman", "rm", "--force", "--time", "5", "--volumes", container))
        for image in _named("images", form="{{.Repository}}:{{.Tag}}", prefix=f"localhost/{prefix}"):
            steps.say(f"removing image {image}")
            output_of(*as_root("podman", "rmi", "--force", image))
    for folder in (clone.cache, clone.venv):
        if folder.exists():
            steps.say(f"removing {folder}")
            shutil.rmtree(folder)


def _named(*command: str, form: str, prefix: str) -> list[str]:
    listed = subprocess.run(
        as_root("podman", *command, "--format", form), capture_output=True, text=True, check=True
    ).stdout.split()
    return [name for name in listed if name.startswith(prefix)]
