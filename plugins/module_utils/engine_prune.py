# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removing engines that nothing uses, with the wheels that only they needed."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import engine_store, wheel_store
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store


@dataclass(frozen=True)
class Unused:
    """What can go: ids of engines, and names that are no longer listed."""

    engines: list[str]
    names: list[str]

    def __bool__(self) -> bool:
        return bool(self.engines or self.names)


def unused(store: Store, instances: Path, keep: int, listed: Collection[str] | None) -> Unused:
    """Return what can go now: names that are not listed, and engines that no listed name, release or process uses.

    Args:
        store: The store of engines.
        instances: Directory of the instances with their releases.
        keep: How many engines that nothing uses stay.
        listed: The names of the inventory; None keeps every name.

    Raises:
        HeadroomError: If a release can't be read.
    """
    installed, names = store.installed(), store.names()
    stale = [] if listed is None else [name for name in names if name not in listed]
    named = {target for name, target in names.items() if name not in stale}
    if all(item.id in named for item in installed):
        return Unused([], stale)
    chosen = engine_store.choose_unused(installed, named, engine_store.used_by_releases(instances), keep)
    running = engine_store.running_from(store.directory) if chosen else set()
    return Unused([item for item in chosen if item not in running], stale)


def prune(root: Path, instances: Path, keep: int, listed: Collection[str] | None, check_mode: bool) -> dict[str, Any]:
    """Remove what is unused; see the module engine_prune.

    The installer's cache goes with the engines: it shares its files with them by hard links, so it costs nothing while
    they are there, and nothing else would free what only the removed ones used.

    Raises:
        HeadroomError: If a release can't be read.
    """
    store = Store(root, "engine")
    if not store.directory.is_dir():
        return {"changed": False, "removed": []}
    before = _listing(store)
    if check_mode:
        found = unused(store, instances, keep, listed)
    else:
        try:
            # While an installation is under way its half engine must not be taken for what a killed one left.
            with store.locked(lambda _line: None, patience_s=0):
                found = unused(store, instances, keep, listed)
                _remove(store, found)
        except engine_store.Busy as busy:
            return {"changed": False, "removed": [], "msg": f"{busy}; nothing was removed"}
    after = [line for line in before if line.split()[0] not in (*found.engines, *found.names)]
    diff = {"before": "".join(f"{line}\n" for line in before), "after": "".join(f"{line}\n" for line in after)}
    return {"changed": bool(found), "removed": found.engines + found.names, "diff": diff}


def _listing(store: Store) -> list[str]:
    return [item.id for item in store.installed()] + [f"{name} -> {target}" for name, target in store.names().items()]


def _remove(store: Store, found: Unused) -> None:
    store.remove_leftovers()
    for name in found.names:
        store.link(name).unlink()
    for item in found.engines:
        store.remove(item)
    if found.engines:
        _remove_sources(store)


def _remove_sources(store: Store) -> None:
    shutil.rmtree(store.cache, ignore_errors=True)
    needed: set[str] = set()
    for kind_store in (store, Store(store.root, "tools")):
        for item in kind_store.installed():
            needed.update((kind_store.record(item.id) or {}).get("wheels", []))
    wheel_store.remove_unused(wheel_store.DEFAULT, needed)
