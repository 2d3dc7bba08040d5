"""What the tests of the repository itself share."""

from __future__ import annotations

import subprocess
import sys
import tarfile
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
