# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware is read by the tools' Python where there is one, and by this one otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import hardware, hardware_reading, own_code

READ = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    f"from {own_code.ROOMS} import hardware, hardware_reading\n"
    "print(hardware.to_json(hardware_reading.read(Path(sys.argv[2]))))"
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    target = tmp_path / "code.zip"
    own_code.write(target)
    return target


def tools(root: Path, script: str) -> None:
    python = root / "tools" / "current" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def read(archive: Path, root: Path) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-I", "-c", READ, archive, root], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_the_tools_python_runs_the_code_of_this_very_archive(archive: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tools(tmp_path, f'echo "$@" > {log}; exec {sys.executable} "$@"')
    assert read(archive, tmp_path)["format"] == hardware.FORMAT
    assert log.read_text().startswith("-I -c ") and log.read_text().rstrip().endswith(str(archive))


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense", "echo '{}'", "kill -9 $$"])
def test_tools_that_are_broken_are_done_without(archive: Path, tmp_path: Path, script: str) -> None:
    tools(tmp_path, script)
    assert read(archive, tmp_path)["format"] == hardware.FORMAT


def test_without_tools_this_python_reads(archive: Path, tmp_path: Path) -> None:
    assert read(archive, tmp_path)["format"] == hardware.FORMAT


def test_code_that_lies_in_files_reads_by_itself(tmp_path: Path) -> None:
    tools(tmp_path, "exit 1")
    assert own_code.archive() == ""
    assert hardware_reading.read(tmp_path).format == hardware.FORMAT
