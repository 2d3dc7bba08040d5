# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the variables of a node against the argument specs of roles, on the controller, before anything else."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.headroom.serving.plugins.module_utils import instances, settings_check
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, one_line

_SERVER = "sglang_server"
_ACCEPT = "sglang_server_accept"
_ROLES = Path(__file__).parents[2] / "roles"


class ActionModule(ActionBase):
    """Fails with one line that names every unusable setting; never touches the node."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the variables of the roles that `roles` names; `known` are variables that belong to no role."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(
            argument_spec={
                "roles": {"type": "list", "elements": "str", "required": True},
                "known": {"type": "list", "elements": "str", "default": []},
            }
        )
        variables = task_vars or {}
        findings: list[Finding] = []
        for role in args["roles"]:
            options = _options(role)
            known = [*options, *args["known"]]
            findings += settings_check.unknown_variables(f"{role}_", known, list(variables))
            for name in sorted(options.keys() & variables.keys()):
                value = self._templar.template(variables[name])
                findings += settings_check.check_variable(name, options[name], value)
            if role == _SERVER and not findings:
                accepted = self._templar.template(variables.get(_ACCEPT) or [])
                findings += settings_check.check_accepted(_ACCEPT, accepted)
                findings += self._instances(variables)
        result.update(changed=False, findings=[item.as_dict() for item in findings])
        if findings:
            result.update(failed=True, msg=one_line(findings))
        return result

    def _instances(self, variables: dict[str, Any]) -> list[Finding]:
        """Check the instances together, as the node will again: what needs no node is told before it is touched."""
        listed = self._templar.template(variables.get(instances.SETTING) or [])
        truths = ("allow_unauthenticated", "purge")
        plain = [{**entry, **{key: boolean(entry[key]) for key in truths if key in entry}} for entry in listed]
        return [item for item in instances.normalise(plain)[1] if item.verdict == "refuse"]


@lru_cache
def _options(role: str) -> dict[str, Any]:
    text = (_ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    options: dict[str, Any] = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    return options
