# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module hardware_info, run by Ansible on this machine, with GPUs that are played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import hardware

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = ROOT / "tests" / "stand_ins" / "nvml"
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - headroom.serving.hardware_info:
        root: "{{ root }}"
        source: "{{ source }}"
      register: answer
    - copy:
        content: "{{ answer | to_json }}"
        dest: "{{ to }}"
        mode: "0600"
      check_mode: false
"""

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that runs the module by the distribution's interpreter, which has no nvidia-ml-py."""
    subprocess.run([STAND_IN / "build", tmp_path / "lib"], check=True)
    (tmp_path / "play.yml").write_text(PLAY)

    def ask(root: Path, source: str = "auto") -> dict[str, Any]:
        to = tmp_path / "answer.json"
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANSIBLE_"))},
            "PATH": f"{tmp_path / 'lib'}{os.pathsep}{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(tmp_path / "lib"),
            "NVML_STAND_IN": str(STAND_IN / "machines" / "blackwell.txt"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "playbooks" / "collections"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        }
        values = {"root": str(root), "source": source, "to": str(to), "ansible_python_interpreter": "/usr/bin/python3"}
        command = [Path(sys.executable).parent / "ansible-playbook", "--check", "-e", json.dumps(values)]
        done = subprocess.run(
            [*command, tmp_path / "play.yml"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(to.read_text())
        assert answer["changed"] is False and not answer.get("warnings")
        return answer

    return ask


def tools(root: Path, python: str) -> Path:
    """Make a tools venv whose interpreter is a script."""
    path = root / "tools" / "0123abc" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(python)
    path.chmod(0o755)
    (root / "tools" / "current").symlink_to("0123abc")
    return root


def test_through_the_tools_venv(ask: Ask, tmp_path: Path) -> None:
    answer = ask(tools(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n'))
    record = hardware.from_json(json.dumps(answer["hardware"]))
    assert (record.source, len(record.gpus), record.notes) == ("nvml", 8, ())
    assert answer["findings"] == []


@pytest.mark.parametrize("python", [None, "#!/bin/sh\nexit 1\n", "#!/no/such/interpreter\n"])
def test_without_tools_that_work(ask: Ask, tmp_path: Path, python: str | None) -> None:
    root = tmp_path / "root" if python is None else tools(tmp_path / "root", python)
    answer = ask(root)
    record = hardware.from_json(json.dumps(answer["hardware"]))
    assert (record.source, len(record.gpus)) == ("nvidia-smi", 8)
    (note,) = record.notes
    assert note.startswith("nvidia-ml-py is not installed for /usr/bin/python3")
    assert root.exists() is (python is not None), "it made something"


def test_the_way_that_was_asked_for(ask: Ask, tmp_path: Path) -> None:
    answer = ask(tools(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n'), "nvidia-smi")
    assert (answer["hardware"]["source"], answer["hardware"]["notes"]) == ("nvidia-smi", [])
