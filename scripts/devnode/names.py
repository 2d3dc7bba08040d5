# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, ports and places that derive from where the clone lies, so that two clones never meet."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import settings

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


@dataclasses.dataclass(frozen=True)
class Clone:
    """One checkout of the repository and everything that is named after it."""

    root: Path

    @classmethod
    def here(cls) -> Clone:
        """The clone that holds this file."""
        return cls(Path(__file__).resolve().parents[2])

    @property
    def id(self) -> str:
        """Eight hexadecimal digits of the real path's hash."""
        return hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:8]

    @property
    def cache(self) -> Path:
        """Everything that is made and not committed, but the venv."""
        return self.root / ".cache"

    @property
    def venv(self) -> Path:
        """The controller's virtual environment."""
        return self.root / ".venv"

    @property
    def bootstrap(self) -> Path:
        """A small virtual environment with pip, uv and what writes the tiny model."""
        return self.cache / "bootstrap"

    @property
    def shared(self) -> Path:
        """What every node sees read-only as /shared."""
        return self.cache / "shared"

    @property
    def wheelhouse(self) -> Path:
        """The wheels of the CPU engine's lock."""
        return self.cache / "wheelhouse"

    @property
    def tools_wheelhouse(self) -> Path:
        """The wheels of the lock of the collection's own tools."""
        return self.cache / "tools-wheelhouse"

    @property
    def tools_lock(self) -> Path:
        """The lock of the collection's own tools."""
        return self.root / "roles" / "sglang_runtime" / "files" / "tools.lock"

    @property
    def lock(self) -> Path:
        """The CPU engine's lock."""
        return self.root / "scripts" / "cpu_engine" / "requirements.lock"

    def container(self, name: str) -> str:
        """The container's name of node `name`."""
        return f"headroom-{self.id}-{checked_name(name)}"

    def image(self, kind: str, tag: str) -> str:
        """The image's full name; `localhost/` keeps podman from ever asking a registry."""
        return f"localhost/headroom-{self.id}-{kind}:{tag}"

    def record(self, name: str) -> Path:
        """Where node `name` is recorded."""
        return self.cache / "nodes" / f"{checked_name(name)}.json"

    def records(self) -> dict[str, dict[str, Any]]:
        """All recorded nodes of this clone by name."""
        paths = sorted((self.cache / "nodes").glob("*.json"))
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Hold the clone's lock `what`: two commands at once must not make one thing twice."""
        folder = self.cache / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / what).open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another command of this clone that makes the same ({what})", file=sys.stderr)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def checked_name(name: str) -> str:
    """Return `name` if it can name a node, else raise ValueError with one line."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"node name {name!r}: use up to 31 lower-case letters, digits and dashes, a letter first")
    return name


def port_is_free(port: int) -> bool:
    """Whether 127.0.0.1:`port` can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_port(clone_id: str, taken: set[int], is_free: Callable[[int], bool] = port_is_free) -> int:
    """The first port from the clone's own place on that is neither recorded nor bound.

    Raises OSError when the whole range is taken.
    """
    start = int(clone_id, 16) % settings.PORT_COUNT
    for step in range(settings.PORT_COUNT):
        port = settings.FIRST_PORT + (start + step) % settings.PORT_COUNT
        if port not in taken and is_free(port):
            return port
    last = settings.FIRST_PORT + settings.PORT_COUNT - 1
    raise OSError(f"no free port for SSH between {settings.FIRST_PORT} and {last} on 127.0.0.1")


def write_json(path: Path, value: Any) -> None:
    """Write `value` at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(path)
