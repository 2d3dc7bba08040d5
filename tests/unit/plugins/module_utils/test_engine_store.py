# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store of venvs: what counts as whole, what is in use, what goes."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import engine_prune, engine_store
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Installed, Store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

IDS = [f"{index:012x}" for index in range(10)]


def make(store: Store, venv_id: str, installed_at: float | None) -> None:
    store.venv(venv_id).mkdir(parents=True)
    if installed_at is not None:
        (store.path(venv_id) / engine_store.RECORD).write_text(json.dumps({"installed_at": installed_at}))


def release(instances: Path, instance: str, name: str, content: str) -> None:
    path = instances / instance / "releases" / name / "release.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "headroom", "engine")


@pytest.mark.parametrize(
    ("installed", "named", "used", "keep", "expected"),
    [
        pytest.param([], [], [], 1, [], id="nothing there"),
        pytest.param([(0, 1.0), (1, 2.0)], [0], [1], 0, [], id="all in use"),
        pytest.param([(0, 1.0), (1, 2.0), (2, 3.0)], [2], [], 1, [0], id="the newest unused stays"),
        pytest.param([(0, 1.0), (1, 2.0), (2, 3.0)], [2], [], 0, [0, 1], id="none stays, oldest first"),
        pytest.param([(0, 1.0), (1, 2.0), (2, 3.0)], [2], [], 2, [], id="two stay"),
        pytest.param([(0, 1.0), (1, 2.0), (2, 3.0)], [2], [0], 0, [1], id="a release keeps its engine"),
        pytest.param([(0, 9.0), (1, 2.0), (2, 3.0)], [2], [], 1, [1], id="newest by date, not by id"),
        pytest.param([(0, None), (1, 2.0)], [1], [], 5, [0], id="a half one is never kept"),
        pytest.param([(0, None), (1, 2.0), (2, 1.0)], [], [], 1, [0, 2], id="a half one does not take a place"),
        pytest.param([(0, None)], [0], [], 0, [], id="a half one that is named stays"),
        pytest.param([(0, 1.0), (1, 2.0)], [], [], -1, [0, 1], id="a negative number is none"),
    ],
)
def test_chooses_what_goes(
    installed: list[tuple[int, float | None]], named: list[int], used: list[int], keep: int, expected: list[int]
) -> None:
    found = engine_store.choose_unused(
        [Installed(IDS[index], at) for index, at in installed],
        {IDS[index] for index in named},
        {IDS[index] for index in used},
        keep,
    )
    assert found == [IDS[index] for index in expected]


def test_a_directory_without_a_readable_record_is_half(store: Store) -> None:
    make(store, IDS[0], 1.0)
    make(store, IDS[1], None)
    make(store, IDS[2], 2.0)
    (store.path(IDS[2]) / engine_store.RECORD).write_text('{"installed_at": 2.')
    (store.directory / "names").mkdir()
    (store.directory / "something-else").mkdir()
    assert store.installed() == [Installed(IDS[0], 1.0), Installed(IDS[1], None), Installed(IDS[2], None)]


def test_links_switch_in_one_step(store: Store) -> None:
    make(store, IDS[0], 1.0)
    make(store, IDS[1], 2.0)
    assert store.target("default") is None
    for venv_id in (IDS[0], IDS[1]):
        store.switch("default", venv_id)
        assert store.target("default") == venv_id
        assert store.link("default").resolve() == store.path(venv_id)
    store.switch("other", IDS[0])
    assert store.names() == {"default": IDS[1], "other": IDS[0]}
    assert sorted(path.name for path in (store.directory / "names").iterdir()) == ["default", "other"]


def test_tools_have_one_link_beside_the_venvs(tmp_path: Path) -> None:
    store = Store(tmp_path, "tools")
    make(store, IDS[0], 1.0)
    store.switch("tools", IDS[0])
    assert (tmp_path / "tools" / "current").readlink() == Path(IDS[0])
    assert store.names() == {"current": IDS[0]}
    assert store.venv(IDS[0]) == store.path(IDS[0])


def test_a_killed_removal_leaves_nothing_that_looks_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, IDS[0], 1.0)

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise KeyboardInterrupt(path)

    with monkeypatch.context() as patch:
        patch.setattr(engine_store.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            store.remove(IDS[0])
    assert store.installed() == []
    store.remove_leftovers()
    assert list(store.directory.iterdir()) == []


def test_releases_name_their_engines(tmp_path: Path) -> None:
    release(tmp_path, "a", "r1", json.dumps({"engine": {"id": IDS[0], "name": "default"}}))
    release(tmp_path, "a", "r2", json.dumps({"engine": {"id": IDS[1]}}))
    release(tmp_path, "b", "r1", json.dumps({"engine": IDS[2]}))
    assert engine_store.used_by_releases(tmp_path) == {IDS[0], IDS[1], IDS[2]}
    assert engine_store.used_by_releases(tmp_path / "absent") == set()


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"'])
def test_a_release_that_cannot_be_read_forbids_pruning(tmp_path: Path, store: Store, content: str) -> None:
    make(store, IDS[0], 1.0)
    release(tmp_path, "a", "r1", content)
    with pytest.raises(HeadroomError, match="no engine is removed"):
        engine_prune.prune(store.root, tmp_path, 0, None, check_mode=False)
    assert store.installed() == [Installed(IDS[0], 1.0)]


def test_a_running_process_keeps_its_engine(store: Store, tmp_path: Path) -> None:
    for index in range(3):
        make(store, IDS[index], float(index))
    script = store.venv(IDS[1]) / "serve.py"
    script.write_text("import sys\nprint('up', flush=True)\nsys.stdin.read()\n")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        assert engine_store.running_from(store.directory) == {IDS[1]}
        assert engine_prune.prune(store.root, tmp_path, 0, None, check_mode=False)["removed"] == [IDS[0], IDS[2]]
        process.communicate("", timeout=10)
    assert engine_prune.prune(store.root, tmp_path, 0, None, check_mode=False)["removed"] == [IDS[1]]


def test_check_mode_tells_and_removes_nothing(store: Store, tmp_path: Path) -> None:
    make(store, IDS[0], 1.0)
    make(store, IDS[1], 2.0)
    answer = engine_prune.prune(store.root, tmp_path, 1, None, check_mode=True)
    assert answer == {
        "changed": True,
        "removed": [IDS[0]],
        "diff": {"before": f"{IDS[0]}\n{IDS[1]}\n", "after": f"{IDS[1]}\n"},
    }
    assert len(store.installed()) == 2
    absent = tmp_path / "absent"
    assert engine_prune.prune(absent, tmp_path, 0, None, check_mode=False) == {"changed": False, "removed": []}


def test_names_that_are_not_listed_go_with_their_engines(store: Store, tmp_path: Path) -> None:
    for index, name in enumerate(["default", "old"]):
        make(store, IDS[index], float(index))
        store.switch(name, IDS[index])
    assert engine_prune.prune(store.root, tmp_path, 0, ["default", "old"], check_mode=False)["removed"] == []
    told = engine_prune.prune(store.root, tmp_path, 0, ["default"], check_mode=True)
    assert told["diff"]["after"] == f"{IDS[0]}\ndefault -> {IDS[0]}\n" and "old" in store.names()
    assert engine_prune.prune(store.root, tmp_path, 1, ["default"], check_mode=False)["removed"] == ["old"]
    assert store.names() == {"default": IDS[0]} and len(store.installed()) == 2
    assert engine_prune.prune(store.root, tmp_path, 0, ["default"], check_mode=False)["removed"] == [IDS[1]]


def _hold(root: str, ready: multiprocessing.synchronize.Event, go: multiprocessing.synchronize.Event) -> None:
    with Store(Path(root), "engine").locked(lambda _line: None):
        ready.set()
        go.wait(30)


def test_a_second_installer_waits_and_says_so(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(store.root), ready, go))
    holder.start()
    assert ready.wait(30)
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        go.set()

    started = time.monotonic()
    with store.locked(tell):
        waited = time.monotonic() - started
    holder.join(10)
    assert lines == [f"waiting for another installation on this node (process {holder.pid}), 0 s"]
    assert 0 < waited < 20


def test_nothing_is_pruned_while_an_installation_is_at_work(store: Store, tmp_path: Path) -> None:
    make(store, IDS[0], None)
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(store.root), ready, go))
    holder.start()
    assert ready.wait(30)
    answer = engine_prune.prune(store.root, tmp_path, 0, None, check_mode=False)
    go.set()
    holder.join(10)
    message = f"another installation is at work on this node (process {holder.pid}); nothing was removed"
    assert answer == {"changed": False, "removed": [], "msg": message}
    assert engine_prune.prune(store.root, tmp_path, 0, None, check_mode=False)["removed"] == [IDS[0]]
