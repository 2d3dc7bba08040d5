# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the collection's checks of a deployed node from the controller and show each as it ends."""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.plugin_utils import verify_suite
from ansible_collections.headroom.serving.plugins.plugin_utils.verify_connection import Plugin
from ansible_collections.headroom.serving.plugins.plugin_utils.verify_suite import Check, Report, Wanted

_INSTANCES = "sglang_server_instances"


class ActionModule(ActionBase):
    """Only reads, so a dry run does the same."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the node over the connection of the task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(
            argument_spec={"root": {"type": "path", "default": "/var/lib/headroom"}, "tests": {"type": "str"}}
        )
        variables = task_vars or {}
        node = variables["inventory_hostname"]
        # Not an argument of the task: instances hold keys, and arguments are shown.
        listed = self._templar.template(variables[_INSTANCES]) if _INSTANCES in variables else None
        wanted = Wanted.of(args["root"], listed, args["tests"] or "")
        become = self._connection.become
        try:
            report = verify_suite.run(
                wanted,
                _plugin("connection", self._connection),
                _plugin("become", become) if become is not None else None,
                lambda check: _show(node, check),
            )
        except HeadroomError as error:
            result.update(failed=True, msg=str(error), changed=False)
            return result
        _show_journals(node, report)
        failed = report.failed
        result.update(
            changed=False,
            failed=bool(failed),
            msg=report.verdict(),
            passed=len(report.checks) - len(failed),
        )
        return result


def _plugin(kind: str, plugin: Any) -> Plugin:
    name = plugin.ansible_name
    definitions = constants.config.get_configuration_definitions(kind, plugin._load_name)
    variables = {
        option: tuple(entry["name"] for entry in definition.get("vars") or ())
        for option, definition in definitions.items()
    }
    return Plugin(name, {option: plugin.get_option(option) for option in definitions}, variables)


def _show(node: str, check: Check) -> None:
    Display().display(f"    [{node}] {check.line()}", color=None if check.passed else constants.COLOR_ERROR)


def _show_journals(node: str, report: Report) -> None:
    for unit, text in report.journals().items():
        Display().display(f"    [{node}] the last lines of {unit}:")
        for line in text.splitlines():
            Display().display(f"    [{node}]   {line}")
