# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write reports of plans on the controller: the same inputs give the same bytes, and no file is ever seen half."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets, plan_page

_SETTING = "plan_report_dir"
_UNITS = {
    "*_bytes": "bytes",
    "*_gib": "GiB, 2**30 bytes",
    "*_gb": "GB, 10**9 bytes",
    "*_tokens": "tokens",
    "tokens": "tokens",
    "fraction": "of the memory that is free before the weights",
}


def check(directory: str) -> Path:
    """Return the absolute path of a directory for reports, which need not exist yet.

    Raises:
        HeadroomError: If it is something else, or can't be written.
    """
    path = Path.cwd() / Path(directory).expanduser()
    there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if not there.is_dir():
        what = "is no directory" if there == path else f"lies below '{there}', which is no directory"
        raise _unusable(directory, what)
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unusable(directory, "can't be written by this account")
    return path


def write(directory: Path, node: str, report: Mapping[str, Any]) -> list[str]:
    """Write the report of an instance as JSON and as a page, and return both paths.

    Raises:
        HeadroomError: If they can't be written.
    """
    name = file_name(node, str(report["instance"]))
    page = plan_page.render(report, node)
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for suffix, text in ((".json", as_json(report, node)), (".html", page)):
            _replace(directory / f"{name}{suffix}", text.encode("utf-8"))
            written.append(str(directory / f"{name}{suffix}"))
    except OSError as error:
        raise _unusable(str(directory), f"can't be written: {error.strerror or error}") from None
    return written


def as_json(report: Mapping[str, Any], node: str) -> str:
    """Return the report with its node, its budgets part by part, and what its names say of units."""
    budgets = {budget.key: budget.as_dict() for budget in plan_budgets.of(report)}
    return json.dumps({"node": node, **report, "budgets": budgets, "units": _UNITS}, indent=2, sort_keys=True) + "\n"


def file_name(node: str, instance: str) -> str:
    """Return a name for files that can't leave their directory and is another one for each node and instance."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", node)
    if plain[:1] in ("", ".", "-"):
        plain = f"_{plain}"
    if plain != node:
        plain += f"-{hashlib.sha256(node.encode('utf-8')).hexdigest()[:8]}"
    return f"{plain}.{re.sub(r'[^A-Za-z0-9_-]', '_', instance)}"


def _replace(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _unusable(directory: str, reason: str) -> HeadroomError:
    return refusal(
        "settings.invalid",
        f"{_SETTING} is '{directory}': it {reason}.",
        "Name a directory that this account may write or make.",
    )
