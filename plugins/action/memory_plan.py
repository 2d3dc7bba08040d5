# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of M(headroom.serving.memory_plan): plan on the node or from records, show it, write reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, one_line, refusals
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_files, plan_offline, plan_text
from ansible_collections.headroom.serving.plugins.plugin_utils.finding_files import wide_finder

_MODULE = "headroom.serving.memory_plan"
_ENGINES = "sglang_runtime_engines"
_RUNTIME = Path(__file__).parents[2] / "roles" / "sglang_runtime" / "defaults" / "main.yml"
# What the module does not know; all other options are its own.
_OWN = {
    "offline": {"type": "raw", "default": False},
    "hardware_record": {"type": "str", "default": ""},
    "model_record": {"type": "raw", "default": ""},
    "report_dir": {"type": "str", "default": ""},
    "fail": {"type": "raw", "default": True},
}
# What an offline plan takes of the module's options; the others are about the node.
_SHARED = {
    "instances": {"type": "list", "elements": "dict", "required": True},
    "accept": {"type": "list", "elements": "str", "default": []},
    "scope": {"type": "str", "choices": ["changes", "all"], "default": "all"},
}


class ActionModule(ActionBase):
    """Changes nothing on any node, so a dry run does the same."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module returns, or offline the same without a node; fail if a plan refuses."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given = dict(self._task.args)
        try:
            own = _checked(_OWN, {key: given.pop(key) for key in list(given) if key in _OWN})
            offline, fail = _switch("plan_offline", own["offline"]), _switch("fail", own["fail"])
            shared = _checked(_SHARED, {key: given[key] for key in given if key in _SHARED})
            directory = plan_files.check(own["report_dir"]) if own["report_dir"] else None
            if offline:
                answer = self._offline(own, shared, variables)
            else:
                answer = self._live(given, variables)
                if "reports" not in answer:
                    result.update(answer)
                    return result
            node = variables["inventory_hostname"]
            files, problem = _write(directory, node, answer["reports"])
            self._show(answer, shared["scope"], files, node)
            if problem:
                raise problem
            result.update(_judged(answer, fail or shared["scope"] == "changes"), report_files=files)
        except HeadroomError as error:
            result.update(failed=True, msg=str(error), findings=[item.as_dict() for item in error.findings])
        result.setdefault("changed", False)
        return result

    def _live(self, args: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        # The node's syslog masks only secrets that are no part of a nested setting, so it is told nothing at all.
        quiet = {**variables, "ansible_no_target_syslog": True}
        answer: dict[str, Any] = self._execute_module(module_name=_MODULE, module_args=args, task_vars=quiet)
        return answer

    def _offline(
        self, own: Mapping[str, Any], shared: Mapping[str, Any], variables: Mapping[str, Any]
    ) -> dict[str, Any]:
        request = plan_offline.Request(
            entries=shared["instances"],
            engines=self._engines(variables),
            accept=shared["accept"],
            hardware_record=own["hardware_record"],
            model_record=own["model_record"],
        )
        return plan_offline.make(request, wide_finder(self, "sglang_server"), wide_finder(self, "sglang_runtime"))

    def _show(self, answer: Mapping[str, Any], scope: str, files: Iterable[str], node: str) -> None:
        """Print one block, so that nodes that are planned at the same time do not mix."""
        width = Display().columns
        reports = answer["reports"]
        blocks = [
            (plan_text.concerns if scope == "changes" else plan_text.whole)(report, node, width) for report in reports
        ]
        blocks.append(plan_text.general(_beside_reports(answer), node, width))
        lines = [line for block in blocks if block for line in ("", *block)]
        if not lines and scope == "all":
            lines = ["", f"{node}: no instance is to run here"]
        lines += [f"  written: {path}" for path in files]
        if lines:
            Display().display("\n".join([*lines, ""]))

    def _engines(self, variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return sglang_runtime_engines of the node, or what the role has where nobody set it."""
        if _ENGINES not in variables:
            return _default_engines()
        found: list[dict[str, Any]] = self._templar.template(variables[_ENGINES]) or []
        return found


def _write(
    directory: Path | None, node: str, reports: Iterable[Mapping[str, Any]]
) -> tuple[list[str], HeadroomError | None]:
    """Write reports if there is a directory for them; return their paths, and what went wrong after these."""
    files: list[str] = []
    try:
        for report in reports if directory else ():
            files += plan_files.write(directory, node, report)
    except HeadroomError as error:
        return files, error
    return files, None


def _judged(answer: Mapping[str, Any], fail: bool) -> dict[str, Any]:
    """Return the result for what the module or the controller answered: failed if a plan refuses and that counts."""
    findings = [*_of_reports(answer), *_beside_reports(answer)]
    refused = refusals(Finding(**item) for item in findings)
    if refused and fail:
        # All of it was shown; the reports would only tell it again.
        told = [item.as_dict() for item in refused]
        return {"failed": True, "changed": False, "msg": one_line(refused), "findings": told}
    if answer.get("failed") and not refused:
        return {key: value for key, value in answer.items() if key != "reports"}
    kept = {key: value for key, value in answer.items() if key not in ("failed", "msg")}
    return {**kept, "changed": False, "findings": findings}


def _of_reports(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    return [item for report in answer["reports"] for item in report["plan"]["findings"]]


def _beside_reports(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what was found on the node about no plan in particular, or instead of one."""
    told = _of_reports(answer)
    return [item for item in answer.get("findings") or [] if item not in told]


def _switch(setting: str, value: Any) -> bool:
    try:
        return bool(boolean(value))
    except TypeError:
        raise refusal(
            "settings.invalid", f"{setting} is {value!r:.40}, which is neither true nor false.", "Use true or false."
        ) from None


def _checked(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    outcome = ArgumentSpecValidator(spec).validate({key: value for key, value in values.items() if value is not None})
    if outcome.error_messages:
        raise HeadroomError("; ".join(outcome.error_messages))
    parameters: dict[str, Any] = outcome.validated_parameters
    return parameters


@lru_cache
def _default_engines() -> list[dict[str, Any]]:
    defaults = yaml.safe_load(_RUNTIME.read_text(encoding="utf-8"))
    engines: list[dict[str, Any]] = defaults[_ENGINES]
    return engines
