# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Python interpreter of the node, asked about itself."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError

_TIMEOUT_S = 60
# The names of the environment markers of requirements, as the packaging specification lists them.
_QUESTION = """
import json, os, platform, sys, sysconfig
v = sys.implementation.version
full = "%d.%d.%d" % v[:3] + ("" if v.releaselevel == "final" else v.releaselevel[0] + str(v.serial))
print(json.dumps({
    "platform": sysconfig.get_platform(),
    "markers": {
        "implementation_name": sys.implementation.name,
        "implementation_version": full,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": "%d.%d" % sys.version_info[:2],
        "sys_platform": sys.platform,
    },
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What decides which wheels fit: `markers` is the environment in which requirements' markers are evaluated."""

    path: str
    platform: str
    markers: dict[str, str]

    @property
    def version(self) -> str:
        """Implementation and full version, such as `cpython-3.11.2`."""
        return f"{self.markers['implementation_name']}-{self.markers['python_full_version']}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as modules return it."""
        return {"path": self.path, "version": self.version, "platform": self.platform, "markers": self.markers}


def describe(path: str) -> Interpreter | None:
    """Ask the interpreter at `path` about itself; None when there is none.

    Raises:
        HeadroomError: If there is a file that does not answer as a Python interpreter does.
    """
    if not os.access(path, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _QUESTION], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        )
        answer = json.loads(done.stdout)
        return Interpreter(path, answer["platform"], answer["markers"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise HeadroomError(f"'{path}' does not answer as a Python interpreter: {error}") from None
