"""CHANGELOG.md is what antsibull-changelog writes from changelogs/changelog.yaml, and names every module."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def releases() -> dict[str, Any]:
    text = (ROOT / "changelogs" / "changelog.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["releases"]
    return found


def test_changelog_is_the_generated_one(tmp_path: Path) -> None:
    for name in ("changelogs", "meta", "plugins", "roles"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("galaxy.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    command = [str(Path(sys.executable).parent / "antsibull-changelog"), "generate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert written == (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "run antsibull-changelog generate"


def test_the_version_of_galaxy_yml_is_described(releases: dict[str, Any]) -> None:
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    assert releases[version]["changes"]["release_summary"]


def test_every_module_is_announced(releases: dict[str, Any]) -> None:
    announced = [module["name"] for release in releases.values() for module in release.get("modules", [])]
    modules = [path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")]
    assert sorted(announced) == sorted(modules), "run antsibull-changelog release --update-existing --reload-plugins"
