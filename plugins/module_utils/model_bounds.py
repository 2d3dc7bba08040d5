# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures that no model exceeds: what is larger is damaged or hostile, and would make a plan take hours or all memory.

Each is ten times or more what the largest published models have.
"""

from __future__ import annotations

LAYERS = 10_000
DIMENSION = 1_000_000  # sides of matrices, heads
EXPERTS = 100_000
VOCABULARY = 100_000_000
TOKENS = 1_000_000_000  # context, windows
BYTES = 10**15
TENSORS = 1_000_000
FILES = 1_000_000
TEXT = 200  # characters of a name or a type
# Of a model whose layers all differ; equal ones are one entry.
PARTS = 30_000
ALLOCATIONS = 20_000
# Matrices that are played through one by one, those of experts not among them.
MATRICES = 200_000


def whole_fault(value: object, least: int, most: int) -> str:
    """Return what a value should be that is no whole number from `least` to `most`, or '' if it is one."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return ""
    return f"it must be a whole number from {least} to {most:,}, the most that any model could have"


def is_name(value: str) -> bool:
    """Whether a text can be a name or a type: short, of one line."""
    return len(value) <= TEXT and (value.isprintable() or not value)
