# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node gets a host key of its own and lets the clone's key in; clients accept nothing else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from devnode import keys, settings
from devnode.names import Clone
from devnode.steps import Steps


def test_each_node_has_its_own_host_key_and_one_key_logs_in(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    steps = Steps(tmp_path / "logs", quiet=True)
    one, two = keys.make_host(clone, steps, "one", 20001), keys.make_host(clone, steps, "two", 20002)
    host_key, login = "/etc/ssh/ssh_host_ed25519_key", "/root/.ssh/authorized_keys"
    assert one[host_key] != two[host_key]
    assert one[login] == two[login]
    assert one[login][0] == keys.private_key(clone).with_suffix(".pub").read_bytes()
    assert keys.private_key(clone).stat().st_mode & 0o077 == 0
    known = keys.known_hosts(clone, "one").read_bytes()
    assert known == b"[127.0.0.1]:20001 " + one[host_key + ".pub"][0]
    assert b"PRIVATE" not in b"".join(path.read_bytes() for path in keys.known_hosts(clone, "one").parent.iterdir())
    assert "StrictHostKeyChecking yes" in keys.ssh_config(clone, "one").read_text(encoding="utf-8")


def test_the_archive_keeps_modes_and_owners(tmp_path: Path) -> None:
    files = keys.make_host(Clone(tmp_path), Steps(tmp_path / "logs", quiet=True), "one", 20001)
    with tarfile.open(fileobj=io.BytesIO(keys.as_tar(files))) as archive:
        found = {entry.name: (entry.mode, entry.uid, entry.isdir()) for entry in archive}
    home = f"home/{settings.NODE_USER}/.ssh"
    assert found["etc/ssh/ssh_host_ed25519_key"] == (0o600, 0, False)
    assert found[home] == (0o700, settings.NODE_UID, True)
    assert found[f"{home}/authorized_keys"] == (0o600, settings.NODE_UID, False)


def test_a_path_with_spaces_stays_one_word(tmp_path: Path) -> None:
    options = keys.ssh_options(Clone(tmp_path / "a clone"), "one")
    assert f"""-o 'UserKnownHostsFile="{tmp_path}/a clone/.cache/nodes/one/known_hosts"'""" in options
