# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the hardware by the tools' Python, which has nvidia-ml-py and psutil, where the node has one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ansible_collections.headroom.serving.plugins.module_utils import hardware, own_code
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware

# A driver that was asleep takes seconds to wake eight GPUs.
_LIMIT_S = 120
_READ = f"import sys; sys.path.insert(0, sys.argv[1]); from {own_code.ROOMS} import hardware; " + (
    "print(hardware.to_json(hardware.read()))"
)


def read(tools_root: Path) -> Hardware:
    """Return the hardware of this node, read by the tools below `tools_root` (as /opt/headroom) if they are there.

    Raises:
        HeadroomError: If the host's memory can't be read.
    """
    python = hardware.tools_path(str(tools_root))
    code = own_code.archive()
    if code and os.access(python, os.X_OK):
        try:
            done = subprocess.run(
                [python, "-I", "-c", _READ, code], capture_output=True, text=True, timeout=_LIMIT_S, check=True
            )
            return hardware.from_json(done.stdout, f"what {python} printed")
        except (OSError, subprocess.SubprocessError, HeadroomError):
            pass  # a venv that is half removed: its own Python can read it, too, and says what is wrong if it can't
    return hardware.read()
