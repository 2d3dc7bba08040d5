"""What the tests of the repository itself share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the clone."""
    return ROOT


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the collection as `ansible-galaxy collection build` does for a release and return the archive."""
    out = tmp_path_factory.mktemp("build")
    galaxy = Path(sys.executable).parent / "ansible-galaxy"
    command = [str(galaxy), "collection", "build", "--output-path", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("headroom-serving-*.tar.gz")
    return path


@pytest.fixture(scope="session")
def packed(archive: Path) -> dict[str, tarfile.TarInfo]:
    """Return the archive's members by name."""
    with tarfile.open(archive) as tar:
        return {member.name: member for member in tar.getmembers()}


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh clone, with what is not committed yet, in a folder of another name."""
    target = tmp_path_factory.mktemp("some where") / "my clone"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_symlink() or source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Path:
    """Return an empty folder into which the built collection was installed."""
    target = tmp_path_factory.mktemp("installed")
    command = [
        str(Path(sys.executable).parent / "ansible-galaxy"),
        "collection",
        "install",
        "--offline",
        "--no-deps",
        "-p",
        str(target),
    ]
    done = subprocess.run(
        [*command, str(archive)], cwd=target, env=_clean_env(target), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="session")
def clean_env() -> Callable[[Path], dict[str, str]]:
    """Return a function from a home to an environment in which nothing else of this machine's settings is seen."""
    return _clean_env


def _clean_env(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHONPATH"))}
    return {**kept, "HOME": str(home), "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
