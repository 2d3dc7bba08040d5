# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the development nodes are made of: every version, package list and address in one place."""

from __future__ import annotations

SUITE = "bookworm"
NODE_PYTHON = (3, 11)  # of that release

# The tools of the machine that runs the nodes.
HOST_PACKAGES = (
    "podman",
    "runc",  # crun does not start systemd where cgroup v1 and v2 are mixed
    "mmdebstrap",
    "iptables",  # podman's port publishing on Debian 12 calls it and only recommends it
    "openssh-client",
    "ca-certificates",
    "python3-venv",
)

# A node is a bare server: systemd, SSH and what Ansible itself needs, nothing of the engine.
NODE_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "python3-venv",
    "python3-apt",
    "sudo",
    "iproute2",
    "procps",
    "ca-certificates",
)
NODE_USER = "admin"
NODE_UID = 1000

# With these a node boots "running" inside a container; higher limits are refused to unprivileged parents.
PODMAN_OPTIONS = (
    "--systemd=always",
    "--privileged",
    "--ulimit=nofile=1024:20000",
    "--ulimit=nproc=32768:32768",
)
BOOT_TIMEOUT_S = 120

FIRST_PORT = 20000  # SSH ports lie in [FIRST_PORT, FIRST_PORT + PORT_COUNT), below the kernel's ephemeral range
PORT_COUNT = 12000

UV_REQUIREMENT = "uv==0.13.9"

# Packages of the engine's lock that write the tiny model; none of them needs torch.
MODEL_MAKERS = ("numpy", "safetensors", "tokenizers")

# Where the "+cpu" builds are published; asked only when the configured indexes do not have them.
CPU_BUILD_INDEX = "https://download.pytorch.org/whl/cpu"
