# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the settings name on the controller: found, read, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.wheel_files import Target
from ansible_collections.headroom.serving.plugins.plugin_utils import controller_files

SETTING = "sglang_runtime_engines[x].lock"


def find(path: str) -> str:
    if not Path(path).exists():
        raise LookupError(path)
    return path


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.lock", tmp_path):
        with pytest.raises(HeadroomError) as caught:
            controller_files.read_lock(find, str(path), SETTING)
        assert str(caught.value).startswith(f"{SETTING} is '{path}', which can't be read on the controller: ")


def test_a_lock_is_named_in_its_errors(tmp_path: Path) -> None:
    (tmp_path / "x.lock").write_text("six==1\n")
    with pytest.raises(HeadroomError) as caught:
        controller_files.read_lock(find, str(tmp_path / "x.lock"), SETTING)
    assert str(caught.value).startswith(f"{SETTING} '{tmp_path}/x.lock': line 1, 'six==1': no --hash=sha256:...")


def test_a_shim_is_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_text("import a\n")
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pkg" / "a.py").write_text("x = 1\n")
    (tmp_path / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"")
    assert controller_files.read_shim(find, str(tmp_path), "shim") == {"a.pth": b"import a\n", "pkg/a.py": b"x = 1\n"}
    assert controller_files.read_shim(find, "", "shim") == {}


def test_directories_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeadroomError, match="which is no directory on the controller"):
        controller_files.read_shim(find, str(tmp_path / "file"), "shim")
    with pytest.raises(HeadroomError, match="which holds no file"):
        controller_files.read_shim(find, str(tmp_path / "empty"), "shim")
    with pytest.raises(HeadroomError, match=r"'/nonexistent', which is no directory .* the wheels of the lock"):
        controller_files.wheelhouse_files(find, "/nonexistent", "wheelhouse")


def test_markers_are_those_of_the_node() -> None:
    applies = controller_files.marker_check({"python_full_version": "3.9.2", "sys_platform": "linux"})
    assert applies("python_full_version < '3.10'") and not applies("sys_platform == 'win32'")
    assert controller_files.marker_check(None)("sys_platform == 'win32'")
    with pytest.raises(HeadroomError, match=r"'nonsense' is no environment marker"):
        applies("nonsense")


@pytest.mark.parametrize(
    ("platform", "version", "expected"),
    [("linux-x86_64", "3.11", Target((3, 11), "x86_64")), ("linux-aarch64", "3.9", Target((3, 9), "aarch64"))],
)
def test_target(platform: str, version: str, expected: Target) -> None:
    described: dict[str, Any] = {"platform": platform, "markers": {"python_version": version}}
    assert controller_files.target_of(described) == expected
    assert controller_files.target_of(None) is None
