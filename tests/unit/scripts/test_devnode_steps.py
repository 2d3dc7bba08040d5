# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands keep their output in a log, failures show its end, and an interrupt ends what runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from devnode.steps import StepError, Steps, output_of


def test_a_failure_shows_the_last_lines(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"(?s)bash ended with 3; last lines of .*talk.log:.*line 20") as caught:
        Steps(tmp_path).run(["bash", "-c", "for i in {1..20}; do echo line $i; done; exit 3"], "talk")
    assert "line 5\n" not in str(caught.value)
    assert "line 1\n" in (tmp_path / "talk.log").read_text(encoding="utf-8")


def test_a_failure_of_a_shielded_command_shows_them_too(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="the reason"):
        Steps(tmp_path).run(["bash", "-c", "echo the reason; exit 1"], "talk", shielded=True)


def test_standard_output_can_be_kept_apart(tmp_path: Path) -> None:
    result = tmp_path / "result"
    Steps(tmp_path).run(["bash", "-c", "cat; echo aside >&2"], "talk", stdin="given", output=result)
    assert result.read_text(encoding="utf-8") == "given"
    assert "aside" in (tmp_path / "talk.log").read_text(encoding="utf-8")


def test_stop_ends_a_command_and_its_children_and_starts_no_other(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            # Like mmdebstrap: the parent ignores the signal and waits for its child.
            steps.run(["bash", "-c", "trap : INT; (trap - INT; exec sleep 60); exit 1"], "talk")
        except BaseException as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=work)
    begun = time.monotonic()
    thread.start()
    time.sleep(0.5)
    steps.stop()
    thread.join(10)
    assert time.monotonic() - begun < 10
    assert [type(error) for error in ended] == [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        steps.run(["true"], "talk")


def test_a_short_command_fails_with_its_own_words() -> None:
    with pytest.raises(StepError, match="false: no output"):
        output_of("false")
    assert output_of("echo", "said") == "said"


def test_steps_say_how_long_they_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(tmp_path).step("waiting"):
        pass
    shown = capsys.readouterr()
    assert "] waiting ...\n" in shown.err
    assert "] waiting: done in 0.0 s\n" in shown.err
    assert shown.out == ""
