# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of a bare node: a minimal Debian that boots systemd and answers SSH, made once a clone."""

from __future__ import annotations

import hashlib
import subprocess

from . import settings
from .names import Clone
from .steps import Steps, as_root, output_of

# Host keys and the machine id belong to a node, not to an image that several nodes start from.
_HOOKS = (
    f'chroot "$1" useradd --create-home --shell /bin/bash --uid {settings.NODE_UID} {settings.NODE_USER}',
    f'echo "{settings.NODE_USER} ALL=(ALL:ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/{settings.NODE_USER}"',
    f'chmod 0440 "$1/etc/sudoers.d/{settings.NODE_USER}"',
    'printf "PermitRootLogin prohibit-password\\nPasswordAuthentication no\\n" > "$1/etc/ssh/sshd_config.d/node.conf"',
    'rm -f "$1"/etc/ssh/ssh_host_*',
    ': > "$1/etc/machine-id"',
)
_CHANGES = ('--change=CMD ["/sbin/init"]', "--change=STOPSIGNAL SIGRTMIN+3")  # the signal that shuts systemd down


def exists(image: str) -> bool:
    """Whether podman has the image."""
    return subprocess.run(as_root("podman", "image", "exists", image), check=False).returncode == 0


def forget_older(clone: Clone, kind: str, kept: str) -> None:
    """Remove the clone's other images of that kind; one that a node still uses stays until the next time."""
    prefix = clone.image(kind, "")
    listed = output_of(*as_root("podman", "images", "--format", "{{.Repository}}:{{.Tag}}")).split()
    for name in listed:
        if name.startswith(prefix) and name != kept:
            subprocess.run(as_root("podman", "rmi", name), capture_output=True, check=False)


def bare_name(clone: Clone) -> str:
    """The bare image's name; its tag changes with what goes into it."""
    content = repr((settings.SUITE, settings.NODE_PACKAGES, _HOOKS, _CHANGES))
    return clone.image("bare", hashlib.sha256(content.encode()).hexdigest()[:12])


def ensure_bare(clone: Clone, steps: Steps) -> str:
    """Build the bare image unless podman has it; returns its name."""
    name = bare_name(clone)
    with clone.locked("image"):
        if not exists(name):
            with steps.step("building the image of a bare node (mmdebstrap)"):
                archive = clone.cache / "bare.tar"
                steps.run(_mmdebstrap(), "image", stdin=_sources(), output=archive)
                steps.run(as_root("podman", "import", *_CHANGES, archive, name), "image")
                archive.unlink()
                forget_older(clone, "bare", name)
    return name


def _mmdebstrap() -> list[str]:
    hooks = [f"--customize-hook={hook}" for hook in _HOOKS]
    options = [f"--aptopt={line}" for line in _apt_options()]
    include = f"--include={','.join(settings.NODE_PACKAGES)}"
    return as_root(
        "mmdebstrap", "--mode=root", "--variant=minbase", include, *options, *hooks, settings.SUITE, "-", "-"
    )


def _apt_options() -> list[str]:
    """What this machine's apt needs to reach its mirror, which mmdebstrap does not read by itself."""
    wanted = ("Acquire::http::Proxy ", "Acquire::https::Proxy ", "Acquire::Check-Valid-Until ", "Acquire::Check-Date ")
    return [line.rstrip(";") for line in output_of("apt-config", "dump").splitlines() if line.startswith(wanted)]


def _sources() -> str:
    """The sources.list of the image: this machine's own Debian mirrors, else Debian's."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    query = ["apt-get", "indextargets", "--format", form, "Identifier: Packages", "Origin: Debian"]
    lines = sorted({line for line in output_of(*query).splitlines() if line.split(" ")[2].startswith(settings.SUITE)})
    plain = [f"deb http://deb.debian.org/debian {settings.SUITE} main"]
    return "\n".join(lines or plain) + "\n"
