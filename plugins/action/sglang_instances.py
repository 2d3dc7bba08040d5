# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of M(headroom.serving.sglang_instances): shows what will be done and how it goes."""

from __future__ import annotations

from typing import Any

from ansible_collections.headroom.serving.plugins.plugin_utils.followed import FollowedAction


class ActionModule(FollowedAction):
    """Run the module on the node and follow the job that it starts."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action; in check mode it shows one line an instance."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        result = self.call("headroom.serving.sglang_instances", dict(self._task.args), task_vars)
        if self._task.check_mode and not result.get("failed"):
            for row in result["instances"]:
                release = row["release"] or "-"
                self.show(task_vars, f"{row['name']}: {row['action']} (release {release}): {row['reason']}")
        return result
