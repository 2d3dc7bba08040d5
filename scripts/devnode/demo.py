# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo: from nothing to a served model, with a line for each step, and the screen at its end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from . import ask, clean, image, model, node, packages, venv, wheelhouse
from .names import Clone
from .steps import StepError, Steps, output_of

NODE = "demo"
PROMPT = "def main("
TOKENS = 24


def main() -> int:
    """Run the demo or remove what it made; anything foreseen ends with one clear line."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Deploy a real SGLang to a throw-away node.")
    parser.add_argument("--clean", action="store_true", help="remove everything that this clone made")
    arguments = parser.parse_args()
    # A shell starts what it puts into the background with SIGINT ignored, and so would everything started from here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    clone = Clone.here()
    steps = Steps(clone.cache / "logs")
    try:
        if os.geteuid() != 0:
            subprocess.run(["sudo", "-v"], check=True)  # asks for the password now, not in the middle
        if arguments.clean:
            clean.clean(clone, steps)
            return 0
        prepare(clone, steps)
        deploy(clone, steps)
        show(clone, steps)
    except (StepError, ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"scripts/demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        steps.stop()
        print("\nscripts/demo: stopped; run it again and it goes on from here", file=sys.stderr)
        return 130
    return 0


def prepare(clone: Clone, steps: Steps) -> None:
    """Everything that the node and the deployment need; the image is built while the wheels come."""
    packages.ensure(steps)
    with ThreadPoolExecutor(2) as pool:
        try:
            bare = pool.submit(image.ensure_bare, clone, steps)
            both: list[Future[Any]] = [bare, pool.submit(_supplies, clone, steps)]
            for future in as_completed(both):
                future.result()
        except BaseException:
            steps.stop()  # else leaving the pool would wait for the other one
            raise
    node.up(clone, steps, NODE, bare.result())


def _supplies(clone: Clone, steps: Steps) -> None:
    venv.ensure(clone, steps, venv.CONTROLLER)
    wheelhouse.ensure(clone, steps)
    model.ensure(clone, steps)


def deploy(clone: Clone, steps: Steps) -> None:
    """Run the collection's own playbook, with its output on the screen."""
    with steps.step("ansible-playbook playbooks/deploy.yml"):
        command = [str(clone.venv / "bin" / "ansible-playbook"), "playbooks/deploy.yml"]
        done = subprocess.run(command, cwd=clone.root, check=False)
        if done.returncode != 0:
            raise StepError(f"playbooks/deploy.yml ended with {done.returncode}; its last lines say why")


def show(clone: Clone, steps: Steps) -> None:
    """The last screen: the node, the unit, the settings, one answer of the model, what to try next."""
    inventory = clone.root / "inventory" / "demo"
    host = json.loads(output_of(clone.venv / "bin" / "ansible-inventory", "-i", inventory, "--host", NODE))
    instance = host["sglang_server_instances"][0]
    unit = f"sglang-{instance['name']}.service"
    answer = ask.complete(clone, NODE, instance["served_name"], PROMPT, TOKENS, instance["port"])
    steps.say("done")
    print(f"\nNode      {NODE}, a Debian 12 with systemd; ssh -F .cache/nodes/{NODE}/ssh_config {NODE}")
    print(f"Unit      {unit}: {_unit_state(clone, unit)}")
    print("Settings")
    for name, value in _settings(instance):
        print(f"          {name:24} {value}")
    print(f"Asked     {answer.model} to go on with {PROMPT!r} by {TOKENS} tokens, and got {answer.tokens}:")
    print(f"          {answer.text!r}")
    print("          (random weights: the text means nothing, but it is the same every time)")
    print("Try next")
    for playbook, why in _NEXT:
        print(f"          .venv/bin/ansible-playbook playbooks/{playbook:12} # {why}")
    print("          scripts/demo --clean                                # removes everything again")


_NEXT = (
    ("status.yml", "what runs where"),
    ("deploy.yml", "once more: changed=0, nothing restarts"),
    ("verify.yml", "tests of the deployed node"),
)


def _unit_state(clone: Clone, unit: str) -> str:
    shown = node.run_in(clone, NODE, "systemctl", "show", unit, "--property=ActiveState,SubState,UnitFileState,MainPID")
    values = dict(line.split("=", 1) for line in shown.splitlines())
    return f"{values['ActiveState']} ({values['SubState']}), {values['UnitFileState']}, PID {values['MainPID']}"


def _settings(instance: dict[str, Any]) -> list[tuple[str, Any]]:
    """The instance's own settings, then its flags, then its environment."""
    plain = [(key, instance[key]) for key in _FIRST if key in instance]
    plain += [(key, value) for key, value in instance.items() if key not in (*_FIRST, "args", "env")]
    flags = [(f"--{key}", "" if value is True else value) for key, value in instance["args"].items()]
    return [*plain, *flags, *instance["env"].items()]


_FIRST = ("name", "model_path", "served_name", "host", "port")


if __name__ == "__main__":
    sys.exit(main())
