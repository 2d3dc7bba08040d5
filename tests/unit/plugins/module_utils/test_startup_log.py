# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of real starts, good and failed: phases in their order, progress, and the one line that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.startup_log import PHASES, StartupLog

# Lines of recorded starts on an H200, SGLang 0.5.14; long ones are cut.
GOOD_0514 = """\
/tmp/site/sglang/launch_server.py:55: UserWarning: 'python -m sglang.launch_server' is still
  Example: sglang serve --model-path <model> [options]
  warnings.warn(
[2026-11-30 04:22:08] Init torch distributed begin.
[2026-11-30 04:22:09] Init torch distributed ends. elapsed=0.23 s, mem usage=0.09 GB
[2026-11-30 04:22:10] Ignore import error when loading sglang.srt.models.mimo_v2: Can not import FA3 in sgl_kernel.
[2026-11-30 04:22:10] Load weight begin. avail mem=139.13 GB
[2026-11-30 04:22:10] Load weight end. elapsed=0.15 s, type=Qwen3ForCausalLM, avail mem=139.13 GB, mem usage=0.00 GB.
[2026-11-30 04:22:10] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 65536, K size: 0.12 GB, V size: 0.12 GB
[2026-11-30 04:22:10] Memory pool end. avail mem=138.50 GB
[2026-11-30 04:22:10] Capture target prefill CUDA graph begin. backend=tc_piecewise, num_tokens=[4, 8, 12, 16]
Capturing batches (bs=8 avail_mem=81.54 GB):  25%|██▌       | 1/4 [00:03<00:10,  3.52s/it]
[2026-11-30 04:22:58] Capture target prefill CUDA graph end. elapsed=48.01 s, mem usage=0.10 GB, avail mem=138.40 GB.
[2026-11-30 04:22:58] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4, 8]
[2026-11-30 04:23:02] INFO:     Started server process [500]
[2026-11-30 04:23:02] INFO:     Waiting for application startup.
[2026-11-30 04:23:02] INFO:     Application startup complete.
[2026-11-30 04:23:02] INFO:     Uvicorn running on http://127.0.0.1:30001 (Press CTRL+C to quit)
[2026-11-30 04:23:09] The server is fired up and ready to roll!
"""
# The messages of 0.5.23 that differ.
GOOD_0523 = """\
[2026-11-30 04:22:08 TP0] Init parallel begin.
[2026-11-30 04:22:08 TP1] Init parallel begin.
[2026-11-30 04:22:09 TP0] Init parallel ends. elapsed=0.23 s
[2026-11-30 04:22:09 TP0] Memory baseline taken. mem usage=0.09 GB
[2026-11-30 04:22:10 TP0] Load weight begin. avail mem=139.13 GB
[2026-11-30 04:22:10 TP1] Load weight begin. avail mem=139.13 GB
Multi-thread loading shards:   0% Completed | 0/4 [00:00<?, ?it/s]
Multi-thread loading shards:  25% Completed | 1/4 [00:10<00:30, 10.0s/it]
Multi-thread loading shards:  25% Completed | 1/4 [00:11<00:30, 10.0s/it]
Multi-thread loading shards: 100% Completed | 4/4 [00:40<00:00, 10.0s/it]
[2026-11-30 04:22:50 TP1] Load weight end. elapsed=40.15 s, type=KimiK25, avail mem=66.13 GB, mem usage=73.00 GB.
[2026-11-30 04:22:50 TP0] Load weight end. elapsed=40.15 s, type=KimiK25, avail mem=66.13 GB, mem usage=73.00 GB.
[2026-11-30 04:22:51 TP0] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 159072, KV size: 10.41 GB
[2026-11-30 04:22:52 TP0] Capture decode CUDA graph begin.
[2026-11-30 04:23:02 TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 159072
[2026-11-30 04:23:02] INFO:     Started server process [500]
[2026-11-30 04:23:02] INFO:     Application startup complete.
[2026-11-30 04:23:09] The server is fired up and ready to roll!
"""
SYSTEMD_KILL = """\
sglang-a.service: Main process exited, code=killed, status=9/KILL
sglang-a.service: Failed with result 'signal'.
"""


def read(text: str) -> StartupLog:
    log = StartupLog()
    for line in text.split("\n"):
        log.feed(line)
    return log


def phases(text: str) -> list[str]:
    log = StartupLog()
    seen = [log.phase.id]
    for line in text.split("\n"):
        if log.feed(line) and log.phase.id != seen[-1]:
            seen.append(log.phase.id)
    return seen


@pytest.mark.parametrize("text", [GOOD_0514, GOOD_0523], ids=["0.5.14", "0.5.23"])
def test_a_good_start_goes_through_all_phases(text: str) -> None:
    assert phases(text) == ["launch", "distributed", "weights", "kv_cache", "graphs", "http", "warmup", "ready"]
    assert phases(text) == [phase.id for phase in PHASES]
    assert read(text).is_ready


def test_a_cpu_engine_has_no_graphs() -> None:
    text = "\n".join(line for line in GOOD_0514.split("\n") if "Captur" not in line)
    assert phases(text) == ["launch", "distributed", "weights", "kv_cache", "http", "warmup", "ready"]


@pytest.mark.parametrize("text", [GOOD_0514, GOOD_0523], ids=["0.5.14", "0.5.23"])
def test_no_phase_goes_back(text: str) -> None:
    order = [phase.id for phase in PHASES]
    log = StartupLog()
    last = 0
    for line in (text + text).split("\n"):
        log.feed(line)
        assert order.index(log.phase.id) >= last
        last = order.index(log.phase.id)


@pytest.mark.parametrize("text", [GOOD_0514, GOOD_0523], ids=["0.5.14", "0.5.23"])
def test_it_is_ready_only_when_the_server_says_so(text: str) -> None:
    head, _sep, _tail = text.partition("[2026-11-30 04:23:09]")
    assert not read(head).is_ready
    assert read(head).phase.id == "warmup"


def test_progress_moves_once_a_step() -> None:
    log = StartupLog()
    moved = [log.describe() for line in GOOD_0523.split("\n") if log.feed(line)]
    assert moved == [
        "joining the ranks",
        "loading weights",
        "loading weights: 0 %",
        "loading weights: 25 %",
        "loading weights: 100 %",
        "allocating the KV cache",
        "capturing CUDA graphs",
        "opening the HTTP server",
        "warming up",
        "ready",
    ]


@pytest.mark.parametrize(
    ("line", "percent"),
    [
        ("Loading safetensors checkpoint shards:   0% Completed | 0/64 [00:00<?, ?it/s]", 0),
        ("Loading safetensors checkpoint shards:  47% Completed | 30/64 [10:00<11:20, 20.0s/it]", 47),
        ("Loading safetensors checkpoint shards: 100% Completed | 64/64 [21:00<00:00, 19.7s/it]", 100),
        ("Loading pt checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.0s/it]", 50),
        ("Multi-thread loading shards:  33% Completed | 1/3", 33),
        ("[2026-11-30 04:22:10 TP3] Loading safetensors checkpoint shards:  10% Completed", 10),
        ("Capturing batches (bs=8 avail_mem=81.54 GB):  25%|██▌       | 1/4", None),
        ("Downloading: 50%", None),
        ("loading shards", None),
        ("", None),
    ],
)
def test_the_progress_of_loading(line: str, percent: int | None) -> None:
    log = read("Load weight begin. avail mem=139.13 GB")
    assert log.feed(line) is (percent is not None)
    assert log.percent == percent
    assert not log.feed(line)


@pytest.mark.parametrize("before", ["", "Load weight begin.\nLoad weight end."])
def test_progress_counts_only_while_weights_are_loaded(before: str) -> None:
    log = read(before)
    assert not log.feed("Loading safetensors checkpoint shards:  47% Completed | 30/64")
    assert log.percent is None


def test_the_next_phase_forgets_the_progress() -> None:
    log = read("Load weight begin.\nMulti-thread loading shards:  25% Completed")
    assert log.describe() == "loading weights: 25 %"
    assert log.feed("Load weight end. elapsed=1 s")
    assert log.describe() == "allocating the KV cache"


@pytest.mark.parametrize("line", ["", "   ", "INFO: hello", "The server is fired", "Load weight", "Init torch"])
def test_other_lines_move_nothing(line: str) -> None:
    log = StartupLog()
    assert not log.feed(line)
    assert log.describe() == "starting Python and importing SGLang"


def causes() -> dict[str, tuple[str, str]]:
    """Read the recorded ends of logs: name -> log, the line that says why."""
    found = {}
    for block in Path(__file__).with_name("startup_causes.txt").read_text(encoding="utf-8").split("\n### ")[1:]:
        name, why, text = block.split("\n", 2)
        found[name] = (text, why.removeprefix(">>> "))
    return found


CAUSES = causes()


@pytest.mark.parametrize("name", CAUSES)
def test_the_line_that_says_why(name: str) -> None:
    text, expected = CAUSES[name]
    assert read(text).relevant() == [expected]
    # A start that went a long way before says the same.
    assert read(GOOD_0514.partition("[2026-11-30 04:23:02]")[0] + text).relevant() == [expected]


@pytest.mark.parametrize(
    "prefix", ["[2026-11-30 04:50:10] ", "[2026-11-30 04:50:10 TP3] ", "[2026-11-30 04:50:10 DP0 TP3 EP1] ", ""]
)
@pytest.mark.parametrize("line", ["ValueError: x", "torch.OutOfMemoryError: CUDA out of memory."])
def test_the_time_and_rank_before_a_line_are_left_out(prefix: str, line: str) -> None:
    assert read(f"{prefix}{line}").relevant() == [line]


def test_killed_with_nothing_said() -> None:
    assert read(SYSTEMD_KILL).relevant() == [
        "sglang-a.service: Main process exited, code=killed, status=9/KILL",
        "sglang-a.service: Failed with result 'signal'.",
    ]


def test_killed_in_the_middle_shows_the_last_lines() -> None:
    text = "[2026-11-30 04:22:10] Load weight begin. avail mem=139.13 GB\n[2026-11-30 04:22:11] Something\nmore\nlast\n"
    assert read(text + SYSTEMD_KILL).relevant() == ["Something", "more", "last"]
    assert read(text + SYSTEMD_KILL).relevant(1) == ["last"]


def test_nothing_said_at_all() -> None:
    assert StartupLog().relevant() == [] == read("\n  \n").relevant()


def test_a_cause_is_kept_over_a_long_end() -> None:
    noise = "".join(f'  File "/x.py", line {number}, in f\n' for number in range(300))
    assert read("ValueError: the reason\n" + noise).relevant() == ["ValueError: the reason"]
    usage = "".join(f"                    [--flag-{number}]\n" for number in range(2000))
    assert read("usage: sglang serve\n" + usage + "sglang serve: error: no\n").relevant() == ["sglang serve: error: no"]
