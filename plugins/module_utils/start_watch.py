# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch a starting server: phases from its journal, readiness from its own mouth, death from systemd."""

from __future__ import annotations

import time
from collections.abc import Callable

from ansible_collections.headroom.serving.plugins.module_utils import sglang_api, systemd
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.startup_log import StartupLog
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState

_POLL_S = 0.25
_HEALTH_EVERY_S = 2.0
# Signs of life between phases, so that a long load does not look like a hang.
_REMIND_EVERY_S = 30.0
# journald hands over the last lines of a dead process a moment after systemd knows of its death.
_LAST_LINES_S = 0.6
# <signal.h>: CLD_EXITED, the only code of an ended process that comes with an exit status.
_CLD_EXITED = 1


def watch(
    name: str,
    unit_name: str,
    unit: UnitState,
    api: sglang_api.SglangApi,
    limit_s: int,
    say: Callable[[str], None],
) -> StartupLog:
    """Follow a start until the server is ready.

    Args:
        name: Name of the instance, for messages.
        unit_name: Its unit.
        unit: State of the unit right after it was started; its invocation tells this run's lines from older ones.
        api: The server, asked for its health in case its log level hides the messages.
        limit_s: Seconds after which a server that is alive but not ready counts as failed.
        say: Takes the progress lines.

    Raises:
        HeadroomError: With `start.died` as soon as the process is gone, or `start.timeout`.
    """
    log = StartupLog()
    began = said = asked = time.monotonic()
    with systemd.Journal(unit.invocation) as journal:
        while True:
            moved = False
            for line in journal.lines():
                phase = log.phase
                moved = log.feed(line) or moved
                if log.phase is not phase:
                    # Short phases come in one batch of lines; each is told, but of its progress only the last state.
                    said, moved = time.monotonic(), False
                    say(f"{log.describe()} ({said - began:.0f} s)")
            now = time.monotonic()
            if moved or now - said > _REMIND_EVERY_S:
                said = now
                say(f"{log.describe()} ({now - began:.0f} s)")
            state = systemd.state(unit_name)
            if state.is_dead or state.invocation != unit.invocation:
                raise _died(name, unit_name, state, unit.invocation, log, journal)
            # A run that is about to end has said that it is ready, too.
            if log.is_ready and state.is_active:
                return log
            if now - asked > _HEALTH_EVERY_S:
                asked = now
                if _healthy(api):
                    # It may be ready before its lines were read, and they hold what is to be learnt of the start.
                    for line in journal.lines():
                        log.feed(line)
                    return log
            if now - began > limit_s:
                raise _late(name, log, limit_s)
            time.sleep(_POLL_S)


def settled(unit_name: str, limit_s: int) -> UnitState:
    """Return the state of a unit once systemd neither stops nor restarts it, or as it is after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    state = systemd.state(unit_name)
    while not (state.is_active or state.is_dead) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        state = systemd.state(unit_name)
    return state


def _healthy(api: sglang_api.SglangApi) -> bool:
    try:
        return api.health(_HEALTH_EVERY_S) == 200
    except sglang_api.ApiError:
        return False


def _died(
    name: str, unit_name: str, state: UnitState, invocation: str, log: StartupLog, journal: systemd.Journal
) -> HeadroomError:
    time.sleep(_LAST_LINES_S)
    for line in journal.lines():
        log.feed(line)
    how = f"exit status {state.exit_status}" if state.exit_code == _CLD_EXITED else f"signal {state.exit_status}"
    if not state.exit_code:
        how = "its check of the memory ended it"
    text = f"Instance {name!r} died while {log.describe()} ({how}): {' | '.join(log.relevant())}"
    return refusal("start.died", text, f"Its whole log: journalctl -u {unit_name} _SYSTEMD_INVOCATION_ID={invocation}")


def _late(name: str, log: StartupLog, limit_s: int) -> HeadroomError:
    text = (
        f"Instance {name!r} was not ready after {limit_s} s, while {log.describe()}; its last lines: "
        f"{' | '.join(log.relevant())}"
    )
    return refusal("start.timeout", text, "If it only needs longer, set the instance's start_timeout_s.")
