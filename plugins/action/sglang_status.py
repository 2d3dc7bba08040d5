# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of M(headroom.serving.sglang_status): prints the rows of a node as a table."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.headroom.serving.plugins.module_utils import status, table


class ActionModule(ActionBase):
    """Run the module on the node and print its answer."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        result: dict[str, Any] = self._execute_module(
            module_name="headroom.serving.sglang_status", module_args=dict(self._task.args), task_vars=task_vars
        )
        if result.get("failed"):
            return result
        node = task_vars["inventory_hostname"]
        rows = [status.cells(row) for row in result["instances"]]
        lines = table.render(status.HEADER, rows) if rows else ["no instance has been deployed here"]
        Display().display("\n".join(["", f"{node}:", *(f"  {line}" for line in lines), ""]))
        return result
