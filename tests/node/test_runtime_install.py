# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role sglang_runtime on a bare node: installing, failing, being killed, pruning; with small engines."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import MakeNode
from node_testing import Node, Run
from small_engines import HOLD, SmallEngines, serve_index

from devnode import node as devnode
from devnode.names import Clone
from devnode.steps import Steps, as_root

ROOT = "/opt/headroom"
NAMES = f"{ROOT}/engines/names"


class Runtime:
    """The node under test with its engines."""

    def __init__(self, node: Node, engines: SmallEngines) -> None:
        self.node = node
        self.engines = engines
        self.playbook = engines.folder / "play.json"
        tasks: list[dict[str, Any]] = [
            {"ansible.builtin.import_role": {"name": "headroom.serving.sglang_runtime"}},
            {"ansible.builtin.debug": {"msg": "RESOLVED {{ sglang_runtime_resolved | to_json }}"}},
        ]
        play = {"hosts": "all", "gather_facts": False, "become": True, "tasks": tasks}
        self.playbook.write_text(json.dumps([play]), encoding="utf-8")

    def run(self, *engines: dict[str, Any], options: tuple[str, ...] = (), **settings: Any) -> Run:
        """Run the role with these engines."""
        variables = {"sglang_runtime_engines": list(engines), **settings}
        # The default format folds long lines.
        return self.node.play(self.playbook, variables, *options, env={"ANSIBLE_CALLBACK_RESULT_FORMAT": "json"})

    def good(self, *engines: dict[str, Any], options: tuple[str, ...] = (), **settings: Any) -> Run:
        """Run the role and insist on success."""
        run = self.run(*engines, options=options, **settings)
        assert run.status == 0, run.output
        return run

    def installed(self) -> set[str]:
        """Return the ids of whole engines."""
        return set(self.node.sh(f"cd {ROOT}/engines 2>/dev/null && ls */engine.json | cut -d/ -f1 || true").split())

    def target(self, name: str = "default") -> str:
        """Return where a name points."""
        return self.node.sh(f"readlink {NAMES}/{name} || true").rpartition("/")[2]

    def state(self) -> str:
        """Return everything that a refused run must not change."""
        places = f"{ROOT} /var/cache/headroom /var/lib/sglang"
        return self.node.sh(
            f"find {places} -maxdepth 3 -printf '%p %i %l %m %U\\n' 2>/dev/null | sort; "
            "getent passwd sglang; dpkg-query --show --showformat '${Package}\\n' | md5sum"
        )


def resolved(run: Run) -> dict[str, dict[str, str]]:
    """Return the fact that the role leaves."""
    found = re.search(r"RESOLVED (\{.*\})", run.output)
    assert found, run.output
    return dict(json.loads(found[1].replace('\\"', '"')))


@pytest.fixture(scope="module")
def runtime(clone: Clone, supplies: None, make_node: MakeNode, bare_image: str) -> Iterator[Runtime]:  # noqa: ARG001
    """A bare node and a folder of small engines."""
    node = make_node("t-runtime", bare_image)
    yield Runtime(node, SmallEngines(clone.cache / "test" / "small-engines"))
    node.down()


# The tests below tell one story on one node, in this order: bare, refused, installed, changed, killed, pruned.


def test_check_mode_on_a_bare_node_tells_the_truth_and_changes_nothing(runtime: Runtime) -> None:
    before = runtime.state()
    run = runtime.good(runtime.engines.engine("0.1"), options=("--check", "--diff"))
    assert run.recap(runtime.node.name)["changed"] >= 5
    assert re.search(r"would install .*\bgcc\b", run.output)
    told = resolved(run)["default"]
    assert told["version"] is None and told["path"] == f"{ROOT}/engines/{told['id']}"
    assert f"+{NAMES}/default -> {told['id']}" in run.output
    assert runtime.state() == before and ROOT not in before


BAD_SETTINGS = {
    "two engines with one name": (
        lambda e: [e.engine("0.1"), e.engine("0.1")],
        r"sglang_runtime_engines\[0\] and sglang_runtime_engines\[1\] are both named 'default'",
    ),
    "lock not found": (
        lambda e: [{**e.engine("0.1"), "lock": "/nonexistent/x.lock"}],
        r"engines\[default\]\.lock is '/nonexistent/x\.lock', which can't be read on the controller: no such file",
    ),
    "lock with a URL": (
        lambda e: [{**e.engine("0.1"), "lock": str(e.lock("0.1", {"sglang==0.1": "sglang @ https://x.org/s.whl"}))}],
        r"line 1, 'sglang @ https://x\.org/s\.whl': a requirement by URL",
    ),
    "lock without hashes": (
        lambda e: [{**e.engine("0.1"), "lock": str(e.lock("0.1", {"helper==1.0 --hash=": "helper==1.0 # "}))}],
        r"line 2, 'helper==1\.0': no --hash=sha256",
    ),
    "wheelhouse not found": (
        lambda e: [e.engine("0.1", wheelhouse="/nonexistent")],
        r"sglang_runtime_engines\[default\]\.wheelhouse is '/nonexistent', which is no directory on the controller",
    ),
    "wheelhouse lacks a wheel": (
        lambda e: [{**e.engine("0.1"), "lock": str(e.lock("0.1", {"helper==1.0": "helpers==1.0"}))}],
        r"wheelhouse '.*/wheels' lacks a wheel of the lock for the node's Python: helpers==1\.0\.",
    ),
    "wheel with another hash": (
        lambda e: [{**e.engine("0.1"), "lock": str(e.lock("0.1", {"helper==1.0 --hash=sha256:": "helper==1.0 "
                    "--hash=sha256:" + "0" * 64 + " # "}))}],
        r"helper==1\.0 \(helper-1\.0-py3-none-any\.whl has another SHA-256 than the lock names\)",
    ),
    "two places for wheels": (
        lambda e: [e.engine("0.1", wheelhouse=str(e.wheelhouse), wheelhouse_on_node="/srv/wheels")],
        r"sglang_runtime_engines\[0\] has wheelhouse and wheelhouse_on_node, which exclude each other",
    ),
    "interpreter missing": (
        lambda e: [e.engine("0.1", python="/usr/bin/python3.12")],
        r"sglang_runtime_engines\[default\]\.python is '/usr/bin/python3\.12', which is not on the node",
    ),
    "credentials in the address": (
        lambda e: [e.engine("0.1", index_url="https://me:secret@example.org/simple")],
        r"index_url carries credentials for example\.org",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_end_in_one_line_and_nothing_is_changed(runtime: Runtime, case: str) -> None:
    engines, expected = BAD_SETTINGS[case]
    before = runtime.state()
    run = runtime.run(*engines(runtime.engines))
    assert run.status == 2 and run.recap(runtime.node.name)["changed"] == 0
    assert re.search(expected, run.error), run.output
    assert runtime.state() == before


def test_an_unsupported_distribution_is_named_with_the_supported_ones(runtime: Runtime) -> None:
    before = runtime.state()
    runtime.node.sh(
        "printf 'ID=arch\\nPRETTY_NAME=\"Arch Linux\"\\n' > /tmp/os-release; "
        "mount --bind /tmp/os-release /usr/lib/os-release"
    )
    try:
        run = runtime.run(runtime.engines.engine("0.1"))
    finally:
        runtime.node.sh("umount /usr/lib/os-release")
    assert run.status == 2
    expected = r"The node runs Arch Linux, for which there is no package table\. Supported are Debian 12, "
    assert re.search(expected, run.error), run.output
    assert runtime.state() == before


def test_an_account_that_is_root_is_refused(runtime: Runtime) -> None:
    run = runtime.run(runtime.engines.engine("0.1"), sglang_runtime_user="root")
    assert run.status == 2 and "sglang_runtime_user is 'root'" in run.error


def test_a_bare_node_gets_all_of_it(runtime: Runtime) -> None:
    told = resolved(runtime.good(runtime.engines.engine("0.1"), options=("--check",)))["default"]
    run = runtime.good(runtime.engines.engine("0.1"))
    found = resolved(run)["default"]
    assert found == {**told, "version": "0.1"}
    assert runtime.installed() == {found["id"]} and runtime.target() == found["id"]
    node = runtime.node
    record = json.loads(node.sh(f"cat {found['path']}/engine.json"))
    assert (record["version"], record["packages"], record["interpreter"]) == ("0.1", 2, "cpython-3.11.2")
    account = node.sh("getent passwd sglang").split(":")
    assert account[5:] == ["/var/lib/sglang", "/usr/sbin/nologin"] and int(account[2]) < 1000
    assert node.sh(f"stat -c '%U %a' /var/lib/sglang {ROOT}/engines").split() == ["sglang", "750", "root", "755"]
    # The account can use the engine and change nothing of it.
    check = "import sglang, helper; print(sglang.__version__, helper.answer)"
    assert node.sh(f"runuser -u sglang -- {found['python']} -c '{check}'") == "0.1 42"
    assert node.sh(f"runuser -u sglang -- find {ROOT} -writable -not -type l 2>/dev/null || true") == ""
    assert node.sh(f"find {found['path']} -name 'helper.*.pyc' | wc -l") == "1"
    tools = f"{ROOT}/tools/current/bin"
    assert node.sh(f"{tools}/python -c 'import psutil, pynvml, huggingface_hub; print(1)'; {tools}/uv --version")
    assert node.sh("gcc --version && test -e /usr/include/python3.11/Python.h && ldconfig -p | grep libnuma.so.1")
    # Neither copies nor half wheels stay behind where they don't belong.
    assert node.sh("ls -A /var/cache/headroom/wheels | grep -v -E '^[0-9a-f]{64}$' || true") == ""


def test_a_second_run_changes_nothing_in_one_remote_call(runtime: Runtime) -> None:
    before = runtime.state()
    run = runtime.good(runtime.engines.engine("0.1"), options=("-vvv",))
    assert run.recap(runtime.node.name)["changed"] == 0
    calls = re.findall(r"SSH: EXEC", run.output)
    assert len(calls) == 1, run.output
    assert runtime.state() == before


def test_the_tools_alone_are_a_subset(runtime: Runtime) -> None:
    playbook = runtime.engines.folder / "tools.json"
    role = {"name": "headroom.serving.sglang_runtime", "tasks_from": "tools"}
    play = {"hosts": "all", "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.import_role": role}]}
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    run = runtime.node.play(playbook)
    assert run.status == 0 and run.recap(runtime.node.name)["changed"] == 0


def test_two_engines_side_by_side(runtime: Runtime) -> None:
    first = runtime.target()
    run = runtime.good(runtime.engines.engine("0.1"), runtime.engines.engine("0.2", "other"))
    found = resolved(run)
    assert found["default"]["id"] == first and found["other"]["id"] != first
    assert [found[name]["version"] for name in ("default", "other")] == ["0.1", "0.2"]
    # Only the wheel that the node did not have was sent.
    assert "sending 1 of 2 wheels" in run.output
    assert (
        runtime.good(runtime.engines.engine("0.1"), runtime.engines.engine("0.2", "other")).recap(runtime.node.name)[
            "changed"
        ]
        == 0
    )


def test_a_shim_makes_another_engine(runtime: Runtime) -> None:
    shim = runtime.engines.folder / "shim"
    shim.mkdir(exist_ok=True)
    (shim / "shimmed.py").write_text("text = 'of the shim'\n")
    (shim / "helper.py").write_text("answer = 43\n")
    before = runtime.target("other")
    run = runtime.good(runtime.engines.engine("0.1"), runtime.engines.engine("0.2", "other", shim=str(shim)))
    found = resolved(run)["other"]
    assert found["id"] != before and "sending" not in run.output
    check = "import shimmed, helper; print(helper.answer, shimmed.text)"
    assert runtime.node.sh(f"{found['python']} -c '{check}'") == "43 of the shim"
    # A file of the shim that replaces one of a wheel must not reach the other engines through the shared cache.
    plain = resolved(runtime.good(runtime.engines.engine("0.1")))["default"]["python"]
    # This run did not list `other` any more.
    assert runtime.node.sh(f"ls {NAMES}") == "default"
    assert runtime.node.sh(f"{plain} -c 'import helper; print(helper.answer)'") == "42"


def test_a_lock_that_does_not_install_leaves_the_engine_in_use_alone(runtime: Runtime) -> None:
    node = runtime.node
    lock = runtime.engines.lock("0.3", {"helper==1.0 --hash=sha256:": f"helper==1.0 --hash=sha256:{'0' * 64} # "})
    node.sh("mkdir -p /srv/wheels")
    for wheel in runtime.engines.wheelhouse.glob("*.whl"):
        subprocess.run(["podman", "cp", str(wheel), f"{node.container}:/srv/wheels/"], check=True)
    before = runtime.target(), runtime.installed()
    run = runtime.run({"name": "default", "lock": str(lock), "wheelhouse_on_node": "/srv/wheels"})
    assert run.status == 2
    assert re.search(
        r"lock '.*' does not install: .*[Hh]ash mismatch.*helper.* What was installed before stays", run.error
    )
    assert (runtime.target(), runtime.installed()) == before
    assert node.sh(f"ls {ROOT}/engines").split() == sorted([*before[1], "names"])
    assert node.sh("systemctl is-system-running") == "running"


def test_an_engine_that_cannot_be_imported_is_not_installed(runtime: Runtime) -> None:
    shim = runtime.engines.folder / "broken"
    shim.mkdir(exist_ok=True)
    (shim / "sglang.pth").write_text("import nothing_of_this_name\n")
    (shim / "sglang").mkdir(exist_ok=True)
    (shim / "sglang" / "__init__.py").write_text("import nothing_of_this_name\n")
    before = runtime.target(), runtime.installed()
    run = runtime.run(runtime.engines.engine("0.3", shim=str(shim)))
    assert run.status == 2
    assert "can't be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'" in run.error
    assert (runtime.target(), runtime.installed()) == before


def wait_for(output: Any, text: str) -> str:
    """Read a running play's output up to a line with `text`; return what was read."""
    read = ""
    for line in output:
        read += line
        if text in line:
            return read
    raise AssertionError(f"no {text!r} in:\n{read}")


class Background:
    """A play that runs while the test goes on."""

    def __init__(self, runtime: Runtime, *engines: dict[str, Any]) -> None:
        self._run: list[Run] = []
        self._thread = threading.Thread(target=lambda: self._run.append(runtime.run(*engines)))
        self._thread.start()

    def end(self) -> Run:
        """Wait for its end."""
        self._thread.join(120)
        assert self._run, "the play did not end"
        return self._run[0]


def importing(runtime: Runtime, units: int = 1) -> list[str]:
    """Wait until so many installations are at work on the node, one of them importing; return their units."""
    listing = "systemctl list-units --plain --no-legend 'headroom-engine-*.service' | cut -d' ' -f1"
    for _attempt in range(300):
        found = runtime.node.sh(f"{listing}; pgrep -fc '[i]mport json, sglang' || true").split()
        if len(found) == units + 1 and found[-1] != "0":
            return found[:-1]
        time.sleep(0.1)
    raise AssertionError(f"not at work: {found}")


def test_a_killed_installation_is_repeated_by_the_next_run(runtime: Runtime) -> None:
    node = runtime.node
    before = runtime.target(), runtime.installed()
    node.sh(f"touch {HOLD}")
    play = Background(runtime, runtime.engines.engine("0.4"))
    (unit,) = importing(runtime)
    node.sh(f"systemctl kill --signal=SIGKILL --kill-whom=all {unit}")
    run = play.end()
    node.sh(f"rm {HOLD}")
    assert run.status == 2
    assert re.search(rf"{unit} ended without a result: see 'journalctl -u {unit.removesuffix('.service')}'", run.error)
    assert (runtime.target(), runtime.installed()) == before
    half = set(node.sh(f"ls {ROOT}/engines").split()) - before[1] - {"names"}
    assert len(half) == 1
    run = runtime.good(runtime.engines.engine("0.4"))
    assert "removing what an interrupted installation left" in run.output
    assert {runtime.target()} == half and resolved(run)["default"]["version"] == "0.4"


def test_a_second_installer_waits_for_the_first(runtime: Runtime) -> None:
    runtime.node.sh(f"touch {HOLD}")
    first = Background(runtime, runtime.engines.engine("0.5"))
    importing(runtime)
    second = Background(runtime, runtime.engines.engine("0.5"))
    importing(runtime, units=2)
    time.sleep(1)
    runtime.node.sh(f"rm {HOLD}")
    ended = first.end(), second.end()
    assert [run.status for run in ended] == [0, 0], ended[0].output + ended[1].output
    assert re.search(r"waiting for another installation on this node \(process \d+\)", ended[1].output)
    assert "was installed meanwhile" in ended[1].output


def test_a_connection_that_breaks_does_not_stop_the_installation(runtime: Runtime) -> None:
    node = runtime.node
    node.sh(f"touch {HOLD}")
    play = Background(runtime, runtime.engines.engine("0.6"))
    importing(runtime)
    node.sh("pkill -f '[s]shd: admin'; true")
    time.sleep(2)
    node.sh(f"rm {HOLD}")
    run = play.end()
    assert run.status == 0, run.output
    assert resolved(run)["default"] == {
        **resolved(runtime.good(runtime.engines.engine("0.6")))["default"],
    }


def test_an_index_is_asked_and_progress_shown(runtime: Runtime) -> None:
    gateway = runtime.node.sh("ip -4 route show default").split()[2]
    with serve_index(gateway, runtime.engines.wheelhouse, slow="sglang-0.7") as (url, asked):
        run = runtime.good(runtime.engines.engine("0.7", index_url=url))
    assert "/simple/sglang/" in asked and "/sglang-0.7-py3-none-any.whl" in asked
    assert resolved(run)["default"]["version"] == "0.7"
    moving = re.findall(r"installing: \d of 2 packages in place, \d+ MB unpacked", run.output)
    assert len(moving) >= 2, run.output


def test_the_tools_come_from_an_index_too(runtime: Runtime, clone: Clone) -> None:
    gateway = runtime.node.sh("ip -4 route show default").split()[2]
    runtime.node.sh(f"rm -rf {ROOT}/tools")
    with serve_index(gateway, clone.tools_wheelhouse) as (url, asked):
        run = runtime.good(
            runtime.engines.engine("0.7"), sglang_runtime_tools_wheelhouse="", sglang_runtime_tools_index_url=url
        )
    assert run.recap(runtime.node.name)["changed"] >= 1 and "/simple/uv/" in asked
    assert runtime.node.sh(f"{ROOT}/tools/current/bin/uv --version").startswith("uv ")


def test_unused_engines_are_pruned_to_a_number(runtime: Runtime) -> None:
    node, engines = runtime.node, runtime.engines
    versions = {}
    for version in ("1.1", "1.2", "1.3", "1.4"):
        found = resolved(runtime.good(engines.engine(version), sglang_runtime_keep_unused_engines=9))["default"]
        versions[version] = found["id"]
    release = "/var/lib/headroom/instances/demo/releases/r1"
    node.sh(f'mkdir -p {release}; echo \'{{"engine": {{"id": "{versions["1.1"]}"}}}}\' > {release}/release.json')
    before = runtime.installed()
    told = runtime.good(engines.engine("1.4"), options=("--check", "--diff"))
    assert told.recap(node.name)["changed"] == 1 and runtime.installed() == before
    # 1.4 is named, 1.1 has a release, one unused one is kept: the newest, 1.3.
    run = runtime.good(engines.engine("1.4"))
    assert run.recap(node.name)["changed"] == 1
    assert runtime.installed() == {versions[version] for version in ("1.1", "1.3", "1.4")}
    assert runtime.good(engines.engine("1.4")).recap(node.name)["changed"] == 0

    python = f"{ROOT}/engines/{versions['1.3']}/venv/bin/python"
    node.sh(f"systemd-run --quiet --unit=t-holder {python} -c 'import time, helper; time.sleep(300)'")
    runtime.good(engines.engine("1.4"), sglang_runtime_keep_unused_engines=0)
    assert versions["1.3"] in runtime.installed(), "a running process keeps its engine"
    node.sh("systemctl stop t-holder")
    runtime.good(engines.engine("1.4"), sglang_runtime_keep_unused_engines=0)
    assert runtime.installed() == {versions["1.1"], versions["1.4"]}
    assert node.sh(f"{ROOT}/engines/{versions['1.4']}/venv/bin/python -c 'import helper; print(helper.answer)'") == "42"


def test_a_node_without_systemd_is_refused(clone: Clone, steps: Steps, bare_image: str, runtime: Runtime) -> None:
    name = "t-plain"
    devnode.down(clone, name)
    start = ["/bin/sh", "-c", "mkdir -p /run/sshd && exec /usr/sbin/sshd -D"]
    options = ("--systemd=false", f"--entrypoint={json.dumps(start)}")
    devnode._create(clone, steps, name, bare_image, options, "plain")
    try:
        subprocess.run(as_root("podman", "start", clone.container(name)), check=True, capture_output=True)
        devnode._wait_for_ssh(clone, name)
        node = Node(clone, name)
        node.folder.mkdir(parents=True, exist_ok=True)
        plain = Runtime(node, runtime.engines)
        before = plain.state()
        run = plain.run(runtime.engines.engine("2.0"))
        assert run.status == 2
        assert "The node was not booted with systemd" in run.error and "[host.no_systemd]" in run.error
        assert plain.state() == before
    finally:
        devnode.down(clone, name)
