# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runtime's settings name on the controller: locks, shims and wheelhouses."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.lock_file import Lock, parse_lock
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.wheel_files import Piece, Target

Find = Callable[[str], str]
_BLOCK = 1024 * 1024


def read_lock(find: Find, path: str, setting: str) -> tuple[str, Lock]:
    """Return text and content of a lock.

    Args:
        find: Returns the absolute path of a file as Ansible looks for it, or raises LookupError.
        path: The path as the user wrote it.
        setting: The setting that names it.

    Raises:
        HeadroomError: If there is no such file or it is no lock.
    """
    try:
        text = Path(find(path)).read_text(encoding="utf-8")
    except (LookupError, OSError, UnicodeError) as error:
        raise refusal(
            "settings.invalid",
            f"{setting} is '{path}', which can't be read on the controller: {_reason(error)}.",
            "Give the path of a lock there, absolute or relative to the playbook.",
        ) from None
    return text, parse_lock(text, f"{setting} '{path}'")


def read_shim(find: Find, path: str, setting: str) -> dict[str, bytes]:
    """Return the files of a shim by their paths below it, nothing for an empty path.

    Raises:
        HeadroomError: If it is no directory or holds no file.
    """
    if not path:
        return {}
    directory = _directory(find, path, setting, "the files that are laid into site-packages")
    files = {
        str(item.relative_to(directory)): item.read_bytes()
        for item in sorted(directory.rglob("*"))
        if item.is_file() and "__pycache__" not in item.parts
    }
    if not files:
        raise refusal("settings.invalid", f"{setting} is '{path}', which holds no file.", "Remove the setting.")
    return files


def wheelhouse_files(find: Find, path: str, setting: str) -> tuple[Path, dict[str, int]]:
    """Return a wheelhouse and the names of its files with their sizes in bytes.

    Raises:
        HeadroomError: If it is no directory.
    """
    directory = _directory(find, path, setting, "the wheels of the lock")
    return directory, {item.name: item.stat().st_size for item in directory.iterdir() if item.is_file()}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 hex digest of a file."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            found.update(block)
    return found.hexdigest()


def marker_check(environment: Mapping[str, str] | None) -> Callable[[str], bool]:
    """Return a function that evaluates markers for a node; where the node is not known yet, every marker holds.

    Args:
        environment: The marker variables of the node's interpreter.
    """
    # Not at the top: ansible-core brings it, and plugins must load for their documentation without it.
    from packaging.markers import InvalidMarker, Marker

    def applies(marker: str) -> bool:
        if environment is None:
            return True
        try:
            return Marker(marker).evaluate(dict(environment))
        except InvalidMarker as error:
            raise refusal("engine.lock_invalid", f"'{marker}' is no environment marker: {error}") from None

    return applies


def target_of(interpreter: Mapping[str, Any] | None) -> Target | None:
    """Return what wheels must fit, from an interpreter as a node describes it."""
    if interpreter is None:
        return None
    major, minor = interpreter["markers"]["python_version"].split(".")
    return Target((int(major), int(minor)), interpreter["platform"].rpartition("-")[2].replace("-", "_"))


def write_archive(target: Path, directory: Path, pieces: Sequence[Piece]) -> None:
    """Write pieces of wheels of a directory as the archive that the node's store of wheels takes."""
    with tarfile.open(target, "w:") as archive:
        for piece in pieces:
            with (directory / piece.wheel.filename).open("rb") as stream:
                stream.seek(piece.offset)
                entry = tarfile.TarInfo(f"{piece.wheel.sha256}.{piece.offset}")
                entry.size = piece.length
                archive.addfile(entry, BytesIO(stream.read(piece.length)))


def total_bytes(pieces: Iterable[Piece]) -> int:
    """Return the bytes of these pieces together."""
    return sum(piece.length for piece in pieces)


def _directory(find: Find, path: str, setting: str, purpose: str) -> Path:
    try:
        directory = Path(find(path))
    except LookupError:
        directory = Path(path)
    if not directory.is_dir():
        raise refusal(
            "settings.invalid",
            f"{setting} is '{path}', which is no directory on the controller.",
            f"Give the directory that holds {purpose}, absolute or relative to the playbook.",
        )
    return directory


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "no such file"
