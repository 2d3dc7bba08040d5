# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The virtual environments of the clone: a small one with uv, and the controller's `.venv` made by it.

The small one also holds what writes the tiny model, from the engine's lock: no user of the playbooks needs that.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

from . import settings
from .lockfile import read_lock
from .names import Clone, write_json
from .steps import Steps

CONTROLLER = "controller"  # ansible-core and the testinfra suite
DEV = "dev"  # the same and everything that tests and lints


def python() -> str:
    """The interpreter that the venvs are made from: the distribution's, so that any python3 on PATH will do."""
    return "/usr/bin/python3" if Path("/usr/bin/python3.11").exists() else sys.executable


def ensure_bootstrap(clone: Clone, steps: Steps) -> None:
    """Make `.cache/bootstrap`: pip, which reads the machine's own index settings, uv, and the model's makers."""
    record = clone.bootstrap / "made.json"
    makers = [pin.text() for pin in read_lock(clone.lock) if pin.name in settings.MODEL_MAKERS]
    stamp = {"uv": settings.UV_REQUIREMENT, "makers": makers, "python": python()}
    with clone.locked("bootstrap"):
        if _read(record) == stamp:
            return
        with steps.step("installing uv into .cache/bootstrap"):
            shutil.rmtree(clone.bootstrap, ignore_errors=True)
            steps.run([python(), "-m", "venv", clone.bootstrap], "venv")
            pip: list[str | Path] = [clone.bootstrap / "bin" / "python", "-m", "pip"]
            steps.run([*pip, "install", "--quiet", "--no-cache-dir", settings.UV_REQUIREMENT], "venv")
            wanted = clone.bootstrap / "makers.txt"
            wanted.write_text("\n".join(makers) + "\n", encoding="utf-8")
            flags = ["--quiet", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes"]
            steps.run([*pip, "install", *flags, "--requirement", wanted], "venv")
            write_json(record, stamp)


def ensure(clone: Clone, steps: Steps, group: str = DEV) -> None:
    """Make or complete `.venv` with a dependency group of pyproject.toml; nothing to do costs nothing."""
    ensure_bootstrap(clone, steps)
    record = clone.venv / "made.json"
    project = clone.root / "pyproject.toml"
    stamp = {"project": hashlib.sha256(project.read_bytes()).hexdigest(), "python": python()}
    with clone.locked("venv"):
        found = _read(record) or {}
        groups = found.get("groups", []) if found.get("project") == stamp["project"] else []
        if not (clone.venv / "bin" / "python").exists() or found.get("python") != stamp["python"]:
            groups = []
        if isinstance(groups, list) and group in groups:
            return
        with steps.step(f"installing the {group} dependencies into .venv"):
            uv = clone.bootstrap / "bin" / "uv"
            # The cache beside .venv, so that files are linked and not copied; the certificates that the machine trusts.
            env = {"UV_CACHE_DIR": str(clone.cache / "uv"), "UV_SYSTEM_CERTS": "true"}
            if found.get("python") != stamp["python"] or not (clone.venv / "bin" / "python").exists():
                steps.run([uv, "venv", "--quiet", "--clear", "--python", python(), clone.venv], "venv", env=env)
                write_json(record, stamp)
            pip: list[str | Path] = [uv, "pip", "install", "--python", clone.venv / "bin" / "python"]
            steps.run([*pip, "--group", f"{project}:{group}"], "venv", env=env)
            write_json(record, {**stamp, "groups": sorted({CONTROLLER, group})})  # DEV includes CONTROLLER


def _read(record: Path) -> dict[str, object] | None:
    try:
        value = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
