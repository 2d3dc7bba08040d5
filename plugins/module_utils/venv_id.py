# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The id of an installed venv: what goes into it, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

_DIGITS = 12


def shim_digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 hex digest of the files (path below site-packages to content), or "" when there is none."""
    if not files:
        return ""
    parts = [[path, hashlib.sha256(content).hexdigest()] for path, content in sorted(files.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def venv_id(lock_sha256: str, interpreter: str, platform: str, shim_sha256: str) -> str:
    """Return the name of the directory of a venv.

    Args:
        lock_sha256: Digest of the normalised lock.
        interpreter: Implementation and full version, such as `cpython-3.11.2`.
        platform: Platform tag, such as `linux-x86_64`.
        shim_sha256: What `shim_digest` returns.
    """
    inputs = json.dumps([lock_sha256, interpreter, platform, shim_sha256])
    return hashlib.sha256(inputs.encode()).hexdigest()[:_DIGITS]
