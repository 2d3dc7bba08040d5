"""The page that tells how accurate the plan is says what the plan says now."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree.ElementTree import fromstring

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy", ROOT / "benchmarks" / "accuracy.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_picture_are_up_to_date(accuracy: ModuleType) -> None:
    found = accuracy.rows()
    text = accuracy.PAGE.read_text(encoding="utf-8")
    assert accuracy.page(text, found) == text, "run benchmarks/accuracy --write"
    assert accuracy.PICTURE.read_text(encoding="utf-8") == accuracy.picture(found), "run benchmarks/accuracy --write"


def test_every_start_is_on_the_page(accuracy: ModuleType) -> None:
    found = accuracy.rows()
    text = accuracy.PAGE.read_text(encoding="utf-8")
    assert len(found) == 39
    for row in found:
        assert text.count(f"| {row.start['name']} |") >= 2, row.start["name"]


def test_the_picture_is_an_image_by_itself(accuracy: ModuleType) -> None:
    root = fromstring(accuracy.PICTURE.read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall("{*}circle")) == 23  # one for each start that survived


def test_a_page_without_its_markers_is_named(accuracy: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"docs/accuracy\.md lacks"):
        accuracy.page("# Nothing\n", accuracy.rows())


def test_it_runs_by_itself() -> None:
    done = subprocess.run([ROOT / "benchmarks" / "accuracy"], capture_output=True, text=True, check=True)
    assert "tp2-cgroup" in done.stdout and done.stderr == ""
