# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the number that passes while the next one does not, also where what passes is not all on one side."""

from __future__ import annotations

from collections.abc import Callable

_LOOKS = 12  # spread over the range where its good end does not pass
_FURTHEST = 2**20  # how far beyond the range an edge is looked for


def largest(low: int, high: int, passes: Callable[[int], bool]) -> int | None:
    """Return a number that passes while the one above it does not, None if none is found.

    It is in low..high, or above where even `high` passes. If all that pass lie below all that don't, it is the largest
    that passes; otherwise one that is, for some way down.
    """
    if high < low:
        return None
    start = _first(low, high, passes)
    if start is None:
        return None
    end = high + 1
    if passes(high):
        start, step = high, 1
        while passes(start + step):
            if step > _FURTHEST:
                return None
            start, step = start + step, step * 2
        end = start + step
    # start passes, end does not
    while end - start > 1:
        middle = (start + end) // 2
        if passes(middle):
            start = middle
        else:
            end = middle
    return start


def smallest(low: int, high: int, passes: Callable[[int], bool]) -> int | None:
    """Return a number that passes while the one below it does not: `largest`, turned around."""
    found = largest(-high, -low, lambda value: passes(-value))
    return None if found is None else -found


def _first(low: int, high: int, passes: Callable[[int], bool]) -> int | None:
    """Return `low` if it passes, else the largest of some numbers up to `high` that does."""
    if passes(low):
        return low
    looks = sorted({low + (high - low) * part // _LOOKS for part in range(1, _LOOKS + 1)}, reverse=True)
    return next((value for value in looks if passes(value)), None)
