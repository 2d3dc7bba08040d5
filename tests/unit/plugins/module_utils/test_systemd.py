# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of the journal as lines, and a machine without systemd."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import systemd
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("one line", ["one line"]),
        ("two\nlines", ["two", "lines"]),
        ("  indented", ["  indented"]),
        ("", []),
        (None, []),
        ("   ", []),
        ("\n\n", []),
        ("0%\r 50%\r100%", ["0%", " 50%", "100%"]),
        ("\rLoading: 25%\rLoading: 50%\r\n", ["Loading: 25%", "Loading: 50%"]),
        (list(b"a\x1b[0mb"), ["a\x1b[0mb"]),
        (list("é %".encode()), ["é %"]),
        (list(b"\xff\xfe"), ["\ufffd\ufffd"]),
        (list(b"0%\r50%"), ["0%", "50%"]),
        ([], []),
        ("日本", ["日本"]),
    ],
)
def test_a_record_is_its_lines(value: Any, lines: list[str]) -> None:
    assert systemd.message(json.dumps({"MESSAGE": value, "__CURSOR": "x"}).encode()) == lines


@pytest.mark.parametrize("record", [b"", b"  ", b"{}", b'{"PRIORITY": "6"}'])
def test_a_record_without_a_message(record: bytes) -> None:
    assert systemd.message(record) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: systemd.state("x.service"),
        systemd.daemon_reload,
        lambda: systemd.start("x.service"),
        lambda: systemd.stop("x.service"),
        lambda: systemd.enable("x.service"),
        lambda: systemd.disable("x.service"),
    ],
)
def test_a_machine_without_systemctl(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HeadroomError, match="systemctl is not on this node: instances are systemd units"):
        call()
