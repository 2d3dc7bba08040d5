# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings: what a check says about a node, an instance or a start, under ids that stay the same.

People and tests match on the ids, so an id is never renamed. docs/findings.md is generated from CATALOGUE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "refuse"]


@dataclass(frozen=True)
class FindingKind:
    """An entry of the catalogue: what a finding of this id means and what cures it in general."""

    id: str
    verdict: Verdict
    title: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One concrete observation: `message` names the setting, its value and the reason, `suggestion` what would work."""

    id: str
    verdict: Verdict
    message: str
    suggestion: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as plain data, as modules return it."""
        return {"id": self.id, "verdict": self.verdict, "message": self.message, "suggestion": self.suggestion}

    def line(self) -> str:
        """Return the finding as the one line that is shown to people."""
        message = self.message if self.message.endswith((".", "!", "?")) else f"{self.message}."
        return " ".join(part for part in (message, self.suggestion, f"[{self.id}]") if part)


_KINDS = (
    FindingKind(
        "settings.unknown",
        "refuse",
        "Unknown setting",
        "A variable with a role's prefix, or a key of an instance or engine, that no role knows. Usually a typo; the "
        "nearest known name is suggested.",
    ),
    FindingKind(
        "settings.invalid",
        "refuse",
        "Setting with an unusable value",
        "A known setting whose value has the wrong type or lies outside what is allowed.",
    ),
    FindingKind(
        "host.unsupported_distribution",
        "refuse",
        "Unsupported distribution",
        "The node runs a distribution for which the collection has no package table, or runs a processor for which "
        "no engine exists.",
    ),
    FindingKind(
        "host.no_systemd",
        "refuse",
        "No systemd",
        "The node was not booted with systemd as process 1. Instances are systemd units, so nothing can be deployed.",
    ),
    FindingKind(
        "engine.interpreter_missing",
        "refuse",
        "No such interpreter",
        "The Python interpreter that an engine asks for is not on the node and no package of the distribution's "
        "table brings it.",
    ),
    FindingKind(
        "engine.lock_invalid",
        "refuse",
        "Unusable lock",
        "The lock of an engine can't be used: a requirement without a hash or version, or one given by URL.",
    ),
    FindingKind(
        "engine.wheelhouse_incomplete",
        "refuse",
        "Wheelhouse lacks a wheel",
        "The wheelhouse of an engine does not hold a file with a hash that the lock names.",
    ),
    FindingKind(
        "engine.install_failed",
        "refuse",
        "Engine does not install",
        "The lock could not be installed or the installed engine could not be imported. The engines that were there "
        "before stay as they were.",
    ),
    FindingKind(
        "engine.missing",
        "refuse",
        "Engine not installed",
        "An instance names an engine that is not installed on the node and that this run does not install.",
    ),
    FindingKind(
        "instance.name_duplicate",
        "refuse",
        "Two instances with one name",
        "Two entries of sglang_server_instances have the same name. The name is the unit's and the directory's name.",
    ),
    FindingKind(
        "instance.port_duplicate",
        "refuse",
        "Two instances on one port",
        "Two instances of a node that are meant to run ask for the same TCP port.",
    ),
    FindingKind(
        "instance.gpu_shared",
        "warn",
        "Two instances on one GPU",
        "Two instances of a node that are meant to run may use the same GPU. That can be meant, with a "
        "mem-fraction-static for each that leaves room for the other; otherwise the second one dies of memory.",
    ),
    FindingKind(
        "instance.port_taken",
        "refuse",
        "Port held by another process",
        "A process that is not this instance listens on the instance's port. It is named with its PID.",
    ),
    FindingKind(
        "instance.reserved_flag",
        "refuse",
        "Flag that has a setting of its own",
        "A flag in `args` that the role sets itself from a key of the instance.",
    ),
    FindingKind(
        "instance.secret_in_clear",
        "refuse",
        "Secret on the command line or in the environment",
        "A key or token in `args` or `env` would be visible in `ps`, `systemctl cat` and logs.",
    ),
    FindingKind(
        "instance.unauthenticated",
        "refuse",
        "Open to the network without a key",
        "The instance would listen on an address other than the loopback one without an API key.",
    ),
    FindingKind(
        "instance.unlisted",
        "warn",
        "Instance that the inventory no longer lists",
        "The node has a managed instance that sglang_server_instances does not name. It is left as it is; list it "
        "with `state: absent` to remove it.",
    ),
    FindingKind(
        "model.missing",
        "refuse",
        "Model directory not found",
        "The model path does not exist on the node, or the service account can't read it.",
    ),
    FindingKind(
        "model.no_config",
        "refuse",
        "Not a model directory",
        "The model path has no readable config.json, so it is not a checkpoint that SGLang can load.",
    ),
    FindingKind(
        "start.died",
        "refuse",
        "Server died while it started",
        "The server process ended before it was ready. The last relevant lines of its log are in the message.",
    ),
    FindingKind(
        "start.timeout",
        "refuse",
        "Server did not become ready in time",
        "The server still runs but did not become ready within the limit computed from the size of the weights and "
        "the expected read speed.",
    ),
    FindingKind(
        "verify.wrong_model",
        "refuse",
        "Server answers with another model",
        "The server that answers on the port does not serve the name that was asked for.",
    ),
    FindingKind(
        "verify.no_generation",
        "refuse",
        "Server does not generate",
        "The server claims to be ready but a real completion request failed or returned no token.",
    ),
)

CATALOGUE: dict[str, FindingKind] = {kind.id: kind for kind in _KINDS}


def finding(kind_id: str, message: str, suggestion: str = "", verdict: Verdict | None = None) -> Finding:
    """Build a finding of a catalogued kind.

    Args:
        kind_id: An id of CATALOGUE.
        message: The setting, its value and the reason, without a final newline.
        suggestion: What would work; may be empty.
        verdict: Overrides the catalogue's verdict where a case is milder or harsher than usual.

    Raises:
        KeyError: If the id is not in the catalogue.
    """
    kind = CATALOGUE[kind_id]
    return Finding(kind.id, verdict or kind.verdict, message, suggestion)


def refusals(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that forbid a start, in their order."""
    return [item for item in findings if item.verdict == "refuse"]


def one_line(findings: Iterable[Finding]) -> str:
    """Return the refusing findings as one line, for the message of a failed task."""
    return "; ".join(item.line() for item in refusals(findings))
