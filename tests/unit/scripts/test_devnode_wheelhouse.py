# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wheel counts only when its bytes are the lock's; whatever else lies in the wheelhouse is foreign."""

from __future__ import annotations

import hashlib
from pathlib import Path

from devnode import wheelhouse
from devnode.lockfile import Pin
from devnode.names import Clone
from devnode.steps import Steps

CONTENT = b"a whole wheel" * 1000
PIN = Pin("one", "1", ("0" * 64, hashlib.sha256(CONTENT).hexdigest()))


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_whole_wheel_is_there_under_any_name(tmp_path: Path) -> None:
    put(tmp_path, "one-1-py3-none-any.whl", CONTENT)
    assert wheelhouse.examine(tmp_path, [PIN]) == ([], [])


def test_a_truncated_wheel_is_missing_and_foreign(tmp_path: Path) -> None:
    broken = put(tmp_path, "one-1-py3-none-any.whl", CONTENT[:-1])
    assert wheelhouse.examine(tmp_path, [PIN]) == ([PIN], [broken])


def test_a_wheel_of_another_lock_is_foreign(tmp_path: Path) -> None:
    put(tmp_path, "one-1-py3-none-any.whl", CONTENT)
    other = put(tmp_path, "two-2-py3-none-any.whl", b"other")
    assert wheelhouse.examine(tmp_path, [PIN]) == ([], [other])


def test_no_folder_is_an_empty_one(tmp_path: Path) -> None:
    assert wheelhouse.examine(tmp_path / "none", [PIN]) == ([PIN], [])


def test_a_complete_wheelhouse_is_left_alone_and_cleared_of_leftovers(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    folders = {clone.lock: clone.wheelhouse, clone.tools_lock: clone.tools_wheelhouse}
    for lock, folder in folders.items():
        lock.parent.mkdir(parents=True)
        lock.write_text(PIN.text(), encoding="utf-8")
        folder.mkdir(parents=True)
        put(folder, "one-1-py3-none-any.whl", CONTENT)
        put(folder, "one-1-py3-none-any.whl.part", CONTENT[:10])
    # There is no pip in this clone: any download would fail.
    wheelhouse.ensure(clone, Steps(clone.cache / "logs", quiet=True))
    for folder in folders.values():
        assert [path.name for path in folder.iterdir()] == ["one-1-py3-none-any.whl"]
