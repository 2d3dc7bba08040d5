# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The id of a venv changes with each input and with nothing else."""

from __future__ import annotations

import re

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.venv_id import shim_digest, venv_id

BASE = {
    "lock_sha256": "1" * 64,
    "interpreter": "cpython-3.11.2",
    "platform": "linux-x86_64",
    "shim_sha256": "2" * 64,
}


def test_is_the_same_for_the_same_inputs() -> None:
    assert venv_id(**BASE) == venv_id(**dict(reversed(list(BASE.items()))))
    assert re.fullmatch(r"[0-9a-f]{12}", venv_id(**BASE))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lock_sha256", "3" * 64),
        ("interpreter", "cpython-3.11.3"),
        ("interpreter", "pypy-3.11.2"),
        ("platform", "linux-aarch64"),
        ("shim_sha256", "4" * 64),
        ("shim_sha256", ""),
    ],
)
def test_changes_with_each_input(key: str, value: str) -> None:
    assert venv_id(**{**BASE, key: value}) != venv_id(**BASE)


def test_no_two_inputs_run_into_each_other() -> None:
    assert venv_id("a", "b", "c", "") != venv_id("a", "b", "", "c")


@pytest.mark.parametrize(
    ("files", "same"),
    [
        ({"b.py": b"2", "a.pth": b"1"}, True),
        ({"a.pth": b"1"}, False),
        ({"a.pth": b"1", "b.py": b"3"}, False),
        ({"a.pth": b"1", "c.py": b"2"}, False),
        ({"a.pth": b"2", "b.py": b"1"}, False),
        ({}, False),
    ],
)
def test_shim_is_its_paths_and_contents(files: dict[str, bytes], same: bool) -> None:
    assert (shim_digest(files) == shim_digest({"a.pth": b"1", "b.py": b"2"})) is same


def test_no_shim_has_no_digest() -> None:
    assert shim_digest({}) == ""
