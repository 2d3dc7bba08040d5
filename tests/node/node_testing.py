# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as tests handle it: run playbooks against it, look into it, break it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devnode import node as devnode
from devnode.names import Clone
from devnode.steps import Steps, as_root

_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_ERROR = re.compile(r"^\[ERROR\]: (?P<text>.*)$", re.MULTILINE)
INSTANCES = "/var/lib/headroom/instances"


@dataclass(frozen=True)
class Run:
    """A finished ansible-playbook: its exit status, everything it printed, and how long it took."""

    status: int
    output: str
    seconds: float
    ended: float

    def recap(self, name: str) -> dict[str, int]:
        """Return the figures of a node's recap line."""
        for found in _RECAP.findall(self.output):
            if found[0] == name:
                return dict(zip(("ok", "changed", "unreachable", "failed"), map(int, found[1:]), strict=True))
        raise AssertionError(f"no recap of {name} in:\n{self.output}")

    @property
    def error(self) -> str:
        """The first error line, as a user sees it."""
        found = _ERROR.search(self.output)
        assert found, f"no error line in:\n{self.output}"
        return found["text"]


class Node:
    """One throw-away node."""

    def __init__(self, clone: Clone, name: str) -> None:
        self.clone = clone
        self.name = name
        self.folder = clone.cache / "test" / "node" / name

    @property
    def container(self) -> str:
        """The container's name."""
        return self.clone.container(self.name)

    def up(self, steps: Steps, image: str, options: Sequence[str] = ()) -> None:
        """Boot it afresh."""
        devnode.down(self.clone, self.name)
        devnode.up(self.clone, steps, self.name, image, tuple(options))
        self.folder.mkdir(parents=True, exist_ok=True)

    def down(self) -> None:
        """Remove it."""
        devnode.down(self.clone, self.name)

    def reboot(self, steps: Steps) -> None:
        """Stop and start its container: systemd boots again from the same disk."""
        steps.run(as_root("podman", "stop", "--time", "60", self.container), f"node-{self.name}")
        image = self.clone.records()[self.name]["image"]
        devnode.up(self.clone, steps, self.name, image)

    def inventory(self, user: str = "admin") -> Path:
        """Write and return an inventory of this node alone; the demo's settings come from inventory/demo."""
        path = self.folder / f"hosts-{user}.json"
        path.write_text(json.dumps(devnode.inventory(self.clone, self.name, user)), encoding="utf-8")
        return path

    def play(
        self,
        playbook: str | Path,
        variables: Mapping[str, Any] | None = None,
        *options: str,
        user: str = "admin",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        demo: bool = True,
    ) -> Run:
        """Run a playbook against this node only; `demo` adds the demo's own settings for everything not given."""
        path = self.folder / "variables.json"
        path.write_text(json.dumps(variables or {}), encoding="utf-8")
        inventories = ["-i", str(self.clone.root / "inventory" / "demo")] if demo else []
        command = [str(self.clone.venv / "bin" / "ansible-playbook"), *inventories, "-i", str(self.inventory(user))]
        command += ["-l", self.name, "-e", f"@{path}", *options, str(playbook)]
        began = time.time()
        done = subprocess.run(
            command,
            cwd=cwd or self.clone.root,
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        ended = time.time()
        return Run(done.returncode, done.stdout, ended - began, ended)

    def deploy(self, *instances: Mapping[str, Any], options: Sequence[str] = (), **more: Any) -> Run:
        """Run playbooks/deploy.yml with these instances."""
        return self.play("playbooks/deploy.yml", {"sglang_server_instances": list(instances)}, *options, **more)

    def sh(self, script: str, check: bool = True) -> str:
        """Run a shell script inside the node, as root and not over SSH; return its standard output."""
        done = subprocess.run(
            as_root("podman", "exec", self.container, "bash", "-c", script),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, (
            f"{script!r} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout.strip()

    def python(self, script: str) -> Any:
        """Run a Python script inside the node and return the JSON that it prints."""
        done = subprocess.run(
            as_root("podman", "exec", "-i", self.container, "python3", "-"),
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def unit(
        self, name: str, properties: str = "ActiveState,UnitFileState,LoadState,MainPID,InvocationID"
    ) -> dict[str, str]:
        """Return properties of an instance's unit."""
        text = self.sh(f"systemctl show --property={properties} sglang-{name}.service")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def complete(self, model: str, prompt: str, tokens: int, port: int = 30000, key: str = "") -> dict[str, Any]:
        """Ask a server on the node for a greedy completion."""
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        script = f"""
import json, urllib.request
headers = {{"Content-Type": "application/json", "Authorization": "Bearer {key}"}}
request = urllib.request.Request("http://127.0.0.1:{port}/v1/completions", {json.dumps(body).encode()!r}, headers)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""
        answer: dict[str, Any] = self.python(script)
        return answer

    def remove_instances(self) -> None:
        """Take every instance off the node, by hand and not by the code under test."""
        self.sh(
            "for unit in $(systemctl list-units --all --plain --no-legend 'sglang-*.service' | cut -d' ' -f1); do "
            "systemctl kill --signal=SIGKILL --kill-whom=all $unit 2>/dev/null; systemctl stop $unit; "
            "systemctl disable --quiet $unit 2>/dev/null; systemctl reset-failed $unit 2>/dev/null; done; "
            "rm -rf /etc/systemd/system/sglang-*.service /run/systemd/system/sglang-*.service.d "
            f"{INSTANCES}; systemctl daemon-reload",
            check=False,
        )


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what would change how Ansible behaves."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHONP"))}
    return {**kept, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000", **(more or {})}


def tiny(name: str = "tiny", **changes: Any) -> dict[str, Any]:
    """Return the demo's instance with changes; `args` are added to the CPU engine's."""
    args = {
        "device": "cpu",
        "attention-backend": "torch_native",
        "sampling-backend": "pytorch",
        "grammar-backend": "none",
        "disable-cuda-graph": True,
        "max-total-tokens": 4096,
        "sleep-on-idle": True,
        "enable-metrics": True,
        **changes.pop("args", {}),
    }
    env = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", **changes.pop("env", {})}
    return {
        "name": name,
        "model_path": "/shared/tiny-qwen",
        "served_name": "tiny-qwen",
        "args": args,
        "env": env,
    } | changes
