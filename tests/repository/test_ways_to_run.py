"""The same playbooks run from a clone, inside its playbooks folder, from elsewhere, and as an installed collection.

No node is needed: a typo in an instance ends the play on the controller, by the collection's own action and the
role's own argument specs, so each way has found playbook, role, plugins and module_utils.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted(path.name for path in (ROOT / "playbooks").glob("*.yml"))
# What the demo's node tells of itself is given here, with an address that no host has: a play that asked the node
# would end otherwise.
TYPO = json.dumps(
    {
        "ansible_host": "192.0.2.1",
        "headroom_clone": str(ROOT),
        "sglang_server_instances": [{"nam": "tiny", "model_path": "/shared/tiny"}],
    }
)
ANSWER = "sglang_server_instances[0]: key 'nam' is unknown. Did you mean 'name'?"
CleanEnv = Callable[[Path], dict[str, str]]
WAYS = ("clone", "inside-playbooks", "elsewhere", "clone-by-name", "installed")


@dataclass(frozen=True)
class Way:
    """How a user starts a playbook."""

    cwd: Path
    prefix: str
    suffix: str
    inventory: str | None
    env: dict[str, str]

    def run(self, playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        name = self.prefix + (playbook if self.suffix else playbook.removesuffix(".yml"))
        inventory = ["-i", self.inventory] if self.inventory else []
        command = [str(BIN / "ansible-playbook"), *inventory, name, *arguments]
        return subprocess.run(command, cwd=self.cwd, env=self.env, capture_output=True, text=True, check=False)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, clone: Path, installed: Path, tmp_path: Path, clean_env: CleanEnv) -> Way:
    hosts = tmp_path / "hosts.ini"
    hosts.write_text("[sglang]\nnowhere ansible_host=192.0.2.1\n", encoding="utf-8")
    env = clean_env(tmp_path)
    ways = {
        "clone": Way(clone, "playbooks/", ".yml", None, env),
        "inside-playbooks": Way(clone / "playbooks", "", ".yml", "../inventory/demo", env),
        "elsewhere": Way(tmp_path, f"{clone}/playbooks/", ".yml", str(hosts), env),
        "clone-by-name": Way(clone, "headroom.serving.", "", None, env),
        "installed": Way(
            tmp_path, "headroom.serving.", "", str(hosts), {**env, "ANSIBLE_COLLECTIONS_PATH": str(installed)}
        ),
    }
    found: Way = ways[request.param]
    return found


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_is_understood(way: Way, playbook: str) -> None:
    done = way.run(playbook, "--syntax-check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


def test_a_typo_is_told_in_one_line_without_a_node(way: Way) -> None:
    done = way.run("deploy.yml", "--extra-vars", TYPO)
    assert done.returncode == 2, done.stdout + done.stderr
    assert ANSWER in done.stdout + done.stderr
    assert "unreachable=0" in done.stdout
    assert "failed=1" in done.stdout


@pytest.mark.parametrize("way", ["clone", "inside-playbooks"], indirect=True)
def test_a_clone_without_its_demo_node_says_how_to_make_it(way: Way) -> None:
    done = way.run("deploy.yml")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the demo node is not up; make it with scripts/demo" in done.stdout + done.stderr


def test_the_collection_that_runs_is_the_installed_one(installed: Path, tmp_path: Path, clean_env: CleanEnv) -> None:
    command = [str(BIN / "ansible-galaxy"), "collection", "list", "--format", "json", "headroom.serving"]
    env = {**clean_env(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert list(json.loads(done.stdout)) == [str(installed / "ansible_collections")]
