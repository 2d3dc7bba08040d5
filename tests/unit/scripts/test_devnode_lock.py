# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock is read strictly, written from a pylock, and complete for the engine of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from devnode.lockfile import lock_of, read_lock
from devnode.names import Clone

A, B = "a" * 64, "b" * 64


def lock(folder: Path, text: str) -> Path:
    path = folder / "requirements.lock"
    path.write_text(text, encoding="utf-8")
    return path


def test_names_hashes_and_local_versions(tmp_path: Path) -> None:
    text = f"# note\nTyping_Ext.x==1.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n\n"
    text += f"torch==2.0+cpu --hash=sha256:{A}\n"
    first, second = read_lock(lock(tmp_path, text))
    assert (first.name, first.version, first.hashes) == ("typing-ext-x", "1.0", (A, B))
    assert (second.version, second.text()) == ("2.0+cpu", f"torch==2.0+cpu --hash=sha256:{A}")


def test_pins_for_another_python_are_left_out(tmp_path: Path) -> None:
    lines = [
        f"a==1 ; python_full_version < '3.10' --hash=sha256:{A}",
        f"a==2 ; python_full_version >= '3.10' \\\n    --hash=sha256:{A}",
        f"b==1 ; python_full_version >= '3.9' and python_full_version < '3.11' --hash=sha256:{A}",
    ]
    assert [(pin.name, pin.version) for pin in read_lock(lock(tmp_path, "\n".join(lines)))] == [("a", "2")]


def test_a_condition_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no condition on the version of Python"):
        read_lock(lock(tmp_path, f"a==1 ; sys_platform == 'win32' --hash=sha256:{A}"))


@pytest.mark.parametrize(
    "line",
    ["torch==2.0", f"torch>=2.0 --hash=sha256:{A}", f"torch==2.0 --hash=sha256:{A[1:]}", f"--hash=sha256:{A}"],
)
def test_a_line_that_vouches_for_nothing_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match="is not NAME==VERSION with a --hash"):
        read_lock(lock(tmp_path, line))


def test_a_pylock_becomes_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    wheels = f'[{{ hashes = {{ sha256 = "{B}" }} }}, {{ hashes = {{ sha256 = "{A}" }} }}]'
    path.write_text(f'[[packages]]\nname = "one"\nversion = "1"\nwheels = {wheels}\n', encoding="utf-8")
    (pin,) = read_lock(lock(tmp_path, lock_of(path)))
    assert (pin.name, pin.version, pin.hashes) == ("one", "1", (A, B))


def test_a_package_without_a_wheel_cannot_be_locked(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text('[[packages]]\nname = "one"\nversion = "1"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="one==1 has no wheel"):
        lock_of(path)


def test_the_engine_of_the_demo_is_locked_as_its_requirements_say() -> None:
    clone = Clone.here()
    pins = {f"{pin.name}=={pin.version}" for pin in read_lock(clone.lock)}
    lines = clone.lock.with_suffix(".in").read_text(encoding="utf-8").splitlines()
    wanted = {line.lower().replace("_", "-") for line in lines if line and not line.startswith("#")}
    assert pins == wanted
    assert "://" not in clone.lock.read_text(encoding="utf-8")
    assert {"sglang==0.5.14", "torch==2.13.0+cpu", "transformers==5.8.1"} <= pins
    assert any(pin.startswith("datasets==") for pin in pins)
    assert not [pin for pin in pins if pin.startswith(("flashinfer", "sgl-kernel", "sglang-kernel", "nvidia-"))]
