# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.plugin_utils.verify_connection import Plugin, inventory, is_plain

SSH_VARIABLES = {
    "host": ("inventory_hostname", "ansible_host", "ansible_ssh_host", "delegated_vars['ansible_host']"),
    "host_key_checking": ("ansible_host_key_checking",),
    "password": ("ansible_password", "ansible_ssh_pass"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "private_key_file": ("ansible_private_key_file",),
    "remote_user": ("ansible_user",),
    "ssh_args": ("ansible_ssh_args",),
    "ssh_common_args": ("ansible_ssh_common_args",),
    "ssh_executable": ("ansible_ssh_executable",),
    "ssh_extra_args": ("ansible_ssh_extra_args",),
    "timeout": ("ansible_ssh_timeout",),
}
SUDO_VARIABLES = {
    "become_exe": ("ansible_become_exe",),
    "become_flags": ("ansible_become_flags",),
    "become_pass": ("ansible_become_password", "ansible_become_pass"),
    "become_user": ("ansible_become_user",),
}
SHARED = (
    "-o ControlMaster=auto -o ControlPersist=60s -o ControlPath=/tmp/x/ssh -o ConnectTimeout=10 "
    "-o PasswordAuthentication=no -o KbdInteractiveAuthentication=no"
)


def ssh(**options: Any) -> Plugin:
    given = {
        "host": "192.0.2.7",
        "host_key_checking": True,
        "password": None,
        "port": 2222,
        "private_key_file": "/keys/id",
        "remote_user": "admin",
        "ssh_args": "-o ControlMaster=auto",
        "ssh_common_args": "-o UserKnownHostsFile='/a b/known'",
        "ssh_executable": "ssh",
        "ssh_extra_args": "",
        "timeout": 10,
    }
    return Plugin("ansible.builtin.ssh", {**given, **options}, SSH_VARIABLES)


def sudo(**options: Any) -> Plugin:
    given = {"become_exe": "sudo", "become_flags": "-H -S -n", "become_pass": None, "become_user": "root"}
    return Plugin("ansible.builtin.sudo", {**given, **options}, SUDO_VARIABLES)


def variables(connection: Plugin, become: Plugin | None) -> dict[str, Any]:
    hosts: dict[str, dict[str, Any]] = inventory(connection, become, "/tmp/x/ssh")["all"]["hosts"]
    assert list(hosts) == ["node"]
    return hosts["node"]


def test_a_key_and_sudo_are_testinfras_own_way() -> None:
    found = variables(ssh(), sudo())
    assert found["ansible_connection"] == "ssh"
    assert found["ansible_host"] == "192.0.2.7"
    assert found["ansible_port"] == 2222
    assert found["ansible_user"] == "admin"
    assert found["ansible_private_key_file"] == "/keys/id"
    assert found["ansible_become"] is True
    assert found["ansible_become_user"] == "root"
    # One text, the shared connection first, for ssh takes the first of two options.
    assert found["ansible_ssh_common_args"] == (f"{SHARED} -o ControlMaster=auto -o UserKnownHostsFile='/a b/known'")
    assert "ansible_ssh_args" not in found
    assert "ansible_ssh_extra_args" not in found


def test_no_host_key_checking_is_handed_on() -> None:
    assert " -o StrictHostKeyChecking=no " in variables(ssh(host_key_checking=False), None)["ansible_ssh_common_args"]


def test_nothing_is_become_where_the_user_is_the_wanted_one() -> None:
    assert "ansible_become" not in variables(ssh(remote_user="root"), sudo())
    assert "ansible_become" not in variables(ssh(), None)


@pytest.mark.parametrize(
    ("connection", "become"),
    [
        (ssh(password="p"), sudo()),
        (ssh(ssh_executable="/opt/ssh"), sudo()),
        (ssh(), sudo(become_pass="p")),
        (ssh(), sudo(become_exe="/opt/sudo")),
        (ssh(), sudo(become_flags="-i")),
        (ssh(), Plugin("community.general.doas", {}, {})),
        (Plugin("ansible.builtin.local", {}, {}), None),
        (Plugin("containers.podman.podman", {}, {}), sudo()),
    ],
)
def test_all_else_is_left_to_ansible_unchanged(connection: Plugin, become: Plugin | None) -> None:
    assert not is_plain(connection, become)
    found = variables(connection, become)
    assert found["ansible_connection"] == connection.name
    assert found.get("ansible_become_method") == (become.name if become else None)
    if connection.short_name() == "ssh":
        assert found["ansible_ssh_args"] == "-o ControlMaster=auto"
        assert found["ansible_ssh_common_args"] == "-o UserKnownHostsFile='/a b/known'"
        assert found.get("ansible_password") == connection.options["password"]


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(ssh(password="secret"))
