"""Every module and every role can be looked up with ansible-doc, from the clone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py") if path.stem != "__init__")
ROLES = sorted(path.name for path in (ROOT / "roles").glob("*") if path.is_dir())


def _ansible_doc(*arguments: str) -> Any:
    command = [str(Path(sys.executable).parent / "ansible-doc"), "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_list_shows_every_module_with_its_description() -> None:
    listed = _ansible_doc("--type", "module", "--list", "headroom.serving")
    assert sorted(listed) == [f"headroom.serving.{name}" for name in MODULES]
    assert [name for name, text in listed.items() if not text or text == "UNDOCUMENTED"] == []


@pytest.mark.parametrize("name", MODULES)
def test_module_documents_what_it_takes_and_gives(name: str) -> None:
    page = _ansible_doc("--type", "module", f"headroom.serving.{name}")[f"headroom.serving.{name}"]
    assert page["doc"]["description"]
    assert f"headroom.serving.{name}:" in page["examples"]
    assert page["return"]
    assert {"check_mode", "diff_mode"} <= set(page["doc"]["attributes"])
    assert [option for option, text in page["doc"].get("options", {}).items() if not text["description"]] == []


@pytest.mark.parametrize("name", ROLES)
def test_role_documents_its_entry_points(name: str) -> None:
    page = _ansible_doc("--type", "role", f"headroom.serving.{name}")[f"headroom.serving.{name}"]
    assert "main" in page["entry_points"]
    assert [entry for entry, text in page["entry_points"].items() if not text.get("short_description")] == []
