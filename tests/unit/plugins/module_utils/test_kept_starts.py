# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the last starts: whole or the old one, readable to all, and no error if somebody damaged it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import kept_starts
from ansible_collections.headroom.serving.plugins.module_utils.kept_starts import KEPT, KeptStart, Setting
from ansible_collections.headroom.serving.plugins.module_utils.start_facts import StartFacts

ONE = KeptStart(
    when=1764480000.0,
    start=StartFacts(fraction=0.88, pre_gib=139.13, weights_gib=12.99, tokens=796872, chunked_prefill_size=-1),
    setting=Setting(
        name="a",
        engine_version="0.5.14",
        on_cpu=False,
        fraction=0.88,
        page_tokens=1,
        token_bytes=147456.0,
        fixed_bytes=0.0,
        state_bytes=0,
        limit_tokens=None,
        draft_gib=0.0,
        multimodal_gib=0.0,
        host_pool_planned_gb=40.0,
        host_pool_tokens=0,
        free_gib=139.8,
        overhead_gib=0.67,
    ),
    rss_rank_gb=3.2,
)


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "measured" / "0a1b.json"


@pytest.mark.usefixtures("_umask")
def test_all_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "headroom" / "measured" / "0a1b.json"
    kept_starts.write(path, [ONE])
    assert path.stat().st_mode & 0o777 == 0o644
    for directory in (path.parent, path.parent.parent):
        assert directory.stat().st_mode & 0o777 == 0o755
    assert kept_starts.read(path) == [ONE]


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    kept_starts.write(tmp_path / "0a1b.json", [ONE])
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_the_first_few_are_kept(file: Path) -> None:
    many = [replace(ONE, when=float(number)) for number in range(KEPT + 3)]
    kept_starts.write(file, many)
    assert kept_starts.read(file) == many[:KEPT]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_starts.write(file, [ONE])

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept_starts.write(file, [replace(ONE, when=1.0)])
    assert kept_starts.read(file) == [ONE]
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '{"format": 1}',
        '{"format": 1, "starts": null}',
        '{"format": 1, "starts": 7}',
        '{"format": 1, "starts": ["x", null, 7, [], {}]}',
        '{"format": 1, "starts": {"start": 1}}',
        '{"format": 2, "starts": []}',
        "[" * 100_000,
        '{"format": 1, "starts": ["' + "x" * 1_100_000 + '"]}',
    ],
    ids=range(13),
)
def test_a_damaged_file_counts_as_none(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert kept_starts.read(file) == []


def test_bytes_that_are_no_text_count_as_none(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe\x00")
    assert kept_starts.read(file) == []


def test_no_file_and_no_plain_file_count_as_none(file: Path) -> None:
    assert kept_starts.read(file) == []
    file.mkdir(parents=True)
    assert kept_starts.read(file) == []


def _put(part: str, name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(entry: dict[str, Any]) -> None:
        (entry[part] if part else entry)[name] = value

    return change


def _drop(part: str, name: str) -> Callable[[dict[str, Any]], None]:
    def change(entry: dict[str, Any]) -> None:
        del (entry[part] if part else entry)[name]

    return change


@pytest.mark.parametrize(
    "damage",
    [
        _put("", "when", "yesterday"),
        _put("", "when", -1),
        _put("", "when", 1e300),
        _put("", "when", None),
        _put("", "rss_rank_gb", -1.0),
        _put("", "rss_rank_gb", float("nan")),
        _put("", "start", None),
        _put("", "setting", []),
        _put("start", "pre_gib", "139.13"),
        _put("start", "pre_gib", 0),
        _put("start", "pre_gib", float("inf")),
        _put("start", "pre_gib", True),
        _put("start", "tokens", 1.5),
        _put("start", "tokens", -1),
        _put("start", "fraction", 88),
        _put("start", "sized_after_capture", 0),
        _put("setting", "name", None),
        _put("setting", "fraction", 0),
        _put("setting", "fraction", None),
        _put("setting", "page_tokens", 0),
        _put("setting", "token_bytes", 0),
        _put("setting", "fixed_bytes", -1),
        _put("setting", "state_bytes", -1),
        _put("setting", "on_cpu", "no"),
        _put("setting", "free_gib", 0),
        _put("setting", "free_gib", "139.8"),
        _put("setting", "overhead_gib", -0.1),
        _put("setting", "overhead_gib", None),
        _drop("", "when"),
        _drop("start", "tokens"),
        _drop("setting", "limit_tokens"),
    ],
    ids=range(31),
)
def test_an_entry_that_makes_no_sense_is_left_out_and_the_others_stay(
    file: Path, damage: Callable[[dict[str, Any]], None]
) -> None:
    bad = json.loads(json.dumps(asdict(ONE)))
    damage(bad)
    file.parent.mkdir()
    file.write_text(json.dumps({"format": 1, "starts": [bad, asdict(ONE)]}))
    assert kept_starts.read(file) == [ONE]


def test_a_file_of_before_free_memory_was_kept(file: Path) -> None:
    entry = json.loads(json.dumps(asdict(ONE)))
    del entry["setting"]["free_gib"], entry["setting"]["overhead_gib"]
    file.parent.mkdir()
    file.write_text(json.dumps({"format": 1, "starts": [entry]}))
    assert kept_starts.read(file) == [replace(ONE, setting=replace(ONE.setting, free_gib=None, overhead_gib=0.0))]


def test_a_whole_number_counts_as_a_figure(file: Path) -> None:
    entry = asdict(ONE)
    entry["start"]["pre_gib"] = 139
    file.parent.mkdir()
    file.write_text(json.dumps({"format": 1, "starts": [entry]}))
    assert kept_starts.read(file)[0].start.pre_gib == 139.0
