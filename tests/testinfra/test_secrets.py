# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be true of the keys of each instance that has any; the keys themselves never leave the node."""

from __future__ import annotations

from deployed import Instance


def test_refuses_without_the_key(locked: Instance) -> None:
    """The server answers 401 without its key and with a wrong one."""
    answers = {question: status for question, status in locked.ask("anonymous").items() if status != 401}
    assert not answers, "; ".join(f"{question}: {status}, not 401" for question, status in answers.items())


def test_credentials_are_private(keyed: Instance) -> None:
    """The file of keys is readable by the service account only."""
    file = keyed.host.file(keyed.credentials)
    assert file.exists, f"{keyed.credentials} is missing"
    found = f"{file.mode:04o} {file.user}"
    assert found == f"0400 {keyed.user}", f"{keyed.credentials} is {found}, not 0400 {keyed.user}"


def test_salt_is_private(keyed: Instance) -> None:
    """The salt that keeps digests of keys from being guessed is readable by root only."""
    file = keyed.host.file(f"{keyed.root}/salt")
    assert file.exists, f"{keyed.root}/salt is missing"
    found = f"{file.mode:04o} {file.user}"
    assert found == "0600 root", f"{keyed.root}/salt is {found}, not 0600 root"


def test_no_key_in_the_journal(keyed: Instance) -> None:
    """No key is in the journal."""
    places = keyed.leaks("journal")
    assert not places, f"a key can be read in {'; '.join(places)}: change it"


def test_no_key_in_the_unit(keyed: Instance) -> None:
    """No key shows in what systemctl tells of the unit."""
    places = keyed.leaks("unit")
    assert not places, f"a key can be read in {'; '.join(places)}: change it"


def test_no_key_in_the_process_list(keyed: Instance) -> None:
    """No key is in the arguments of a process."""
    places = keyed.leaks("processes")
    assert not places, f"a key can be read in {'; '.join(places)}: change it"
