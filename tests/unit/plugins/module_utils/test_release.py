# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases on a real disk: whole or not there, readable by whom they should be, links that never point nowhere."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import launcher, release, release_plan
from ansible_collections.headroom.serving.plugins.module_utils.release import Release, Store

ME = pwd.getpwuid(os.geteuid()).pw_name
SETTINGS = [("User", "sglang"), ("Environment", "A=1"), ("ExecStart", "/x --a 1")]
KEYS = '{"api-key": "s3cr3t-0123456789"}\n'


def make(release_id: str = "0123456789ab", **changes: Any) -> Release:
    values: dict[str, Any] = {
        "unit_text": "[Unit]\n",
        "record": {"id": release_id, "port": 30000},
        "user": ME,
        **changes,
    }
    return Release(release_id, "a", **values)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "root", "a")


@pytest.fixture(params=[0o022, 0o077, 0o027, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_the_id_is_a_hash_of_its_inputs() -> None:
    text = json.dumps([1, [list(item) for item in SETTINGS], "engine", "digest", "mac"])
    expected = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert release.identify(SETTINGS, "engine", "digest", "mac") == expected


@pytest.mark.parametrize(
    ("settings", "engine", "model", "mac"),
    [
        pytest.param(SETTINGS[:2], "e", "m", "k", id="a setting less"),
        pytest.param([*SETTINGS, ("X", "y")], "e", "m", "k", id="a setting more"),
        pytest.param([*SETTINGS[:2], ("ExecStart", "/x --a 2")], "e", "m", "k", id="another value"),
        pytest.param([*SETTINGS[:2], ("ExecStop", "/x --a 1")], "e", "m", "k", id="another name"),
        pytest.param([SETTINGS[1], SETTINGS[0], SETTINGS[2]], "e", "m", "k", id="another order in the unit"),
        pytest.param([*SETTINGS, SETTINGS[0]], "e", "m", "k", id="a setting twice"),
        pytest.param(SETTINGS, "f", "m", "k", id="another engine"),
        pytest.param(SETTINGS, "e", "n", "k", id="another model"),
        pytest.param(SETTINGS, "e", "m", "l", id="another key"),
        pytest.param(SETTINGS, "e", "m", "", id="no key"),
        pytest.param(SETTINGS, "m", "e", "k", id="inputs swapped"),
        pytest.param(SETTINGS, "em", "", "k", id="inputs joined"),
        pytest.param(SETTINGS, "", "", "", id="nothing"),
    ],
)
def test_the_id_changes_with_each_input(settings: list[tuple[str, str]], engine: str, model: str, mac: str) -> None:
    before = release.identify(SETTINGS, "e", "m", "k")
    after = release.identify(settings, engine, model, mac)
    assert after != before
    assert len(after) == 12 and set(after) <= set("0123456789abcdef")


def test_the_id_stays() -> None:
    assert release.identify(list(SETTINGS), "e", "m", "k") == release.identify(tuple(SETTINGS), "e", "m", "k")


def test_saves_and_reads_back(store: Store) -> None:
    record = {"id": "0123456789ab", "name": "a", "argv": ["é", "\udcff"], "port": 1}
    assert store.save(make(record=record, unit_text="[Unit]\nDescription=é\n")) is True
    assert store.record("0123456789ab") == record
    assert store.unit_text("0123456789ab") == "[Unit]\nDescription=é\n"
    assert store.ids() == ["0123456789ab"]
    there = sorted(path.name for path in store.path("0123456789ab").iterdir())
    assert there == ["guard.pyz", "release.json", "sglang-a.service"]


def test_a_release_never_changes(store: Store) -> None:
    assert store.save(make(record={"a": 1})) is True
    assert store.save(make(record={"a": 2}, unit_text="other")) is False
    assert store.record("0123456789ab") == {"a": 1}
    assert store.unit_text("0123456789ab") == "[Unit]\n"
    assert [path.name for path in store.path("x").parent.iterdir()] == ["0123456789ab"]


def test_modes_do_not_follow_the_umask(tmp_path: Path, umask: int) -> None:
    store = Store(tmp_path / "var" / "root", "a")
    release.credential_mac(store.root, KEYS, create=True)
    store.save(make(credentials=KEYS))
    store.switch(release.CURRENT, "0123456789ab")
    store.save_measured("0123456789ab", {"x": 1})
    path = store.path("0123456789ab")
    for directory in (tmp_path / "var", store.root, store.directory.parent, store.directory, path.parent, path):
        assert mode(directory) == 0o755, directory
    assert mode(path / "release.json") == mode(path / "sglang-a.service") == mode(path / "launch.py") == 0o644
    assert mode(path / "credentials.yaml") == 0o400
    assert mode(store.directory / "measured" / "0123456789ab.json") == 0o644
    assert mode(store.root / "salt") == 0o600
    assert os.umask(umask) == umask


def test_directories_that_are_there_keep_their_modes(store: Store) -> None:
    store.root.mkdir(mode=0o750)
    store.save(make())
    assert mode(store.root) == 0o750


def test_keys_lie_in_one_file_only_and_read_back(store: Store) -> None:
    store.save(make(credentials=KEYS))
    holding = [path.name for path in store.path("0123456789ab").iterdir() if b"s3cr3t" in path.read_bytes()]
    assert holding == ["credentials.yaml"]
    assert store.api_key("0123456789ab") == "s3cr3t-0123456789"
    assert "s3cr3t" not in repr(make(credentials=KEYS))
    assert (store.path("0123456789ab") / "launch.py").read_text() == Path(launcher.__file__).read_text()


@pytest.mark.parametrize("credentials", ["", '{"admin-api-key": "x"}\n'])
def test_no_key_opens_the_server(store: Store, credentials: str) -> None:
    store.save(make(credentials=credentials))
    assert store.api_key("0123456789ab") == "" == store.api_key("nothing")


def test_keys_belong_to_the_service_account(store: Store) -> None:
    if os.geteuid() == 0:
        store.save(make(user="nobody", credentials=KEYS))
        account = pwd.getpwnam("nobody")
        stat = (store.path("0123456789ab") / "credentials.yaml").stat()
        assert (stat.st_uid, stat.st_gid) == (account.pw_uid, account.pw_gid)
    else:
        with pytest.raises(PermissionError):
            store.save(make(user="nobody", credentials=KEYS))


def test_a_save_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(KeyError):
        store.save(make(user="nobody-of-this-name", credentials=KEYS))
    assert store.ids() == []
    assert list((store.directory / "releases").iterdir()) == []


def test_a_save_that_is_killed_leaves_nothing_that_counts(store: Store) -> None:
    script = f"""
import os, signal, sys
from pathlib import Path
from ansible_collections.headroom.serving.plugins.module_utils import release
write = release._write
def slow(path, text, mode):
    write(path, text, mode)
    if path.name.startswith("sglang-"):
        os.kill(os.getpid(), signal.SIGKILL)
release._write = slow
release.Store(Path({str(store.root)!r}), "a").save(release.Release("0123456789ab", "a", "u", {{}}, {ME!r}))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list((store.directory / "releases").iterdir())) == 1
    assert store.ids() == []
    assert store.record("0123456789ab") == {} and store.unit_text("0123456789ab") == ""
    assert store.save(make()) is True
    assert store.ids() == ["0123456789ab"]


@pytest.mark.parametrize("name", [release.CURRENT, release.LAST_GOOD])
def test_links(store: Store, name: str) -> None:
    assert store.link(name) == ""
    for release_id in ("0123456789ab", "ba9876543210"):
        store.save(make(release_id))
        store.switch(name, release_id)
        assert store.link(name) == release_id
        assert (store.directory / name).readlink() == Path("releases") / release_id
        assert (store.directory / name / "release.json").is_file()
    store.unlink(name)
    store.unlink(name)
    assert store.link(name) == ""
    assert sorted(path.name for path in store.directory.iterdir()) == ["releases"]


def test_a_switch_leaves_no_moment_without_a_link(store: Store) -> None:
    for release_id in ("0123456789ab", "ba9876543210"):
        store.save(make(release_id))
    store.switch(release.CURRENT, "0123456789ab")
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(store.link(release.CURRENT))

    thread = threading.Thread(target=watch)
    thread.start()
    for _turn in range(300):
        store.switch(release.CURRENT, "ba9876543210")
        store.switch(release.CURRENT, "0123456789ab")
    done.set()
    thread.join()
    assert seen <= {"0123456789ab", "ba9876543210"}
    assert sorted(path.name for path in store.directory.iterdir()) == ["current", "releases"]


def test_a_link_into_nothing_is_none(store: Store) -> None:
    store.save(make())
    store.switch(release.CURRENT, "ba9876543210")
    assert store.link(release.CURRENT) == ""
    store.switch(release.CURRENT, "0123456789ab")
    assert store.link(release.CURRENT) == "0123456789ab"


def test_a_file_where_a_link_should_be(store: Store) -> None:
    store.save(make())
    (store.directory / release.CURRENT).write_text("0123456789ab")
    assert store.link(release.CURRENT) == ""
    store.switch(release.CURRENT, "0123456789ab")
    assert store.link(release.CURRENT) == "0123456789ab"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", '"x"'])
def test_a_damaged_record_is_an_empty_one(store: Store, text: str) -> None:
    store.save(make())
    (store.path("0123456789ab") / "release.json").write_text(text)
    assert store.record("0123456789ab") == {}


def test_measured_facts_are_no_part_of_the_release(store: Store) -> None:
    store.save(make())
    assert store.measured("0123456789ab") == {}
    store.save_measured("0123456789ab", {"start_s": 1.0})
    store.save_measured("0123456789ab", {"start_s": 2.0, "kv_tokens": 5})
    assert store.measured("0123456789ab") == {"start_s": 2.0, "kv_tokens": 5}
    assert sorted(path.name for path in (store.directory / "measured").iterdir()) == ["0123456789ab.json"]
    assert "measured" not in [path.name for path in store.path("0123456789ab").iterdir()]


def test_plans_lie_beside_the_release(store: Store) -> None:
    store.save(make())
    assert store.plan("0123456789ab") == {}
    store.save_plan("0123456789ab", {"accept": ["gpu.slack"]})
    assert store.plan("0123456789ab") == {"accept": ["gpu.slack"]}
    assert release_plan.accepted(store.path("0123456789ab")) == ["gpu.slack"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"accept": 1}'])
def test_a_damaged_plan_accepts_nothing(store: Store, text: str) -> None:
    store.save(make())
    store.save_plan("0123456789ab", {"accept": ["gpu.slack"]})
    (store.directory / "plans" / "0123456789ab.json").write_text(text)
    assert release_plan.accepted(store.path("0123456789ab")) == []


def test_the_guard_of_a_release_runs_from_its_own_copy(store: Store) -> None:
    store.save(make(record={}))
    guard = store.path("0123456789ab") / "guard.pyz"
    done = subprocess.run(
        [sys.executable, "-I", "-B", guard, guard.parent], capture_output=True, text=True, check=False
    )
    # It can't make sense of this record, and lets the server start all the same.
    assert done.returncode == 0
    assert "headroom: the memory could not be checked" in done.stdout
    assert guard.stat().st_mode & 0o777 == 0o644


def test_known_are_the_instances_with_a_current_release(tmp_path: Path) -> None:
    assert release.known(tmp_path / "absent", tmp_path) == []
    for name in ("b", "a", "c"):
        store = Store(tmp_path, name)
        store.save(Release("0123456789ab", name, "u", {}, ME))
        if name != "c":
            store.switch(release.CURRENT, "0123456789ab")
    (tmp_path / "instances" / "file").write_text("")
    assert release.known(tmp_path, tmp_path / "no-units") == ["a", "b"]
    Store(tmp_path, "a").purge()
    Store(tmp_path, "a").purge()
    assert release.known(tmp_path, tmp_path / "no-units") == ["b"]
    assert not (tmp_path / "instances" / "a").exists()


def test_no_keys_no_digest_and_no_salt(tmp_path: Path) -> None:
    assert release.credential_mac(tmp_path / "root", "", create=True) == ""
    assert not (tmp_path / "root").exists()


def test_check_mode_on_a_new_node_makes_no_salt(tmp_path: Path) -> None:
    assert release.credential_mac(tmp_path / "root", KEYS, create=False) == "new"
    assert not (tmp_path / "root").exists()


def test_the_digest_of_keys_needs_the_nodes_salt(tmp_path: Path) -> None:
    first, second = (release.credential_mac(tmp_path / name, KEYS, create=True) for name in "ab")
    assert first != second
    assert first == release.credential_mac(tmp_path / "a", KEYS, create=False)
    assert first != release.credential_mac(tmp_path / "a", KEYS + " ", create=True)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["salt"]
    assert len((tmp_path / "a" / "salt").read_text()) == 64
    assert first not in {hashlib.sha256(KEYS.encode()).hexdigest(), KEYS}


def test_a_unit_file_of_ours_makes_an_instance_known_and_none_of_others(tmp_path: Path) -> None:
    units = tmp_path / "units"
    units.mkdir()
    (units / "sglang-killed.service").write_text("# SGLang instance killed, written by headroom.serving; more\n")
    (units / "sglang-foreign.service").write_text("[Unit]\nDescription=written by headroom.serving\n")
    (units / "other.service").write_text("# SGLang instance other, written by headroom.serving; more\n")
    assert release.known(tmp_path, units) == ["killed"]
