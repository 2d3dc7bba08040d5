# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a lock: exact pins with the hashes of the files that may be installed."""

from __future__ import annotations

import dataclasses
import operator
import re
import sys
import tomllib
from pathlib import Path

from . import settings

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)")
_MARKER = re.compile(r";\s*([^\\]*?)\s*(?=--hash|$)")
_CONDITION = re.compile(r"python_full_version (<|<=|>|>=|==) '(\d+)\.(\d+)'")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")


@dataclasses.dataclass(frozen=True)
class Pin:
    """One line of a lock."""

    name: str  # normalised: lower case, dashes
    version: str
    hashes: tuple[str, ...]  # SHA-256, hexadecimal

    def text(self) -> str:
        """The pin as one line of a requirements file."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes)])


def read_lock(path: Path) -> list[Pin]:
    """All pins of the lock at `path` that hold for a node's Python.

    ValueError names the line that is no pin, has no hash or a condition other than on the version of Python.
    """
    joined = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in map(str.strip, joined.splitlines()) if line and not line.startswith("#")]
    return [_pin(path, line) for line in lines if _applies(path, line)]


def _applies(path: Path, line: str) -> bool:
    marker = _MARKER.search(line)
    for condition in marker[1].split(" and ") if marker else ():
        match = _CONDITION.fullmatch(condition)
        if not match:
            raise ValueError(
                f"{path}: {condition!r} in {line.split(' ')[0]!r} is no condition on the version of Python"
            )
        if not _COMPARE[match[1]](settings.NODE_PYTHON, (int(match[2]), int(match[3]))):
            return False
    return True


def _pin(path: Path, line: str) -> Pin:
    match = _PIN.match(line)
    hashes = tuple(_HASH.findall(line))
    if not match or not hashes:
        raise ValueError(f"{path}: {line.split(' ')[0]!r} is not NAME==VERSION with a --hash=sha256:... of 64 digits")
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return Pin(name, match["version"], hashes)


def lock_of(pylock: Path) -> str:
    """The lock's text from a pylock.toml: sorted, one pin a line, the hashes of its wheels one a line below."""
    packages = tomllib.loads(pylock.read_text(encoding="utf-8"))["packages"]
    lines: list[str] = []
    for package in sorted(packages, key=lambda package: str(package["name"])):
        digests = sorted(wheel["hashes"]["sha256"] for wheel in package.get("wheels", ()))
        if not digests:
            raise ValueError(f"{package['name']}=={package['version']} has no wheel for this interpreter and platform")
        lines += [f"{package['name']}=={package['version']} \\", *(f"    --hash=sha256:{each} \\" for each in digests)]
        lines[-1] = lines[-1].removesuffix(" \\")
    return "# Made by scripts/cpu_engine/renew from requirements.in: CPython 3.11, x86_64 Linux.\n" + "\n".join(lines)


if __name__ == "__main__":
    print(lock_of(Path(sys.argv[1])))
