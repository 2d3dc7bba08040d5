# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheelhouses: which files of a directory a lock needs, and in which pieces they travel to a node."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.headroom.serving.plugins.module_utils.lock_file import (
    Lock,
    Requirement,
    canonical_name,
    canonical_version,
)
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

PIECE_BYTES = 64 * 1024 * 1024
_NAMED_AT_MOST = 3


@dataclass(frozen=True)
class WheelName:
    """What a wheel's file name says."""

    project: str
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """The interpreter that wheels must fit: (major, minor) and the processor as in platform tags."""

    python: tuple[int, int]
    machine: str


@dataclass(frozen=True)
class Wheel:
    """A file that a lock asks for; `size` in bytes."""

    filename: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Piece:
    """Part of a wheel; `offset` and `length` in bytes."""

    wheel: Wheel
    offset: int
    length: int


def parse_wheel_name(filename: str) -> WheelName | None:
    """Return what the name says, or None when it is not a wheel's name."""
    if not filename.endswith(".whl"):
        return None
    parts = filename[: -len(".whl")].split("-")
    if len(parts) not in (5, 6):
        return None
    tags = [tuple(part.split(".")) for part in parts[-3:]]
    return WheelName(canonical_name(parts[0]), canonical_version(parts[1]), *tags)


def fits(name: WheelName, target: Target) -> bool:
    """Say whether a wheel could be for the target; the installer has the last word on libc versions."""
    return any(_platform_fits(tag, target) for tag in name.platforms) and any(
        _python_fits(tag, name.abis, target) for tag in name.pythons
    )


def select_wheels(
    lock: Lock,
    files: Mapping[str, int],
    sha256_of: Callable[[str], str],
    applies: Callable[[str], bool],
    target: Target | None,
    origin: str,
) -> list[Wheel]:
    """Return the files of a wheelhouse that the lock names, by hash.

    Args:
        lock: The lock.
        files: File names of the wheelhouse with their sizes in bytes.
        sha256_of: Hashes a file, given by its name; called only for files of a project that the lock names.
        applies: Evaluates a requirement's marker for the node.
        target: The interpreter, or None where it is not known yet: then every platform's wheels are taken.
        origin: The setting and the directory, as they stand in error messages.

    Raises:
        HeadroomError: If a requirement has no file; it is named with the reason.
    """
    by_project = _by_project(files, target)
    selected: list[Wheel] = []
    lacking: list[str] = []
    for requirement in lock.requirements:
        if requirement.marker and not applies(requirement.marker):
            continue
        found = [
            Wheel(filename, files[filename], digest)
            for filename in by_project.get(requirement.name, ())
            for digest in (sha256_of(filename),)
            if digest in requirement.hashes
        ]
        selected += found
        if not found:
            lacking.append(_lack(requirement, by_project.get(requirement.name, ())))
    _refuse_lacking(lacking, origin)
    return sorted(set(selected), key=lambda wheel: wheel.filename)


def cut(wheels: Iterable[Wheel], piece_bytes: int = PIECE_BYTES) -> list[list[Piece]]:
    """Return the wheels as batches of at most `piece_bytes` bytes each; a large wheel spans several batches."""
    batches: list[list[Piece]] = []
    room = 0
    for wheel in wheels:
        offset = 0
        while offset < wheel.size:
            if room == 0:
                batches.append([])
                room = piece_bytes
            length = min(room, wheel.size - offset)
            batches[-1].append(Piece(wheel, offset, length))
            offset += length
            room -= length
    return batches


def _by_project(files: Mapping[str, int], target: Target | None) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for filename in sorted(files):
        name = parse_wheel_name(filename)
        if name is not None and (target is None or fits(name, target)):
            grouped.setdefault(name.project, []).append(filename)
    return grouped


def _lack(requirement: Requirement, others: Sequence[str]) -> str:
    if others:
        return f"{requirement} ({', '.join(others)} has another SHA-256 than the lock names)"
    return str(requirement)


def _refuse_lacking(lacking: Sequence[str], origin: str) -> None:
    if not lacking:
        return
    rest = f" and {len(lacking) - _NAMED_AT_MOST} more" if len(lacking) > _NAMED_AT_MOST else ""
    raise refusal(
        "engine.wheelhouse_incomplete",
        f"{origin} lacks a wheel of the lock for the node's Python: {', '.join(lacking[:_NAMED_AT_MOST])}{rest}.",
        "Fill it with 'pip download --no-deps --require-hashes --only-binary=:all: -r LOCK -d DIRECTORY'.",
    )


def _platform_fits(tag: str, target: Target) -> bool:
    return tag == "any" or (tag.startswith(("manylinux", "linux")) and tag.endswith("_" + target.machine))


def _python_fits(tag: str, abis: Sequence[str], target: Target) -> bool:
    match = re.fullmatch(r"(py|cp)([23])([0-9]*)", tag)
    if match is None or int(match[2]) != target.python[0]:
        return False
    minor = int(match[3]) if match[3] else None
    if minor is None or minor == target.python[1]:
        return True
    return minor < target.python[1] and (match[1] == "py" or "abi3" in abis)
