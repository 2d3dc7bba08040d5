# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of wheels that a node installs from: exactly the files that the lock names, each verified."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import settings
from .lockfile import Pin, read_lock
from .names import Clone
from .steps import StepError, Steps

_EVERY = 20  # one progress line for so many wheels


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def examine(folder: Path, pins: list[Pin]) -> tuple[list[Pin], list[Path]]:
    """The pins without a whole wheel in `folder`, and the files that no pin vouches for."""
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    with ThreadPoolExecutor(4) as pool:
        digests = dict(zip(files, pool.map(sha256_of, files), strict=True))
    wanted = {digest for pin in pins for digest in pin.hashes}
    foreign = [path for path, digest in digests.items() if digest not in wanted]
    missing = [pin for pin in pins if not set(pin.hashes) & set(digests.values())]
    return missing, foreign


def ensure(clone: Clone, steps: Steps) -> None:
    """Fill both wheelhouses: the engine's and the tools', so that a node needs no index."""
    with clone.locked("wheelhouse"):
        _fill(clone, steps, clone.tools_lock, clone.tools_wheelhouse)
        _fill(clone, steps, clone.lock, clone.wheelhouse)


def _fill(clone: Clone, steps: Steps, lock: Path, folder: Path) -> None:
    """Download what is missing of the lock; files that the lock does not know are removed."""
    pins = read_lock(lock)
    folder.mkdir(parents=True, exist_ok=True)
    missing, foreign = examine(folder, pins)
    for path in foreign:
        path.unlink()
    if not missing:
        return
    with steps.step(f"downloading {len(missing)} of {len(pins)} wheels of {lock.name}"):
        # A local version ("+cpu") is published on its vendor's index only, so it may need another place.
        local = [pin for pin in missing if "+" in pin.version]
        _download(clone, steps, folder, [pin for pin in missing if pin not in local])
        try:
            _download(clone, steps, folder, local)
        except StepError:
            steps.say(f"asking {settings.CPU_BUILD_INDEX} for {' '.join(pin.name for pin in local)}")
            _download(clone, steps, folder, local, f"--extra-index-url={settings.CPU_BUILD_INDEX}")
    missing, foreign = examine(folder, pins)
    if missing or foreign:
        names = " ".join([*(pin.name for pin in missing), *(path.name for path in foreign)])
        raise StepError(f"{folder} does not match {lock} after the download: {names}")


def _download(clone: Clone, steps: Steps, folder: Path, pins: list[Pin], *options: str) -> None:
    if not pins:
        return
    wanted = clone.cache / "wheelhouse.txt"
    wanted.write_text("".join(pin.text() + "\n" for pin in pins), encoding="utf-8")
    seen = 0

    def count(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Processing ")):
            seen += 1
            if seen % _EVERY == 0:
                steps.say(f"wheels: {seen} of {len(pins)}")

    pip: list[str | Path] = [clone.bootstrap / "bin" / "python", "-m", "pip", "download", "--no-cache-dir", "--no-deps"]
    flags = ["--progress-bar=off", "--require-hashes", "--only-binary=:all:", f"--dest={folder}", *options]
    steps.run([*pip, *flags, "--requirement", wanted], "wheelhouse", each_line=count)
