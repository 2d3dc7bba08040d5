# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who a process is and what it holds, without a word of its arguments."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import processes
from ansible_collections.headroom.serving.plugins.module_utils.processes import ProcessFacts


def test_a_real_process() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", "--api-key", "s3cr3t"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        # The kernel names a new process a moment after Popen knows of it.
        assert holder.stdout is not None and holder.stdout.readline()
        found = processes.look(holder.pid)
    finally:
        holder.communicate(b"\n")
    assert found.pid == holder.pid
    assert found.user == pwd.getpwuid(os.getuid()).pw_name
    assert found.command.startswith("python")
    assert "s3cr3t" not in repr(found)


def test_a_process_that_is_gone() -> None:
    holder = subprocess.Popen(["true"])
    holder.wait()
    assert processes.look(holder.pid) == ProcessFacts(holder.pid, "", "", "")


@pytest.mark.parametrize(
    ("comm", "cmdline", "shown"),
    [
        ("python3\n", b"python3\0-m\0sglang\0", "python3"),
        # A title that a process gave itself, of which the kernel keeps 15 characters.
        ("sglang::schedul\n", b"sglang::scheduler_TP3", "sglang::scheduler_TP3"),
        ("sglang::schedul\n", b"sglang::scheduler_TP3 --api-key s3cr3t", "sglang::scheduler_TP3"),
        ("sglang::schedul\n", b"sglang::scheduler_TP3\0\0\0", "sglang::scheduler_TP3"),
        ("a-rather-long-n\n", b"/opt/bin/a-rather-long-name\0--key\0s3cr3t\0", "a-rather-long-name"),
        ("fifteen-letters\n", b"python3\0fifteen-letters\0--key=s3cr3t\0", "fifteen-letters"),
        ("fifteen-letters\n", b"", "fifteen-letters"),
        ("with space\n", b"x\0", "with space"),
        ("\n", b"", ""),
    ],
)
def test_the_name(tmp_path: Path, comm: str, cmdline: bytes, shown: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text(comm)
    (tmp_path / "7" / "cmdline").write_bytes(cmdline)
    assert processes.look(7, tmp_path) == ProcessFacts(7, "", shown, "")


def test_a_user_without_a_name_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nUid:\t3999888777\t0\t0\t0\nGid:\t0\t0\t0\t0\n")
    assert processes.look(7, tmp_path).user == "3999888777"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/sglang-kimi.service\n", "sglang-kimi.service"),
        ("0::/system.slice/system-getty.slice/getty@tty1.service\n", "getty@tty1.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service\n", "user@1000.service"),
        ("0::/system.slice/docker-0123abc.scope\n", "docker-0123abc.scope"),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-9.scope\n", "cri-containerd-9.scope"),
        ("12:memory:/other\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n", "a.service"),
        ("12:memory:/system.slice/wrong.service\n1:name=systemd:/init.scope\n", "init.scope"),
        ("0::/docker/0123abc\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_unit(text: str, unit: str) -> None:
    assert processes.unit_of(text) == unit


def rank(proc: Path, pid: int, anonymous_kib: int, unit: str = "sglang-a.service", **more: Any) -> None:
    """Make a process of a unit: a rank, unless `title` is another."""
    home = proc / str(pid)
    home.mkdir()
    title = more.get("title", "sglang::scheduler_TP0")
    (home / "comm").write_text(title[:15] + "\n")
    (home / "cmdline").write_bytes(title.encode() + b"\0\0")
    (home / "cgroup").write_text(f"0::/system.slice/{unit}\n")
    status = f"Name:\t{title[:15]}\nVmHWM:\t90000000 kB\nVmRSS:\t80000000 kB\nRssAnon:\t{anonymous_kib} kB\n"
    status += "RssFile:\t 700000 kB\nRssShmem:\t48000000 kB\nVmSwap:\t    1000 kB\n"
    (home / "status").write_text(more.get("status", status))


def test_the_own_memory_of_the_largest_rank(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("")
    rank(tmp_path, 10, 3_000_000)
    rank(tmp_path, 11, 3_200_000, title="sglang::scheduler_DP1_TP1")
    rank(tmp_path, 12, 9_000_000, title="sglang::detokenizer")
    rank(tmp_path, 13, 9_000_000, title="python3")
    rank(tmp_path, 14, 9_000_000, unit="sglang-b.service")
    rank(tmp_path, 15, 0, status="Name:\tsglang::schedul\nState:\tZ (zombie)\n")
    # Neither the pools, which are shared memory, nor mapped files; but what was swapped out.
    assert processes.largest_rank_bytes("sglang-a.service", tmp_path) == 3_201_000 * 1024
    assert processes.largest_rank_bytes("sglang-b.service", tmp_path) == 9_001_000 * 1024


def test_no_rank_no_figure(tmp_path: Path) -> None:
    rank(tmp_path, 12, 9_000_000, title="sglang::detokenizer")
    assert processes.largest_rank_bytes("sglang-a.service", tmp_path) is None
    assert processes.largest_rank_bytes("sglang-none.service") is None


def test_this_kernel_tells_a_process_its_own_memory_apart(tmp_path: Path) -> None:
    rank(tmp_path, 10, 0, status=Path("/proc/self/status").read_text())
    found = processes.largest_rank_bytes("sglang-a.service", tmp_path)
    assert found is not None and 2**20 < found < 2**33
