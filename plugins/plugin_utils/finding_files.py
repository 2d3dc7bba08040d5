# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find files of the controller as Ansible's own actions do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

_ROLES = Path(__file__).parents[2] / "roles"


def finder(action: ActionBase) -> Callable[[str], str]:
    """Return a function from a path as users write it to the absolute one; it raises LookupError when there is none."""

    def find(path: str) -> str:
        expanded = str(Path(path).expanduser())
        try:
            return str(action._find_needle("files", expanded))
        except AnsibleError:
            raise LookupError(path) from None

    return find


def wide_finder(action: ActionBase, role: str) -> Callable[[str], str]:
    """Return the same, which then also looks into a role's files and at last into the folder of the command line.

    Args:
        action: The action that looks for files; it may be run by another role, or by none.
        role: The collection's role that comes with files of this kind.
    """
    find_as_ansible = finder(action)

    def find(path: str) -> str:
        try:
            return find_as_ansible(path)
        except LookupError:
            for folder in (_ROLES / role / "files", Path.cwd()):
                if (folder / path).exists():
                    return str(folder / path)
            raise

    return find
