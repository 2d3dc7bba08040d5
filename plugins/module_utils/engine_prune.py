# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removing engines that nothing uses, with the wheels that only they needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import engine_store, wheel_store
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store


def doomed(store: Store, instances: Path, keep: int) -> list[str]:
    """Return the engines that can go now: no name, no release and no process uses them.

    Raises:
        HeadroomError: If a release can't be read.
    """
    installed, named = store.installed(), store.named()
    if all(item.id in named for item in installed):
        return []
    chosen = engine_store.choose_unused(installed, named, engine_store.used_by_releases(instances), keep)
    if not chosen:
        return []
    running = engine_store.running_from(store.directory)
    return [item for item in chosen if item not in running]


def prune(root: Path, instances: Path, keep: int, check_mode: bool) -> dict[str, Any]:
    """Remove the unused engines; see the module engine_prune.

    The installer's cache goes with them: it shares its files with the engines by hard links, so it costs nothing while
    they are there, and nothing else would free what only the removed ones used.

    Raises:
        HeadroomError: If a release can't be read.
    """
    store = Store(root, "engine")
    if not store.directory.is_dir():
        return {"changed": False, "removed": []}
    before = [item.id for item in store.installed()]
    if check_mode:
        chosen = doomed(store, instances, keep)
    else:
        # While an installation is under way its half engine must not be taken for what a killed one left.
        with store.locked(lambda _line: None):
            chosen = doomed(store, instances, keep)
            store.remove_leftovers()
            for item in chosen:
                store.remove(item)
            if chosen:
                _remove_sources(store)
    after = [item for item in before if item not in chosen]
    diff = {"before": "".join(f"{item}\n" for item in before), "after": "".join(f"{item}\n" for item in after)}
    return {"changed": bool(chosen), "removed": chosen, "diff": diff}


def _remove_sources(store: Store) -> None:
    shutil.rmtree(store.cache, ignore_errors=True)
    needed: set[str] = set()
    for kind_store in (store, Store(store.root, "tools")):
        for item in kind_store.installed():
            needed.update((kind_store.record(item.id) or {}).get("wheels", []))
    wheel_store.remove_unused(wheel_store.DEFAULT, needed)
