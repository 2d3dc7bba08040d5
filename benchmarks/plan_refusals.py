# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon a host tier that does not fit is refused by a deploy, and how soon by SGLang itself, on one node in turns.

The node is a throw-away one that serves the demo's model all the while. SGLang is started by hand beside that server,
with the same flags, by the same account, until it ends by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from noop_deploy import BenchmarkError, read_recap

from devnode import engine, model, node, packages, settings
from devnode.names import Clone
from devnode.steps import Steps, as_root

NODE = "bench-plan"
TOO_MUCH = {"enable-hierarchical-cache": True, "hicache-size": 500}
OUR_WORDS = "[hicache.node_budget]"
ITS_WORDS = "Not enough host memory available"
_OTHER_PORT = 31000
_MODULE = "AnsiballZ_memory_plan.py"
# Ends when the command itself ends: SGLang's other processes may hold a pipe for longer.
_TIMED = """
import json, os, subprocess, sys, tempfile, time
with tempfile.TemporaryFile() as output:
    began = time.monotonic()
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    status, used = os.wait4(child.pid, 0)[1:]
    took = time.monotonic() - began
    output.seek(0)
    text = output.read().decode(errors="replace")
print(json.dumps({"status": os.waitstatus_to_exitcode(status), "wall_s": took, "cpu_s": used.ru_utime + used.ru_stime,
                  "memory_mb": used.ru_maxrss * 1024 / 1e6, "text": text}))
"""


def phases(stamped: Sequence[tuple[float, str]], total_s: float, least_s: float = 0.1) -> dict[str, float]:
    """Return where a play spent its time, in seconds, in the order of the play.

    Args:
        stamped: Its lines, each with the seconds from the start of ansible-playbook to the line.
        total_s: Seconds to the end of ansible-playbook.
        least_s: Tasks that took less are put together.
    """
    begun = [
        (at, line[line.index("[") + 1 : line.rindex("]")].split(" : ")[-1])
        for at, line in stamped
        if line.startswith("TASK [")
    ]
    recap = next((at for at, line in stamped if line.startswith("PLAY RECAP")), total_s)
    if not begun:
        return {"all": round(total_s, 3)}
    found = {"Ansible starts": begun[0][0]}
    small = 0.0
    for (at, name), (until, _next) in zip(begun, [*begun[1:], (recap, "")], strict=True):
        if until - at >= least_s:
            found[name] = found.get(name, 0.0) + until - at
        else:
            small += until - at
    found["other tasks"] = small
    found["Ansible ends"] = total_s - recap
    return {name: round(seconds, 3) for name, seconds in found.items()}


def require_refused(status: int, output: str) -> None:
    """Let only a deploy count that refused for the right reason and touched nothing.

    Raises:
        BenchmarkError: With the play's last lines.
    """
    touched = any(words in output for words in ("stopping release", "starting release"))
    if status == 0 or OUR_WORDS not in output or touched or read_recap(output).changed:
        raise BenchmarkError("\n".join(["the deploy did not just refuse; its last lines:", *_last(output)]))


def its_reason(status: int, output: str) -> str:
    """Return the line with which SGLang refused.

    Raises:
        BenchmarkError: With its last lines, if it ended well or for another reason.
    """
    said = [line for line in output.splitlines() if ITS_WORDS in line]
    if status == 0 or not said:
        raise BenchmarkError("\n".join(["SGLang did not refuse by itself; its last lines:", *_last(output)]))
    return said[-1].strip()


def require_answer(kind: str, answer: Mapping[str, Any], status: int | None) -> None:
    """Let what ran on the node count only if it refused, or where `status` is 0, if it passed without a word.

    Raises:
        BenchmarkError: With its last lines.
    """
    said = answer["text"]
    # The module tells a refusal in its answer; its own exit status says only whether it could look.
    good = status in (None, answer["status"]) and (not said if status == 0 else OUR_WORDS[1:-1] in said)
    if not good:
        raise BenchmarkError("\n".join([f"{kind} did not answer as expected; its last lines:", *_last(said)]))


def own_command(record: Mapping[str, Any]) -> list[str]:
    """Return the command that starts SGLang as a release does, with the flags that do not fit, on a port of its own."""
    argv = list(record["argv"])
    argv[argv.index("--port") + 1] = str(_OTHER_PORT)
    argv += ["--enable-hierarchical-cache", "--hicache-size", str(TOO_MUCH["hicache-size"])]
    environment = [f"{name}={value}" for name, value in record["environment"].items()]
    return ["runuser", "-u", record["user"], "--", "env", "-i", *environment, *argv]


def _last(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.strip()][-12:]


class Bench:
    """A node that serves the demo's model, and an inventory of it alone with the demo's settings."""

    def __init__(self, clone: Clone, work: Path) -> None:
        self.clone = clone
        self.work = work
        group_vars = clone.root / "inventory" / "demo" / "group_vars"
        (work / "group_vars").symlink_to(group_vars)
        given = yaml.safe_load((group_vars / "sglang.yml").read_text(encoding="utf-8"))
        [self.instance] = given["sglang_server_instances"]

    def __enter__(self) -> Bench:
        """Boot the node and deploy the demo's instance."""
        steps = Steps(self.clone.cache / "logs")
        packages.ensure(steps)
        model.ensure(self.clone, steps)
        image = engine.ensure_image(self.clone, steps)
        node.down(self.clone, NODE)
        node.up(self.clone, steps, NODE, image)
        try:
            with steps.step("deploying the demo's instance"):
                status, output, _stamped, _seconds = self.deploy({})
            if status != 0:
                raise BenchmarkError("\n".join(["the first deploy failed; its last lines:", *_last(output)]))
        except BaseException:
            node.down(self.clone, NODE)
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        """Remove the node."""
        node.down(self.clone, NODE)

    def deploy(self, args: Mapping[str, Any]) -> tuple[int, str, list[tuple[float, str]], float]:
        """Run playbooks/deploy.yml with more flags; return its status, output, lines with seconds, and seconds."""
        lines: list[tuple[float, str]] = []
        began = time.monotonic()
        with subprocess.Popen(
            [self._tool("ansible-playbook"), "-i", str(self._inventory(args)), "playbooks/deploy.yml"],
            cwd=self.clone.root,
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            assert child.stdout
            for line in child.stdout:
                lines.append((time.monotonic() - began, line.rstrip("\n")))
        took = time.monotonic() - began
        return child.returncode, "\n".join(line for _at, line in lines), lines, took

    def send_module(self) -> str:
        """Have Ansible send the module memory_plan once and keep it on the node; return its path there."""
        instance = {**self.instance, "args": {**self.instance["args"], **TOO_MUCH}}
        done = subprocess.run(
            [
                *(self._tool("ansible"), "-i", str(self._inventory({})), "--become", NODE),
                *("-m", "headroom.serving.memory_plan", "-a", json.dumps({"instances": [instance], "fail": False})),
            ],
            cwd=self.clone.root,
            env=self._env(ANSIBLE_KEEP_REMOTE_FILES="1"),
            capture_output=True,
            text=True,
            check=False,
        )
        pattern = f"/home/{settings.NODE_USER}/.ansible/tmp/*/{_MODULE}"
        paths = node.run_in(self.clone, NODE, "sh", "-c", f"ls -t {pattern}").split()
        if not paths:
            raise BenchmarkError("\n".join([f"{_MODULE} was not kept on the node:", *_last(done.stdout + done.stderr)]))
        return paths[0]

    def record(self) -> tuple[str, dict[str, Any]]:
        """Return the directory of the release that runs, and its record."""
        link = f"/var/lib/headroom/instances/{self.instance['name']}/current"
        directory = node.run_in(self.clone, NODE, "readlink", "-f", link).strip()
        return directory, json.loads(node.run_in(self.clone, NODE, "cat", f"{directory}/release.json"))

    def misfit(self, directory: str, record: Mapping[str, Any]) -> str:
        """Lay a copy of a release beside it, with the flags that do not fit; return its directory."""
        beside = f"{directory}-misfit"
        text = json.dumps({**record, "args": {**record["args"], **TOO_MUCH}})
        script = 'cp -a "$0" "$1" && printf %s "$2" > "$1/release.json"'
        node.run_in(self.clone, NODE, "sh", "-c", script, directory, beside, text)
        return beside

    def check(self, record: Mapping[str, Any], directory: str) -> dict[str, Any]:
        """Run the check before a start as a unit does."""
        return self.timed(record["argv"][0], "-I", "-B", f"{directory}/guard.pyz", directory)

    def timed(self, *command: str) -> dict[str, Any]:
        """Run a command on the node as root, without SSH and Ansible; its time is taken there."""
        call = as_root("podman", "exec", self.clone.container(NODE), "python3", "-c", _TIMED, *command)
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _inventory(self, args: Mapping[str, Any]) -> Path:
        hosts = node.inventory(self.clone, NODE)
        instance = {**self.instance, "args": {**self.instance["args"], **args}}
        hosts["all"]["children"]["sglang"]["hosts"][NODE]["sglang_server_instances"] = [instance]
        path = self.work / "hosts.json"
        path.write_text(json.dumps(hosts), encoding="utf-8")
        return path

    def _tool(self, name: str) -> str:
        return str(self.clone.venv / "bin" / name)

    def _env(self, **more: str) -> dict[str, str]:
        dropped = ("ANSIBLE_", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        # Compiled files are kept, as on any controller, but not beside the sources.
        cache = str(self.clone.cache / "pycache")
        return {**kept, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "PYTHONPYCACHEPREFIX": cache, **more}


def measure(rounds: int) -> dict[str, Any]:
    """Make the node, measure `rounds` times in turns, remove the node.

    Returns:
        `ours_s` and `its_s` (wall seconds), `module`, `guard` (of the release that runs) and `guard_refusal` (what
        `_TIMED` tells, without the text), `phases` (of the deploys, seconds by name), `reason` (SGLang's line).

    Raises:
        BenchmarkError: If something else happened than a refusal.
    """
    found: dict[str, Any] = {"ours_s": [], "its_s": [], "phases": [], "module": [], "guard": [], "guard_refusal": []}
    with tempfile.TemporaryDirectory(prefix="headroom-plan-") as work, Bench(Clone.here(), Path(work)) as bench:
        directory, record = bench.record()
        module = bench.send_module()
        misfit = bench.misfit(directory, record)
        require_refused(*bench.deploy(TOO_MUCH)[:2])
        for number in range(rounds):
            status, output, stamped, took = bench.deploy(TOO_MUCH)
            require_refused(status, output)
            found["ours_s"].append(took)
            found["phases"].append(phases(stamped, took))
            own = bench.timed(*own_command(record))
            found["reason"] = its_reason(own["status"], own["text"])
            found["its_s"].append(own["wall_s"])
            for kind, answer, expected in (
                ("module", bench.timed("/usr/bin/python3", module), None),
                ("guard", bench.check(record, directory), 0),
                ("guard_refusal", bench.check(record, misfit), 1),
            ):
                require_answer(kind, answer, expected)
                found[kind].append({name: answer[name] for name in ("wall_s", "cpu_s", "memory_mb")})
            print(f"round {number + 1} of {rounds}: deploy {took:.2f} s, SGLang {own['wall_s']:.2f} s", file=sys.stderr)
    return found
