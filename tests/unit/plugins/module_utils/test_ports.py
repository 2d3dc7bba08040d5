# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who listens on a port: real sockets of this process and of others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import ports
from ansible_collections.headroom.serving.plugins.module_utils.ports import Listener

HOLD = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.bind((sys.argv[1], 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def bound(address: str, only_v6: bool = False) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    if ":" in address:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_v6))
    listener.bind((address, 0))
    return listener


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"])
def test_finds_a_listener_of_this_process(address: str) -> None:
    with bound(address) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        (found,) = ports.listeners(port)
    assert (found.address, found.port, found.pid) == (address, port, os.getpid())
    assert found.command == Path("/proc/self/comm").read_text().strip()
    assert found.control_group == Path("/proc/self/cgroup").read_text()


def test_an_ipv4_address_in_ipv6_clothes() -> None:
    with bound("::ffff:127.0.0.1") as listener:
        listener.listen()
        (found,) = ports.listeners(listener.getsockname()[1])
    assert found.address == "127.0.0.1"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_names_another_process_by_its_pid(address: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, address, "--token", "s3cr3t"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    port = int(holder.stdout.readline())
    (found,) = ports.listeners(port)
    holder.communicate("")
    assert (found.pid, found.address) == (holder.pid, address)
    assert found.describe() == f"{found.command} (PID {holder.pid})"
    assert found.command.startswith("python") and "s3cr3t" not in found.describe()
    assert ports.listeners(port) == []


def test_a_socket_that_children_inherit_belongs_to_who_opened_it() -> None:
    with bound("127.0.0.1") as listener:
        listener.listen()
        child = subprocess.Popen(["sleep", "60"], pass_fds=[listener.fileno()])
        try:
            (found,) = ports.listeners(listener.getsockname()[1])
        finally:
            child.kill()
            child.wait()
    assert found.pid == min(os.getpid(), child.pid)


def test_two_listeners_on_one_port() -> None:
    with bound("127.0.0.1") as first, socket.socket() as second:
        first.listen()
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        second.listen()
        assert sorted(item.address for item in ports.listeners(port)) == ["127.0.0.1", "127.0.0.2"]


def test_what_only_connects_or_is_bound_does_not_listen() -> None:
    with bound("127.0.0.1") as idle:
        assert ports.listeners(idle.getsockname()[1]) == []
    with bound("127.0.0.1") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            assert ports.listeners(client.getsockname()[1]) == []
            assert len(ports.listeners(listener.getsockname()[1])) == 1


def test_a_process_that_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4242 1 0 100 0 0 10 0"
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address ...\n{line}\n")
    (found,) = ports.listeners(30000, tmp_path)
    assert found == Listener("127.0.0.1", 30000, 0, "", "")
    assert found.describe() == "a process that can't be seen from here"
    assert not found.belongs_to("sglang-a.service")


def test_a_kernel_without_ipv6(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text("  sl  local_address ...\n")
    assert ports.listeners(30000, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("0100A8C0", "192.168.0.1"),
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("B80D0120000000000000000001000000", "2001:db8::1"),
        ("000080FE00000000FF005450B2E3A1FE", "fe80::5054:ff:fea1:e3b2"),
    ],
)
def test_reads_the_kernels_addresses(text: str, address: str) -> None:
    assert ports._address(text) == address


@pytest.mark.parametrize(
    ("wanted", "taken", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "10.0.0.1", False),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "10.0.0.1", True),
        ("0.0.0.0", "0.0.0.0", True),
        ("::1", "::1", True),
        ("::1", "::", True),
        ("::", "::1", True),
        ("::", "::", True),
        ("::1", "fd00::1", False),
        ("::1", "127.0.0.1", False),
        ("127.0.0.1", "::1", False),
        ("0.0.0.0", "::1", False),
        ("::1", "0.0.0.0", False),
        ("::", "127.0.0.1", True),
        ("127.0.0.1", "::", True),
        ("0.0.0.0", "::", True),
        ("::", "0.0.0.0", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.2", False),
        ("::ffff:127.0.0.1", "::1", False),
        ("::ffff:0.0.0.0", "127.0.0.1", True),
        ("node1", "10.0.0.1", True),
        ("localhost", "127.0.0.1", True),
    ],
)
def test_clashes(wanted: str, taken: str, expected: bool) -> None:
    assert ports.clashes(wanted, taken) is expected


@pytest.mark.parametrize("first", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("second", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
def test_clashes_as_the_kernel_says(first: str, second: str) -> None:
    with bound(first) as holder:
        holder.listen()
        port = holder.getsockname()[1]
        (taken,) = ports.listeners(port)
        with socket.socket(socket.AF_INET6 if ":" in second else socket.AF_INET) as other:
            if ":" in second:
                other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                other.bind((second, port))
                refused = False
            except OSError:
                refused = True
    assert ports.clashes(second, taken.address) is refused


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("0::/system.slice/sglang-a.service\n", True),
        ("0::/system.slice/sglang-a.service/rank0\n", True),
        ("12:pids:/system.slice/sglang-a.service\n1:name=systemd:/system.slice/sglang-a.service\n", True),
        ("0::/machine.slice/box.scope/system.slice/sglang-a.service\n", True),
        ("0::/system.slice/sglang-ab.service\n", False),
        ("0::/system.slice/sglang-b.service\n", False),
        ("0::/system.slice/my-sglang-a.service\n", False),
        ("0::/system.slice/sshd.service\n", False),
        ("", False),
    ],
)
def test_belongs_to_a_unit(group: str, expected: bool) -> None:
    assert Listener("127.0.0.1", 1, 5, "x", group).belongs_to("sglang-a.service") is expected
