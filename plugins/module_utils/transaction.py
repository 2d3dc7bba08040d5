# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the steps of a node: try a release, watch its start, verify it by a real generation, keep or replace it.

Runs on the node in a transient unit of its own (see `job`), so that a lost controller can't stop it half-way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import (
    deployment,
    measured_facts,
    node_plan,
    ports,
    processes,
    release,
    sglang_api,
    start_watch,
    systemd,
)
from ansible_collections.headroom.serving.plugins.module_utils.deployment import Settings, Step
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, one_line, refusals
from ansible_collections.headroom.serving.plugins.module_utils.instances import Instance
from ansible_collections.headroom.serving.plugins.module_utils.node_plan import Planned
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.startup_log import StartupLog
from ansible_collections.headroom.serving.plugins.module_utils.systemd import UnitState

Progress = Callable[[str], None]
Learn = Callable[[StartupLog], None]
_PROMPT = "The capital of France is"
_TOKENS = 8
# A first request may still compile kernels; the process is known to run.
_GENERATION_S = 300.0


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Apply the settings of a node: the entry of the job.

    Raises:
        HeadroomError: If something refuses (nothing was touched then), or a release did not come up.
    """
    settings = deployment.Settings.of(params)
    plan = deployment.prepare(settings, check_mode=False)
    _stop_at(plan.findings)
    # Once more, now that all engines are there: minutes may have passed since the preflight.
    memory = node_plan.make(settings, plan.steps)
    _stop_at(memory.findings)
    rows: list[dict[str, Any]] = []
    for step in plan.steps:
        planned = memory.planned.get(step.instance.name)
        _keep_plan(step, planned, settings.accept)
        try:
            rows.append(apply(step, progress, _learner(step, planned, settings, progress)))
        except HeadroomError as error:
            raise _after(error, rows) from None
    return {"changed": any(step.changes for step in plan.steps), "instances": rows}


def _stop_at(findings: Sequence[Finding]) -> None:
    if refusals(findings):
        raise HeadroomError(one_line(findings), findings)


def _keep_plan(step: Step, planned: Planned | None, accept: Sequence[str]) -> None:
    """Keep what was planned beside the release: its guard and every later status ask what was accepted."""
    if step.release is not None and planned is not None:
        step.store.save_plan(step.release.id, {"accept": sorted(accept), "report": planned.report()})


def _learner(step: Step, planned: Planned | None, settings: Settings, progress: Progress) -> Learn:
    """Return what keeps the figures of a start for the next plan; those of an unplanned start are not comparable."""

    def learn(log: StartupLog) -> None:
        if planned is None:
            return
        facts = log.facts.result()
        tokens = planned.plan.tokens
        if facts.tokens is not None:
            place = "as planned" if tokens.low <= facts.tokens <= tokens.high else "NOT as planned"
            band = f"{int(tokens.low):,} to {int(tokens.high):,}"
            progress(f"{step.instance.name}: KV tokens {place}: {facts.tokens:,}, planned {band}")
        rss_bytes = processes.largest_rank_bytes(step.unit_name)
        is_alone = not planned.plan.gpu.claimed_by_others_bytes
        asked = measured_facts.setting(planned.prepared.inputs, is_alone)
        rss_gb = None if rss_bytes is None else rss_bytes / 1e9
        directory = settings.root / "measured"
        # A full disk is no reason to take a server down that has just been verified.
        with suppress(OSError):
            measured_facts.save(directory, planned.prepared.key, facts, asked, rss_gb, time.time())

    return learn


def _after(error: HeadroomError, rows: Sequence[dict[str, Any]]) -> HeadroomError:
    """Return a failure together with what was done before it and stays done."""
    done = [row for row in rows if row["action"] not in ("none", "check")]
    message = str(error)
    if done:
        named = ", ".join(f"{row['name']} ({row['action']})" for row in done)
        message += f" Done before it, and still so: {named}."
    return HeadroomError(message, error.findings, {"changed": bool(done), "instances": list(rows)})


def apply(step: Step, progress: Progress, learn: Learn) -> dict[str, Any]:
    """Do what a step says and return what the instance is afterwards.

    Args:
        step: What is to be done.
        progress: Takes the progress lines.
        learn: Takes the log of a verified start of the step's release.

    Raises:
        HeadroomError: If the server did not come up; the previous release runs again then, if there was one.
    """
    say = _prefixed(step.instance.name, progress)
    if step.action == "stop":
        say("stopping")
        _stop(step)
    elif step.action == "remove":
        say("removing")
        _remove(step)
    elif step.action == "repair":
        say(f"repairing: {step.reason}")
        _end_trial(step)
        _install(step, step.current)
        systemd.enable(step.unit_name)
    elif step.action in ("create", "replace"):
        _replace(step, say, learn)
    elif step.action == "start":
        _start(step, say, learn)
    elif step.action == "check":
        say(f"release {step.current}: {step.reason}")
        _check(step, say)
    return {"name": step.instance.name, "action": step.action, "release": step.store.link(release.CURRENT)}


def _replace(step: Step, say: Progress, learn: Learn) -> None:
    if step.release is None:
        raise ValueError(f"{step.instance.name} is to be replaced by a release that was not rendered")
    step.store.save(step.release)
    if not step.unit.is_dead:
        say(f"stopping release {step.current or 'of another hand'}")
        systemd.stop(step.unit_name)
    try:
        _bring_up(step, step.release.id, say, learn)
    except HeadroomError as error:
        raise HeadroomError(f"{error} {_restore(step, say)}", error.findings) from None
    step.store.switch(release.CURRENT, step.release.id)
    step.store.switch(release.LAST_GOOD, step.release.id)
    systemd.enable(step.unit_name)


def _start(step: Step, say: Progress, learn: Learn) -> None:
    """Start the current release; a start that fails ends with the unit stopped, not in a loop of restarts."""
    try:
        _bring_up(step, step.current, say, learn)
    except HeadroomError:
        systemd.stop(step.unit_name)
        raise
    systemd.enable(step.unit_name)


def _restore(step: Step, say: Progress) -> str:
    """Put back what ran before a failed try and return the sentence that says so."""
    systemd.stop(step.unit_name)
    previous = step.current
    if not previous:
        (systemd.UNIT_DIRECTORY / step.unit_name).unlink(missing_ok=True)
        systemd.daemon_reload()
        return "Nothing ran before, so nothing runs now."
    if step.unit.is_dead:
        _install(step, previous)
        return f"Release {previous} was not running before and was put back as it was."
    say(f"putting release {previous} back")
    try:
        _bring_up(step, previous, say, lambda _log: None)
    except HeadroomError as error:
        return f"Release {previous} did not come up again either: {error}"
    return f"Release {previous}, which ran before, serves again."


def _bring_up(step: Step, release_id: str, say: Progress, learn: Learn) -> None:
    """Start a release, watch and verify it; systemd may not restart it meanwhile."""
    began = time.monotonic()
    with _trial(step, release_id):
        say(f"starting release {release_id}")
        facts, log = _prove(step, release_id, systemd.start(step.unit_name), say)
    step.store.save_measured(release_id, {**facts, "start_s": round(time.monotonic() - began, 1)})
    learn(log)


def _check(step: Step, say: Progress) -> None:
    """Wait for a server that somebody else has started, such as systemd after a boot or a crash, and verify it."""
    unit = start_watch.settled(step.unit_name, step.start_limit_s)
    facts, _log = _prove(step, step.current, unit, say)
    step.store.save_measured(step.current, {**step.store.measured(step.current), **facts})


def _prove(step: Step, release_id: str, unit: UnitState, say: Progress) -> tuple[dict[str, Any], StartupLog]:
    """Watch a run of a release until it is ready, verify it, and return what it showed, with its log."""
    api = _api(step, release_id)
    log = start_watch.watch(step.instance.name, step.unit_name, unit, api, step.start_limit_s, say)
    return verify(step.instance, step.store.record(release_id), step.unit_name, api, say), log


def verify(
    instance: Instance, record: dict[str, Any], unit: str, api: sglang_api.SglangApi, say: Progress
) -> dict[str, Any]:
    """Prove that the server of a release serves: its own process listens, its name is served, it generates.

    Returns:
        The measured facts: `kv_tokens`, `sglang_version`.

    Raises:
        HeadroomError: With what the server does instead.
    """
    name, port = str(record["served_name"]), int(record["port"])
    where = f"Instance {instance.name!r}"
    if not any(listener.belongs_to(unit) for listener in ports.listeners(port)):
        raise refusal("verify.wrong_model", f"{where}: no process of {unit} listens on port {port}.")
    try:
        served = sorted(api.models(_GENERATION_S))
        if name not in served:
            raise refusal("verify.wrong_model", f"{where}: {name!r} is asked for, {', '.join(served)} is served.")
        say(f"asking {name} for {_TOKENS} tokens")
        if instance.is_embedding:
            amount = api.embed(name, _PROMPT, _GENERATION_S)
        else:
            amount = api.complete(name, _PROMPT, _TOKENS, _GENERATION_S).completion_tokens
        if amount < 1:
            raise refusal("verify.no_generation", f"{where}: the server answered a completion without a token.")
        info = api.server_info(_GENERATION_S)
    except sglang_api.ApiError as error:
        raise refusal("verify.no_generation", f"{where} does not serve: {error}.") from None
    say(f"{name} serves: {info.kv_tokens} KV tokens, SGLang {info.version}")
    return {"kv_tokens": info.kv_tokens, "sglang_version": info.version}


@contextmanager
def _trial(step: Step, release_id: str) -> Iterator[None]:
    """Run a release on trial: its unit is installed, but not restarted by systemd, so that a death is seen as one."""
    drop_in = systemd.trial_drop_in(step.unit_name)
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text("[Service]\nRestart=no\nRestartForceExitStatus=\n", encoding="utf-8")
    try:
        _install(step, release_id)
        yield
    finally:
        _end_trial(step)
        systemd.daemon_reload()


def _install(step: Step, release_id: str) -> None:
    """Make a release's unit file the installed one."""
    target = systemd.UNIT_DIRECTORY / step.unit_name
    draft = target.with_name(f".{target.name}.new")
    draft.write_text(step.store.unit_text(release_id), encoding="utf-8", errors="surrogateescape")
    draft.chmod(0o644)
    draft.rename(target)
    systemd.daemon_reload()


def _stop(step: Step) -> None:
    systemd.stop(step.unit_name)
    if step.unit.exists:
        systemd.disable(step.unit_name)


def _remove(step: Step) -> None:
    if step.unit.exists or not step.unit.is_dead:
        _stop(step)
        (systemd.UNIT_DIRECTORY / step.unit_name).unlink(missing_ok=True)
        systemd.daemon_reload()
    step.store.unlink(release.CURRENT)
    step.store.unlink(release.LAST_GOOD)
    if step.instance.purge:
        step.store.purge()


def _api(step: Step, release_id: str) -> sglang_api.SglangApi:
    record = step.store.record(release_id)
    return sglang_api.SglangApi(str(record["host"]), int(record["port"]), step.store.api_key(release_id))


def _prefixed(name: str, progress: Progress) -> Progress:
    return lambda line: progress(f"{name}: {line}")


def _end_trial(step: Step) -> None:
    drop_in = systemd.trial_drop_in(step.unit_name)
    drop_in.unlink(missing_ok=True)
    if drop_in.parent.is_dir() and not any(drop_in.parent.iterdir()):
        drop_in.parent.rmdir()
