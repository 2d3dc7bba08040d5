# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels that the controller copied to a node, kept by content: `<store>/<sha256>/<file name>`.

They arrive as tar archives of pieces named `<sha256>.<offset>`, so that one large wheel can travel in several archives.
A wheel takes its final place by rename after its hash was checked; what is there is whole.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

DEFAULT = Path("/var/cache/headroom/wheels")
_BLOCK = 1024 * 1024
_PARTIAL = ".partial-"


def lacking(store: Path, wheels: Mapping[str, str]) -> list[str]:
    """Return the SHA-256 digests of `wheels` (digest to file name) that the store does not have."""
    return [digest for digest, filename in wheels.items() if not (store / digest / filename).is_file()]


def unpack(store: Path, archive: Path, wheels: Mapping[str, str], sizes: Mapping[str, int]) -> list[str]:
    """Take the pieces of an archive into the store.

    Args:
        store: The store's directory; made if missing.
        archive: An uncompressed tar archive of pieces.
        wheels: Digest to file name, for all wheels of the transfer.
        sizes: Digest to size in bytes.

    Returns:
        The digests of the wheels that are whole now.

    Raises:
        HeadroomError: If a piece is none of these wheels or a whole wheel has another hash.
    """
    store.mkdir(mode=0o755, parents=True, exist_ok=True)
    done = []
    with tarfile.open(archive, "r:") as pieces:
        for member in pieces:
            digest, _dot, offset = member.name.partition(".")
            source = pieces.extractfile(member)
            if digest not in wheels or source is None:
                raise HeadroomError(f"archive of wheels holds an unexpected member '{member.name}'")
            partial = store / (_PARTIAL + digest)
            with partial.open("r+b" if int(offset) else "wb") as target:
                target.seek(int(offset))
                shutil.copyfileobj(source, target, _BLOCK)
            if int(offset) + member.size == sizes[digest]:
                _accept(store, partial, digest, wheels[digest])
                done.append(digest)
    return done


def remove_unused(store: Path, used: Collection[str], older_than_s: float = 3600.0) -> list[str]:
    """Remove the wheels whose digests are not in `used` and return them.

    Recent ones stay: they may have been sent for an installation that is about to begin.
    """
    removed = []
    newest = time.time() - older_than_s
    for path in _directories(store):
        if path.name not in used and path.stat().st_mtime < newest:
            shutil.rmtree(path)
            removed.append(path.name)
    return removed


def _accept(store: Path, partial: Path, digest: str, filename: str) -> None:
    found = hashlib.sha256()
    with partial.open("rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            found.update(block)
    if found.hexdigest() != digest:
        partial.unlink()
        raise HeadroomError(f"wheel {filename} arrived damaged: its SHA-256 is {found.hexdigest()}, not {digest}")
    place = store / digest
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o755)
    partial.chmod(0o644)
    partial.rename(place / filename)


def _directories(store: Path) -> Iterable[Path]:
    return sorted(path for path in store.iterdir() if path.is_dir()) if store.is_dir() else []
