# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the runtime: what can be said of them before any node is asked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

DEFAULT_PYTHON = "/usr/bin/python3"
SOURCES = ("wheelhouse", "wheelhouse_on_node", "index_url")
_ENGINE_KEYS = ("name", "lock", "python", *SOURCES, "shim")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


def normalise_engines(engines: Sequence[Mapping[str, Any]], setting: str) -> list[dict[str, str]]:
    """Return the engines with every key set, "" where the user gave nothing.

    Args:
        engines: The entries as the user wrote them.
        setting: Name of the variable, for messages.

    Raises:
        HeadroomError: For an unknown key, a name that is missing, malformed or used twice, and for two sources.
    """
    seen: dict[str, int] = {}
    result = []
    for index, entry in enumerate(engines):
        where = f"{setting}[{index}]"
        unknown = sorted(set(entry) - set(_ENGINE_KEYS))
        if unknown:
            raise refusal("settings.unknown", f"{where}.{unknown[0]} is no setting of an engine.", _nearest(unknown[0]))
        values = {key: str(entry.get(key) or "") for key in _ENGINE_KEYS}
        name = values["name"]
        if not _NAME.fullmatch(name):
            raise refusal(
                "settings.invalid",
                f"{where}.name is '{name}'.",
                "A name is up to 63 lower case letters, digits, '-', '_' and '.', and starts with a letter or digit.",
            )
        if name in seen:
            raise refusal(
                "settings.invalid",
                f"{setting}[{seen[name]}] and {where} are both named '{name}'.",
                "Give each engine a name of its own.",
            )
        seen[name] = index
        if not values["lock"]:
            raise refusal("settings.invalid", f"{where}.lock is missing.", "Name a lock file on the controller.")
        check_sources(values, where)
        values["python"] = values["python"] or DEFAULT_PYTHON
        check_absolute(values["python"], f"{where}.python")
        result.append(values)
    return result


def check_sources(values: Mapping[str, Any], where: str) -> None:
    """Check that wheels have at most one source, and that an index's URL holds no secret.

    Raises:
        HeadroomError: Naming the settings.
    """
    given = [key for key in SOURCES if values.get(key)]
    if len(given) > 1:
        raise refusal(
            "settings.invalid",
            f"{where} has {' and '.join(given)}, which exclude each other.",
            "Keep the one place that holds all wheels of the lock.",
        )
    url = str(values.get("index_url") or "")
    if url and not re.match(r"https?://", url):
        raise refusal(
            "settings.invalid", f"{where}.index_url is '{url}'.", "Give the http(s) address of a simple index."
        )
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise refusal(
            "settings.invalid",
            f"{where}.index_url carries credentials for {parts.hostname}, which would be visible on the node.",
            "Put them into root's .netrc there; pip and uv both read it.",
        )


def check_absolute(path: str, setting: str) -> None:
    """Check that a path on the node is absolute.

    Raises:
        HeadroomError: Naming the setting and its value.
    """
    if not path.startswith("/"):
        raise refusal("settings.invalid", f"{setting} is '{path}'.", "Give an absolute path on the node.")


def check_account(user: str, group: str) -> None:
    """Check that the service account is an unprivileged one.

    Raises:
        HeadroomError: Naming the setting.
    """
    for setting, value in (("sglang_runtime_user", user), ("sglang_runtime_group", group)):
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", value) or value == "root":
            raise refusal(
                "settings.invalid",
                f"{setting} is '{value}'.",
                "Name an unprivileged account, such as 'sglang'; it is made where it is missing.",
            )


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, _ENGINE_KEYS, 1)
    return f"Did you mean '{near[0]}'?" if near else f"Known are {', '.join(_ENGINE_KEYS)}."
