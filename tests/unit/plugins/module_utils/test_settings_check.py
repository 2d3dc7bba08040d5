# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings against argument specs: one finding for each thing that is wrong, with its path and a cure."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import settings_check

SECRET = "s3cr3t-0123456789"
INSTANCE = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["started", "stopped", "absent"]},
    "model_path": {"type": "str"},
    "served_name": {"type": "str"},
    "port": {"type": "int"},
    "gpus": {"type": "list", "elements": "int"},
    "args": {"type": "dict"},
    "purge": {"type": "bool"},
    "api_key": {"type": "str", "no_log": True},
    "tls": {"type": "dict", "no_log": True, "options": {"password": {"type": "str"}, "level": {"type": "int"}}},
    "tokens": {"type": "list", "elements": "int", "no_log": True},
    "level": {"type": "str", "choices": ["low", "high"], "no_log": True},
}
SPEC = {"type": "list", "elements": "dict", "options": INSTANCE}


def check(spec: dict[str, Any], value: Any) -> list[tuple[str, str, str]]:
    return [(item.id, item.message, item.suggestion) for item in settings_check.check("x", spec, value)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("str", "a"),
        ("str", ""),
        ("str", 5),
        ("str", 0.5),
        ("path", "/a"),
        ("int", 5),
        ("int", 0),
        ("int", -1),
        ("int", "5"),
        ("int", " 5 "),
        ("float", 0.5),
        ("float", 1),
        ("float", "0.5"),
        ("float", "1e3"),
        ("bool", True),
        ("bool", False),
        ("bool", "yes"),
        ("bool", "No"),
        ("bool", "TRUE"),
        ("bool", "off"),
        ("bool", 1),
        ("bool", 0),
        ("bool", "1"),
        ("bool", "y"),
        ("bool", "F"),
        ("list", []),
        ("list", [1]),
        ("list", ("a",)),
        ("dict", {}),
        ("dict", {"a": 1}),
        ("raw", object()),
        ("raw", []),
        ("str", None),
        ("int", None),
        ("list", None),
        ("dict", None),
        ("bool", None),
    ],
)
def test_values_that_fit(kind: str, value: Any) -> None:
    assert check({"type": kind}, value) == []


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        ("str", True, "text"),
        ("str", [], "text"),
        ("str", {}, "text"),
        ("path", True, "a path"),
        ("path", ["/a"], "a path"),
        ("int", "a", "a whole number"),
        ("int", 0.5, "a whole number"),
        ("int", "0.5", "a whole number"),
        ("int", True, "a whole number"),
        ("int", "", "a whole number"),
        ("int", [1], "a whole number"),
        ("int", "0x10", "a whole number"),
        ("int", "30000/tcp", "a whole number"),
        ("float", "a", "a number"),
        ("float", False, "a number"),
        ("float", {}, "a number"),
        ("bool", "maybe", "true or false"),
        ("bool", 2, "true or false"),
        ("bool", "", "true or false"),
        ("bool", [], "true or false"),
        ("list", "a", "a list"),
        ("list", "a,b", "a list"),
        ("list", 5, "a list"),
        ("list", {"a": 1}, "a list"),
        ("list", b"ab", "a list"),
        ("dict", [], "a mapping"),
        ("dict", "a=b", "a mapping"),
        ("dict", 5, "a mapping"),
    ],
)
def test_values_that_do_not_fit(kind: str, value: Any, name: str) -> None:
    scalar = isinstance(value, (str, int, float)) and kind not in ("list", "dict")
    shown = repr(value) if scalar else what_is(value)
    assert check({"type": kind}, value) == [("settings.invalid", f"x must be {name}, not {shown}.", "")]


def what_is(value: Any) -> str:
    if isinstance(value, (list, dict, bytes)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "text" if isinstance(value, str) else "a number"


@pytest.mark.parametrize(
    "slip",
    [
        {"name": "a", "api_key": SECRET},
        [[{"name": "a", "api_key": SECRET}]],
        [{"name": "a", "env": [f"HF_TOKEN={SECRET}"]}],
        [{"name": "a", "env": f"HF_TOKEN={SECRET}"}],
        [{"name": "a", "args": ["--api-key", SECRET]}],
        [{"name": "a", "args": f"--api-key {SECRET}"}],
        [{"name": {"api_key": SECRET}}],
        [{"name": "a", "port": {"api_key": SECRET}}],
        [{"name": "a", "gpus": f"api_key: {SECRET}"}],
        [{"name": "a", "gpus": {"api_key": SECRET}}],
        [f"name: a, api_key: {SECRET}"],
        f"api_key: {SECRET}",
        [{"name": "a", "state": [SECRET]}],
    ],
)
def test_a_slip_of_indentation_shows_no_secret(slip: Any) -> None:
    found = check(SPEC, slip)
    assert found, "the slip is an error"
    assert SECRET not in repr(found)


def test_the_type_is_text_if_the_spec_names_none() -> None:
    assert check({}, "a") == []
    assert check({}, [1]) == [("settings.invalid", "x must be text, not a list.", "")]


@pytest.mark.parametrize("value", ["start", "Started", "", "started ", "running", "present"])
def test_a_value_that_is_no_choice(value: str) -> None:
    expected = f"x must be one of started, stopped, absent, not {value!r}."
    assert check(INSTANCE["state"], value) == [("settings.invalid", expected, "")]


@pytest.mark.parametrize("value", ["started", "stopped", "absent", None])
def test_a_value_that_is_a_choice(value: str | None) -> None:
    assert check(INSTANCE["state"], value) == []


def test_choices_of_a_list_are_those_of_its_items() -> None:
    spec = {"type": "list", "elements": "str", "choices": ["a", "b"]}
    assert check(spec, ["a", "b", "a"]) == [] == check(spec, [])
    assert check(spec, ["a", "c"]) == [("settings.invalid", "x[1] must be one of a, b, not 'c'.", "")]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("modelpath", "model_path"),
        ("model-path", "model_path"),
        ("model_pth", "model_path"),
        ("Port", "port"),
        ("prt", "port"),
        ("gpu", "gpus"),
        ("stat", "state"),
        ("api-key", "api_key"),
        ("apikey", "api_key"),
        ("servedname", "served_name"),
        ("nam", "name"),
    ],
)
def test_an_unknown_key_with_the_nearest_name(key: str, near: str) -> None:
    found = check(SPEC, [{"name": "a", key: SECRET}])
    assert found == [("settings.unknown", f"x[0] (a): key {key!r} is unknown.", f"Did you mean {near!r}?")]


@pytest.mark.parametrize("key", ["zzz", "replicas", "", 5, None])
def test_an_unknown_key_like_no_other_lists_what_is_known(key: Any) -> None:
    ((kind, message, cure),) = check(SPEC, [{"name": "a", key: 1}])
    assert (kind, message) == ("settings.unknown", f"x[0] (a): key {str(key)!r} is unknown.")
    assert cure == f"Known are: {', '.join(sorted(INSTANCE))}."


@pytest.mark.parametrize(
    ("entries", "messages"),
    [
        ([], []),
        ([{"name": "a"}, {"name": "b"}], []),
        ([{}], ["x[0] has no 'name', which it needs."]),
        ([{"name": None}], ["x[0] has no 'name', which it needs."]),
        ([{"name": "a"}, {"port": 1}], ["x[1] has no 'name', which it needs."]),
        ([{"name": ["a"]}], ["x[0].name must be text, not a list."]),
        ([{"name": "a", "port": "http"}], ["x[0] (a).port must be a whole number, not 'http'."]),
        ([{"name": "a", "gpus": 0}], ["x[0] (a).gpus must be a list, not a number."]),
        (
            [{"name": "a", "gpus": [0, "x", 1.5]}],
            ["x[0] (a).gpus[1] must be a whole number, not 'x'.", "x[0] (a).gpus[2] must be a whole number, not 1.5."],
        ),
        ([{"name": "a", "args": ["--tp", 8]}], ["x[0] (a).args must be a mapping, not a list."]),
        ([{"name": "a", "args": {"anything": [1, {"b": None}]}}], []),
        ([{"name": "a", "purge": "perhaps"}], ["x[0] (a).purge must be true or false, not 'perhaps'."]),
        (["a"], ["x[0] must be a mapping, not text."]),
        ([{"name": "a"}, 5], ["x[1] must be a mapping, not a number."]),
        ({"name": "a"}, ["x must be a list, not a mapping."]),
        ("a", ["x must be a list, not text."]),
    ],
)
def test_nested_settings(entries: Any, messages: list[str]) -> None:
    assert [message for _kind, message, _cure in check(SPEC, entries)] == messages


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = check(SPEC, [{"prt": 1, "port": "x", "gpus": "all"}, {"name": "b", "state": "on", "zzz": 1}])
    assert [kind for kind, _message, _cure in found].count("settings.unknown") == 2
    assert len(found) == 6


@pytest.mark.parametrize(
    "entry",
    [
        {"api_key": [SECRET]},
        {"api_key": {"k": SECRET}},
        {"tls": SECRET},
        {"tls": [SECRET]},
        {"tls": {"level": SECRET}},
        {"tls": {"password": [SECRET]}},
        {"tls": {"level": {"x": SECRET}}},
        {"tokens": SECRET},
        {"tokens": [SECRET]},
        {"tokens": [1, [SECRET]]},
        {"level": SECRET},
        {"level": [SECRET]},
        {"api-key": SECRET},
        {"apikey": SECRET},
    ],
    ids=str,
)
def test_secrets_are_never_shown(entry: dict[str, Any]) -> None:
    found = settings_check.check("x", SPEC, [{"name": "a", **entry}])
    assert len(found) == 1
    assert SECRET not in found[0].line() and SECRET not in str(found[0].as_dict())
    assert next(iter(entry)) in found[0].message


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        ([], []),
        (["role_a", "role_long_name"], []),
        (["role_b"], ["role_b"]),
        (["role_", "rol_a", "other_role_a", "role", "Role_a", "__role_a"], ["role_"]),
        (["role_z", "role_a", "role_b"], ["role_b", "role_z"]),
        (["roles_a", "role_along"], ["role_along"]),
    ],
)
def test_unknown_variables_with_a_roles_prefix(names: list[str], unknown: list[str]) -> None:
    found = settings_check.unknown_variables("role_", ["role_a", "role_long_name"], names)
    assert [item.message for item in found] == [f"Variable {name!r} is unknown." for name in unknown]
    assert all(item.id == "settings.unknown" and item.verdict == "refuse" for item in found)


@pytest.mark.parametrize(
    ("name", "near"),
    [("role_long_nam", "role_long_name"), ("role_longname", "role_long_name"), ("role_lnog_name", "role_long_name")],
)
def test_an_unknown_variable_with_the_nearest_name(name: str, near: str) -> None:
    (item,) = settings_check.unknown_variables("role_", ["role_a", "role_long_name"], [name])
    assert item.suggestion == f"Did you mean {near!r}?"


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], []),
        (["gpu.slack", "hicache.node_budget", "plan.order", "host.memory"], []),
        (["gpu.slak"], ["Did you mean 'gpu.slack'?"]),
        (["gpu.slack", "hicache.node_budgt"], ["Did you mean 'hicache.node_budget'?"]),
        # These are never more than a warning, or refuse because nothing could come of it.
        (["plan.context_exceeds_pool"], [""]),
        (["instance.port_taken"], [""]),
        (["host.no_systemd"], [""]),
        (["all", 3], ["Only what the memory plan refuses can be accepted", "Only what the memory plan refuses"]),
    ],
)
def test_only_what_the_plan_refuses_can_be_accepted(ids: list[Any], said: list[str]) -> None:
    found = settings_check.check_accepted("accept", ids)
    assert [item.id for item in found] == ["settings.invalid"] * len(said)
    assert all(text in item.suggestion for text, item in zip(said, found, strict=True))
    assert all("is nothing to accept" in item.message for item in found)
