# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the machine that runs the nodes: only what is missing is installed."""

from __future__ import annotations

import subprocess

from . import settings
from .steps import StepError, Steps, as_root


def missing(wanted: tuple[str, ...] = settings.HOST_PACKAGES) -> list[str]:
    """The packages of `wanted` that dpkg does not have installed."""
    done = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
        check=False,  # it fails when a package is unknown, which is what we want to know
    )
    states = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return [name for name in wanted if states.get(name) != "installed"]


def ensure(steps: Steps, wanted: tuple[str, ...] = settings.HOST_PACKAGES) -> None:
    """Install what is missing of `wanted`; refresh apt's lists only when an install with the present ones fails.

    apt is never interrupted: dpkg would need a repair by hand before the next run.
    """
    names = missing(wanted)
    if not names:
        return
    install = as_root(
        "env", "DEBIAN_FRONTEND=noninteractive",
        "apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", *names,
    )  # fmt: skip
    with steps.step(f"installing {' '.join(names)}"):
        try:
            steps.run(install, "packages", shielded=True)
        except StepError:
            steps.run(as_root("apt-get", "update"), "packages")
            steps.run(install, "packages", shielded=True)
