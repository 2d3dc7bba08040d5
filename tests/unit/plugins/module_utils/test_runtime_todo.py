# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node lacks: every entry of the list of what must be done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import engine_store
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.interpreter import Interpreter, describe
from ansible_collections.headroom.serving.plugins.module_utils.runtime_todo import (
    Account,
    account_todo,
    missing_packages,
    refuse_unfit,
    resolve,
    venv_todo,
    wanted_directories,
)
from ansible_collections.headroom.serving.plugins.module_utils.venv_id import venv_id

PYTHON = Interpreter(
    "/usr/bin/python3", "linux-x86_64", {"implementation_name": "cpython", "python_full_version": "3.11.2"}
)
ITEM = {"name": "default", "python": "/usr/bin/python3", "lock_sha256": "1" * 64, "shim_sha256": None}
ID = venv_id("1" * 64, "cpython-3.11.2", "linux-x86_64", "")


@pytest.mark.parametrize(
    ("uid", "systemd", "expected"),
    [(1000, True, "set 'become: true'"), (0, False, r"not booted with systemd .*\[host.no_systemd\]")],
)
def test_refuses_an_unfit_node(uid: int, systemd: bool, expected: str) -> None:
    with pytest.raises(HeadroomError, match=expected):
        refuse_unfit(uid, systemd)
    refuse_unfit(0, True)


@pytest.mark.parametrize(
    ("wanted", "installed", "expected"),
    [(["a", "b"], [], ["a", "b"]), (["a", "b"], ["b", "c"], ["a"]), (["a"], ["a"], []), ([], ["a"], [])],
)
def test_missing_packages(wanted: list[str], installed: list[str], expected: list[str]) -> None:
    assert missing_packages(wanted, installed) == expected


@pytest.mark.parametrize(
    ("account", "missing"),
    [
        (None, True),
        (Account("sglang", "/var/lib/sglang", "/usr/sbin/nologin"), False),
        (Account("sglang", "/var/lib/sglang", "/sbin/nologin"), False),
        (Account("sglang", "/var/lib/sglang", "/bin/false"), False),
        (Account("users", "/var/lib/sglang", "/usr/sbin/nologin"), True),
        (Account("sglang", "/home/sglang", "/usr/sbin/nologin"), True),
        (Account("sglang", "/var/lib/sglang", "/bin/bash"), True),
    ],
)
def test_account(account: Account | None, missing: bool) -> None:
    wanted = {"name": "sglang", "group": "sglang", "home": "/var/lib/sglang"}
    assert account_todo(account, "sglang", "sglang", "/var/lib/sglang") == ([wanted] if missing else [])


def test_only_the_home_belongs_to_the_account() -> None:
    wanted = wanted_directories(Path("/opt/headroom"), "sglang", "sglang", "/var/lib/sglang", full=True)
    assert [item.path for item in wanted if item.owner != "root"] == ["/var/lib/sglang"]
    paths = [Path(item.path) for item in wanted]
    below = [path for path in paths if path.parent.is_relative_to("/opt/headroom")]
    assert below and all(paths.index(path.parent) < paths.index(path) for path in below)
    tools = wanted_directories(Path("/opt/headroom"), "sglang", "sglang", "/var/lib/sglang", full=False)
    assert "/var/lib/sglang" not in [item.path for item in tools] and len(tools) == 4


def install(store: Store, version: str = "0.5.14") -> None:
    store.venv(ID).mkdir(parents=True)
    (store.path(ID) / engine_store.RECORD).write_text(json.dumps({"version": version}))


def todo(store: Store, interpreter: Interpreter | None = PYTHON, **changes: Any) -> list[tuple[str | None, str, str]]:
    found = venv_todo(store, "default", {**ITEM, **changes}, interpreter)
    return [(entry["id"], entry["action"], entry["reason"]) for entry in found]


def test_an_engine_on_its_way_from_nothing_to_whole(tmp_path: Path) -> None:
    store = Store(tmp_path, "engine")
    assert todo(store, interpreter=None) == [(None, "install", "/usr/bin/python3 comes first")]
    assert todo(store) == [(ID, "install", "not installed")]
    store.path(ID).mkdir(parents=True)
    assert todo(store) == [(ID, "install", "half installed")]
    store.path(ID).rmdir()
    install(store)
    assert todo(store) == [(ID, "link", "no name points to it")]
    store.switch("default", "f" * 12)
    assert todo(store) == [(ID, "link", f"name points to {'f' * 12}")]
    store.switch("default", ID)
    assert todo(store) == []
    assert todo(store, lock_sha256="2" * 64)[0][1:] == ("install", "not installed")
    assert todo(store, shim_sha256="3" * 64)[0][1:] == ("install", "not installed")


def test_resolves_what_is_known(tmp_path: Path) -> None:
    store = Store(tmp_path, "engine")
    path = str(tmp_path / "engines" / ID)
    known = {"id": ID, "path": path, "python": f"{path}/venv/bin/python"}
    assert resolve(store, ITEM, None) == {"id": None, "path": None, "python": None, "version": None}
    assert resolve(store, ITEM, PYTHON) == {**known, "version": None}
    install(store)
    assert resolve(store, ITEM, PYTHON) == {**known, "version": "0.5.14"}


def test_an_interpreter_describes_itself() -> None:
    found = describe(sys.executable)
    assert found is not None
    assert found.version == "cpython-{}.{}.{}".format(*sys.version_info[:3])
    assert found.markers["sys_platform"] == "linux"
    assert describe("/nonexistent/python3") is None


def test_what_is_no_interpreter_is_named() -> None:
    with pytest.raises(HeadroomError, match="'/bin/true' does not answer as a Python interpreter"):
        describe("/bin/true")
