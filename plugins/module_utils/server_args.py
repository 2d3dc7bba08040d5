# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang's flags: from an instance's `args` mapping to the ordered list of arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding

# Flags that a key of the instance sets; the value names that key.
RESERVED = {
    "model-path": "model_path",
    "model": "model_path",
    "served-model-name": "served_name",
    "host": "host",
    "port": "port",
    "config": "args",
}
# The process list shows arguments to every user of the node. The value is the cure.
SECRET = {
    "api-key": "Set the instance's 'api_key' instead.",
    "admin-api-key": "Set the instance's 'admin_api_key' instead.",
    "ssl-keyfile-password": "Use a key file without a password that only the service account can read.",
}
# Linux, MAX_ARG_STRLEN of include/uapi/linux/binfmts.h: 32 pages, with the terminating NUL.
MAX_ARGUMENT_BYTES = 131_071


def check(where: str, args: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong with a mapping of flags, before any engine is asked.

    Args:
        where: Path of the mapping in the settings, such as `sglang_server_instances[0].args`.
        args: Flag name without leading dashes -> value.
    """
    findings: list[Finding] = []
    for flag, value in args.items():
        findings += _check_name(where, str(flag)) or _check_value(f"{where}.{flag}", value)
    return findings


def render(args: Mapping[str, Any]) -> list[str]:
    """Return the flags as arguments, ordered by name so that the order in the inventory never causes a restart.

    `true` gives the flag alone, `false` leaves it out, a list its items behind one flag, a mapping JSON.

    Raises:
        ValueError: If `check` would have found something; call it first.
    """
    argv: list[str] = []
    for flag in sorted(args):
        value = args[flag]
        if value is False:
            continue
        if isinstance(value, str) and value.startswith("-"):
            argv.append(f"--{flag}={value}")  # as a word of its own it would be taken for a flag
            continue
        argv.append(f"--{flag}")
        if value is True:
            continue
        if isinstance(value, Mapping):
            argv.append(json.dumps(value, sort_keys=True, separators=(",", ":")))
        elif isinstance(value, (list, tuple)):
            argv += [_scalar(item) for item in value]
        else:
            argv.append(_scalar(value))
    return argv


def _check_name(where: str, flag: str) -> list[Finding]:
    plain = flag.replace("_", "-").lstrip("-")
    secret = _meant(plain, SECRET)
    if secret:
        return [
            finding(
                "instance.secret_in_clear",
                f"{where}.{flag}: a key among the arguments shows in the process list of the node.",
                SECRET[secret],
            )
        ]
    reserved = _meant(plain, RESERVED)
    if reserved:
        key = RESERVED[reserved]
        cure = "Write its settings as keys of 'args'." if key == "args" else f"Set the instance's '{key}' instead."
        return [finding("instance.reserved_flag", f"{where}.{flag}: the role sets --{reserved} itself.", cure)]
    if not plain or not all(part.isalnum() for part in plain.split("-")):
        return [finding("settings.invalid", f"{where}: {flag!r} is not the name of a flag.", "Use letters and dashes.")]
    if plain != flag:
        return [finding("settings.invalid", f"{where}: {flag!r} is not how SGLang spells a flag.", f"Write {plain!r}.")]
    return []


def _meant(plain: str, flags: Mapping[str, str]) -> str:
    """Return which of the flags is meant: argparse takes every beginning of a name that no other name has."""
    if plain in flags:
        return plain
    if len(plain) < 2 or "ssl-keyfile".startswith(plain):
        return ""
    return next((flag for flag in flags if flag.startswith(plain)), "")


def _check_value(where: str, value: Any) -> list[Finding]:
    if value is None:
        return [finding("settings.invalid", f"{where} has no value.", "Write true for a flag without a value.")]
    if isinstance(value, Mapping):
        return _check_text(where, json.dumps(value))
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items:
        return [finding("settings.invalid", f"{where} is an empty list.", "Name at least one item or remove the flag.")]
    for item in items:
        if isinstance(value, (list, tuple)) and not isinstance(item, (str, int, float)):
            return [finding("settings.invalid", f"{where}: {item!r} can't stand in a list of values.", "Use text.")]
        if not isinstance(item, (str, int, float)):
            return [finding("settings.invalid", f"{where}: {item!r} is no value of a flag.", "Use text or a number.")]
        problem = _check_text(where, _scalar(item))
        if problem:
            return problem
    return []


def _check_text(where: str, text: str) -> list[Finding]:
    if "\0" in text:
        return [finding("settings.invalid", f"{where} holds a NUL character, which no argument can.", "Remove it.")]
    try:
        size = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return [finding("settings.invalid", f"{where} holds half a character (a lone surrogate).", "Remove it.")]
    if size > MAX_ARGUMENT_BYTES:
        return [
            finding(
                "settings.invalid",
                f"{where} is longer than {MAX_ARGUMENT_BYTES} bytes, the kernel's limit for one argument.",
                "Give the name of a file where SGLang takes one.",
            )
        ]
    return []


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
