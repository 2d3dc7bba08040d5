# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what a deploy that changes nothing costs, as a multiple of a ping of the same node.

A round of each command comes first, through an ssh that counts how often it is started; it also opens the connection
that the measured rounds share. Then the two commands run in turns, so that whatever else the machine does slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOAL = 12.0
LEAST_PAIRS = 5
_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[", re.MULTILINE)
_RECAP = re.compile(r"^(?P<host>\S+)\s*: (?P<counts>ok=\d+ .*)$", re.MULTILINE)
_COUNT = re.compile(r"(\w+)=(\d+)")
# Control commands to the shared connection reach no node.
_COUNTER = """\
#!/bin/sh
case " $* " in *" -O "*) ;; *) printf x >> "$HEADROOM_SSH_COUNT" ;; esac
exec {program} "$@"
"""


class BenchmarkError(Exception):
    """There is nothing to measure; the text is one line for people."""


@dataclass(frozen=True)
class Recap:
    """What a play did: tasks it announced, and per host the counts of its recap."""

    announced: int
    hosts: Mapping[str, Mapping[str, int]]

    @property
    def executed(self) -> int:
        """Tasks that ran on the host where most did; skipped ones are not among them."""
        return max(counts["ok"] + counts["failed"] + counts["rescued"] for counts in self.hosts.values())

    @property
    def skipped(self) -> int:
        """Tasks that were skipped on the host where most were."""
        return max(counts["skipped"] for counts in self.hosts.values())

    @property
    def changed(self) -> int:
        """Changes, summed over the hosts."""
        return sum(counts["changed"] for counts in self.hosts.values())


def read_recap(output: str) -> Recap:
    """Take a Recap out of what ansible-playbook prints.

    Raises:
        BenchmarkError: If no host took part.
    """
    found = {
        match["host"]: {name: int(number) for name, number in _COUNT.findall(match["counts"])}
        for match in _RECAP.finditer(output)
    }
    if not found:
        raise BenchmarkError("the playbook reached no host: is the node up, and in the group 'sglang'?")
    return Recap(len(_TASK.findall(output)), found)


def require_unchanged(recap: Recap) -> None:
    """Refuse a deploy that did something: its time says nothing about one that does not.

    Raises:
        BenchmarkError: With the hosts and the number of their changes.
    """
    busy = [f"{host}: {counts['changed']}" for host, counts in recap.hosts.items() if counts["changed"]]
    if busy:
        raise BenchmarkError(f"the deploy changed something ({', '.join(busy)}); deploy once, then measure")


@dataclass(frozen=True)
class Spread:
    """Wall times of one command in seconds."""

    seconds: Sequence[float]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "median_s": round(statistics.median(self.seconds), 3),
            "min_s": round(min(self.seconds), 3),
            "max_s": round(max(self.seconds), 3),
            "all_s": [round(value, 3) for value in self.seconds],
        }

    def line(self) -> str:
        """Return the figures for people."""
        values = self.as_dict()
        return f"{values['median_s']:6.2f} s median, {values['min_s']:.2f} to {values['max_s']:.2f} s"


def ratios(deploys: Sequence[float], pings: Sequence[float]) -> dict[str, float]:
    """Return the ratio of the medians and the median of the pairs' ratios."""
    pairs = [deploy / ping for deploy, ping in zip(deploys, pings, strict=True)]
    return {
        "of_medians": round(statistics.median(deploys) / statistics.median(pings), 2),
        "median_of_pairs": round(statistics.median(pairs), 2),
    }


class Runner:
    """Runs Ansible's commands at the root of the repository, all with the same inventory."""

    def __init__(self, inventories: Sequence[str], limit: str) -> None:
        self._where = [part for inventory in inventories for part in ("-i", inventory)]
        self._where += ["-l", limit] if limit else []

    def deploy(self, **env: str) -> tuple[float, str]:
        """Return the wall time of the deploy in seconds, and its output."""
        return self._run("ansible-playbook", "playbooks/deploy.yml", env=env)

    def ping(self, **env: str) -> tuple[float, str]:
        """Return the wall time of the ping in seconds, and its output."""
        return self._run("ansible", "sglang", "-m", "ansible.builtin.ping", env=env)

    def _run(self, *command: str, env: Mapping[str, str]) -> tuple[float, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        line = [str(ROOT / ".venv" / "bin" / command[0]), *command[1:], *self._where]
        began = time.monotonic()
        done = subprocess.run(
            line, cwd=ROOT, env={**kept, "ANSIBLE_NOCOLOR": "1", **env}, capture_output=True, text=True, check=False
        )
        took = time.monotonic() - began
        if done.returncode != 0:
            last = [text for text in (done.stdout + done.stderr).splitlines() if text.strip()][-12:]
            raise BenchmarkError(
                "\n".join([f"{' '.join(command)} ended with {done.returncode}; its last lines:", *last])
            )
        return took, done.stdout


def counting_environment(directory: Path) -> dict[str, str]:
    """Return an environment in which every ssh, scp and sftp that Ansible starts adds one byte to a file.

    The wrappers keep the names of what they wrap: Ansible knows ssh's options by its name.
    """
    env = {"HEADROOM_SSH_COUNT": str(directory / "count")}
    for name in ("ssh", "scp", "sftp"):
        wrapper = directory / name
        wrapper.write_text(_COUNTER.format(program=shutil.which(name) or name), encoding="utf-8")
        wrapper.chmod(0o755)
        env[f"ANSIBLE_{name.upper()}_EXECUTABLE"] = str(wrapper)
    return env


def count(env: Mapping[str, str]) -> int:
    """Return how often a wrapper was started since the last call."""
    path = Path(env["HEADROOM_SSH_COUNT"])
    size = path.stat().st_size if path.exists() else 0
    path.unlink(missing_ok=True)
    return size


def measure(runner: Runner, pairs: int) -> dict[str, Any]:
    """Run everything and return the report.

    Raises:
        BenchmarkError: If a command fails or a deploy changes something.
    """
    with tempfile.TemporaryDirectory(prefix="noop-deploy-") as scratch:
        env = counting_environment(Path(scratch))
        runner.ping(**env)
        ping_trips = count(env)
        recap = read_recap(runner.deploy(**env)[1])
        require_unchanged(recap)
        deploy_trips = count(env)
    deploys, pings = [], []
    for number in range(pairs):
        pings.append(runner.ping()[0])
        took, output = runner.deploy()
        require_unchanged(read_recap(output))
        deploys.append(took)
        print(f"pair {number + 1} of {pairs}: deploy {took:.2f} s, ping {pings[-1]:.2f} s", file=sys.stderr)
    return {
        "pairs": pairs,
        "hosts": sorted(recap.hosts),
        "deploy": {
            **Spread(deploys).as_dict(),
            "tasks_announced": recap.announced,
            "tasks_executed": recap.executed,
            "tasks_skipped": recap.skipped,
            "changed": recap.changed,
            "ssh_round_trips": deploy_trips,
        },
        "ping": {**Spread(pings).as_dict(), "ssh_round_trips": ping_trips},
        "ratio": {**ratios(deploys, pings), "goal": GOAL},
        "machine": {"processors": os.cpu_count(), "load_average": [round(value, 2) for value in os.getloadavg()]},
    }


def lines(report: Mapping[str, Any]) -> list[str]:
    """Return a report as lines for people."""
    deploy, ping, ratio, machine = report["deploy"], report["ping"], report["ratio"], report["machine"]
    worst = max(ratio["of_medians"], ratio["median_of_pairs"])
    verdict = "met" if worst <= ratio["goal"] else "missed"
    return [
        f"deploy  {Spread(deploy['all_s']).line()}; {deploy['tasks_executed']} tasks executed, "
        f"{deploy['tasks_skipped']} skipped, {deploy['ssh_round_trips']} SSH round trips, changed={deploy['changed']}",
        f"ping    {Spread(ping['all_s']).line()}; {ping['ssh_round_trips']} SSH round trips",
        f"ratio   {ratio['of_medians']:.2f} of the medians, {ratio['median_of_pairs']:.2f} median of the pairs; "
        f"goal at most {ratio['goal']:g}: {verdict}",
        f"on      {', '.join(report['hosts'])}; {report['pairs']} pairs; controller with {machine['processors']} "
        f"processors, load average {machine['load_average'][0]:.1f} at the end",
    ]


def _pairs(text: str) -> int:
    number = int(text)
    if number < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(f"{number} is too few to trust; use at least {LEAST_PAIRS}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and optionally write the report; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/noop_deploy",
        description="Measure a deploy that changes nothing against a ping of the same node, in turns.",
    )
    parser.add_argument(
        "-i", "--inventory", action="append", default=[], help="as for ansible-playbook; may be repeated"
    )
    parser.add_argument("-l", "--limit", default="", help="as for ansible-playbook")
    parser.add_argument("--pairs", type=_pairs, default=7, help="rounds of both commands (default 7, at least 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(arguments)
    try:
        report = measure(Runner([str(Path(name).absolute()) for name in given.inventory], given.limit), given.pairs)
    except BenchmarkError as error:
        print(f"benchmarks/noop_deploy: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines(report)))
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
