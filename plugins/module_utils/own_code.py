# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's own code as it runs here, for a process that must outlive this one or needs another interpreter."""

from __future__ import annotations

import zipfile
from pathlib import Path

_NAMESPACE = "ansible_collections/"
ROOMS = "ansible_collections.headroom.serving.plugins.module_utils"


def archive() -> str:
    """Return the archive that Ansible sent and this code was imported from; empty if it was imported from files."""
    return str(getattr(globals().get("__loader__"), "archive", None) or "")


def write(target: Path, entry: str = "") -> None:
    """Write the collection's part of the running code, be it an archive or a directory, into a new zip.

    Args:
        target: Where to write.
        entry: Text of a `__main__.py`, which makes it an application that Python runs by its path.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as copy:
        if entry:
            copy.writestr("__main__.py", entry)
        if archive():
            with zipfile.ZipFile(archive()) as source:
                for name in source.namelist():
                    if name.startswith(_NAMESPACE):
                        copy.writestr(name, source.read(name))
            return
        here = Path(__file__).resolve().parent
        package = ROOMS.replace(".", "/") + "/"
        for part in ("", "headroom/", "headroom/serving/", "headroom/serving/plugins/"):
            copy.writestr(f"{_NAMESPACE}{part}__init__.py", "")
        copy.writestr(package + "__init__.py", "")
        for path in sorted(here.glob("*.py")):
            if path.name != "__init__.py":
                copy.write(path, package + path.name)
