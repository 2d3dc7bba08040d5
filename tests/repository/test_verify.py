"""verify.yml without a node: what it says where pytest-testinfra is missing, and where the node does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from ansible_collections.headroom.serving.plugins.plugin_utils import verify_suite
from ansible_collections.headroom.serving.plugins.plugin_utils.verify_connection import Plugin
from ansible_collections.headroom.serving.plugins.plugin_utils.verify_suite import REQUIREMENTS, Wanted


def test_what_it_tells_to_install_is_what_is_pinned(root: Path) -> None:
    with (root / "pyproject.toml").open("rb") as stream:
        pins = tomllib.load(stream)["dependency-groups"]["controller"]
    assert [pin for pin in REQUIREMENTS.values() if pin not in pins] == []


def test_without_testinfra_it_is_one_line(root: Path, tmp_path: Path) -> None:
    python = _venv_without_testinfra(tmp_path / "venv")
    variables = {"ansible_host": "192.0.2.1", "headroom_clone": str(root), "sglang_server_instances": []}
    command = [str(python), "-m", "ansible", "playbook", "playbooks/verify.yml", "-e", json.dumps(variables)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHONPATH"))}
    hosts = tmp_path / "hosts.ini"
    hosts.write_text("[sglang]\nnowhere\n", encoding="utf-8")
    done = subprocess.run(
        [*command, "-i", str(hosts)],
        cwd=root,
        env={**env, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 2, output
    wanted = f"install with: {python} -m pip install {' '.join(REQUIREMENTS.values())}"
    assert f"verify.yml needs pytest-testinfra on the controller, beside ansible-core; {wanted}" in output
    assert "Traceback" not in output
    assert "unreachable=0" in output


def test_the_suite_runs_against_what_is_not_there() -> None:
    """The whole way, with the one node that needs nothing: a port on which nobody listens."""
    options = {"host": "127.0.0.1", "port": 1, "ssh_args": "-F /dev/null", "timeout": 5, "ssh_executable": "ssh"}
    names = {"host": ("ansible_host",), "port": ("ansible_port",)}
    shown: list[str] = []
    report = verify_suite.run(
        Wanted.of("/var/lib/headroom", [], ""),
        Plugin("ansible.builtin.ssh", options, names),
        None,
        lambda check: shown.append(check.line()),
    )
    reason = "the node can't be reached: ssh: connect to host 127.0.0.1 port 1: Connection refused"
    assert shown == [f"FAILED: the node can be asked and has an instance: {reason}"]
    assert report.verdict() == f"1 of 1 checks failed: the node can be asked and has an instance ({reason})"


def _venv_without_testinfra(folder: Path) -> Path:
    """Return the Python of a venv that has everything of this one but testinfra."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "testinfra" not in entry.name and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
