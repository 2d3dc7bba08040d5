# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of tests/testinfra pass on a node as it was deployed, and each fails when what it checks is broken."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from node_testing import Node, clean_environment, tiny

from devnode import keys
from devnode import node as devnode

KEY = f"k-{secrets.token_hex(16)}"
UNIT = "sglang-tiny.service"
FILE = f"/etc/systemd/system/{UNIT}"
INSTANCE = "/var/lib/headroom/instances/tiny"
RECORD = f"{INSTANCE}/current/release.json"
CREDENTIALS = f"{INSTANCE}/current/credentials.yaml"
MEASURED = f"{INSTANCE}/measured/$(basename $(readlink {INSTANCE}/current)).json"
LISTED = [{"name": "tiny", "port": 30000}]
# Imports SGLang, which takes longer than all other checks together; one run of all of them has it.
SLOW = "test_engine_imports_sglang"
READ_KEY = f"""$(python3 -c 'import json; print(json.load(open("{CREDENTIALS}"))["api-key"])')"""


@dataclass(frozen=True)
class Break:
    """Something that goes wrong on a node: how, how it is put right again, and the checks that must fail of it."""

    how: str
    back: str
    fails: Sequence[str]
    slow: bool = field(default=True, kw_only=True)


def _edit(path: str, expression: str, reload: str = "true") -> tuple[str, str]:
    """Return the scripts that change a file by sed, which must match, and put it back."""
    change = f"cp -a {path} /root/kept; sed -i '{expression}' {path}; ! cmp -s {path} /root/kept; {reload}"
    return change, f"cp -a /root/kept {path}; {reload}"


def _record(change: str) -> tuple[str, str]:
    """Return the scripts that change the release's record by a Python statement and put it back."""
    script = f"import json; p = {RECORD!r}; r = json.load(open(p)); {change}; json.dump(r, open(p, 'w'))"
    return f'cp -a {RECORD} /root/kept; python3 -c "{script}"', f"cp -a /root/kept {RECORD}"


def _drop_in(directory: str, text: str) -> tuple[str, str]:
    path = f"{directory}/{UNIT}.d"
    write = f"mkdir -p {path}; printf '[Service]\\n{text}\\n' > {path}/50-trial.conf; systemctl daemon-reload"
    return write, f"rm -r {path}; systemctl daemon-reload"


def _service(name: str, command: str) -> tuple[str, str]:
    return f"systemd-run --quiet --unit={name} --service-type=exec {command}; sleep 1", f"systemctl stop {name}"


BREAKS = {
    "unit file edited": Break(
        *_edit(FILE, "s/^KillMode=.*/KillMode=process/", "systemctl daemon-reload"),
        ["test_unit_file_is_the_releases", "test_unit_setting"],
        slow=False,
    ),
    "unit file edited and not loaded": Break(
        *_edit(FILE, "s/^KillMode=.*/KillMode=process/"),
        ["test_unit_file_is_the_loaded_one", "test_unit_file_is_the_releases"],
    ),
    "unit file writable": Break(f"chmod 666 {FILE}", f"chmod 644 {FILE}", ["test_unit_file_is_roots"]),
    "argument added": Break(
        *_edit(FILE, "s/--port 30000/--port 30000 --log-requests/", "systemctl daemon-reload"),
        ["test_command_is_loaded", "test_unit_file_is_the_releases"],
    ),
    "variable added": Break(
        *_edit(FILE, "s/^Type=exec/Type=exec\\nEnvironment=NCCL_DEBUG=INFO/", "systemctl daemon-reload"),
        ["test_environment_is_loaded", "test_unit_file_is_the_releases"],
    ),
    "another command recorded": Break(
        *_record("r['argv'].append('--log-requests')"), ["test_command_is_loaded", "test_command_runs"]
    ),
    "another environment recorded": Break(
        *_record("r['environment']['HF_HUB_OFFLINE'] = '0'"), ["test_environment_is_loaded", "test_environment_runs"]
    ),
    "another release recorded": Break(*_record("r['id'] = '0' * 12"), ["test_release_is_the_good_one"]),
    "another good release": Break(
        f"ln -sfn releases/000000000000 {INSTANCE}/last_good",
        f"ln -sfn $(readlink {INSTANCE}/current) {INSTANCE}/last_good",
        ["test_release_is_the_good_one"],
    ),
    "another name recorded": Break(*_record("r['served_name'] = 'other'"), ["test_served_name"], slow=False),
    "another server on the port's number": Break(
        *_service("squatter", "python3 -m http.server 30000 --bind 127.0.0.2"),
        ["test_port_is_on_its_address_only", "test_port_is_the_units"],
        slow=False,
    ),
    "another server instead": Break(
        f"{_record('r.update(port=30001)')[0]}; "
        f"{_service('squatter', 'python3 -m http.server 30001 --bind 127.0.0.1')[0]}",
        f"{_record('')[1]}; systemctl stop squatter",
        [
            "test_generates",
            "test_instances_are_the_listed_ones",
            "test_kv_tokens_are_the_measured_ones",
            "test_port_is_the_units",
            "test_refuses_without_the_key",
            "test_served_name",
            "test_version_is_the_measured_one",
        ],
    ),
    "other figures measured": Break(
        *_edit(MEASURED, 's/"kv_tokens": [0-9]*/"kv_tokens": 1/; s/"0\\./"9./'),
        ["test_kv_tokens_are_the_measured_ones", "test_version_is_the_measured_one"],
    ),
    "not started at boot": Break(
        f"systemctl disable --quiet {UNIT}", f"systemctl enable --quiet {UNIT}", ["test_unit_runs"]
    ),
    "trial left over": Break(
        *_drop_in("/run/systemd/system", "Restart=no"), ["test_no_trial_is_left", "test_unit_setting"]
    ),
    "sandbox opened": Break(
        *_drop_in("/etc/systemd/system", "ProtectSystem=no\\nCapabilityBoundingSet=~\\nRestrictNamespaces=no"),
        ["test_unit_is_sandboxed", "test_unit_setting"],
    ),
    "a process of root's in the unit": Break(
        "systemd-run --quiet --unit=intruder --service-type=exec sleep 900; "
        "pid=$(systemctl show --property=MainPID --value intruder); echo $pid > /root/pid; "
        f"group=$(systemctl show --property=ControlGroup --value {UNIT}); "
        'for base in /sys/fs/cgroup/systemd /sys/fs/cgroup; do [ ! -e "$base$group/cgroup.procs" ] || '
        'echo "$pid" > "$base$group/cgroup.procs"; done; grep -q sglang-tiny /proc/$pid/cgroup',
        "kill $(cat /root/pid)",
        ["test_runs_unprivileged"],
    ),
    "the account can log in": Break(
        "usermod --shell /bin/bash sglang", "usermod --shell /usr/sbin/nologin sglang", ["test_account_has_no_login"]
    ),
    "release writable": Break(
        f"chmod 777 {INSTANCE}/current/.", f"chmod 755 {INSTANCE}/current/.", ["test_release_is_roots"]
    ),
    "engine not whole": Break(
        "for f in /opt/headroom/engines/*/engine.json; do mv $f $f.away; done",
        "for f in /opt/headroom/engines/*/engine.json.away; do mv $f ${f%.away}; done",
        ["test_engine_is_whole"],
        slow=False,
    ),
    "model unreadable": Break(
        "cp -r /shared/tiny-qwen /root/model; chmod 755 /root/model; chmod 600 /root/model/config.json; "
        "mount --bind /root/model /shared/tiny-qwen",
        "umount /shared/tiny-qwen; rm -r /root/model",
        ["test_model_is_readable"],
    ),
    "credentials readable": Break(
        f"chmod 644 {CREDENTIALS}", f"chmod 400 {CREDENTIALS}", ["test_credentials_are_private"], slow=False
    ),
    "salt readable": Break(
        "chmod 644 /var/lib/headroom/salt", "chmod 600 /var/lib/headroom/salt", ["test_salt_is_private"]
    ),
    "key in the journal": Break(
        f"echo started with {READ_KEY} | systemd-cat -t careless",
        "journalctl --quiet --rotate; journalctl --quiet --vacuum-time=1s",
        ["test_no_key_in_the_journal"],
        slow=False,
    ),
    "key in the unit": Break(
        f"cp -a {FILE} /root/kept; key={READ_KEY}; "
        f'sed -i "s/^Description=.*/Description=opens with $key/" {FILE}; systemctl daemon-reload',
        f"cp -a /root/kept {FILE}; systemctl daemon-reload",
        ["test_no_key_in_the_unit", "test_unit_file_is_the_releases"],
    ),
    "key in the process list": Break(
        f'(exec python3 -c "import time; time.sleep(900)" {READ_KEY} >/dev/null 2>&1 & echo $! > /root/pid)',
        "kill $(cat /root/pid)",
        ["test_no_key_in_the_process_list"],
    ),
    "job failed": Break(
        "systemd-run --quiet --unit=headroom-test false; sleep 1",
        "systemctl reset-failed headroom-test",
        ["test_no_unit_of_a_job_failed"],
    ),
    "job lost": Break(
        "mkdir -p /run/headroom/jobs/headroom-lost.00000000",
        "rmdir /run/headroom/jobs/headroom-lost.00000000",
        ["test_no_job_was_left_half_way"],
    ),
}


@pytest.fixture(scope="module")
def deployed(make_node: Callable[..., Node], engine_image: str) -> Iterator[Node]:
    """A node that runs the demo's instance with a key."""
    node = make_node("t-verify", engine_image)
    done = node.deploy(tiny(api_key=KEY))
    assert done.status == 0, done.output
    yield node
    node.remove_instances()


def _verify(node: Node, instances: Sequence[Mapping[str, Any]], **variables: Any) -> Any:
    return node.play("playbooks/verify.yml", {"sglang_server_instances": list(instances), **variables})


def _suite(
    node: Node, options: Sequence[str], expected: Sequence[Mapping[str, Any]] | None = None, selected: str = ""
) -> tuple[list[dict[str, Any]], str]:
    """Run the suite by plain pytest; return what it tells of each check, and all that it printed."""
    events, settings = node.folder / "events", node.folder / "expected.json"
    events.unlink(missing_ok=True)
    settings.write_text(json.dumps({"nodes": {node.name: expected}} if expected is not None else {}), encoding="utf-8")
    command = [str(node.clone.venv / "bin" / "python"), "-m", "pytest", "-q", "--tb=short"]
    command += [str(node.clone.root / "tests" / "testinfra"), *options, *(["-k", selected] if selected else [])]
    env = clean_environment({"HEADROOM_VERIFY_EVENTS": str(events), "HEADROOM_VERIFY": str(settings)})
    env["COLUMNS"] = "120"
    env["PATH"] = f"{node.clone.venv / 'bin'}:{env['PATH']}"
    done = subprocess.run(command, cwd=node.clone.root, env=env, capture_output=True, text=True, check=False)
    assert events.exists(), done.stdout + done.stderr
    return [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()], done.stdout


def _over_ssh(node: Node, backend: str = "ssh") -> list[str]:
    config = keys.ssh_config(node.clone, node.name)
    return [f"--hosts={backend}://{node.name}", f"--ssh-config={config}", "--sudo"]


def _failed(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({event["test"] for event in events if event["outcome"] != "passed"})


@contextmanager
def _broken(node: Node, broken: Break) -> Iterator[None]:
    try:
        node.sh(f"set -e; {broken.how}")
        yield
    finally:
        node.sh(broken.back)


def test_a_deployed_node_passes_and_is_left_alone(deployed: Node) -> None:
    before = deployed.unit("tiny")
    done = _verify(deployed, [tiny(api_key=KEY)])
    assert done.status == 0, done.output
    assert done.recap(deployed.name) == {"ok": 1, "changed": 0, "unreachable": 0, "failed": 0}
    lines = re.findall(rf"^    \[{deployed.name}\] (.*)$", done.output, re.MULTILINE)
    assert len(lines) > 35
    assert [line for line in lines if not line.startswith("passed: ")] == []
    assert "passed: tiny: the port is listened on by its own unit" in lines
    assert "passed: the instances that run are exactly those that the inventory lists as started" in lines
    assert KEY not in done.output
    assert deployed.unit("tiny") == before


def test_a_dry_run_verifies_too(deployed: Node) -> None:
    variables = {"sglang_server_instances": [tiny(api_key=KEY)], "verify_tests": "generates"}
    done = deployed.play("playbooks/verify.yml", variables, "--check", "--diff")
    assert done.status == 0, done.output
    assert "passed: tiny: the served name answers a real request" in done.output
    assert done.recap(deployed.name)["changed"] == 0


def test_root_without_sudo_verifies_too(deployed: Node) -> None:
    variables = {"sglang_server_instances": [tiny(api_key=KEY)], "verify_tests": "credentials or listed"}
    done = deployed.play("playbooks/verify.yml", variables, user="root")
    assert done.status == 0, done.output
    assert done.output.count("passed: ") == 2


def test_an_expression_that_selects_nothing_is_one_line(deployed: Node) -> None:
    done = _verify(deployed, [tiny(api_key=KEY)], verify_tests="no_such_check")
    assert done.status == 2
    assert "verify_tests 'no_such_check' selects no check" in done.error


@pytest.mark.parametrize("backend", ["ssh", "paramiko"])
def test_plain_pytest_over_ssh(deployed: Node, backend: str) -> None:
    events, output = _suite(deployed, _over_ssh(deployed, backend), selected=f"not {SLOW}")
    assert _failed(events) == [], output
    assert len(events) > 35


def test_plain_pytest_takes_the_inventory(deployed: Node) -> None:
    inventory = deployed.folder / "listed.json"
    hosts = devnode.inventory(deployed.clone, deployed.name)
    variables = hosts["all"]["children"]["sglang"]["hosts"][deployed.name]
    variables.update(ansible_become=True, sglang_server_instances=[tiny("other"), tiny(state="stopped")])
    inventory.write_text(json.dumps(hosts), encoding="utf-8")
    options = ["--hosts=ansible://sglang", f"--ansible-inventory={inventory}"]
    events, output = _suite(deployed, options, selected="listed or unit_runs or is_stopped or served")
    assert _failed(events) == ["test_instances_are_the_listed_ones", "test_unit_is_stopped"], output
    reasons = {event["test"]: event["reason"] for event in events}
    assert "not running: other on port 30000" in reasons["test_instances_are_the_listed_ones"]
    assert reasons["test_unit_is_stopped"] == f"{UNIT} is active, though its state is stopped"


def test_another_way_of_connecting_is_followed(deployed: Node) -> None:
    """A become password, which testinfra knows nothing of, makes each question a run of ansible."""
    variables = {
        "sglang_server_instances": [tiny(api_key=KEY)],
        "verify_tests": "served_name",
        "ansible_become_password": "not asked for",
    }
    done = deployed.play("playbooks/verify.yml", variables)
    assert done.status == 0, done.output
    assert "passed: tiny: the server offers the served name" in done.output


def test_it_needs_root(deployed: Node) -> None:
    config = keys.ssh_config(deployed.clone, deployed.name)
    events, output = _suite(deployed, [f"--hosts=ssh://{deployed.name}", f"--ssh-config={config}"])
    assert [event["reason"] for event in events] == [
        "the checks read what only root may: add --sudo, or set ansible_become for the ansible back end"
    ], output


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if broken.slow else []) for name, broken in BREAKS.items()]
)
def test_what_breaks_is_named(deployed: Node, name: str) -> None:
    with _broken(deployed, BREAKS[name]):
        # Paramiko keeps its connection; the ssh back end opens one for each question.
        events, output = _suite(deployed, _over_ssh(deployed, "paramiko"), LISTED, f"not {SLOW}")
    assert _failed(events) == sorted(BREAKS[name].fails), output
    assert len(events) > 35
    assert KEY not in output


def test_a_node_without_instances_says_so(deployed: Node) -> None:
    with _broken(deployed, Break(f"mv {INSTANCE} /root/away", f"mv /root/away {INSTANCE}", [])):
        done = _verify(deployed, [])
        assert done.status == 2
        assert "1 of 1 checks failed" in done.error
        assert "no instance has been deployed to this node: there is none in /var/lib/headroom/instances" in done.error
        gone = _verify(deployed, [{"name": "tiny", "state": "absent"}])
        assert gone.status == 0, gone.output


def test_a_node_that_does_not_answer_says_so(deployed: Node, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps({"sglang": {"hosts": {"nowhere": {"ansible_host": "127.0.0.1", "ansible_port": 1}}}}))
    command = [str(deployed.clone.venv / "bin" / "ansible-playbook"), "-i", str(hosts), "playbooks/verify.yml"]
    done = subprocess.run(
        command, cwd=deployed.clone.root, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "the node can't be reached: ssh: connect to host 127.0.0.1 port 1: Connection refused" in done.stdout


def test_a_stopped_server_is_told_with_its_last_lines(deployed: Node) -> None:
    # The last test: a start takes longer than everything else here.
    deployed.sh(f"systemctl stop {UNIT}")
    done = _verify(deployed, [tiny(api_key=KEY)], verify_tests="unit_runs or listed or credentials")
    assert done.status == 2
    assert done.error.startswith("Task failed: Action failed: 2 of 3 checks failed: ")
    assert f"tiny: the unit is active and starts at boot ({UNIT} is inactive" in done.error
    assert "listed in sglang_server_instances but not running: tiny on port 30000" in done.error
    assert (
        f"    [{deployed.name}] passed: tiny: the file of keys is readable by the service account only" in done.output
    )
    assert f"    [{deployed.name}] the last lines of {UNIT}:" in done.output
    assert KEY not in done.output
