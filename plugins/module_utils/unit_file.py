# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that systemd reads back exactly as it was meant, whatever it holds.

Rules of systemd.syntax(7) and systemd.service(5) as measured on systemd 252: double quotes hold everything; `%` starts
a specifier everywhere; `$` starts a variable in ExecStart only; a hexadecimal escape is decoded before specifiers are
expanded, so it protects neither `%` nor `$`. Words of harmless characters stay bare, so that people can read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Directive = tuple[str, str]
Section = tuple[str, Sequence[Directive]]

_HARMLESS = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./:=,+-]*|--?[a-z][a-z0-9-]*")


def quote(text: str) -> str:
    """Quote text for a setting that takes a list of words, such as Environment=.

    Raises:
        ValueError: If the text holds a NUL character, which no unit can carry.
    """
    if "\0" in text:
        raise ValueError("a unit can't carry a NUL character")
    if _HARMLESS.fullmatch(text):
        return text
    return '"' + "".join(_escape(character) for character in text) + '"'


def exec_word(text: str) -> str:
    """Quote one argument of ExecStart=, so that no variable of the environment is put into it.

    Raises:
        ValueError: If the text holds a NUL character.
    """
    return quote(text).replace("$", "$$")


def environment(name: str, value: str) -> str:
    """Return the value of an Environment= line that sets one variable.

    Raises:
        ValueError: If name or value hold a NUL character.
    """
    return quote(f"{name}={value}")


def is_carried_by_environment(text: str) -> bool:
    """Return whether an Environment= line can hold a text; systemd drops the whole line if it can't."""
    codes = [ord(character) for character in text]
    return not any(code == 0 or 0xD800 <= code <= 0xDFFF or _is_noncharacter(code) for code in codes)


def render(header: str, sections: Sequence[Section]) -> str:
    """Render a unit file; a directive named `#` is a comment line."""
    lines = [f"# {line}" for line in header.splitlines()]
    for name, directives in sections:
        lines += ["", f"[{name}]"]
        lines += [f"# {value}" if key == "#" else f"{key}={value}" for key, value in directives]
    return "\n".join(lines) + "\n"


def _escape(character: str) -> str:
    if character in '\\"':
        return "\\" + character
    if character == "%":
        return "%%"
    code = ord(character)
    # Control characters end a line or are refused; lone surrogates stand for bytes that are no UTF-8; noncharacters
    # are refused by systemd's own UTF-8 check.
    if code < 32 or 127 <= code < 160 or 0xD800 <= code <= 0xDFFF or _is_noncharacter(code):
        return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
    return character


def _is_noncharacter(code: int) -> bool:
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
