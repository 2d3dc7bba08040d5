# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last starts of an instance as a file on the node: what each was asked for and what it showed.

A file that can't be read counts as none, and so does an entry with figures that no start can have.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.start_facts import StartFacts

KEPT = 5
_FORMAT = 1
_LARGEST_FILE_BYTES = 1_000_000
# Not in files of before it was kept.
_ADDED = ("free_gib", "overhead_gib")


@dataclass(frozen=True)
class Setting:
    """What a start was asked for, as far as its figures depend on it.

    token_bytes: what a token takes of the memory for KV; fixed_bytes: what is taken before the first one; state_bytes:
    a state of linear attention. page_tokens: tokens of a page. limit_tokens: max-total-tokens. draft_gib and
    multimodal_gib: what the plan took off for a draft model and images. host_pool_planned_gb: all host pools of a rank
    in decimal GB, without what starts had shown of them; for host_pool_tokens GPU tokens if they go by a ratio, else 0.
    free_gib: what was free of its fullest GPU when it was planned, with what the outgoing release gave back; None if
    that is not known. overhead_gib: what the plan took off that for CUDA's context and communicators.
    """

    name: str
    engine_version: str
    on_cpu: bool
    fraction: float
    page_tokens: int
    token_bytes: float
    fixed_bytes: float
    state_bytes: int
    limit_tokens: int | None
    draft_gib: float
    multimodal_gib: float
    host_pool_planned_gb: float | None
    host_pool_tokens: int
    free_gib: float | None = None
    overhead_gib: float = 0.0


@dataclass(frozen=True)
class KeptStart:
    """One start. when: seconds since 1970. rss_rank_gb: its largest rank's memory without shared pools, decimal GB."""

    when: float
    start: StartFacts
    setting: Setting
    rss_rank_gb: float | None


def write(path: Path, starts: Sequence[KeptStart]) -> None:
    """Write the first few starts, readable to all whatever the umask; the file is the old one or the new one.

    Raises:
        OSError: If it can't be written.
    """
    text = json.dumps({"format": _FORMAT, "starts": [asdict(one) for one in starts[:KEPT]]}, indent=1, sort_keys=True)
    _make_passable(path.parent)
    draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def read(path: Path) -> list[KeptStart]:
    """Return the starts of a file in its order, without those that make no sense."""
    try:
        with path.open(encoding="utf-8") as stream:
            data = json.loads(stream.read(_LARGEST_FILE_BYTES))
        listed = list(data["starts"]) if data["format"] == _FORMAT else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    starts = []
    for item in listed:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            starts.append(_sensible(item))
    return starts[:KEPT]


def _sensible(item: Mapping[str, Any]) -> KeptStart:
    """Return an entry; ValueError, KeyError or TypeError if it is damaged or no start can have such figures."""
    when, rss_gb = _value("float", item["when"]), _value("float | None", item["rss_rank_gb"])
    start, setting = StartFacts(**_values(StartFacts, item["start"])), Setting(**_values(Setting, item["setting"]))
    never_negative = (
        start.tokens,
        start.states,
        start.host_pool_gb,
        setting.fixed_bytes,
        setting.state_bytes,
        setting.host_pool_tokens,
        setting.overhead_gib,
        rss_gb,
    )
    if not (
        0 <= when < 1e11
        and all(0 < fraction <= 1 for fraction in (setting.fraction, start.fraction) if fraction is not None)
        and all(free > 0 for free in (start.pre_gib, setting.free_gib) if free is not None)
        and setting.page_tokens > 0
        and setting.token_bytes > 0
        and all(figure >= 0 for figure in never_negative if figure is not None)
    ):
        raise ValueError("figures that no start can have")
    return KeptStart(when, start, setting, rss_gb)


def _values(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    there = [field for field in fields(kind) if field.name in data or field.name not in _ADDED]
    return {field.name: _value(str(field.type), data[field.name]) for field in there}


def _value(kind: str, value: Any) -> Any:
    """Return a value that is of a type as a dataclass names it; a whole number counts as a float."""
    if value is None and kind.endswith("| None"):
        return None
    wanted = {"float": float, "int": int, "bool": bool, "str": str}[kind.split()[0]]
    flag = isinstance(value, bool)  # which is a whole number to Python, and none here
    if wanted is float and isinstance(value, int) and not flag:
        value = float(value)
    if (
        not isinstance(value, wanted)
        or flag is not (wanted is bool)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise ValueError(f"{value!r} is no {kind}")
    return value


def _make_passable(directory: Path) -> None:
    """Make a directory and what lacks above it, open to all even where root's umask is strict."""
    if not directory.is_dir():
        _make_passable(directory.parent)
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
