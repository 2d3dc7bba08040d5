# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks: requirements with an exact version and SHA-256 hashes, and nothing else.

A lock decides alone what is installed. So it may name neither URLs nor indexes: where the files come from is a setting
of the node, and the hashes make the source irrelevant.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

_HASH = re.compile(r"--hash[= ](\S+)")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*==\s*(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)"
    r"\s*(?:;\s*(?P<marker>.+))?"
)
# They ask for what is done here anyway.
_HARMLESS_OPTIONS = ("--require-hashes", "--only-binary", "--prefer-binary")
_HOW = "Make the lock with 'uv pip compile --generate-hashes --no-emit-index-url'."


@dataclass(frozen=True)
class Requirement:
    """One pinned project of a lock; `hashes` are sorted SHA-256 hex digests, `line` counts from 1."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    line: int

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Lock:
    """The requirements of a lock, in the order of its lines."""

    requirements: tuple[Requirement, ...]

    def version_of(self, project: str) -> str:
        """Return the version that the lock pins a project to; empty if it does not."""
        return next((item.version for item in self.requirements if item.name == project), "")

    def normalised(self) -> str:
        """Return what the lock means, free of order, comments, spelling and layout."""
        lines = []
        for item in self.requirements:
            marker = f" ; {item.marker}" if item.marker else ""
            lines.append(f"{item}{marker} {' '.join(item.hashes)}\n")
        return "".join(sorted(lines))

    def digest(self) -> str:
        """Return the SHA-256 hex digest of the normalised lock."""
        return hashlib.sha256(self.normalised().encode()).hexdigest()


def parse_lock(text: str, origin: str) -> Lock:
    """Read a lock.

    Args:
        text: Content of the file.
        origin: The setting and the path, as they stand in error messages.

    Raises:
        HeadroomError: Naming the line and the requirement, for whatever is not a pinned requirement with hashes.
    """
    requirements: list[Requirement] = []
    for line, content in _logical_lines(text):
        if not content.startswith(_HARMLESS_OPTIONS):
            requirements.append(_requirement(content, line, origin))
    if not requirements:
        raise _invalid(origin, "it holds no requirement")
    _refuse_duplicates(requirements, origin)
    return Lock(tuple(requirements))


def canonical_name(name: str) -> str:
    """Return a project's name as indexes compare it: lower case, runs of `-`, `_` and `.` as one hyphen."""
    return re.sub(r"[-_.]+", "-", name).lower()


def canonical_version(version: str) -> str:
    """Return a version in a spelling that file names and locks share: `1.02+CPU_1` gives `1.2+cpu.1`."""
    public, plus, local = version.lower().replace("%2b", "+").partition("+")
    public = re.sub(r"(?<![0-9a-z])0+(?=[0-9])", "", public)
    return public + plus + re.sub(r"[-_]", ".", local)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first physical line, content) with continuations joined and comments dropped."""
    start, parts = 0, [""]
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        start = start or number
        continued = line.endswith("\\")
        parts.append(line[:-1] if continued else line)
        if continued:
            continue
        content = " ".join(" ".join(parts).split())
        if content:
            yield start, content
        start, parts = 0, [""]
    content = " ".join(" ".join(parts).split())
    if content:
        yield start, content


def _requirement(content: str, line: int, origin: str) -> Requirement:
    wanted = _HASH.sub("", content).strip()
    where = f"line {line}, '{_short(wanted)}'"
    if wanted.startswith("-"):
        raise _invalid(origin, f"{where}: a lock holds requirements only, no options")
    if "://" in wanted or " @ " in wanted or wanted.startswith((".", "/")) or wanted.endswith(".whl"):
        raise _invalid(origin, f"{where}: a requirement by URL or path; only name==version is allowed")
    match = _PINNED.fullmatch(wanted)
    if match is None:
        raise _invalid(origin, f"{where}: not pinned to one version as name==version")
    hashes = _HASH.findall(content)
    if not hashes:
        raise _invalid(origin, f"{where}: no --hash=sha256:...")
    for value in hashes:
        if not _SHA256.fullmatch(value):
            raise _invalid(origin, f"{where}: hash '{_short(value)}' is not a SHA-256 of 64 hex digits")
    marker = " ".join((match["marker"] or "").replace('"', "'").split())
    digests = tuple(sorted({value[len("sha256:") :] for value in hashes}))
    return Requirement(canonical_name(match["name"]), canonical_version(match["version"]), marker, digests, line)


def _refuse_duplicates(requirements: list[Requirement], origin: str) -> None:
    seen: dict[str, Requirement] = {}
    for item in requirements:
        other = seen.setdefault(item.name, item)
        # Forks of a universal lock carry one name several times, told apart by their markers.
        if other is not item and (not item.marker or not other.marker or item.marker == other.marker):
            raise _invalid(origin, f"line {item.line}, '{item}': line {other.line} pins it already, to {other.version}")


def _invalid(origin: str, reason: str) -> HeadroomError:
    return refusal("engine.lock_invalid", f"{origin}: {reason}.", _HOW)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
