# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install a venv from a lock: lock, shim and wheels come from the controller, the work is done on the node."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import runtime_settings, wheel_files
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.lock_file import Lock
from ansible_collections.headroom.serving.plugins.plugin_utils import controller_files
from ansible_collections.headroom.serving.plugins.plugin_utils.finding_files import finder
from ansible_collections.headroom.serving.plugins.plugin_utils.followed import FollowedAction

_STORE = "headroom.serving.wheel_store"


class ActionModule(FollowedAction):
    """Sends only the wheels that the node lacks, then follows the installation to its end."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module returns; in check mode nothing is sent."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = dict(self._task.args)
        try:
            result.update(self._install(args, variables))
        except HeadroomError as error:
            result.update(failed=True, msg=str(error), findings=[item.as_dict() for item in error.findings])
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _install(self, args: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        find = finder(self)
        where = "sglang_runtime_tools_" if args.get("kind") == "tools" else f"engine '{args.get('name')}': "
        runtime_settings.check_sources(args, where.rstrip("_: "))
        text, lock = controller_files.read_lock(find, str(args.get("lock") or ""), where + "lock")
        shim = controller_files.read_shim(find, str(args.get("shim") or ""), where + "shim")
        sent = {**args, "lock_text": text}
        sent["shim_files"] = {path: base64.b64encode(content).decode() for path, content in shim.items()}
        if args.get("wheelhouse") and not self._task.check_mode:
            wheels = self._wheels(args, lock, where, variables)
            if "failed" in wheels:
                return wheels
            sent["wheels"] = wheels["wheels"]
        result = self.call("headroom.serving.locked_venv", sent, variables)
        # What was begun and failed is gone again.
        return {**result, "changed": False} if result.get("failed") else result

    def _wheels(self, args: dict[str, Any], lock: Lock, where: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Bring the wheels of the lock to the node; return them as digest to file name, or a failed result."""
        setting = f"{where}wheelhouse"
        directory, files = controller_files.wheelhouse_files(finder(self), str(args["wheelhouse"]), setting)
        python = args.get("python") or runtime_settings.DEFAULT_PYTHON
        answer = self._execute_module(module_name=_STORE, module_args={"python": python}, task_vars=variables)
        if answer.get("failed"):
            return dict(answer)
        interpreter = answer["interpreter"]
        wheels = wheel_files.select_wheels(
            lock,
            files,
            lambda filename: controller_files.sha256_of(directory / filename),
            controller_files.marker_check(interpreter["markers"]),
            controller_files.target_of(interpreter),
            f"{setting} '{args['wheelhouse']}'",
        )
        names = {wheel.sha256: wheel.filename for wheel in wheels}
        answer = self._execute_module(module_name=_STORE, module_args={"wheels": names}, task_vars=variables)
        if answer.get("failed"):
            return dict(answer)
        wanted = [wheel for wheel in wheels if wheel.sha256 in answer["lacking"]]
        failure = self._send(directory, wanted, len(wheels), variables)
        return failure or {"wheels": names}

    def _send(
        self, directory: Path, wanted: list[wheel_files.Wheel], of: int, variables: dict[str, Any]
    ) -> dict[str, Any] | None:
        if not wanted:
            return None
        total = sum(wheel.size for wheel in wanted)
        self.show(variables, f"sending {len(wanted)} of {of} wheels, {total / 1e6:.0f} MB; the node has the others")
        names = {wheel.sha256: wheel.filename for wheel in wanted}
        sizes = {wheel.sha256: wheel.size for wheel in wanted}
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        remote = self._connection._shell.join_path(self._connection._shell.tmpdir, "wheels.tar")
        sent = 0
        with tempfile.TemporaryDirectory(prefix="headroom-wheels-") as scratch:
            local = Path(scratch) / "wheels.tar"
            for batch in wheel_files.cut(wanted):
                controller_files.write_archive(local, directory, batch)
                self._transfer_file(str(local), remote)
                answer = self._execute_module(
                    module_name=_STORE,
                    module_args={"archive": remote, "wheels": names, "sizes": sizes},
                    task_vars=variables,
                )
                if answer.get("failed"):
                    return dict(answer)
                sent += controller_files.total_bytes(batch)
                self.show(variables, f"sent {sent / 1e6:.0f} of {total / 1e6:.0f} MB")
        return None
