# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings against the roles' own argument specs: unknown names, wrong types, missing values, each with a cure.

Ansible's validation lets a misspelt variable pass, and stops at the first nested error without saying which entry it
means.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, acceptable, finding

_TRUE_FALSE = {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n", "1.0", "0.0"}
_TYPE_NAMES = {"str": "text", "path": "a path", "int": "a whole number", "float": "a number", "bool": "true or false",
               "list": "a list", "dict": "a mapping", "raw": "anything"}  # fmt: skip


def unknown_variables(prefix: str, known: Sequence[str], names: Sequence[str]) -> list[Finding]:
    """Return a finding for each variable that has a role's prefix but is none of the role's.

    Args:
        prefix: Name of the role with a final underscore.
        known: Variables of the role.
        names: Names of all variables of the node.
    """
    strangers = sorted(name for name in names if name.startswith(prefix) and name not in known)
    return [_unknown(f"Variable {name!r}", name, known) for name in strangers]


def check_variable(name: str, spec: Mapping[str, Any], value: Any) -> list[Finding]:
    """Return what is wrong with a variable; one that was written without a value is a slip, not a default."""
    if value is None:
        return [finding("settings.invalid", f"{name} has no value.", "Give it one, or remove the line.")]
    return check(name, spec, value)


def check_accepted(name: str, ids: Sequence[str]) -> list[Finding]:
    """Return a finding for each id in a list of accepted findings that can't be accepted.

    Args:
        name: The variable that holds the list.
        ids: The ids.
    """
    known = acceptable()
    problems = []
    for item in ids:
        if item not in known:
            near = difflib.get_close_matches(str(item), known, 1)
            general = "Only what the memory plan refuses can be accepted; docs/findings.md lists it."
            cure = f"Did you mean {near[0]!r}?" if near else general
            problems.append(finding("settings.invalid", f"{name} names {item!r}, which is nothing to accept.", cure))
    return problems


def check(where: str, spec: Mapping[str, Any], value: Any) -> list[Finding]:
    """Return what is wrong with a value.

    Args:
        where: The setting's path, such as `sglang_server_instances[0].port`.
        spec: Its entry of the argument spec.
        value: The value, templates resolved.
    """
    kind = str(spec.get("type") or "str")
    if value is None:
        return []
    shown = _shown(kind, spec, value)
    if not _fits(kind, value):
        return [finding("settings.invalid", f"{where} must be {_TYPE_NAMES[kind]}, not {shown}.")]
    choices = spec.get("choices")
    if choices and kind != "list" and value not in choices:
        return [finding("settings.invalid", f"{where} must be one of {', '.join(map(str, choices))}, not {shown}.")]
    if kind == "list":
        inner = {**spec, "type": spec.get("elements") or "raw", "elements": None}
        return [item for index, part in enumerate(value) for item in check(_entry(where, index, part), inner, part)]
    if kind == "dict" and spec.get("options"):
        hidden = {"no_log": True} if spec.get("no_log") else {}
        return _check_mapping(where, {key: {**inner, **hidden} for key, inner in spec["options"].items()}, value)
    return []


def _shown(kind: str, spec: Mapping[str, Any], value: Any) -> str:
    """Return what a message may show of a wrong value: of lists, mappings and what belongs there only the type.

    Instances hold keys and environments hold tokens, and a slip of indentation puts them where something else belongs.
    """
    if spec.get("no_log"):
        return "its value"
    plain = isinstance(value, (str, int, float))
    if plain and kind not in ("list", "dict", "raw"):
        return repr(value)
    if isinstance(value, bool):
        return "true or false"
    if plain:
        return "text" if isinstance(value, str) else "a number"
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _check_mapping(where: str, options: Mapping[str, Any], value: Mapping[str, Any]) -> list[Finding]:
    findings = [_unknown(f"{where}: key {str(key)!r}", str(key), list(options)) for key in value if key not in options]
    for key, spec in options.items():
        if spec.get("required") and value.get(key) is None:
            findings.append(finding("settings.invalid", f"{where} has no {key!r}, which it needs."))
        elif key in value:
            findings += check(f"{where}.{key}", spec, value[key])
    return findings


def _unknown(what: str, name: str, known: Sequence[str]) -> Finding:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    cure = f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(sorted(known))}."
    return finding("settings.unknown", f"{what} is unknown.", cure)


def _entry(where: str, index: int, part: Any) -> str:
    name = part.get("name") if isinstance(part, Mapping) else None
    return f"{where}[{index}] ({name})" if isinstance(name, str) else f"{where}[{index}]"


def _fits(kind: str, value: Any) -> bool:
    if kind == "bool":
        return isinstance(value, bool) or str(value).lower() in _TRUE_FALSE
    if kind == "int":
        return not isinstance(value, bool) and (isinstance(value, int) or _is_number(value, int))
    if kind == "float":
        return not isinstance(value, bool) and (isinstance(value, (int, float)) or _is_number(value, float))
    if kind == "list":
        return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if kind == "dict":
        return isinstance(value, Mapping)
    if kind == "raw":
        return True
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _is_number(value: Any, kind: type) -> bool:
    try:
        kind(str(value))
    except ValueError:
        return False
    return isinstance(value, str)
