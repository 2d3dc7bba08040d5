# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installed venvs on a node: one directory an id, whole only with its record, reached by links.

Layout: `engines/<id>/{venv/,lock.txt,engine.json}` with `engines/names/<name>` -> `../<id>`, and the tools in
`tools/<id>/{...the venv itself...,lock.txt,engine.json}` with `tools/current` -> `<id>`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

Kind = Literal["engine", "tools"]
RECORD = "engine.json"
LOCK_COPY = "lock.txt"
FORMAT = 1
_ID = re.compile(r"[0-9a-f]{12}")
_DOOMED = ".removing-"
_TELL_EVERY_S = 5.0


class Busy(HeadroomError):
    """The store is held by another process."""


@dataclass(frozen=True)
class Installed:
    """A directory of the store; `installed_at` in seconds since the epoch, None where it is only half there."""

    id: str
    installed_at: float | None


@dataclass(frozen=True)
class Store:
    """The installed venvs of one kind below the runtime's root directory."""

    root: Path
    kind: Kind

    @property
    def directory(self) -> Path:
        """Parent of the venvs' directories."""
        return self.root / ("engines" if self.kind == "engine" else "tools")

    @property
    def cache(self) -> Path:
        """The installer's cache: on the file system of the venvs, so that it and they share files by hard links."""
        return self.root / "cache" / "uv"

    def path(self, venv_id: str) -> Path:
        """Directory of a venv with its record."""
        return self.directory / venv_id

    def venv(self, venv_id: str) -> Path:
        """The venv itself."""
        return self.path(venv_id) / "venv" if self.kind == "engine" else self.path(venv_id)

    def link(self, name: str) -> Path:
        """The link by which others reach the venv."""
        return self.directory / "names" / name if self.kind == "engine" else self.directory / "current"

    def record(self, venv_id: str) -> dict[str, Any] | None:
        """Return the completion record, None when the directory is missing or half."""
        try:
            data: dict[str, Any] = json.loads((self.path(venv_id) / RECORD).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return data

    def resolve(self, venv_id: str | None, version: str | None) -> dict[str, str | None]:
        """Return where a venv is, as roles get it; None for what is not known yet."""
        return {
            "id": venv_id,
            "path": str(self.path(venv_id)) if venv_id else None,
            "python": str(self.venv(venv_id) / "bin" / "python") if venv_id else None,
            "version": version,
        }

    def target(self, name: str) -> str | None:
        """Return the id that a link points to, None when there is no link."""
        try:
            return self.link(name).readlink().name
        except OSError:
            return None

    def names(self) -> dict[str, str]:
        """Return the links by name, each with the id that it points to."""
        links = [self.directory / "current"] if self.kind == "tools" else _entries(self.directory / "names")
        return {path.name: path.readlink().name for path in links if path.is_symlink() and path.name[0] != "."}

    def installed(self) -> list[Installed]:
        """Return all directories of venvs, half ones included."""
        found = []
        for path in _entries(self.directory):
            if _ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                record = self.record(path.name)
                found.append(Installed(path.name, float(record.get("installed_at", 0)) if record else None))
        return found

    def switch(self, name: str, venv_id: str) -> None:
        """Let the link point to a venv, atomically."""
        link = self.link(name)
        link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = link.with_name(f".{link.name}.new")
        draft.unlink(missing_ok=True)
        draft.symlink_to(Path("..", venv_id) if self.kind == "engine" else Path(venv_id))
        draft.replace(link)

    def remove(self, venv_id: str) -> None:
        """Remove a venv; killed in the middle, what is left is not taken for a whole one."""
        path = self.path(venv_id)
        doomed = path.with_name(_DOOMED + venv_id)
        shutil.rmtree(doomed, ignore_errors=True)
        if path.exists():
            path.rename(doomed)
            shutil.rmtree(doomed)

    def remove_leftovers(self) -> None:
        """Remove what killed removals left."""
        for path in _entries(self.directory):
            if path.name.startswith(_DOOMED):
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def locked(self, tell: Callable[[str], None], patience_s: float = float("inf")) -> Iterator[None]:
        """Hold the store for changes; while another process does, wait and tell so every few seconds.

        Raises:
            Busy: If the other process still holds it after `patience_s` seconds.
        """
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with (self.directory / ".lock").open("a+", encoding="utf-8") as stream:
            started, told = time.monotonic(), float("-inf")
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    now = time.monotonic()
                    stream.seek(0)
                    holder = stream.read().strip() or "unknown"
                    if now - started >= patience_s:
                        raise Busy(f"another installation is at work on this node (process {holder})") from None
                    if now - told >= _TELL_EVERY_S:
                        tell(f"waiting for another installation on this node (process {holder}), {now - started:.0f} s")
                        told = now
                    time.sleep(0.2)
            stream.truncate(0)
            stream.write(f"{os.getpid()}\n")
            stream.flush()
            yield


def used_by_releases(instances: Path) -> set[str]:
    """Return the ids of engines that a release names.

    Raises:
        HeadroomError: If a release can't be read: then nobody knows what is unused.
    """
    used = set()
    for path in sorted(instances.glob("*/releases/*/release.json")):
        try:
            engine = json.loads(path.read_text(encoding="utf-8")).get("engine")
        except (OSError, ValueError, AttributeError) as error:
            raise HeadroomError(f"{path} can't be read, so no engine is removed: {error}") from None
        used.add(str(engine.get("id")) if isinstance(engine, dict) else str(engine))
    return used


def running_from(directory: Path, proc: Path = Path("/proc")) -> set[str]:
    """Return the ids below `directory` from which a process runs: by its command line or its mapped files."""
    needle = re.compile(re.escape(str(directory)).encode() + rb"/([0-9a-f]{12})/")
    found = set()
    for process in _entries(proc):
        if process.name.isdigit():
            for name in ("cmdline", "maps", "environ"):
                try:
                    data = (process / name).read_bytes()
                except OSError:
                    continue
                found |= {match.decode() for match in needle.findall(data)}
    return found


def choose_unused(
    installed: Iterable[Installed], named: Collection[str], used: Collection[str], keep: int
) -> list[str]:
    """Return the ids to remove, oldest first.

    Whole engines that neither a name nor a release uses are kept up to `keep`, newest first; half ones are never kept.
    """
    unused = [item for item in installed if item.id not in named and item.id not in used]
    whole = sorted(
        (item for item in unused if item.installed_at is not None),
        key=lambda item: (item.installed_at or 0.0, item.id),
        reverse=True,
    )
    half = [item for item in unused if item.installed_at is None]
    return [item.id for item in [*half, *reversed(whole[max(keep, 0) :])]]


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
