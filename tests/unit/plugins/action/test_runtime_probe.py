# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller adds to the node's answer: the version of an engine that is not there yet."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.action.runtime_probe import ActionModule
from ansible_collections.headroom.serving.plugins.module_utils import lock_file

HASH = f"--hash=sha256:{'0' * 64}"


def complete(lock: str, resolved: dict[str, Any], kind: str = "engine") -> dict[str, Any]:
    """Return what becomes of the node's `resolved` for one item with this lock."""
    items = [{"kind": kind, "name": "default", "parsed": lock_file.parse_lock(lock, "x.lock")}]
    result = {"resolved": resolved, "todo": {"tools": [], "engines": []}, "interpreters": {}}
    action = ActionModule.__new__(ActionModule)
    action._complete(result, items)
    return result["resolved"]


@pytest.mark.parametrize(
    ("lock", "known", "version"),
    [
        (f"sglang==0.5.14 {HASH}\n", None, "0.5.14"),
        (f"torch==2.11.0 {HASH}\nSGLang[all]==0.5.23 {HASH}\n", None, "0.5.23"),
        (f"sglang==0.5.14 {HASH}\n", "0.5.14.post1", "0.5.14.post1"),
        (f"sglang-kernel==0.4.4 {HASH}\n", None, ""),
    ],
)
def test_a_lock_tells_the_version_before_there_is_an_engine(lock: str, known: str | None, version: str) -> None:
    assert complete(lock, {"default": {"id": "0123", "version": known}}) == {
        "default": {"id": "0123", "version": version}
    }


def test_tools_have_no_such_version() -> None:
    assert complete(f"sglang==0.5.14 {HASH}\n", {}, "tools") == {}
