# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags: from the mapping in the inventory to arguments, and what is refused before any engine is asked."""

from __future__ import annotations

import argparse
import json
import random
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import server_args

WHERE = "sglang_server_instances[0] (a).args"


@pytest.mark.parametrize(
    ("args", "argv"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"tp-size": 8}, ["--tp-size", "8"], id="int"),
        pytest.param({"mem-fraction-static": 0.88}, ["--mem-fraction-static", "0.88"], id="float"),
        pytest.param({"a": 0}, ["--a", "0"], id="zero is a value"),
        pytest.param({"a": ""}, ["--a", ""], id="empty text is a value"),
        pytest.param({"a": "0.50"}, ["--a", "0.50"], id="text is kept as it is written"),
        pytest.param({"a": "x y"}, ["--a", "x y"], id="blanks"),
        pytest.param({"a": True}, ["--a"], id="true"),
        pytest.param({"a": False}, [], id="false"),
        pytest.param({"a": "true"}, ["--a", "true"], id="the text true"),
        pytest.param({"a": "false"}, ["--a", "false"], id="the text false"),
        pytest.param({"a": [1, 2, "x"]}, ["--a", "1", "2", "x"], id="list"),
        pytest.param({"a": (1, 2)}, ["--a", "1", "2"], id="tuple"),
        pytest.param({"a": [True, False]}, ["--a", "true", "false"], id="truth values in a list"),
        pytest.param({"a": {"y": 1, "x": [True, None]}}, ["--a", '{"x":[true,null],"y":1}'], id="mapping"),
        pytest.param({"a": {}}, ["--a", "{}"], id="empty mapping"),
        pytest.param({"b": 1, "a": 2}, ["--a", "2", "--b", "1"], id="by name"),
        pytest.param({"a": -1}, ["--a", "-1"], id="negative number"),
        pytest.param({"a": "-1"}, ["--a=-1"], id="negative number as text"),
        pytest.param({"a": "--host"}, ["--a=--host"], id="text like a flag"),
        pytest.param({"a": "-"}, ["--a=-"], id="a dash"),
    ],
)
def test_renders(args: dict[str, Any], argv: list[str]) -> None:
    assert server_args.check(WHERE, args) == []
    assert server_args.render(args) == argv


def test_the_order_in_the_inventory_does_not_matter() -> None:
    items = [("tp-size", 8), ("a", {"x": 1, "y": {"p": 1, "q": 2}}), ("dp", 2), ("enable-metrics", True)]
    expected = server_args.render(dict(items))
    for seed in range(20):
        random.Random(seed).shuffle(items)
        mapping = dict(items)
        mapping["a"] = {"y": {"q": 2, "p": 1}, "x": 1}
        assert server_args.render(mapping) == expected


@pytest.mark.parametrize("text", ["-x", "--port", "--port=1", "-", "-1", "- a", "a=b", "", "=", "--api-key", "é"])
def test_text_is_never_taken_for_another_flag(text: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chat-template")
    parser.add_argument("--port", type=int, default=5)
    parser.add_argument("--api-key")
    parsed = parser.parse_args(server_args.render({"chat-template": text}))
    assert (parsed.chat_template, parsed.port, parsed.api_key) == (text, 5, None)


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("model-path", "model_path"),
        ("model", "model_path"),
        ("served-model-name", "served_name"),
        ("host", "host"),
        ("port", "port"),
        ("model_path", "model_path"),
        ("--host", "host"),
        ("-port", "port"),
        ("served-model", "served_name"),
        ("hos", "host"),
        ("model-pat", "model_path"),
        ("por", "port"),
        ("served_model_name", "served_name"),
    ],
)
def test_a_flag_that_the_role_sets(flag: str, key: str) -> None:
    (item,) = server_args.check(WHERE, {flag: "x"})
    assert item.id == "instance.reserved_flag"
    assert item.message.startswith(f"{WHERE}.{flag}: the role sets --")
    assert item.suggestion == f"Set the instance's '{key}' instead."


@pytest.mark.parametrize("flag", ["config", "--config", "conf"])
def test_a_config_file_is_the_roles(flag: str) -> None:
    (item,) = server_args.check(WHERE, {flag: "/etc/x.yaml"})
    assert (item.id, item.suggestion) == ("instance.reserved_flag", "Write its settings as keys of 'args'.")


@pytest.mark.parametrize(
    "flag",
    [
        "api-key",
        "admin-api-key",
        "api_key",
        "admin_api_key",
        "--api-key",
        "-api-key",
        "__api_key",
        "api",
        "api-k",
        "admin",
        "admin-api",
        "admin-api-ke",
        "ssl-keyfile-password",
        "ssl_keyfile_password",
        "ssl-keyfile-pass",
    ],
)
@pytest.mark.parametrize("value", ["s3cr3t-value", ["s3cr3t-value"], {"k": "s3cr3t-value"}, 5, None])
def test_a_secret_among_the_flags_is_refused_and_not_shown(flag: str, value: Any) -> None:
    (item,) = server_args.check(WHERE, {flag: value})
    assert item.id == "instance.secret_in_clear"
    assert "s3cr3t" not in item.line()
    assert item.message.startswith(f"{WHERE}.{flag}: ") and item.suggestion


@pytest.mark.parametrize(
    "flag",
    [
        "model-loader-extra-config",
        "ssl-keyfile",
        "ssl-certfile",
        "portal",
        "hostname",
        "tokenizer-path",
        "tp",
        "dp",
        "a",
        "mem-fraction-static",
        "api-keys",
        "configuration",
        "kv-cache-dtype",
        "model-impl",
        "h",
        "m",
        "p",
        "c",
        "s",
    ],
)
def test_other_flags_are_left_to_the_engine(flag: str) -> None:
    assert server_args.check(WHERE, {flag: "x"}) == []


@pytest.mark.parametrize(
    ("flag", "cure"),
    [
        ("tp_size", "Write 'tp-size'."),
        ("--tp-size", "Write 'tp-size'."),
        ("-tp-size", "Write 'tp-size'."),
        ("--tp_size", "Write 'tp-size'."),
        ("mem_fraction-static", "Write 'mem-fraction-static'."),
        ("", "Use letters and dashes."),
        ("-", "Use letters and dashes."),
        ("--", "Use letters and dashes."),
        ("tp size", "Use letters and dashes."),
        ("tp=8", "Use letters and dashes."),
        ("tp--size", "Use letters and dashes."),
        ("tp-", "Use letters and dashes."),
        ("tp;x", "Use letters and dashes."),
        ("$x", "Use letters and dashes."),
        ("tp\n", "Use letters and dashes."),
    ],
)
def test_what_is_no_name_of_a_flag(flag: str, cure: str) -> None:
    (item,) = server_args.check(WHERE, {flag: 1})
    assert (item.id, item.suggestion) == ("settings.invalid", cure)
    assert f"{WHERE}: {flag!r}" in item.message


@pytest.mark.parametrize(
    ("value", "reason", "cure"),
    [
        pytest.param(None, "has no value", "Write true", id="none"),
        pytest.param([], "is an empty list", "remove the flag", id="empty list"),
        pytest.param([["a"]], "['a'] can't stand in a list", "Use text", id="list in a list"),
        pytest.param(["a", {"b": 1}], "{'b': 1} can't stand in a list", "Use text", id="mapping in a list"),
        pytest.param(["a", None], "None can't stand in a list", "Use text", id="none in a list"),
        pytest.param("a\0b", "NUL", "Remove it", id="NUL"),
        pytest.param(["a", "\0"], "NUL", "Remove it", id="NUL in a list"),
        pytest.param("\ud800", "lone surrogate", "Remove it", id="half a character"),
        pytest.param(["\udbff"], "lone surrogate", "Remove it", id="half a character in a list"),
        pytest.param("x" * 131_072, "longer than 131071 bytes", "name of a file", id="long"),
        pytest.param("é" * 65_536, "longer than 131071 bytes", "name of a file", id="long in bytes"),
        pytest.param({"a": "x" * 131_072}, "longer than 131071 bytes", "name of a file", id="long mapping"),
        pytest.param(b"bytes", "is no value of a flag", "Use text or a number", id="bytes"),
    ],
)
def test_a_value_that_no_flag_can_have(value: Any, reason: str, cure: str) -> None:
    (item,) = server_args.check(WHERE, {"a": value})
    assert item.id == "settings.invalid"
    assert item.message.startswith(f"{WHERE}.a") and reason in item.message
    assert cure in item.suggestion
    assert len(item.line()) < 300


@pytest.mark.parametrize(
    "value",
    ["x" * 131_071, "é" * 65_535, "a\nb", "\udcff", "\ufffe", "\x7f", {"a": "\0"}, [0], "日本", 1e-05, "$(id)", "%n"],
)
def test_values_that_a_flag_can_have(value: Any) -> None:
    assert server_args.check(WHERE, {"a": value}) == []


def test_every_wrong_flag_has_its_finding_in_the_order_of_the_inventory() -> None:
    found = server_args.check(WHERE, {"tp_size": 1, "good": 1, "api-key": "x", "host": "y", "b": None})
    assert [item.id for item in found] == [
        "settings.invalid",
        "instance.secret_in_clear",
        "instance.reserved_flag",
        "settings.invalid",
    ]


def test_a_mapping_reads_back_as_it_was() -> None:
    value = {"rope_scaling": {"factor": 2.0, "type": 'a"b\\c'}, "ü": [1, "é", None, True]}
    _flag, text = server_args.render({"json-model-override-args": value})
    assert json.loads(text) == value
