# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import transaction
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import finding


def row(name: str, action: str) -> dict[str, Any]:
    return {"name": name, "action": action, "release": "r"}


@pytest.mark.parametrize(
    ("rows", "changed", "told"),
    [
        ([], False, ""),
        ([row("a", "none"), row("b", "check")], False, ""),
        ([row("a", "replace")], True, "Done before it, and still so: a (replace)."),
        ([row("a", "none"), row("b", "stop"), row("c", "create")], True, "b (stop), c (create)."),
    ],
)
def test_a_failure_tells_what_was_done_before_it(rows: list[dict[str, Any]], changed: bool, told: str) -> None:
    item = finding("start.died", "It died.")
    error = transaction._after(HeadroomError("It died.", [item]), rows)
    assert str(error).startswith("It died.") and str(error).endswith(told or "It died.")
    assert error.findings == (item,)
    assert error.result == {"changed": changed, "instances": rows}
