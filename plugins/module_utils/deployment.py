# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the settings of a node to the steps that would make it so: the part of a deploy that changes nothing."""

from __future__ import annotations

import json
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import (
    guard,
    instances,
    model_dir,
    ports,
    release,
    server_args,
    sglang_api,
    systemd,
    unit_policy,
)
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance
from ansible_collections.headroom.serving.plugins.module_utils.release import Release, Store
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState

# A server that answers is asked for one small page; a busy one may take its time.
_ANSWER_S = 3.0


@dataclass(frozen=True)
class Settings:
    """The settings of one node, as the module takes them."""

    instances: Sequence[Mapping[str, Any]]
    root: Path
    engines_root: Path
    engines: Mapping[str, Mapping[str, Any]]
    user: str
    home: str
    accept: Sequence[str] = ()

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Settings:
        """Take the settings out of a module's parameters."""
        return cls(
            instances=params["instances"],
            root=Path(params["root"]),
            engines_root=Path(params["engines_root"]),
            engines=params.get("engines") or {},
            user=params["user"],
            home=params["home"],
            accept=tuple(params.get("accept") or ()),
        )


@dataclass(frozen=True)
class Step:
    """What has to be done for one instance.

    `action` is one of: none; create, replace (a new release); start (the same release); repair (unit file or
    enablement, without a restart); check (it runs but does not answer yet); stop; remove.
    """

    instance: Instance
    action: str
    reason: str
    store: Store
    unit: UnitState
    current: str
    release: Release | None = None
    start_limit_s: int = 0

    @property
    def changes(self) -> bool:
        """Whether the step changes anything on the node."""
        return self.action not in ("none", "check")

    @property
    def unit_name(self) -> str:
        """The instance's unit."""
        return unit_policy.unit_name(self.instance.name)


@dataclass(frozen=True)
class Deployment:
    """The steps of a node with everything that was found on the way."""

    steps: Sequence[Step]
    findings: Sequence[Finding]


def prepare(settings: Settings, check_mode: bool) -> Deployment:
    """Look at the node and decide what has to be done; nothing is changed, except for a first salt outside check mode.

    Raises:
        HeadroomError: If systemd does not answer.
    """
    wanted, findings = instances.normalise(settings.instances)
    steps: list[Step] = []
    for instance in wanted:
        step, problems = _step(settings, instance, check_mode)
        findings += problems
        if step is not None:
            steps.append(step)
    # What only stops or goes needs no account, and must go although its account is gone.
    if any(step.release for step in steps) and not check_mode:
        findings += _account(settings)
    # What stops goes first: its port, GPUs and memory may be what the others need.
    steps.sort(key=lambda step: step.action not in ("stop", "remove"))
    return Deployment(steps, findings + _unlisted(settings))


def decide(
    instance: Instance,
    wanted: str,
    current: str,
    unit: UnitState,
    same_file: bool,
    answers: bool,
    same_process: bool = True,
) -> tuple[str, str]:
    """Return the action and its reason for one instance.

    Args:
        instance: The instance as it is meant to be.
        wanted: Id of the release that is meant to run.
        current: Id of the current release, empty if there is none.
        unit: State of the unit.
        same_file: Whether the installed unit file is the current release's.
        answers: Whether the running server answers as this instance.
        same_process: Whether the running server was started with the current release's settings, as far as can be seen.
    """
    # A unit whose file was deleted by hand is unknown to systemd, and its server may run all the same.
    there = unit.exists or not unit.is_dead or bool(current)
    if instance.state == "absent":
        return ("remove", "state is absent") if there else ("none", "not there")
    if instance.state == "stopped":
        runs = not unit.is_dead or (unit.exists and unit.enabled == "enabled")
        return ("stop", "state is stopped") if runs else ("none", "stopped")
    if not current:
        return "create", "first release"
    if wanted != current:
        return "replace", "the settings changed"
    if not same_file and unit.is_dead:
        return "replace", "the unit file is not the release's and nothing runs"
    if unit.is_dead:
        return "start", f"the unit is {unit.active}"
    if not same_process:
        return "replace", "the running server was started with other settings"
    if not same_file:
        return "repair", "the unit file is not the release's"
    if unit.enabled != "enabled":
        return "repair", "the unit is not enabled"
    if not answers:
        return "check", "the server does not answer yet"
    return "none", "it runs and answers"


def _step(settings: Settings, instance: Instance, check_mode: bool) -> tuple[Step | None, list[Finding]]:
    store = Store(settings.root, instance.name)
    unit_name = unit_policy.unit_name(instance.name)
    unit = systemd.state(unit_name)
    current = store.link(release.CURRENT)
    if instance.state != "started":
        action, reason = decide(instance, "", current, unit, True, True)
        if action == "none" and instance.purge and store.directory.exists():
            action, reason = "remove", "its releases are still there"
        return Step(instance, action, reason, store, unit, current), []
    wanted, limit, findings = _render(settings, instance, store, check_mode)
    findings += _port_findings(settings, instance, unit_name)
    if wanted is None:
        return None, findings
    installed = systemd.UNIT_DIRECTORY / unit_name
    left_over = systemd.trial_drop_in(unit_name).exists()
    same_file = bool(current) and not left_over and _text(installed) == store.unit_text(current)
    answers = wanted.id == current and unit.is_active and _answers(instance)
    same_process = not unit.main_pid or _same_process(Path("/proc") / str(unit.main_pid), store.record(current))
    action, reason = decide(instance, wanted.id, current, unit, same_file, answers, same_process)
    return Step(instance, action, reason, store, unit, current, wanted, limit), findings


def _render(
    settings: Settings, instance: Instance, store: Store, check_mode: bool
) -> tuple[Release | None, int, list[Finding]]:
    """Render the release of an instance; the second value is the time limit of its start in seconds."""
    where = f"{instances.SETTING} ({instance.name})"
    model, findings = model_dir.inspect(f"{where}.model_path", instance.model_path, settings.user)
    engine, problems = _engine(settings, instance, where, check_mode)
    findings += problems
    if model is None or engine is None:
        return None, 0, findings
    venv = f"{engine['path']}/venv"
    credentials = _credentials(instance)
    inputs = unit_policy.UnitInputs(
        name=instance.name,
        argv=_argv(instance, venv, Path("release") if credentials else None),
        guard=_guard(venv, Path("release")),
        environment=unit_policy.service_environment(instance.env, venv, settings.home, instance.gpus),
        user=settings.user,
        home=settings.home,
        model_path=instance.model_path,
    )
    mac = release.credential_mac(settings.root, credentials, create=not check_mode)
    release_id = (
        release.UNSALTED
        if mac == release.UNSALTED or not engine["id"]
        else release.identify(unit_policy.settings(inputs), engine["id"], model.digest, mac)
    )
    # Only now is the directory known: its name is the id, which is a hash over everything else.
    directory = store.path(release_id)
    argv = _argv(instance, venv, directory if credentials else None)
    inputs = replace(inputs, argv=argv, guard=_guard(venv, directory))
    record = {
        "format": release.FORMAT,
        "id": release_id,
        "name": instance.name,
        "argv": list(inputs.argv),
        "environment": dict(inputs.environment),
        "args": dict(instance.args),
        "gpus": None if instance.gpus is None else list(instance.gpus),
        "expected_request_tokens": instance.expected_request_tokens,
        "engine": {"id": engine["id"], "name": instance.engine, "path": engine["path"], "version": engine["version"]},
        "model": {"path": model.path, "digest": model.digest, "weight_bytes": model.weight_bytes,
                  "architecture": model.architecture},
        "served_name": instance.served_name,
        "host": instance.host,
        "port": instance.port,
        "user": settings.user,
        "has_api_key": bool(instance.api_key),
    }  # fmt: skip
    limit = instance.start_timeout_s or unit_policy.start_limit_s(model.weight_bytes)
    unit_text = unit_policy.render(inputs)
    return Release(release_id, instance.name, unit_text, record, settings.user, credentials), limit, findings


def _argv(instance: Instance, venv: str, directory: Path | None) -> list[str]:
    """Return the command; `directory` is the release's, where it has keys."""
    return [
        f"{venv}/bin/python",
        *([str(directory / release.LAUNCHER)] if directory else ["-m", "sglang.launch_server"]),
        "--model-path",
        instance.model_path,
        "--served-model-name",
        instance.served_name,
        "--host",
        instance.host,
        "--port",
        str(instance.port),
        # The keys come from a file that only the server can read: arguments show in the process list.
        *(["--config", str(directory / release.CREDENTIALS)] if directory else []),
        *server_args.render(instance.args),
    ]


def _guard(venv: str, directory: Path) -> list[str]:
    """Return the command that checks the memory before each start; -I lets no variable or directory change it."""
    return [f"{venv}/bin/python", "-I", "-B", str(directory / guard.FILE), str(directory)]


def _credentials(instance: Instance) -> str:
    """Return the keys as the file that SGLang's --config takes; JSON is YAML, whatever characters a key has."""
    keys = {"api-key": instance.api_key, "admin-api-key": instance.admin_api_key}
    given = {name: value for name, value in keys.items() if value}
    return json.dumps(given) + "\n" if given else ""


def _engine(
    settings: Settings, instance: Instance, where: str, check_mode: bool
) -> tuple[dict[str, str] | None, list[Finding]]:
    """Return id, path and version of an instance's engine: the one that this run installs, else the node's own."""
    planned = settings.engines.get(instance.engine)
    link = settings.engines_root / "names" / instance.engine
    if planned and check_mode:
        # Without its interpreter an engine that is still to be installed has no id and no path yet.
        path = planned.get("path") or settings.engines_root / release.UNSALTED
        version = str(planned.get("version") or "")
        return {"id": str(planned.get("id") or ""), "path": str(path), "version": version}, []
    path = Path(str(planned["path"])) if planned else link.resolve()
    if (path / "engine.json").is_file():
        version = json.loads(_text(path / "engine.json")).get("version")
        return {"id": path.name, "path": str(path), "version": str(version or "")}, []
    names = sorted(entry.name for entry in link.parent.iterdir()) if link.parent.is_dir() else []
    there = f"This node has {', '.join(names)}." if names else "This node has none: list it in sglang_runtime_engines."
    return None, [finding("engine.missing", f"{where}.engine {instance.engine!r} is not installed.", there)]


def _port_findings(settings: Settings, instance: Instance, unit_name: str) -> list[Finding]:
    """Return who holds the instance's port; instances that this very run stops give theirs back before."""
    states = {str(entry.get("name")): entry.get("state") or "started" for entry in settings.instances}
    for listener in ports.listeners(instance.port):
        if not ports.clashes(instance.host, listener.address) or listener.belongs_to(unit_name):
            continue
        owner = next((name for name in states if listener.belongs_to(unit_policy.unit_name(name))), "")
        if owner and states[owner] != "started":
            continue
        held = f"instance {owner!r}, {listener.describe()}" if owner else listener.describe()
        text = f"{instances.SETTING} ({instance.name}).port {instance.port} is held by {held} on {listener.address}."
        cure = (
            "Choose another port, or stop that instance first." if owner else "Choose another port or end that process."
        )
        return [finding("instance.port_taken", text, cure)]
    return []


def _same_process(process: Path, record: Mapping[str, Any]) -> bool:
    """Whether a process was started with a release's command and environment; True where that can't be told."""
    try:
        command = _words(process / "cmdline")
        environment = set(_words(process / "environ"))
    except OSError:
        return True  # it has ended meanwhile
    argv = [str(word) for word in record.get("argv") or []]
    if not argv or not command or command[0] != argv[0]:
        return True  # a damaged record, or a server that gave itself another title
    wanted = {f"{name}={value}" for name, value in (record.get("environment") or {}).items()}
    return command == argv and (not environment or wanted <= environment)


def _words(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


def _answers(instance: Instance) -> bool:
    api = sglang_api.SglangApi(instance.host, instance.port, instance.api_key)
    try:
        return instance.served_name in api.models(_ANSWER_S)
    except sglang_api.ApiTimeout:
        return True  # busy is not dead
    except sglang_api.ApiError:
        return False


def _account(settings: Settings) -> list[Finding]:
    try:
        pwd.getpwnam(settings.user)
    except KeyError:
        text = f"sglang_server_user {settings.user!r} is no account of this node."
        return [finding("settings.invalid", text, "Set it to the value of sglang_runtime_user, whose role makes it.")]
    return []


def _unlisted(settings: Settings) -> list[Finding]:
    listed = {entry.get("name") for entry in settings.instances}
    return [
        finding(
            "instance.unlisted",
            f"The node has an instance {name!r} that {instances.SETTING} does not list; it is left as it is.",
            "List it with state: absent to remove it.",
        )
        for name in release.known(settings.root)
        if name not in listed
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def outcome(plan: Deployment) -> dict[str, Any]:
    """Return a deployment as plain data: what a module returns of it in check mode."""
    return {
        "changed": any(step.changes for step in plan.steps),
        "work": any(step.action != "none" for step in plan.steps),
        "instances": [
            {
                "name": step.instance.name,
                "action": step.action,
                "release": step.release.id if step.release else step.current,
                "previous": step.current,
                "reason": step.reason,
            }
            for step in plan.steps
        ],
        "diff": [_diff(step) for step in plan.steps if step.changes],
    }


def _diff(step: Step) -> dict[str, str]:
    """Return one step as a diff: the unit file, then whether it runs and starts at boot."""
    unit = step.unit
    before = _text(systemd.UNIT_DIRECTORY / step.unit_name)
    if step.action == "remove":
        after = ""
    elif step.release is not None:
        after = step.release.unit_text
    else:
        after = before
    runs = step.action != "stop"
    if before:
        before += f"\n# {unit.active}, {unit.enabled}\n"
    if after:
        after += f"\n# {'active, enabled' if runs else 'inactive, disabled'}\n"
    return {"before_header": step.unit_name, "after_header": step.unit_name, "before": before, "after": after}
