# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's store of wheels: pieces in, whole wheels out, nothing in between."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import wheel_store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.wheel_files import Wheel, cut
from ansible_collections.headroom.serving.plugins.plugin_utils.controller_files import write_archive

SMALL, LARGE = b"small" * 10, bytes(range(256)) * 10


def send(tmp_path: Path, contents: dict[str, bytes], damage: bool = False) -> tuple[list[str], dict[str, str]]:
    """Send files in pieces of 1000 bytes; return the digests that the store called whole, and digest to name."""
    house = tmp_path / "house"
    house.mkdir()
    wheels = []
    for name, content in contents.items():
        (house / name).write_bytes(content[::-1] if damage else content)
        wheels.append(Wheel(name, len(content), hashlib.sha256(content).hexdigest()))
    names = {wheel.sha256: wheel.filename for wheel in wheels}
    sizes = {wheel.sha256: wheel.size for wheel in wheels}
    whole = []
    for batch in cut(wheels, piece_bytes=1000):
        write_archive(tmp_path / "batch.tar", house, batch)
        whole += wheel_store.unpack(tmp_path / "store", tmp_path / "batch.tar", names, sizes)
    return whole, names


def test_wheels_arrive_whole_however_they_are_cut(tmp_path: Path) -> None:
    store = tmp_path / "store"
    whole, names = send(tmp_path, {"small.whl": SMALL, "large.whl": LARGE})
    assert sorted(whole) == sorted(names)
    for digest, name in names.items():
        assert hashlib.sha256((store / digest / name).read_bytes()).hexdigest() == digest
    assert wheel_store.lacking(store, {**names, "f" * 64: "other.whl"}) == ["f" * 64]
    assert not list(store.glob(".partial-*"))


def test_a_damaged_wheel_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(HeadroomError, match=r"wheel large\.whl arrived damaged"):
        send(tmp_path, {"large.whl": LARGE}, damage=True)
    assert list((tmp_path / "store").iterdir()) == []


def test_half_a_wheel_is_lacking_and_the_next_transfer_starts_afresh(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    digest = hashlib.sha256(LARGE).hexdigest()
    (store / f".partial-{digest}").write_bytes(b"x" * 5000)
    assert wheel_store.lacking(store, {digest: "large.whl"}) == [digest]
    send(tmp_path, {"large.whl": LARGE})
    assert wheel_store.lacking(store, {digest: "large.whl"}) == []


def test_a_stranger_in_the_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(SMALL)
    wheel = Wheel("x.whl", len(SMALL), "a" * 64)
    write_archive(tmp_path / "batch.tar", tmp_path, cut([wheel])[0])
    with pytest.raises(HeadroomError, match="unexpected member"):
        wheel_store.unpack(tmp_path / "store", tmp_path / "batch.tar", {}, {})


def test_only_old_unused_wheels_go(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _whole, names = send(tmp_path, {"small.whl": SMALL, "large.whl": LARGE, "new.whl": b"new"})
    by_name = {name: digest for digest, name in names.items()}
    for name in ("small.whl", "large.whl"):
        os.utime(store / by_name[name], (0, 0))
    assert wheel_store.remove_unused(store, {by_name["small.whl"]}) == [by_name["large.whl"]]
    assert wheel_store.lacking(store, names) == [by_name["large.whl"]]
    assert wheel_store.remove_unused(tmp_path / "absent", set()) == []
