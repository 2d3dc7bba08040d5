# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception that carries a foreseen failure to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding


class HeadroomError(Exception):
    """A foreseen failure: one clear line, with the findings it rests on.

    The text names the setting, its value, the reason and what would work; it is shown to the user as it is. `result` is
    what a job returns of the work that was done before it failed.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = (), result: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
        self.result = dict(result or {})
