# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failure that is one finding: the shortest way from a decision to the user's one clear line."""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import finding


def refusal(kind_id: str, message: str, suggestion: str = "") -> HeadroomError:
    """Return the error for one refusing finding, to be raised by the caller.

    Args:
        kind_id: An id of the catalogue of findings.
        message: The setting, its value and the reason.
        suggestion: What would work; may be empty.
    """
    found = finding(kind_id, message, suggestion)
    return HeadroomError(found.line(), [found])
