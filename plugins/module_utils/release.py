# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases on the node's disk: immutable directories and the links that say which one is meant to run.

* <root>/instances/<name>/releases/<id>/{release.json, <unit file>, guard.pyz, with keys launch.py, credentials.yaml}
* <root>/instances/<name>/plans/<id>.json           what was planned before a start, and which findings were accepted
* <root>/instances/<name>/{current, last_good}      links into releases/
* <root>/instances/<name>/measured/<id>.json        what a verified start showed; never an input
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import InspectLoader
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ansible_collections.headroom.serving.plugins.module_utils import (
    guard,
    launcher,
    own_code,
    unit_policy,
)

FORMAT = 1
ID_DIGITS = 12
CURRENT = "current"
LAST_GOOD = "last_good"
CREDENTIALS = "credentials.yaml"
LAUNCHER = "launch.py"
# In place of a digest that only a real run can compute, and of the id that depends on it.
UNSALTED = "new"


@dataclass(frozen=True)
class Release:
    """One rendering of an instance; `record` is what release.json holds, `credentials` never enters it."""

    id: str
    name: str
    unit_text: str
    record: Mapping[str, Any]
    user: str
    credentials: str = field(default="", repr=False)


@dataclass(frozen=True)
class Store:
    """The releases of one instance below the root directory of all."""

    root: Path
    name: str

    @property
    def directory(self) -> Path:
        """The instance's own directory."""
        return self.root / "instances" / self.name

    def path(self, release_id: str) -> Path:
        """Return the directory of a release, which need not exist."""
        return self.directory / "releases" / release_id

    def link(self, name: str) -> str:
        """Return the id that `current` or `last_good` points to, or an empty string; a link into nothing is none."""
        try:
            release_id = (self.directory / name).readlink().name
        except OSError:
            return ""
        return release_id if self.path(release_id).is_dir() else ""

    def switch(self, name: str, release_id: str) -> None:
        """Point a link at a release, in one step that a crash can't halve."""
        draft = self.directory / f".{name}.{secrets.token_hex(4)}"
        draft.symlink_to(Path("releases") / release_id)
        draft.rename(self.directory / name)

    def unlink(self, name: str) -> None:
        """Remove a link if it is there."""
        (self.directory / name).unlink(missing_ok=True)

    def ids(self) -> list[str]:
        """Return the ids of all releases, in no order that means anything."""
        try:
            return sorted(entry.name for entry in (self.directory / "releases").iterdir() if entry.name[0] != ".")
        except FileNotFoundError:
            return []

    def record(self, release_id: str) -> dict[str, Any]:
        """Return the content of a release's release.json; empty if there is none."""
        return _json(self.path(release_id) / "release.json")

    def unit_text(self, release_id: str) -> str:
        """Return the unit file of a release; empty if there is none."""
        try:
            return (self.path(release_id) / f"sglang-{self.name}.service").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def credentials_path(self, release_id: str) -> Path:
        """Return where the keys of a release lie, readable by the service account only."""
        return self.path(release_id) / CREDENTIALS

    def api_key(self, release_id: str) -> str:
        """Return the key that opens the server of a release, or an empty string; needs root."""
        return str(_json(self.credentials_path(release_id)).get("api-key") or "")

    def save(self, release: Release) -> bool:
        """Write a release; return False if it was there before. It is there whole or not at all."""
        target = self.path(release.id)
        if target.is_dir():
            return False
        _make_passable(target.parent)
        draft = target.with_name(f".{release.id}.{secrets.token_hex(4)}")
        draft.mkdir()
        draft.chmod(0o755)
        try:
            self._fill(draft, release)
        except BaseException:
            shutil.rmtree(draft)
            raise
        draft.rename(target)
        return True

    def _fill(self, draft: Path, release: Release) -> None:
        _write(draft / "release.json", json.dumps(release.record, indent=2, sort_keys=True) + "\n", 0o644)
        _write(draft / f"sglang-{self.name}.service", release.unit_text, 0o644)
        own_code.write(draft / guard.FILE, guard.ENTRY)
        (draft / guard.FILE).chmod(0o644)
        if release.credentials:
            _write(draft / LAUNCHER, _source(launcher), 0o644)
            _write(draft / CREDENTIALS, release.credentials, 0o400)
            account = pwd.getpwnam(release.user)
            os.chown(draft / CREDENTIALS, account.pw_uid, account.pw_gid)

    def save_measured(self, release_id: str, facts: Mapping[str, Any]) -> None:
        """Keep what a verified start of a release showed."""
        self._save_beside("measured", release_id, facts)

    def measured(self, release_id: str) -> dict[str, Any]:
        """Return what verified starts of a release showed; empty before the first."""
        return _json(self.directory / "measured" / f"{release_id}.json")

    def save_plan(self, release_id: str, plan: Mapping[str, Any]) -> None:
        """Keep what was planned for a release before it was started."""
        self._save_beside("plans", release_id, plan)

    def plan(self, release_id: str) -> dict[str, Any]:
        """Return what was planned for a release; empty if nothing was."""
        return _json(self.directory / "plans" / f"{release_id}.json")

    def _save_beside(self, kind: str, release_id: str, data: Mapping[str, Any]) -> None:
        directory = self.directory / kind
        _make_passable(directory)
        draft = directory / f".{release_id}.{secrets.token_hex(4)}"
        _write(draft, json.dumps(data, indent=2, sort_keys=True) + "\n", 0o644)
        draft.rename(directory / f"{release_id}.json")

    def purge(self) -> None:
        """Remove everything of the instance."""
        shutil.rmtree(self.directory, ignore_errors=True)


def known(root: Path, units: Path = Path("/etc/systemd/system")) -> list[str]:
    """Return the names of the instances that have a current release or a unit file of this collection's making.

    The second without the first is what a deploy leaves that was killed during a first start.
    """
    names = {path.parent.name for path in _links(root / "instances")}
    for path in units.glob("sglang-*.service"):
        try:
            ours = unit_policy.MADE_BY in path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
        except OSError:
            continue
        if ours:
            names.add(path.name[len("sglang-") : -len(".service")])
    return sorted(names)


def _links(instances: Path) -> list[Path]:
    """Return the `current` links, those that lead nowhere included."""
    return (
        [entry / CURRENT for entry in instances.iterdir() if (entry / CURRENT).is_symlink()]
        if instances.is_dir()
        else []
    )


def identify(settings: Sequence[tuple[str, str]], engine_id: str, model_digest: str, credential_mac: str) -> str:
    """Return the id of a release: a hash of inputs only, so that nothing measured or computed causes a restart.

    Args:
        settings: The unit's settings in their order, comments left out.
        engine_id: Id of the engine.
        model_digest: Digest of the model.
        credential_mac: Keyed digest of the instance's keys, empty without keys.
    """
    inputs = [FORMAT, [list(item) for item in settings], engine_id, model_digest, credential_mac]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:ID_DIGITS]


def credential_mac(root: Path, credentials: str, create: bool) -> str:
    """Return a digest of the keys that tells nothing about them without the node's own salt.

    Args:
        root: Root directory of the instances; the salt lies there, readable by root only.
        credentials: The text that holds the keys.
        create: Whether a missing salt may be made.

    Returns:
        The digest; UNSALTED if there is no salt and none may be made (check mode on a new node).
    """
    if not credentials:
        return ""
    path = root / "salt"
    if not path.exists():
        if not create:
            return UNSALTED
        _make_passable(root)
        draft = root / f".salt.{secrets.token_hex(4)}"
        _write(draft, secrets.token_hex(32), 0o600)
        draft.rename(path)
    salt = path.read_text(encoding="utf-8")
    return hmac.new(salt.encode(), credentials.encode(), "sha256").hexdigest()


def _source(module: ModuleType) -> str:
    """Return the text of a module, be it a file or part of the archive that runs on a node."""
    source: Any = cast(InspectLoader, module.__loader__).get_source(module.__name__)
    # Ansible's own loader of collections, on a controller, hands out bytes.
    return source.decode("utf-8") if isinstance(source, bytes) else str(source)


def _make_passable(directory: Path) -> None:
    """Make a directory and what lacks above it, open to the service account even where root's umask is strict."""
    if directory.is_dir():
        return
    _make_passable(directory.parent)
    directory.mkdir()
    directory.chmod(0o755)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    path.chmod(mode)  # whatever the umask was
