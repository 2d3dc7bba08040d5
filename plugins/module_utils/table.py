# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain text tables for people."""

from __future__ import annotations

from collections.abc import Sequence


def render(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table: columns as wide as their longest cell, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(header), *cells]) for column in range(len(header))]
    right = [bool(cells) and all(_is_number(row[column]) for row in cells) for column in range(len(header))]
    lines = [_line(header, widths, right), "  ".join("-" * width for width in widths)]
    return lines + [_line(row, widths, right) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(row, widths, right)]
    return "  ".join(parts).rstrip()


def _is_number(text: str) -> bool:
    digits = text[1:] if text.startswith("-") else text
    return text == "-" or digits.replace(",", "").replace(".", "", 1).isdigit()
