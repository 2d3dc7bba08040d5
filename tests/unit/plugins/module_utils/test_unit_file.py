# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit text: what is quoted how, and that every text comes back when it is read by systemd's rules."""

from __future__ import annotations

import random

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import unit_file

INTERESTING = (
    [chr(code) for code in range(1, 256)]
    + list("\u2028\u2029\u200b\ufeff\ufffd\ufdcf\ufdd0\ufdef\ufdf0\ufffe\uffff")
    + [
        "\U0001f600",
        "\U0001fffe",
        "\U0010ffff",
        "日",
        "\udc80",
        "\udcff",
        "\\",
        '"',
        "'",
        "%",
        "$",
        ";",
        "#",
        " ",
        "\n",
    ]
)


def read(word: str, variables: bool) -> bytes:
    """Decode one word as systemd.syntax(7) says: quotes, escapes, then specifiers, then (in ExecStart) variables."""
    data = word.encode("utf-8", "surrogateescape")
    if data.startswith(b'"'):
        assert data.endswith(b'"') and len(data) >= 2
        data = data[1:-1]
        out = bytearray()
        index = 0
        while index < len(data):
            byte = data[index : index + 1]
            assert byte not in (b'"', b"\n")
            if byte == b"\\":
                kind = data[index + 1 : index + 2]
                if kind == b"x":
                    out += bytes([int(data[index + 2 : index + 4], 16)])
                    index += 4
                    continue
                assert kind in b'\\"'
                byte, index = kind, index + 1
            out += byte
            index += 1
        data = bytes(out)
    else:
        assert not set(word) & set(" \t\n\"'\\;#%$")
    halves = data.split(b"%%")
    assert all(b"%" not in half for half in halves)
    data = b"%".join(halves)
    if variables:
        halves = data.split(b"$$")
        assert all(b"$" not in half for half in halves)
        data = b"$".join(halves)
    return data


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("abc", "abc"),
        ("/opt/a-b_c.d/e:f=g,h+i", "/opt/a-b_c.d/e:f=g,h+i"),
        ("--tp-size", "--tp-size"),
        ("-v", "-v"),
        ("0.88", "0.88"),
        ("-1", '"-1"'),
        ("--A", '"--A"'),
        ("@x", '"@x"'),
        ("+x", '"+x"'),
        ("!x", '"!x"'),
        (":x", '":x"'),
        ("a b", '"a b"'),
        ("a\tb", '"a\\x09b"'),
        ("a\nb", '"a\\x0ab"'),
        ("abc\n", '"abc\\x0a"'),
        ("a\rb", '"a\\x0db"'),
        ("a\x7fb", '"a\\x7fb"'),
        ("a\x85b", '"a\\xc2\\x85b"'),
        ("\\", '"\\\\"'),
        ('"', '"\\""'),
        ("'", '"\'"'),
        ("%", '"%%"'),
        ("%%", '"%%%%"'),
        ("%h/x", '"%%h/x"'),
        (";", '";"'),
        ("#", '"#"'),
        ("é", '"é"'),
        ("\u2028", '"\u2028"'),
        ("\ufffe", '"\\xef\\xbf\\xbe"'),
        ("\ufdd0", '"\\xef\\xb7\\x90"'),
        ("\udcff", '"\\xff"'),
        ("\\x41", '"\\\\x41"'),
        ("{}", '"{}"'),
        ("~", '"~"'),
        ("*", '"*"'),
    ],
)
def test_quotes(text: str, quoted: str) -> None:
    assert unit_file.quote(text) == quoted


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("$", '"$$"'),
        ("$HOME", '"$$HOME"'),
        ("${HOME}", '"$${HOME}"'),
        ("$$", '"$$$$"'),
        ("$(id)", '"$$(id)"'),
        ("a", "a"),
    ],
)
def test_an_argument_takes_no_variable(text: str, word: str) -> None:
    assert unit_file.exec_word(text) == word


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("A", "1", "A=1"),
        ("A", "", "A="),
        ("A", "x y", '"A=x y"'),
        ("A", "$HOME", '"A=$HOME"'),
        ("A", "%h", '"A=%%h"'),
        ("A", "a=b", "A=a=b"),
        ("A", '"', '"A=\\""'),
        ("A", "\n", '"A=\\x0a"'),
        ("A", " ", '"A= "'),
    ],
)
def test_a_variable(name: str, value: str, line: str) -> None:
    assert unit_file.environment(name, value) == line


@pytest.mark.parametrize("call", [unit_file.quote, unit_file.exec_word, lambda text: unit_file.environment("A", text)])
@pytest.mark.parametrize("text", ["\0", "a\0b", "a\0"])
def test_nul_is_refused(call: object, text: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match="NUL"):
        call(text)


def test_the_name_of_a_variable_cannot_hold_nul_either() -> None:
    with pytest.raises(ValueError, match="NUL"):
        unit_file.environment("A\0", "x")


def test_every_text_reads_back_as_it_was() -> None:
    generator = random.Random(20260)
    texts = INTERESTING + ["".join(generator.choices(INTERESTING, k=generator.randint(0, 30))) for _text in range(4000)]
    for text in texts:
        expected = text.encode("utf-8", "surrogateescape")
        assert read(unit_file.quote(text), variables=False) == expected, text
        assert read(unit_file.exec_word(text), variables=True) == expected, text
        assert read(unit_file.environment("A", text), variables=False) == b"A=" + expected, text


def test_no_text_ends_a_line_or_the_encoding() -> None:
    for text in INTERESTING:
        for word in (unit_file.quote(text), unit_file.exec_word(text), unit_file.environment("A", text)):
            assert len(word.splitlines()) == 1 or set(text) & set("\u2028\u2029")
            assert "\n" not in word and "\r" not in word
            word.encode("utf-8")


@pytest.mark.parametrize("text", ["", "abc", "é日\U0001f600", "\n\t\x01\x7f\x85", "\ufdcf\ufdf0\ufffd\U0010fffd"])
def test_what_an_environment_carries(text: str) -> None:
    assert unit_file.is_carried_by_environment(text)


@pytest.mark.parametrize(
    "text", ["\0", "\ud800", "\udfff", "\udc80", "\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0003ffff", "\U0010fffe"]
)
def test_what_an_environment_does_not_carry(text: str) -> None:
    assert not unit_file.is_carried_by_environment(f"a{text}b")


def test_renders_sections_comments_and_order() -> None:
    sections = [("Unit", [("Description", "x"), ("#", "why")]), ("Service", [("A", "1"), ("A", "2"), ("B", "")])]
    assert unit_file.render("two\nlines", sections) == (
        "# two\n# lines\n\n[Unit]\nDescription=x\n# why\n\n[Service]\nA=1\nA=2\nB=\n"
    )
