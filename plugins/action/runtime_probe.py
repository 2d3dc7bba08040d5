# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the runtime's locks on the controller, ask the node once what it lacks, and check the wheelhouses it needs."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.headroom.serving.plugins.module_utils import runtime_settings, wheel_files
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.venv_id import shim_digest
from ansible_collections.headroom.serving.plugins.plugin_utils import controller_files
from ansible_collections.headroom.serving.plugins.plugin_utils.finding_files import finder

_TOOLS = "sglang_runtime_tools"
_ENGINES = "sglang_runtime_engines"


class ActionModule(ActionBase):
    """One remote call; every setting that can be judged is judged before anything is changed."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module returns, with the settings of each venv beside what must be done to it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        try:
            items = self._read(args)
            args["engines"] = [_for_node(item) for item in items if item["kind"] == "engine"]
            args["tools"] = next(_for_node(item) for item in items if item["kind"] == "tools")
            args["packages"] = args.get("packages") or None
            answer = self._execute_module(module_args=args, task_vars=task_vars)
            result.update(answer)
            if not result.get("failed"):
                self._complete(result, items)
        except HeadroomError as error:
            result.update(failed=True, msg=str(error), findings=[item.as_dict() for item in error.findings])
        return result

    def _read(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        runtime_settings.check_account(str(args.get("user")), str(args.get("group")))
        tools = dict(args.get("tools") or {})
        items = [{"kind": "tools", "name": "tools", "shim": "", "where": _TOOLS, **tools}]
        if args.get("scope", "all") == "all":
            for item in runtime_settings.normalise_engines(args.get("engines") or [], _ENGINES):
                items.append({"kind": "engine", "where": f"{_ENGINES}[{item['name']}]", **item})
        find = finder(self)
        for item in items:
            dot = "_" if item["kind"] == "tools" else "."
            runtime_settings.check_sources(item, item["where"])
            runtime_settings.check_absolute(item["python"], f"{item['where']}{dot}python")
            item["dot"] = dot
            _text, item["parsed"] = controller_files.read_lock(find, item["lock"], f"{item['where']}{dot}lock")
            item["lock_sha256"] = item["parsed"].digest()
            shim = controller_files.read_shim(find, item["shim"], f"{item['where']}{dot}shim")
            item["shim_sha256"] = shim_digest(shim)
            item["files"] = {}
            if item.get("wheelhouse"):
                setting = f"{item['where']}{dot}wheelhouse"
                item["directory"], item["files"] = controller_files.wheelhouse_files(find, item["wheelhouse"], setting)
        return items

    def _complete(self, result: dict[str, Any], items: list[dict[str, Any]]) -> None:
        """Check the wheels of what will be installed, and lay the settings beside it for the tasks that follow."""
        for item in items:
            # Before the engine is there, its lock tells the version: the plan needs it.
            resolved = result["resolved"].get(item["name"]) if item["kind"] == "engine" else None
            if resolved and not resolved["version"]:
                resolved["version"] = item["parsed"].version_of("sglang")
        todo = result["todo"]
        by_name = {(item["kind"], item["name"]): item for item in items}
        for kind, entries in (("tools", todo["tools"]), ("engine", todo["engines"])):
            for entry in entries:
                item = by_name[(kind, entry["name"])]
                if entry["action"] == "install" and item.get("wheelhouse"):
                    _check_wheels(item, result["interpreters"].get(item["python"]))
                given = ("lock", "python", "shim", *runtime_settings.SOURCES)
                entry.update({key: item[key] for key in given if item.get(key)})


def _check_wheels(item: dict[str, Any], interpreter: dict[str, Any] | None) -> None:
    setting = f"{item['where']}{item['dot']}wheelhouse '{item['wheelhouse']}'"
    wheel_files.select_wheels(
        item["parsed"],
        item["files"],
        lambda filename: controller_files.sha256_of(item["directory"] / filename),
        controller_files.marker_check(interpreter["markers"] if interpreter else None),
        controller_files.target_of(interpreter),
        setting,
    )


def _for_node(item: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "python", "lock", "lock_sha256", "shim_sha256")
    return {key: item[key] for key in keys}
