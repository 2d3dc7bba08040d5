# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node: a container that booted systemd, reached over SSH on 127.0.0.1 with a key and a host key of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from typing import Any

from . import keys, settings
from .names import Clone, choose_port, write_json
from .steps import StepError, Steps, as_root, output_of

_POLL_S = 0.2


def state(clone: Clone, name: str) -> str | None:
    """The container's state in podman's words (running, exited, ...); None when there is no such container."""
    form = ["--format", "{{.State.Status}}"]
    command = as_root("podman", "container", "inspect", *form, clone.container(name))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def up(clone: Clone, steps: Steps, name: str, image: str, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """Make sure that node `name` runs from `image`, with `extra` options of podman; returns its record.

    A node that was stopped is started as it is; one of another image or other options is replaced.
    """
    shape = hashlib.sha256(json.dumps([output_of(*_image_id(image)), *settings.PODMAN_OPTIONS, *extra]).encode())
    wanted = shape.hexdigest()[:16]
    found = clone.records().get(name, {})
    status = state(clone, name)
    if status == "running" and found.get("shape") == wanted:
        return found
    with steps.step(f"booting node {name}"):
        if status is None or found.get("shape") != wanted:
            down(clone, name)
            found = _create(clone, steps, name, image, extra, wanted)
        steps.run(as_root("podman", "start", clone.container(name)), f"node-{name}")
        _wait_for_systemd(clone, name)
        _wait_for_ssh(clone, name)
    return found


def down(clone: Clone, name: str) -> None:
    """Remove node `name` with everything that is kept about it; nothing to remove is fine."""
    remove = as_root("podman", "rm", "--force", "--ignore", "--time", "5", "--volumes", clone.container(name))
    try:
        output_of(*remove)
    except StepError:
        output_of(*remove)  # podman fails when the container ends just before it is killed; then it is as good as gone
    clone.record(name).unlink(missing_ok=True)
    keys.forget_host(clone, name)


def run_in(clone: Clone, name: str, *command: str) -> str:
    """The standard output of a command inside the node, as root and not over SSH."""
    return output_of(*as_root("podman", "exec", clone.container(name), *command))


def ssh_command(clone: Clone, name: str, user: str = settings.NODE_USER) -> list[str]:
    """The ssh call that reaches the node; a command may follow."""
    return ["ssh", "-F", str(keys.ssh_config(clone, name)), "-o", f"User={user}", name]


def _image_id(image: str) -> list[str]:
    return as_root("podman", "image", "inspect", "--format", "{{.Id}}", image)


def _create(clone: Clone, steps: Steps, name: str, image: str, extra: tuple[str, ...], shape: str) -> dict[str, Any]:
    clone.shared.mkdir(parents=True, exist_ok=True)
    container = clone.container(name)
    with clone.locked("ports"):
        taken = {int(record["port"]) for record in clone.records().values()}
        port = choose_port(clone.id, taken)
        record = {"name": name, "container": container, "image": image, "port": port, "shape": shape}
        write_json(clone.record(name), record)
    options = [f"--name={container}", f"--hostname={name}", f"--publish=127.0.0.1:{port}:22"]
    options += [f"--volume={clone.shared}:/shared:ro", *settings.PODMAN_OPTIONS, *extra]
    log = f"node-{name}"
    steps.run(as_root("podman", "--runtime", "runc", "create", *options, image), log)
    files = keys.as_tar(keys.make_host(clone, steps, name, port))
    # Without --archive=false podman would give every file to root.
    copy = as_root("podman", "cp", "--archive=false", "-", f"{container}:/")
    done = subprocess.run(copy, input=files, capture_output=True, check=False)
    if done.returncode != 0:
        raise StepError(f"node {name}: its keys could not be laid in: {done.stderr.decode().strip()}")
    return record


def _wait_for_systemd(clone: Clone, name: str) -> None:
    limit = time.monotonic() + settings.BOOT_TIMEOUT_S
    command = as_root("podman", "exec", clone.container(name), "systemctl", "is-system-running")
    answer = ""
    while time.monotonic() < limit:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answer = done.stdout.strip()
        if answer == "running":
            return
        if answer == "degraded":
            failed = run_in(clone, name, "systemctl", "--failed", "--plain", "--no-legend")
            raise StepError(f"node {name}: systemd booted degraded: {' '.join(failed.split())}")
        if state(clone, name) != "running":
            log = output_of(*as_root("podman", "logs", "--tail", "1", clone.container(name)))
            raise StepError(f"node {name}: its container ended at once: {log or 'it wrote nothing'}")
        time.sleep(_POLL_S)
    raise StepError(f"node {name}: systemd is {answer or 'not answering'!r} after {settings.BOOT_TIMEOUT_S} s")


def _wait_for_ssh(clone: Clone, name: str) -> None:
    limit = time.monotonic() + settings.BOOT_TIMEOUT_S
    command = [*ssh_command(clone, name), "sudo", "-n", "true"]
    while True:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if time.monotonic() > limit:
            reason = (done.stderr.strip() or "no answer").splitlines()[-1]
            raise StepError(f"node {name}: no SSH after {settings.BOOT_TIMEOUT_S} s: {reason}")
        time.sleep(_POLL_S)


def inventory(clone: Clone, name: str, user: str = settings.NODE_USER) -> dict[str, Any]:
    """An Ansible inventory (as a .json file of the yaml plugin) with the node in the group `sglang`."""
    return {"all": {"children": {"sglang": {"hosts": {name: host_variables(clone, name, user)}}}}}


def script(clone: Clone, name: str) -> dict[str, Any]:
    """What an inventory script prints: the node in the group `sglang`; no host while the clone has no such node."""
    hosts = {name: host_variables(clone, name)} if name in clone.records() else {}
    return {"_meta": {"hostvars": hosts}, "sglang": {"hosts": list(hosts)}}


def host_variables(clone: Clone, name: str, user: str = settings.NODE_USER) -> dict[str, Any]:
    """How Ansible reaches the node; StepError when the clone has no such node."""
    record = clone.records().get(name)
    if record is None:
        raise StepError(f"there is no node {name!r}; make it with: python -m devnode up {name}")
    return {
        "ansible_host": "127.0.0.1",
        "ansible_port": record["port"],
        "ansible_user": user,
        "ansible_ssh_private_key_file": str(keys.private_key(clone)),
        "ansible_ssh_common_args": keys.ssh_options(clone, name),
        "ansible_python_interpreter": "/usr/bin/python3",
        "headroom_clone": str(clone.root),
    }
