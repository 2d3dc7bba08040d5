# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be true of what each running instance serves; asked from the node itself."""

from __future__ import annotations

import re

from deployed import Instance

TOKENS = 8
_SHOWN_AS = {"localhost": {"127.0.0.1", "[::1]"}, "0.0.0.0": {"0.0.0.0"}, "::": {"*", "[::]"}}


def test_port_is_the_units(running: Instance) -> None:
    """The port is listened on by its own unit."""
    own = {process["pid"] for process in running.processes()}
    listeners = _listeners(running)
    assert listeners, f"nobody listens on port {running.release['port']}"
    others = sorted({f"{name} (PID {pid})" for _address, name, pid in listeners if pid not in own})
    assert not others, f"port {running.release['port']} is listened on by {', '.join(others)}"


def test_port_is_on_its_address_only(running: Instance) -> None:
    """The port is open on the recorded address and on no other one."""
    host = running.release["host"]
    wanted = _SHOWN_AS.get(host, {f"[{host}]" if ":" in host else host})
    found = {address for address, _name, _pid in _listeners(running)}
    assert found, f"nobody listens on port {running.release['port']}"
    assert found <= wanted, f"port {running.release['port']} is open on {', '.join(sorted(found))}, not only on {host}"


def test_served_name(running: Instance) -> None:
    """The server offers the served name."""
    answer = running.ask("models")
    assert not answer["error"], answer["error"]
    name = running.release["served_name"]
    assert name in answer["names"], f"it serves {', '.join(answer['names']) or 'nothing'}, not {name}"


def test_generates(running: Instance) -> None:
    """The served name answers a real request."""
    answer = running.ask("generate")
    assert not answer["error"], answer["error"]
    if "dimensions" in answer:
        assert answer["dimensions"] > 0, "the embedding is empty"
        return
    assert answer["tokens"] == TOKENS, f"asked for {TOKENS} tokens, got {answer['tokens']}"
    assert answer["text"], f"{TOKENS} tokens make no text"


def test_kv_tokens_are_the_measured_ones(running: Instance) -> None:
    """The server holds as many KV tokens as a verified start showed, give or take 1 %."""
    answer = running.ask("info")
    assert not answer["error"], answer["error"]
    measured = running.measured.get("kv_tokens")
    assert measured, f"release {running.current} has no measured KV tokens: it was never verified"
    # Where the pool takes what is free, each start finds a little more or less free.
    close = abs(answer["kv_tokens"] - measured) * 100 <= measured
    assert close, f"it holds {answer['kv_tokens']} KV tokens, measured were {measured}"


def test_version_is_the_measured_one(running: Instance) -> None:
    """The server runs the SGLang version that a verified start showed."""
    answer = running.ask("info")
    assert not answer["error"], answer["error"]
    measured = running.measured.get("sglang_version")
    assert answer["version"] == measured, f"SGLang {answer['version']} answers, measured was {measured}"


def _listeners(instance: Instance) -> list[tuple[str, str, int]]:
    """Return address, process name and PID of whoever listens on the instance's port."""
    port = instance.release["port"]
    shown = instance.host.check_output(f"ss --no-header --listening --tcp --numeric --processes 'sport = :{port}'")
    found = []
    for line in shown.splitlines():
        # The state of a listener is a column as well: LISTEN 0 2048 127.0.0.1:30000 0.0.0.0:* users:(("x",pid=1,fd=2))
        address = line.split()[3].rpartition(":")[0]
        owners = re.findall(r'\("([^"]*)",pid=(\d+)', line)
        found += [(address, name, int(pid)) for name, pid in owners] or [(address, "a process out of sight", 0)]
    return found
