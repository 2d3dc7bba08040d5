# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shim declares torchvision's operators just before torchvision runs, and costs an interpreter nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHIM = Path(__file__).resolve().parents[3] / "scripts" / "cpu_engine" / "shim"
TORCH = """
class Library:
    def __init__(self, name, kind):
        self.name, self.kind = name, kind
    def define(self, schema):
        declared.append((self.name, self.kind, schema.split("(")[0]))
class library:
    Library = Library
declared = []
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder as the shim's user has it: the shim, and packages that tell when they are loaded."""
    shutil.copytree(SHIM, tmp_path, dirs_exist_ok=True)
    (tmp_path / "torch.py").write_text(TORCH, encoding="utf-8")
    (tmp_path / "torchvision.py").write_text("import torch\nseen = list(torch.declared)\n", encoding="utf-8")
    return tmp_path


def python(site: Path, code: str) -> str:
    start = f"import site, sys; site.addsitedir({str(site)!r}); "
    done = subprocess.run([sys.executable, "-I", "-c", start + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_start_and_lookup_load_nothing(site: Path) -> None:
    code = "import importlib.util; importlib.util.find_spec('torchvision'); print('torch' in sys.modules)"
    assert python(site, code) == "False"
    assert python(site, "print('headroom_torchvision' in sys.modules)") == "True"


def test_the_operators_are_declared_before_torchvision_runs(site: Path) -> None:
    wanted = [("torchvision", "DEF", "nms"), ("torchvision", "DEF", "qnms")]
    assert python(site, "import torchvision; print(torchvision.seen)") == str(wanted)


def test_a_second_import_declares_nothing_again(site: Path) -> None:
    code = "import torchvision, importlib; importlib.reload(torchvision); print(len(torchvision.seen))"
    assert python(site, code) == "2"


def test_without_torchvision_its_import_fails_as_ever(site: Path) -> None:
    (site / "torchvision.py").unlink()
    code = "import importlib.util; print(importlib.util.find_spec('torchvision'))"
    assert python(site, code) == "None"
