# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the connection that Ansible has to a node to an inventory by which another process has the same one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The node's name in the inventory made here: names that people choose may mean something else in a URL or a pattern.
NODE = "node"
# Ansible asks sudo in ways that testinfra doesn't know; these are the defaults, which come to the same.
_PLAIN_SUDO = {"become_exe": (None, "", "sudo"), "become_flags": (None, "", "-H -S -n"), "become_pass": (None, "")}
_PLAIN_SSH = {
    "password": (None, ""),
    "private_key": (None, ""),
    "private_key_passphrase": (None, ""),
    "pkcs11_provider": (None, ""),
    "ssh_executable": (None, "", "ssh"),
}


@dataclass(frozen=True)
class Plugin:
    """A connection or become plugin with its resolved options; `variables` names for each option those that set it."""

    name: str
    options: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, tuple[str, ...]] = field(repr=False)

    def short_name(self) -> str:
        """Return the name without its collection."""
        return self.name.rpartition(".")[2]

    def as_variables(self) -> dict[str, Any]:
        """Return the options as the variables that would give them."""
        found = {}
        for option, value in self.options.items():
            names = [name for name in self.variables.get(option, ()) if name.startswith("ansible_")]
            if names and value is not None:
                found[names[0]] = value
        return found


def is_plain(connection: Plugin, become: Plugin | None) -> bool:
    """Whether testinfra's own ssh can stand for the connection: fast, but it knows neither passwords nor other ways.

    Testinfra would give a password to sshpass in its arguments, where everybody can read it.
    """
    if connection.short_name() != "ssh" or not _among(connection, _PLAIN_SSH):
        return False
    return become is None or (become.short_name() == "sudo" and _among(become, _PLAIN_SUDO))


def inventory(connection: Plugin, become: Plugin | None, control_path: str) -> dict[str, Any]:
    """Return an inventory with the one host NODE; it may hold passwords.

    Args:
        connection: The connection to the node.
        become: How tasks become another user, None if they don't.
        control_path: Where the one connection of a plain inventory is shared between the commands.
    """
    variables = connection.as_variables()
    if become is not None:
        variables.update(become.as_variables(), ansible_become=True, ansible_become_method=become.name)
    if is_plain(connection, become):
        variables["ansible_connection"] = "ssh"
        variables["ansible_ssh_common_args"] = _ssh_arguments(connection.options, control_path)
        variables.pop("ansible_ssh_args", None)
        variables.pop("ansible_ssh_extra_args", None)
        if become is not None and become.options.get("become_user") == connection.options.get("remote_user"):
            # Ansible sees that there is nothing to become, testinfra would call sudo.
            variables.pop("ansible_become")
    else:
        variables["ansible_connection"] = connection.name
    return {"all": {"hosts": {NODE: variables}}}


def _ssh_arguments(options: Mapping[str, Any], control_path: str) -> str:
    """Return the arguments of ssh in one text; the first of two options that contradict each other wins."""
    words = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60s", "-o", f"ControlPath={control_path}"]
    if options.get("host_key_checking") is False:
        words += ["-o", "StrictHostKeyChecking=no"]
    if options.get("timeout"):
        words += ["-o", f"ConnectTimeout={options['timeout']}"]
    # As Ansible does where it has no password: nobody would answer the question for one.
    words += ["-o", "PasswordAuthentication=no", "-o", "KbdInteractiveAuthentication=no"]
    given = [str(options.get(name) or "") for name in ("ssh_args", "ssh_common_args", "ssh_extra_args")]
    return " ".join([shlex.join(words), *(text for text in given if text)])


def _among(plugin: Plugin, plain: Mapping[str, tuple[Any, ...]]) -> bool:
    return all(plugin.options.get(option) in values for option, values in plain.items())
