# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports on disk: names, contents, and what becomes of them when a second run comes or a disk is full."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_files

Report = dict[str, Any]


def test_both_files_lie_side_by_side_and_say_the_same(tmp_path: Path, refused: Report) -> None:
    paths = plan_files.write(tmp_path / "made" / "here", "gpu1", refused)
    assert paths == [str(tmp_path / "made/here" / name) for name in ("gpu1.a.json", "gpu1.a.html")]
    data = json.loads(Path(paths[0]).read_text(encoding="utf-8"))
    assert data["node"] == "gpu1"
    assert {key: data[key] for key in refused} == refused
    assert set(data) == {*refused, "node", "budgets", "units"}
    assert "2,410.7 GB needed" in Path(paths[1]).read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "made/here").iterdir()) == ["gpu1.a.html", "gpu1.a.json"]


def test_names_of_figures_end_in_a_unit_that_is_told(refused: Report) -> None:
    data = json.loads(plan_files.as_json(refused, "gpu1"))
    endings = tuple(name[1:] for name in data["units"] if name.startswith("*"))
    plain = {"tokens", "fraction", "cell_bytes", "low", "best", "high"}
    counts = {"ranks", "swa_tokens", "states", "max_running_requests", "minimum_fraction", "ratio"}
    for part in ("gpu", "host"):
        figures = {name for name, value in data["plan"][part].items() if isinstance(value, (int, float, dict))}
        assert [name for name in figures - plain - counts if not name.endswith(endings)] == []


def test_a_second_run_leaves_the_files_as_they_are(tmp_path: Path, refused: Report) -> None:
    first = [Path(path) for path in plan_files.write(tmp_path, "gpu1", refused)]
    before = [(path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in first]
    plan_files.write(tmp_path, "gpu1", json.loads(json.dumps(refused)))
    assert [(path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in first] == before
    refused["engine_version"] = "0.5.99"
    held = [path.open("rb") for path in first]
    plan_files.write(tmp_path, "gpu1", refused)
    assert all(path.read_bytes() != old[0] for path, old in zip(first, before, strict=True))
    # Who reads the old file meanwhile reads all of it: it was replaced, not written over.
    for handle, old in zip(held, before, strict=True):
        with handle:
            assert handle.read() == old[0]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, refused: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path, page) = (Path(name) for name in plan_files.write(tmp_path, "gpu1", refused))
    old = path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as handle:  # noqa: PTH123 (Path.open is what is replaced)
            handle.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    refused["engine_version"] = "0.5.99"
    with pytest.raises(
        HeadroomError, match=r"can't be written: No space left on device\. Name a directory .*\[settings"
    ):
        plan_files.write(tmp_path, "gpu1", refused)
    assert path.read_bytes() == old
    assert sorted(tmp_path.iterdir()) == sorted([path, page])


@pytest.mark.parametrize(
    "node", ["../../etc/x", "a/b", ".hidden", "..", "", "[::1]", "gpu 1", "gpu1\n", "ü", 'a"b', "a\\b", "~x", "-x"]
)
def test_no_name_leaves_the_directory_or_is_odd(tmp_path: Path, refused: Report, node: str) -> None:
    paths = [Path(path) for path in plan_files.write(tmp_path, node, refused)]
    assert {path.parent for path in paths} == {tmp_path}
    for path in paths:
        assert path.is_file()
        assert not path.name.startswith((".", "-"))
        assert path.name.isascii() and path.name.isprintable() and not set(path.name) & set(" /\\\"'[]~")


def test_names_that_look_alike_are_kept_apart() -> None:
    nodes = ["a/b", "a_b", "a b", "a.b", "ab", ".a", "_.a", "a", "A"]
    assert len({plan_files.file_name(node, "x") for node in nodes}) == len(nodes)
    assert plan_files.file_name("gpu-1.example.org", "kimi_2") == "gpu-1.example.org.kimi_2"
    assert plan_files.file_name("a.b", "c") != plan_files.file_name("a", "b.c")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "'{0}': it is no directory."),
        ("file/below/it", "'{0}': it lies below '{1}/file', which is no directory."),
        ("nowhere", "'{0}': it is no directory."),
    ],
)
def test_what_is_no_directory_is_told_before_anything_is_planned(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    path = f"{tmp_path}/{name}"
    with pytest.raises(HeadroomError) as caught:
        plan_files.check(path)
    assert str(caught.value).startswith(f"plan_report_dir is {reason.format(path, tmp_path)} Name a directory")


def test_a_directory_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_arguments, **_more: False)
    with pytest.raises(HeadroomError, match="it can't be written by this account"):
        plan_files.check(str(tmp_path))


def test_a_relative_directory_starts_where_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert plan_files.check("reports/x") == tmp_path / "reports/x"
    assert plan_files.check("~/x") == tmp_path / "home/x"
    assert list(tmp_path.iterdir()) == []
