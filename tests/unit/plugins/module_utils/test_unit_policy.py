# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit says, and on what of it the id of a release depends."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import unit_policy
from ansible_collections.headroom.serving.plugins.module_utils.unit_policy import UnitInputs

INPUTS = UnitInputs(
    name="a",
    argv=[
        "/v/bin/python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/shared/m",
        "--tp-size",
        "8",
        "--enable-metrics",
    ],
    guard=["/v/bin/python", "-I", "-B", "/r/guard.pyz", "/r"],
    environment={"A": "1", "B": "x y"},
    user="sglang",
    home="/var/lib/sglang",
    model_path="/shared/m",
)


def values(inputs: UnitInputs, name: str) -> list[str]:
    return [value for key, value in unit_policy.settings(inputs) if key == name]


@pytest.mark.parametrize(("name", "unit"), [("a", "sglang-a.service"), ("qwen3-32b_x", "sglang-qwen3-32b_x.service")])
def test_the_units_name(name: str, unit: str) -> None:
    assert unit_policy.unit_name(name) == unit


@pytest.mark.parametrize(
    ("weights", "seconds"),
    [(0, 900), (1, 900), (99_999_999, 900), (100_000_000, 901), (64_000_000_000, 1540), (595_000_000_000, 6850)],
)
def test_the_time_limit_follows_the_weights(weights: int, seconds: int) -> None:
    assert unit_policy.start_limit_s(weights) == seconds


def test_three_starts_that_are_hung_fall_into_one_interval() -> None:
    longest = unit_policy.start_limit_s(600_000_000_000) + unit_policy.STOP_TIMEOUT_S + 10
    longest += unit_policy.GUARD_LIMIT_S
    assert longest * unit_policy.START_LIMIT_BURST < unit_policy.START_LIMIT_INTERVAL_S


@pytest.mark.parametrize(
    ("gpus", "expected"), [(None, None), ((), ""), ((0,), "0"), ((0, 1), "0,1"), ((7, 3), "7,3"), ((10, 11), "10,11")]
)
def test_gpus_become_a_variable(gpus: tuple[int, ...] | None, expected: str | None) -> None:
    assert unit_policy.service_environment({}, "/v", "/h", gpus).get("CUDA_VISIBLE_DEVICES") == expected


def test_the_environment_is_ordered_by_name_and_the_user_wins() -> None:
    found = unit_policy.service_environment({"Z": "1", "A": "2", "PYTHONUNBUFFERED": "0"}, "/v", "/h", (0,))
    assert list(found) == sorted(found)
    assert found["HOME"] == "/h" and found["PYTHONUNBUFFERED"] == "0" and found["Z"] == "1"
    assert found["PATH"].startswith("/v/bin:") and "/usr/bin" in found["PATH"].split(":")


@pytest.mark.parametrize(
    "first", [{"A": "1", "B": "2", "C": "3"}, {"C": "3", "A": "1", "B": "2"}, {"B": "2", "C": "3", "A": "1"}]
)
def test_the_order_of_variables_in_the_inventory_does_not_matter(first: dict[str, str]) -> None:
    expected = unit_policy.service_environment({"A": "1", "B": "2", "C": "3"}, "/v", "/h", None)
    assert list(unit_policy.service_environment(first, "/v", "/h", None).items()) == list(expected.items())


def test_settings_hold_no_comment_and_the_unit_has_some() -> None:
    assert all(key != "#" for key, _value in unit_policy.settings(INPUTS))
    assert unit_policy.render(INPUTS).count("\n# ") >= 6


@pytest.mark.parametrize("list_name", ["_LIFE", "_SANDBOX"])
def test_comments_do_not_reach_the_settings(monkeypatch: pytest.MonkeyPatch, list_name: str) -> None:
    before = unit_policy.settings(INPUTS)
    old = getattr(unit_policy, list_name)
    without = [("#", "another reason"), *(item for item in old if item[0] != "#"), ("#", "and another")]
    monkeypatch.setattr(unit_policy, list_name, without)
    assert unit_policy.settings(INPUTS) == before
    monkeypatch.setattr(unit_policy, list_name, [*old, ("Nice", "5")])
    assert unit_policy.settings(INPUTS) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": [*INPUTS.argv, "--x"]},
        {"argv": INPUTS.argv[:-1]},
        {"argv": [*INPUTS.argv[:-1], "--enable-metric"]},
        {"argv": [*INPUTS.argv[:6], "4", "--enable-metrics"]},
        {"environment": {}},
        {"environment": {"A": "1", "B": "x  y"}},
        {"environment": {"A": "1", "C": "x y"}},
        {"user": "other"},
        {"home": "/home/other"},
        {"model_path": "/home/x/m"},
    ],
)
def test_settings_change_with_each_input_of_the_server(changes: dict[str, Any]) -> None:
    assert unit_policy.settings(replace(INPUTS, **changes)) != unit_policy.settings(INPUTS)


def test_settings_do_not_change_with_the_name() -> None:
    assert unit_policy.settings(replace(INPUTS, name="b")) == unit_policy.settings(INPUTS)


@pytest.mark.parametrize("constant", ["START_LIMIT_INTERVAL_S", "START_LIMIT_BURST"])
def test_limits_of_restarts_are_no_input_of_a_release(monkeypatch: pytest.MonkeyPatch, constant: str) -> None:
    before = unit_policy.settings(INPUTS)
    monkeypatch.setattr(unit_policy, constant, 7)
    assert unit_policy.settings(INPUTS) == before
    assert "=7\n" in unit_policy.render(INPUTS)


def test_the_command_has_one_flag_a_line() -> None:
    (command,) = values(INPUTS, "ExecStart")
    assert [line.strip() for line in command.split("\\\n")] == [
        "/v/bin/python",
        "-m",
        "sglang.launch_server",
        "--model-path /shared/m",
        "--tp-size 8",
        "--enable-metrics",
    ] or [line.strip() for line in command.split("\\\n")] == [
        "/v/bin/python -m sglang.launch_server",
        "--model-path /shared/m",
        "--tp-size 8",
        "--enable-metrics",
    ]


@pytest.mark.parametrize(
    "argument", ["#x", "; rm", ";", "a\nb", "[Service]", "\n[Service]\nUser=root", "\\", "x\\", "%i", "$HOME", "\r"]
)
def test_an_argument_starts_no_line_of_its_own(argument: str) -> None:
    inputs = replace(INPUTS, argv=[*INPUTS.argv, "--x", argument], environment={"A": argument})
    text = unit_policy.render(inputs)
    plain = unit_policy.render(replace(inputs, argv=[*INPUTS.argv, "--x", "y"], environment={"A": "y"}))
    assert text.count("\n") == plain.count("\n")
    assert re.findall(r"^[A-Za-z]+=", text, re.MULTILINE) == re.findall(r"^[A-Za-z]+=", plain, re.MULTILINE)
    assert re.findall(r"^\[\w+\]$", text, re.MULTILINE) == ["[Unit]", "[Service]", "[Install]"]
    assert all(re.match(r"\[|#|[A-Z]\w+=|    |$", line) for line in text.split("\n"))


@pytest.mark.parametrize("text", ["\0", "a\0"])
def test_nul_is_refused(text: str) -> None:
    for inputs in (replace(INPUTS, argv=["/x", text]), replace(INPUTS, environment={"A": text})):
        with pytest.raises(ValueError, match="NUL"):
            unit_policy.render(inputs)


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("/home/x/m", True),
        ("/root/m", True),
        ("/tmp/m", True),
        ("/var/tmp/m", True),
        ("/run/user/1000/m", True),
        ("/home", True),
        ("/shared/m", False),
        ("/homes/m", False),
        ("/rooted", False),
        ("/tmpfs/m", False),
        ("/var/lib/m", False),
        ("/opt/home/m", False),
    ],
)
def test_a_model_that_the_sandbox_would_hide_is_bound(path: str, hidden: bool) -> None:
    inputs = replace(INPUTS, model_path=path)
    assert values(inputs, "ProtectHome") == (["tmpfs"] if hidden else ["yes"])
    assert values(inputs, "BindReadOnlyPaths") == ([path] if hidden else [])


def test_paths_are_quoted() -> None:
    text = unit_policy.render(replace(INPUTS, model_path="/shared/my models/50%"))
    assert 'RequiresMountsFor="/shared/my models/50%%"\n' in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "exec"),
        ("User", "sglang"),
        ("WorkingDirectory", "/var/lib/sglang"),
        ("Restart", "on-failure"),
        ("SuccessExitStatus", "137 SIGKILL"),
        ("RestartForceExitStatus", "137 SIGKILL"),
        ("KillMode", "mixed"),
        ("TimeoutStopSec", "120"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
        ("ReadWritePaths", "/var/lib/sglang"),
        ("RemoveIPC", "yes"),
        ("LimitMEMLOCK", "infinity"),
    ],
)
def test_what_sglang_needs_of_its_unit(key: str, value: str) -> None:
    assert values(INPUTS, key) == [value]


@pytest.mark.parametrize(
    "key",
    [
        "PrivateDevices",
        "DevicePolicy",
        "ProtectClock",
        "MemoryDenyWriteExecute",
        "PrivateUsers",
        "ProcSubset",
        "ProtectHomes",
    ],
)
def test_what_would_break_sglang_is_left_out(key: str) -> None:
    assert values(INPUTS, key) == []


def test_no_directive_stands_twice_except_for_lists() -> None:
    keys = [key for key, _value in unit_policy.settings(INPUTS) if key != "Environment"]
    assert len(keys) == len(set(keys))
