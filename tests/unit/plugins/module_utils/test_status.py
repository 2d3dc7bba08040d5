# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables and rows for people."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import status, table
from ansible_collections.headroom.serving.plugins.module_utils.status import Row


@pytest.mark.parametrize(
    ("header", "rows", "lines"),
    [
        (["a", "b"], [], ["a  b", "-  -"]),
        (
            ["name", "n"],
            [["x", 5], ["long name", 12345]],
            ["name           n", "---------  -----", "x              5", "long name  12345"],
        ),
        (["n"], [["1,024"], ["-"], ["7"]], ["    n", "-----", "1,024", "    -", "    7"]),
        (["n"], [["1.5"], ["10"]], ["  n", "---", "1.5", " 10"]),
        (["n"], [["1"], ["x"]], ["n", "-", "1", "x"]),
        (["a", "b"], [["x", ""]], ["a  b", "-  -", "x"]),
        (["version"], [["0.5.14"], ["0.5.9"]], ["version", "-------", "0.5.14", "0.5.9"]),
        (["a"], [[None], [True]], ["a", "----", "None", "True"]),
    ],
)
def test_renders(header: list[str], rows: list[list[Any]], lines: list[str]) -> None:
    assert table.render(header, rows) == lines


def test_no_line_ends_in_blanks() -> None:
    assert all(line == line.rstrip() for line in table.render(["a", "long header"], [["x", "y"], ["long cell", ""]]))


ROW = Row("a", "0123456789ab", "active (running)", "Mon 2026-11-30", "yes", "qwen", 30000, 159072, 12, 0, ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {},
            [
                "a",
                "0123456789ab",
                "active (running)",
                "Mon 2026-11-30",
                "yes",
                "qwen",
                "30000",
                "159,072",
                "12",
                "0",
                "-",
            ],
        ),
        (
            {"since": ""},
            ["a", "0123456789ab", "active (running)", "-", "yes", "qwen", "30000", "159,072", "12", "0", "-"],
        ),
        (
            {"accepted": ["gpu.slack", "host.memory"], "since": ""},
            [
                "a",
                "0123456789ab",
                "active (running)",
                "-",
                "yes",
                "qwen",
                "30000",
                "159,072",
                "12",
                "0",
                "gpu.slack, host.memory",
            ],
        ),
        (
            {"kv_tokens": None, "running": None, "queued": None},
            ["a", "0123456789ab", "active (running)", "Mon 2026-11-30", "yes", "qwen", "30000", "-", "-", "-", "-"],
        ),
    ],
)
def test_a_row_is_a_cell_for_each_column(changes: dict[str, Any], expected: list[str]) -> None:
    found = status.cells({**ROW.as_dict(), **changes})
    assert found == expected
    assert len(found) == len(status.HEADER)


def test_rows_of_a_node_without_instances(tmp_path: Any) -> None:
    assert status.rows(tmp_path) == [] == status.rows(tmp_path / "absent")
