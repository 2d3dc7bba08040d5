# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be true of the systemd unit of each instance, its processes and its release."""

from __future__ import annotations

import json

import pytest
from deployed import UNITS, Instance

# In tenths of systemd's scale, 0.0 (safe) to 10.0: a plain unit stands at 8.5, the collection's at 2.3.
EXPOSURE = 25
# What systemd itself gives to a service: systemd.exec(5), "Environment Variables Set or Propagated".
OF_SYSTEMD = {
    "CREDENTIALS_DIRECTORY",
    "HOME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LANG",
    "LOGNAME",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "NOTIFY_SOCKET",
    "PATH",
    "SHELL",
    "SYSTEMD_EXEC_PID",
    "USER",
}


def test_unit_runs(running: Instance) -> None:
    """The unit is active and starts at boot."""
    state = running.properties("ActiveState", "SubState", "Result")
    assert state["ActiveState"] == "active", (
        f"{running.unit} is {state['ActiveState']} ({state['SubState']}, {state['Result']})"
    )
    assert running.enabled == "enabled", f"{running.unit} is {running.enabled}: it would not start at boot"


def test_unit_is_stopped(stopped: Instance) -> None:
    """The unit is stopped and does not start at boot."""
    state = stopped.properties("ActiveState")["ActiveState"]
    assert state == "inactive", f"{stopped.unit} is {state}, though its state is stopped"
    assert stopped.enabled == "disabled", f"{stopped.unit} is {stopped.enabled}: it would start at boot"


def test_unit_file_is_the_releases(instance: Instance) -> None:
    """The unit file is the release's, byte for byte."""
    installed = instance.host.file(f"{UNITS}/{instance.unit}")
    stored = instance.host.file(f"{instance.directory}/{instance.unit}")
    assert installed.exists, f"{UNITS}/{instance.unit} is missing"
    assert stored.exists, f"{instance.directory} holds no {instance.unit}"
    same = installed.content == stored.content
    assert same, f"{UNITS}/{instance.unit} differs from {instance.directory}/{instance.unit}: changed by hand"


def test_unit_file_is_roots(instance: Instance) -> None:
    """The unit file belongs to root and nobody else may write it."""
    file = instance.host.file(f"{UNITS}/{instance.unit}")
    found = (file.user, file.group, oct(file.mode))
    assert found == ("root", "root", "0o644"), f"{UNITS}/{instance.unit} is {found}"


def test_unit_file_is_the_loaded_one(instance: Instance) -> None:
    """Systemd has loaded the unit file as it is on disk."""
    state = instance.properties("NeedDaemonReload", "FragmentPath")
    assert state["FragmentPath"] == f"{UNITS}/{instance.unit}", f"{instance.unit} comes from {state['FragmentPath']}"
    assert state["NeedDaemonReload"] == "no", f"{instance.unit} changed on disk: run systemctl daemon-reload"


def test_no_trial_is_left(instance: Instance) -> None:
    """No drop-in of a trial is left."""
    paths = instance.properties("DropInPaths")["DropInPaths"].split()
    left = [path for path in paths if path.startswith("/run/systemd/system/")]
    directory = f"/run/systemd/system/{instance.unit}.d"
    if instance.host.file(directory).exists:
        left += instance.host.file(directory).listdir()
    assert not left, f"left over: {', '.join(left)}"


def test_command_is_loaded(instance: Instance) -> None:
    """Systemd would run exactly the release's command."""
    commands = instance.loaded("ExecStart")
    assert len(commands) == 1, f"{instance.unit} has {len(commands)} commands"
    path, argv, ignore_failure = commands[0][:3]
    assert argv == instance.release["argv"]
    assert path == argv[0]
    assert ignore_failure is False, f"{instance.unit} ignores failures of its command"


def test_environment_is_loaded(instance: Instance) -> None:
    """Systemd would give exactly the release's environment."""
    loaded = dict(item.split("=", 1) for item in instance.loaded("Environment"))
    assert loaded == instance.release["environment"]
    assert instance.loaded("EnvironmentFiles") == []


def test_command_runs(running: Instance) -> None:
    """The main process runs the release's command."""
    assert running.processes()[0]["argv"] == running.release["argv"]


def test_environment_runs(running: Instance) -> None:
    """The main process has the release's environment and nothing else."""
    found = dict(item.split("=", 1) for item in running.processes()[0]["environment"])
    wanted = running.release["environment"]
    wrong = sorted(name for name, value in wanted.items() if found.get(name) != value)
    more = sorted(found.keys() - wanted.keys() - OF_SYSTEMD)
    assert not wrong, f"not as recorded: {', '.join(wrong)}"
    assert not more, f"not recorded: {', '.join(more)}"


def test_runs_unprivileged(running: Instance) -> None:
    """Every process of the unit runs as the service account, without privileges and without a way to get any."""
    uid = running.host.user(running.user).uid
    assert uid != 0, f"{running.user} is root"
    for process in running.processes():
        who = f"{process['name']} (PID {process['pid']})"
        assert process["uids"] == [uid], f"{who} runs as {process['uids']}, {running.user} is {uid}"
        assert process["no_new_privs"], f"{who} may gain privileges"
        assert process["capabilities"] == 0, f"{who} has capabilities {process['capabilities']:#x}"


def test_account_has_no_login(instance: Instance) -> None:
    """The service account can't log in."""
    account = instance.host.user(instance.user)
    shell = account.shell
    assert shell.endswith(("/nologin", "/false")), f"{instance.user} has the shell {shell}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Type", "exec"),
        ("Restart", "on-failure"),
        ("KillMode", "mixed"),
        ("LimitMEMLOCK", "infinity"),
        ("LimitNOFILE", "1048576"),
        ("LimitCORE", "0"),
        ("TasksMax", "infinity"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
    ],
)
def test_unit_setting(instance: Instance, name: str, value: str) -> None:
    """The unit's setting is in force."""
    found = instance.properties(name)[name]
    assert found == value, f"{name} of {instance.unit} is {found}, not {value}"


def test_unit_is_sandboxed(instance: Instance) -> None:
    """The unit's exposure, as systemd-analyze rates it, is within its bound."""
    done = instance.host.run(f"systemd-analyze security --no-pager --threshold={EXPOSURE} %s", instance.unit)
    verdict = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    assert done.rc == 0, f"the bound is {EXPOSURE / 10}: {verdict}"


def test_release_is_the_good_one(instance: Instance) -> None:
    """The current release is the last good one and carries its own id."""
    assert instance.current == instance.last_good, f"current is {instance.current}, last_good {instance.last_good}"
    assert instance.release["id"] == instance.current, f"{instance.directory} holds release {instance.release['id']}"
    assert instance.release["name"] == instance.name, f"{instance.directory} holds {instance.release['name']}"


def test_release_is_roots(instance: Instance) -> None:
    """The release belongs to root, and the server can't change it."""
    for path in (instance.directory, f"{instance.directory}/release.json", f"{instance.directory}/{instance.unit}"):
        file = instance.host.file(path)
        assert file.user == "root", f"{path} belongs to {file.user}"
        assert not file.mode & 0o022, f"{path} has mode {file.mode:04o}"


def test_engine_is_whole(instance: Instance) -> None:
    """The release's engine has its completion record."""
    engine = instance.release["engine"]
    path = f"{engine['path']}/engine.json"
    assert instance.host.file(path).exists, f"{path} is missing: the engine is not whole"
    record = _engine(instance)
    assert record["id"] == engine["id"], f"{path} tells of engine {record['id']}, the release uses {engine['id']}"


def test_engine_imports_sglang(instance: Instance) -> None:
    """The service account can import SGLang from the engine, in the recorded version."""
    path = f"{instance.release['engine']['path']}/venv/bin/python"
    done = instance.host.run(
        "cd / && runuser -u %s -- %s -B -c %s", instance.user, path, "import sglang; print(sglang.__version__)"
    )
    assert done.rc == 0, f"{path} can't import sglang: {(done.stderr.strip() or 'no reason').splitlines()[-1]}"
    assert done.stdout.split()[-1] == _engine(instance)["version"]


def test_model_is_readable(instance: Instance) -> None:
    """The service account can read every file of the model."""
    path = instance.release["model"]["path"]
    done = instance.host.run("cd / && runuser -u %s -- find -L %s -maxdepth 1 -type f ! -readable", instance.user, path)
    assert done.rc == 0, f"{instance.user} can't look into {path}: {done.stderr.strip()}"
    assert not done.stdout, f"{instance.user} can't read {', '.join(done.stdout.split())}"
    seen = instance.host.run("cd / && runuser -u %s -- test -r %s", instance.user, f"{path}/config.json")
    assert seen.rc == 0, f"{instance.user} can't read {path}/config.json"


def _engine(instance: Instance) -> dict[str, str]:
    path = f"{instance.release['engine']['path']}/engine.json"
    record: dict[str, str] = json.loads(instance.host.file(path).content_string)
    return record
