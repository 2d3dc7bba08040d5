# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What locked_venv does at once: nothing, a switch of a link, or the start of the long work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import venv_build
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.interpreter import Interpreter, describe
from ansible_collections.headroom.serving.plugins.module_utils.lock_file import Lock, parse_lock
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.venv_id import shim_digest, venv_id

Start = Callable[..., dict[str, str]]


def install(params: Mapping[str, Any], check_mode: bool, start: Start) -> dict[str, Any]:
    """Install or switch a venv; see the options of the module locked_venv.

    Args:
        params: The module's options, completed by its action.
        check_mode: Whether to tell only.
        start: `job.start`.

    Raises:
        HeadroomError: If the lock is none, the interpreter is missing, or the job can't be started.
    """
    store = Store(Path(params["root"]), params["kind"])
    name, python = params["name"], params["python"]
    origin = f"{params['kind']} '{name}': lock '{params['lock']}'"
    lock = parse_lock(params["lock_text"] or "", origin)
    interpreter = describe(python)
    if interpreter is None:
        if check_mode:
            return _would_install(store, name, None, f"once {python} is there")
        raise refusal("engine.interpreter_missing", f"engine '{name}': python '{python}' is not on the node.")
    wanted = _id(lock, interpreter, params["shim_files"] or {})
    before = store.target(name)
    diff = {"before": f"{store.link(name)} -> {before}\n", "after": f"{store.link(name)} -> {wanted}\n"}
    record = store.record(wanted)
    if record is not None:
        changed = before != wanted
        if changed and not check_mode:
            store.switch(name, wanted)
        return {"changed": changed, "diff": diff, **_result(store, name, wanted, record.get("version"))}
    if check_mode:
        return {"diff": diff, **_would_install(store, name, wanted, f"with {interpreter.version}")}
    if store.kind == "engine" and not os.access(_uv(store), os.X_OK):
        raise HeadroomError(f"engine '{name}' needs {_uv(store)}: install the tools first (kind: tools).")
    work = _work(params, lock, interpreter, wanted, origin)
    running = start(free_unit(f"headroom-{store.kind}-{wanted}", _is_active), venv_build.run, work)
    return {"changed": True, "diff": diff, "job": running, **_result(store, name, wanted, None)}


def free_unit(name: str, is_active: Callable[[str], bool]) -> str:
    """Return `name`, or with a number behind it while that unit is at work: a second installer waits inside its own."""
    number = 1
    unit = name
    while is_active(unit):
        number += 1
        unit = f"{name}-{number}"
    return unit


def _is_active(unit: str) -> bool:
    done = subprocess.run(["systemctl", "is-active", "--quiet", f"{unit}.service"], check=False)
    return done.returncode == 0


def _work(params: Mapping[str, Any], lock: Lock, interpreter: Interpreter, wanted: str, origin: str) -> dict[str, Any]:
    shim = params["shim_files"] or {}
    return {
        "root": params["root"],
        "kind": params["kind"],
        "id": wanted,
        "name": params["name"],
        "origin": origin,
        "lock_text": params["lock_text"],
        # Where the wheels are known, requirements whose markers exclude this node are not counted.
        "packages": len(params["wheels"] or {}) or len(lock.requirements),
        "python": params["python"],
        "index_url": params["index_url"] or "",
        "find_links": params["wheelhouse_on_node"] or "",
        "wheels": params["wheels"] or {},
        "shim": shim,
        "user": params["user"],
        "network": venv_build.network_environment(os.environ),
        "record": {
            "lock_sha256": lock.digest(),
            "interpreter": interpreter.version,
            "interpreter_path": interpreter.path,
            "platform": interpreter.platform,
            "shim": sorted(shim),
            "wheels": sorted(params["wheels"] or {}),
        },
    }


def _id(lock: Lock, interpreter: Interpreter, shim_files: Mapping[str, str]) -> str:
    shim = shim_digest(venv_build.decoded(shim_files))
    return venv_id(lock.digest(), interpreter.version, interpreter.platform, shim)


def _would_install(store: Store, name: str, wanted: str | None, how: str) -> dict[str, Any]:
    what = f"{store.kind} '{name}'" + (f" {wanted}" if wanted else "")
    return {"changed": True, "msg": f"would install {what} {how}", **_result(store, name, wanted, None)}


def _result(store: Store, name: str, wanted: str | None, version: str | None) -> dict[str, Any]:
    return {"id": wanted, "version": version, "resolved": {name: store.resolve(wanted, version)}}


def _uv(store: Store) -> Path:
    return store.root / "tools" / "current" / "bin" / "uv"
