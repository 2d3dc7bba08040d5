# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime's settings, judged before any node is asked."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.runtime_settings import (
    check_account,
    check_sources,
    normalise_engines,
)

GOOD = {"name": "default", "lock": "engine.lock"}


def test_fills_in_what_is_not_given() -> None:
    assert normalise_engines([{**GOOD, "wheelhouse": None}], "engines") == [
        {
            "name": "default",
            "lock": "engine.lock",
            "python": "/usr/bin/python3",
            "wheelhouse": "",
            "wheelhouse_on_node": "",
            "index_url": "",
            "shim": "",
        }
    ]


@pytest.mark.parametrize(
    ("engines", "finding", "expected"),
    [
        ([{**GOOD, "whelhouse": "x"}], "settings.unknown",
         "engines[0].whelhouse is no setting of an engine. Did you mean 'wheelhouse'?"),
        ([{**GOOD, "zzz": 1}], "settings.unknown", "engines[0].zzz is no setting of an engine. Known are name, lock"),
        ([{"lock": "x"}], "settings.invalid", "engines[0].name is ''."),
        ([{**GOOD, "name": "a/b"}], "settings.invalid", "engines[0].name is 'a/b'."),
        ([{**GOOD, "name": "../x"}], "settings.invalid", "engines[0].name is '../x'."),
        ([{**GOOD, "name": "Default"}], "settings.invalid", "engines[0].name is 'Default'."),
        ([GOOD, {**GOOD, "name": "b"}, GOOD], "settings.invalid",
         "engines[0] and engines[2] are both named 'default'."),
        ([{"name": "a"}], "settings.invalid", "engines[0].lock is missing."),
        ([{**GOOD, "wheelhouse": "a", "wheelhouse_on_node": "/b"}], "settings.invalid",
         "engines[0] has wheelhouse and wheelhouse_on_node, which exclude each other."),
        ([{**GOOD, "wheelhouse": "a", "index_url": "https://example.org"}], "settings.invalid",
         "engines[0] has wheelhouse and index_url, which exclude each other."),
        ([{**GOOD, "index_url": "example.org/simple"}], "settings.invalid",
         "engines[0].index_url is 'example.org/simple'."),
        ([{**GOOD, "python": "python3.12"}], "settings.invalid", "engines[0].python is 'python3.12'."),
    ],
)  # fmt: skip
def test_refuses_with_one_line(engines: list[dict[str, Any]], finding: str, expected: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        normalise_engines(engines, "engines")
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    assert [item.id for item in caught.value.findings] == [finding]


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(HeadroomError, match="carries credentials for example") as caught:
        check_sources({"index_url": "https://me:geheim@example.org/simple"}, "engines[0]")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(("user", "group"), [("root", "x"), ("x", "root"), ("a b", "x"), ("", "x"), ("x", "1x")])
def test_the_account_is_an_unprivileged_one(user: str, group: str) -> None:
    with pytest.raises(HeadroomError, match=r"sglang_runtime_(user|group) is"):
        check_account(user, group)
    check_account("sglang", "sglang")
