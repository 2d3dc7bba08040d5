# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and ports derive from the clone's real path, and a taken port is passed over."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from devnode import settings
from devnode.names import Clone, checked_name, choose_port, port_is_free, write_json

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


def test_two_clones_share_no_name(tmp_path: Path) -> None:
    one, two = Clone(tmp_path / "one"), Clone(tmp_path / "two")
    assert one.container("demo") != two.container("demo")
    assert one.image("bare", "1") != two.image("bare", "1")
    assert one.container("demo") == f"headroom-{one.id}-demo"


def test_a_link_to_a_clone_is_the_same_clone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Clone(tmp_path / "real").id == Clone(tmp_path / "link").id


@pytest.mark.parametrize("name", ["", "Demo", "1st", "a/b", "../x", "a b", "x" * 32, "demo\n"])
def test_a_name_that_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters"):
        checked_name(name)


def test_the_port_comes_from_the_id() -> None:
    assert choose_port("00000005", set(), lambda _port: True) == settings.FIRST_PORT + 5


def test_recorded_and_bound_ports_are_passed_over() -> None:
    first = settings.FIRST_PORT + 5
    assert choose_port("00000005", {first}, lambda port: port != first + 1) == first + 2


def test_the_last_port_is_followed_by_the_first() -> None:
    last = settings.FIRST_PORT + settings.PORT_COUNT - 1
    clone_id = f"{settings.PORT_COUNT - 1:08x}"
    assert choose_port(clone_id, set(), lambda _port: True) == last
    assert choose_port(clone_id, {last}, lambda _port: True) == settings.FIRST_PORT


def test_no_port_left_is_one_line() -> None:
    with pytest.raises(OSError, match="no free port for SSH between"):
        choose_port("00000005", set(), lambda _port: False)


def test_a_listening_port_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not port_is_free(server.getsockname()[1])


def test_records_are_read_back(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    assert clone.records() == {}
    write_json(clone.record("demo"), {"port": 20001})
    assert clone.records() == {"demo": {"port": 20001}}


def test_the_package_imports_nothing_that_must_be_installed_first() -> None:
    # -S leaves site-packages out: an import of third-party code would fail.
    modules = ", ".join(f"devnode.{path.stem}" for path in sorted((SCRIPTS / "devnode").glob("[a-z]*.py")))
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import {modules}"],
        env={"PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
