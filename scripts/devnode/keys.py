# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH keys: one for the clone to log in with, one a node to be recognised by; never the user's own files."""

from __future__ import annotations

import io
import shlex
import shutil
import tarfile
from pathlib import Path

from . import settings
from .names import Clone
from .steps import Steps


def private_key(clone: Clone) -> Path:
    """The key that logs in to this clone's nodes."""
    return clone.cache / "ssh" / "id_ed25519"


def known_hosts(clone: Clone, name: str) -> Path:
    """The only host key that is accepted for the node."""
    return _folder(clone, name) / "known_hosts"


def ssh_config(clone: Clone, name: str) -> Path:
    """A client configuration with the node as `Host NAME`, for ssh, scp and paramiko."""
    return _folder(clone, name) / "ssh_config"


def ssh_options(clone: Clone, name: str) -> str:
    """The same as words for a command line."""
    settled = [f"UserKnownHostsFile={_quoted(known_hosts(clone, name))}", *_STRICT]
    return " ".join(f"-o {shlex.quote(option)}" for option in settled)


_STRICT = ("GlobalKnownHostsFile=/dev/null", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes")


def ensure_login_key(clone: Clone, steps: Steps) -> Path:
    """Make the clone's key once; returns the public part."""
    path = private_key(clone)
    with clone.locked("ssh"):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = path.with_name("draft")
            _keygen(steps, draft, f"headroom-{clone.id}")
            draft.with_suffix(".pub").replace(path.with_suffix(".pub"))
            draft.replace(path)
    return path.with_suffix(".pub")


def make_host(clone: Clone, steps: Steps, name: str, port: int) -> dict[str, tuple[bytes, int, int]]:
    """Make the node's host key and the client's files about it.

    Returns what must lie in the node: absolute path -> (content, mode, owner's uid).
    """
    login = ensure_login_key(clone, steps).read_bytes()
    folder = _folder(clone, name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    host_key = folder / "host_key"
    _keygen(steps, host_key, name)
    private, public = host_key.read_bytes(), host_key.with_suffix(".pub").read_bytes()
    host_key.unlink()  # only the node needs it
    known_hosts(clone, name).write_text(f"[127.0.0.1]:{port} {public.decode()}", encoding="utf-8")
    lines = [
        f"Host {name}",
        "HostName 127.0.0.1",
        f"Port {port}",
        f"User {settings.NODE_USER}",
        f"IdentityFile {_quoted(private_key(clone))}",
        f"UserKnownHostsFile {_quoted(known_hosts(clone, name))}",
        *(option.replace("=", " ") for option in _STRICT),
    ]
    ssh_config(clone, name).write_text("\n    ".join(lines) + "\n", encoding="utf-8")
    return {
        "/etc/ssh/ssh_host_ed25519_key": (private, 0o600, 0),
        "/etc/ssh/ssh_host_ed25519_key.pub": (public, 0o644, 0),
        "/root/.ssh/authorized_keys": (login, 0o600, 0),
        f"/home/{settings.NODE_USER}/.ssh/authorized_keys": (login, 0o600, settings.NODE_UID),
    }


def forget_host(clone: Clone, name: str) -> None:
    """Remove the client's files about the node."""
    shutil.rmtree(_folder(clone, name), ignore_errors=True)


def _folder(clone: Clone, name: str) -> Path:
    return clone.record(name).with_suffix("")


def _keygen(steps: Steps, path: Path, comment: str) -> None:
    for stale in (path, path.with_suffix(".pub")):
        stale.unlink(missing_ok=True)
    steps.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], "ssh-keygen")


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)


def as_tar(files: dict[str, tuple[bytes, int, int]]) -> bytes:
    """A tar archive of the files and their folders with modes and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, (content, mode, owner) in files.items():
            if path.endswith("/.ssh/authorized_keys"):
                folder = tarfile.TarInfo(str(Path(path).parent).lstrip("/"))
                folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o700, owner, owner
                archive.addfile(folder)
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(content), mode, owner, owner
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
