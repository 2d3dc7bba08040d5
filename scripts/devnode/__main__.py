# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: python -m devnode ACTION, with scripts/ on PYTHONPATH."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import clean, engine, image, model, node, packages, settings, venv, wheelhouse
from .names import Clone
from .steps import StepError, Steps


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="devnode", description="Throw-away systemd nodes of this clone.")
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="make sure that a node runs")
    up.add_argument("name")
    up.add_argument("--image", choices=("bare", "engine"), default="bare")
    up.add_argument("--podman", action="append", default=[], metavar="OPTION", help="one more option of podman create")
    down = actions.add_parser("down", help="remove nodes")
    down.add_argument("names", nargs="+", metavar="name")
    inventory = actions.add_parser("inventory", help="print an Ansible inventory of a node (JSON)")
    inventory.add_argument("name")
    inventory.add_argument("--user", default=settings.NODE_USER)
    inventory.add_argument("--output", type=Path, help="write it to this file (.json)")
    script = actions.add_parser("script", help="answer as an Ansible inventory script: a node that may not exist yet")
    script.add_argument("name")
    actions.add_parser("list", help="print the nodes of this clone")
    actions.add_parser("bootstrap", help="make .cache/bootstrap, which holds uv")
    made = actions.add_parser("venv", help="make .venv")
    made.add_argument("--group", choices=(venv.CONTROLLER, venv.DEV), default=venv.DEV)
    actions.add_parser("supplies", help="fill the wheelhouse and make the tiny model")
    actions.add_parser("clean", help="remove everything that this clone made")
    return parser


def _run(arguments: argparse.Namespace, clone: Clone, steps: Steps) -> None:
    if arguments.action == "up":
        packages.ensure(steps)
        ensure = engine.ensure_image if arguments.image == "engine" else image.ensure_bare
        node.up(clone, steps, arguments.name, ensure(clone, steps), tuple(arguments.podman))
    elif arguments.action == "down":
        for name in arguments.names:
            node.down(clone, name)
    elif arguments.action == "inventory":
        text = json.dumps(node.inventory(clone, arguments.name, arguments.user), indent=2)
        if arguments.output:
            arguments.output.write_text(text + "\n", encoding="utf-8")
        else:
            print(text)
    elif arguments.action == "script":
        print(json.dumps(node.script(clone, arguments.name)))
    elif arguments.action == "list":
        for name, record in clone.records().items():
            print(f"{name:15} {node.state(clone, name) or 'missing':10} 127.0.0.1:{record['port']}  {record['image']}")
    elif arguments.action == "bootstrap":
        venv.ensure_bootstrap(clone, steps)
    elif arguments.action == "venv":
        venv.ensure(clone, steps, arguments.group)
    elif arguments.action == "supplies":
        venv.ensure(clone, steps, venv.CONTROLLER)
        wheelhouse.ensure(clone, steps)
        model.ensure(clone, steps)
    elif arguments.action == "clean":
        clean.clean(clone, steps)


def main() -> int:
    """Run one action; anything foreseen ends with one clear line."""
    clone = Clone.here()
    steps = Steps(clone.cache / "logs")
    try:
        _run(_parser().parse_args(), clone, steps)
    except (StepError, ValueError, OSError) as error:
        print(f"devnode: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        steps.stop()
        print("devnode: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
