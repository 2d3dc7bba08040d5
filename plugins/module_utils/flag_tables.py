# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of the SGLang releases that this collection knows, for a plan before there is an engine to ask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import flags_sglang_0_5_14, flags_sglang_0_5_23

# The two generations whose sizes differ; a release between them follows the older rules as far as anyone has seen.
OLD = "0.5.14"
NEW = "0.5.23"
_TABLES = {OLD: flags_sglang_0_5_14.TABLE, NEW: flags_sglang_0_5_23.TABLE}


@dataclass(frozen=True)
class Flag:
    """One flag: its names without dashes, the first being its own; type; number of values; default; choices."""

    names: tuple[str, ...]
    kind: str
    nargs: Any
    default: Any
    choices: tuple[Any, ...] | None


def generation(engine_version: str) -> str:
    """Return which known release a version follows: "0.5.14" or "0.5.23".

    A version that can't be read counts as the older one, whose checks by SGLang itself are the weaker ones.
    """
    numbers = []
    for part in engine_version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return NEW if tuple(numbers) >= (0, 5, 23) else OLD


@cache
def table(release: str) -> Mapping[str, Flag]:
    """Return the flags of a known release by each of their names.

    Raises:
        KeyError: If there is no table for the release.
    """
    found: dict[str, Flag] = {}
    for names, kind, nargs, default, choices in json.loads(_TABLES[release]):
        flag = Flag(tuple(names), kind, nargs, default, tuple(choices) if choices else None)
        for name in names:
            found[name] = flag
    return found
