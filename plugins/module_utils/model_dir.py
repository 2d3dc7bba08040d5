# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model directory as the server will find it: is it one, who can read it, and what is it made of."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
# Run as the service account: writes the first file that it can't read, or directory that it can't list.
_READ_TEST = """
import os, sys
for path in sys.stdin.buffer.read().split(bytes(1)):
    if not os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK):
        sys.stdout.buffer.write(path)
        break
"""


@dataclass(frozen=True)
class ModelDir:
    """The files of a model; sizes in bytes, the digest over relative paths and sizes."""

    path: str
    digest: str
    weight_bytes: int
    architecture: str


def inspect(where: str, path: str, user: str) -> tuple[ModelDir | None, list[Finding]]:
    """Look at a model directory.

    Args:
        where: The setting that named it, for messages.
        path: Absolute path on this node.
        user: Service account that must be able to read it; not checked while it does not exist yet.

    Returns:
        The model, or None with the findings that say why it is none.
    """
    root = Path(path)
    if not root.is_absolute():
        return None, [finding("model.missing", f"{where} {path!r} is not an absolute path.", "Give the full path.")]
    if not root.is_dir():
        return None, [finding("model.missing", f"{where} {path!r} is no directory on this node.", _nearest(root))]
    try:
        config = json.loads((root / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        cure = "Give the directory that holds the checkpoint's config.json and weights."
        return None, [finding("model.no_config", f"{where} {path!r} has no config.json.", cure)]
    except (OSError, ValueError, RecursionError) as error:
        return None, [
            finding("model.no_config", f"{where}: {path}/config.json can't be read: {error}.", "Copy the model again.")
        ]
    if not isinstance(config, dict):
        return None, [
            finding("model.no_config", f"{where}: {path}/config.json is no JSON object.", "Copy the model again.")
        ]
    lost = _lost_link(root)
    if lost:
        cure = "Fetch the file again, or copy the model with 'cp -L' from where its links still lead somewhere."
        return None, [finding("model.missing", f"{where}: {lost} is a link to a file that is not there.", cure)]
    files = _files(root)
    paths = {root / name for name, _size in files}
    folders = {parent for path in paths for parent in path.parents if parent == root or root in parent.parents}
    unreadable = _unreadable(user, [str(path) for path in sorted(folders) + sorted(paths)])
    if unreadable:
        cure = f"Let the account read it: 'chmod o+rX' on {unreadable} and the directories above."
        return None, [finding("model.missing", f"{where}: the account {user!r} can't read {unreadable}.", cure)]
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    weights = sum(size for name, size in files if name.endswith(WEIGHT_SUFFIXES))
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else "unknown"
    return ModelDir(path, digest, weights, str(first)), []


def _files(root: Path) -> list[tuple[str, int]]:
    """Return relative paths and sizes, sorted; hidden files (download caches, NFS leftovers) are no part of a model."""
    found: list[tuple[str, int]] = []
    for directory, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(directory, name)
            if not name.startswith(".") and path.is_file():
                found.append((str(path.relative_to(root)), path.stat().st_size))
    return sorted(found)


def _lost_link(root: Path) -> str:
    """Return a link that leads nowhere, such as into a download cache that was pruned; SGLang would load without it."""
    for directory, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted(names):
            path = Path(directory, name)
            if not name.startswith(".") and path.is_symlink() and not path.exists():
                return str(path)
    return ""


def _unreadable(user: str, paths: list[str]) -> str:
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return ""
    if os.geteuid() != 0:
        return ""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _READ_TEST],
        input=b"\0".join(os.fsencode(path) for path in paths),
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=os.getgrouplist(user, account.pw_gid),
        cwd="/",
        capture_output=True,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")


def _nearest(path: Path) -> str:
    """Say which part of the path exists: an unmounted share looks different from a typo."""
    for parent in path.parents:
        if parent.is_dir():
            names = sorted(entry.name for entry in parent.iterdir() if entry.is_dir())[:5]
            there = f"it holds {', '.join(names)}." if names else "it is empty: is the share mounted?"
            return f"{parent} exists; {there}"
    return ""
