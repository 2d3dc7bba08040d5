# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of long work: start it with one module call, show its progress, return its result."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

_FOLLOW = "headroom.serving.job_follow"
# A reboot of a switch or a restarted sshd must not end the play: the work itself goes on without us.
_RECONNECT_S = 300


class FollowedAction(ActionBase):  # type: ignore[misc]
    """Base of the actions whose module may answer with a `job` instead of a result."""

    _supports_check_mode = True
    _supports_diff = True
    TRANSFERS_FILES = False

    def show(self, task_vars: dict[str, Any], line: str) -> None:
        """Print one progress line on the controller."""
        Display().display(f"    [{task_vars['inventory_hostname']}] {line}")

    def call(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run a module on the node; if it started a job, follow that to its end and return its result."""
        # The node's syslog masks only secrets that are no part of a nested setting, so it is told nothing at all.
        quiet = {**task_vars, "ansible_no_target_syslog": True}
        result: dict[str, Any] = self._execute_module(module_name=module_name, module_args=module_args, task_vars=quiet)
        job = result.pop("job", None)
        if not job or result.get("failed"):
            return result
        ended = self._follow(job, task_vars)
        return {**result, **ended}

    def _follow(self, job: dict[str, str], task_vars: dict[str, Any]) -> dict[str, Any]:
        offset = 0
        lost_since: float | None = None
        while True:
            try:
                answer = self._execute_module(
                    module_name=_FOLLOW,
                    module_args={"dir": job["dir"], "unit": job["unit"], "offset": offset},
                    task_vars=task_vars,
                )
            except AnsibleConnectionFailure:
                now = time.monotonic()
                lost_since = lost_since or now
                if now - lost_since > _RECONNECT_S:
                    raise
                self.show(task_vars, f"connection lost; {job['unit']} goes on by itself, trying again")
                time.sleep(5)
                continue
            lost_since = None
            if answer.get("failed"):
                return dict(answer)
            for line in answer["lines"]:
                self.show(task_vars, line)
            offset = answer["offset"]
            if answer["finished"]:
                return dict(answer["result"])
