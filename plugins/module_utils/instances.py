# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instances of one node, checked together: from the inventory's mappings to typed values or findings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import server_args, unit_file
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, finding

SETTING = "sglang_server_instances"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?")
# RFC 6750, section 2.1: what a bearer token may consist of.
_BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]*=*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_VARIABLE = re.compile(
    r"((^|_)((API|ACCESS|PRIVATE|SECRET|AUTH|ENCRYPTION)_?KEY|TOKEN|SECRET)|PASSWORD|PASSWD|PASSPHRASE)$",
    re.IGNORECASE,
)
_DEFAULT_PORT = 30000
# Variables of the service that follow from keys of the instance or from the unit.
_OWN_VARIABLES = {"CUDA_VISIBLE_DEVICES": "gpus", "HOME": ""}


@dataclass(frozen=True)
class Instance:
    """One instance as it is meant to be; keys are kept out of repr so that no message can carry them."""

    name: str
    state: str = "started"
    model_path: str = ""
    served_name: str = ""
    engine: str = "default"
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 30000
    host: str = "127.0.0.1"
    gpus: tuple[int, ...] | None = None
    api_key: str = field(default="", repr=False)
    admin_api_key: str = field(default="", repr=False)
    purge: bool = False
    start_timeout_s: int = 0
    expected_request_tokens: int = 0

    @property
    def is_embedding(self) -> bool:
        """Whether the server is asked to embed instead of to generate."""
        return self.args.get("is-embedding") is True


def normalise(entries: Sequence[Mapping[str, Any]]) -> tuple[list[Instance], list[Finding]]:
    """Turn the entries of `sglang_server_instances` into instances.

    Returns:
        The usable instances and everything that is wrong with the entries, each with the entry it concerns.
    """
    instances: list[Instance] = []
    findings: list[Finding] = []
    for index, entry in enumerate(entries):
        where = f"{SETTING}[{index}]"
        problems = _check(where, entry)
        findings += problems
        if not problems:
            instances.append(_build(entry))
    return instances, findings + _collisions(entries)


def _build(entry: Mapping[str, Any]) -> Instance:
    gpus = entry.get("gpus")
    path = str(entry.get("model_path") or "").rstrip("/")
    return Instance(
        name=entry["name"],
        state=entry.get("state") or "started",
        model_path=path,
        served_name=str(entry.get("served_name") or path.rpartition("/")[2]),
        engine=str(entry.get("engine") or "default"),
        args=entry.get("args") or {},
        env={str(key): str(value) for key, value in (entry.get("env") or {}).items()},
        port=_port(entry),
        host=str(entry.get("host") or "127.0.0.1"),
        gpus=None if gpus is None else tuple(int(gpu) for gpu in gpus),
        api_key=str(entry.get("api_key") or ""),
        admin_api_key=str(entry.get("admin_api_key") or ""),
        purge=bool(entry.get("purge")),
        start_timeout_s=int(entry.get("start_timeout_s") or 0),
        expected_request_tokens=int(entry.get("expected_request_tokens") or 0),
    )


def _port(entry: Mapping[str, Any]) -> int:
    port = entry.get("port")
    return _DEFAULT_PORT if port is None else int(port)


def _check(where: str, entry: Mapping[str, Any]) -> list[Finding]:
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        cure = "Use up to 63 lower-case letters, digits, '-' and '_'; it becomes the unit's name."
        return [finding("settings.invalid", f"{where}.name {name!r} can't name an instance.", cure)]
    where = f"{where} ({name})"
    if (entry.get("state") or "started") != "started":
        return []
    findings: list[Finding] = []
    if not entry.get("model_path"):
        findings.append(finding("settings.invalid", f"{where} has no model_path.", "Name the model's directory."))
    port = _port(entry)
    if not 1 <= port <= 65535:
        findings.append(finding("settings.invalid", f"{where}.port {port} is no TCP port.", "Use 1024 to 65535."))
    limit = entry.get("start_timeout_s")
    if limit is not None and int(limit) < 1:
        cure = "Give seconds, or leave it out to have them computed from the size of the weights."
        findings.append(finding("settings.invalid", f"{where}.start_timeout_s {limit} is no time.", cure))
    length = entry.get("expected_request_tokens")
    if length is not None and int(length) < 1:
        cure = "Give tokens, or leave it out to have the longest possible request counted."
        findings.append(finding("settings.invalid", f"{where}.expected_request_tokens {length} is no length.", cure))
    findings += _check_gpus(where, entry.get("gpus"))
    findings += server_args.check(f"{where}.args", entry.get("args") or {})
    findings += _check_env(f"{where}.env", entry.get("env") or {})
    served = _check_served(where, entry)
    findings += served
    findings += _check_keys(where, entry)
    return findings if served else findings + _check_exposure(where, entry)


def _check_served(where: str, entry: Mapping[str, Any]) -> list[Finding]:
    problems: list[Finding] = []
    for key in ("model_path", "served_name", "host"):
        if "\0" in str(entry.get(key) or "") or "\n" in str(entry.get(key) or ""):
            problems.append(
                finding("settings.invalid", f"{where}.{key} holds a line end or NUL character.", "Remove it.")
            )
    host = str(entry.get("host") or "127.0.0.1")
    if not problems and not _is_host(host):
        cure = "Use an address of the node, 127.0.0.1 or 0.0.0.0."
        problems.append(finding("settings.invalid", f"{where}.host {host!r} is no address and no host name.", cure))
    return problems


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # Four numbers are meant as an address and no name.
        return bool(_HOST.fullmatch(host)) and not host.replace(".", "").isdigit()
    return True


def _check_keys(where: str, entry: Mapping[str, Any]) -> list[Finding]:
    # SGLang answers every request with status 500 when its key is not ASCII, and other characters need escapes that
    # hide them from whatever masks keys in logs.
    return [
        finding(
            "settings.invalid",
            f"{where}.{key} has characters that a bearer token can't have.",
            "Use letters, digits and ._~+/- only; 'openssl rand -hex 32' makes one.",
        )
        for key in ("api_key", "admin_api_key")
        if not _BEARER_TOKEN.fullmatch(str(entry.get(key) or ""))
    ]


def _check_gpus(where: str, gpus: Any) -> list[Finding]:
    if gpus is None:
        return []
    if any(int(gpu) < 0 for gpu in gpus):
        return [finding("settings.invalid", f"{where}.gpus {gpus!r} has a negative index.", "Count GPUs from 0.")]
    if len(set(gpus)) != len(gpus):
        return [finding("settings.invalid", f"{where}.gpus {gpus!r} names a GPU twice.", "Name each GPU once.")]
    return []


def _check_env(where: str, env: Mapping[str, Any]) -> list[Finding]:
    findings: list[Finding] = []
    for key, value in env.items():
        if not _VARIABLE.fullmatch(str(key)):
            cure = "Use letters, digits and '_'."
            findings.append(finding("settings.invalid", f"{where}: {key!r} can't name a variable.", cure))
        elif _SECRET_VARIABLE.search(str(key)):
            # The value is what must not be shown, so it is not part of the message.
            text = f"{where}.{key} looks like a secret, and the environment of a unit shows in 'systemctl cat'."
            cure = "Set the instance's api_key or admin_api_key; the server needs no token to read weights from a path."
            findings.append(finding("instance.secret_in_clear", text, cure))
        elif key in _OWN_VARIABLES:
            owner = _OWN_VARIABLES[str(key)]
            cure = f"Set the instance's '{owner}' instead." if owner else "The unit sets it: remove it."
            findings.append(finding("instance.reserved_flag", f"{where}.{key} follows from other settings.", cure))
        elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
            cure = 'Write text in quotes, such as "1" or "true".'
            findings.append(finding("settings.invalid", f"{where}.{key} is {value!r}, not text or a number.", cure))
        elif not unit_file.is_carried_by_environment(str(value)):
            text = f"{where}.{key} holds a NUL, half a character or a noncharacter, which systemd passes to no process."
            findings.append(finding("settings.invalid", text, "Remove it."))
    return findings


def _check_exposure(where: str, entry: Mapping[str, Any]) -> list[Finding]:
    host = str(entry.get("host") or "127.0.0.1")
    if entry.get("api_key") or entry.get("allow_unauthenticated") or _is_loopback(host):
        return []
    text = f"{where}.host {host} opens the server to the network and there is no api_key."
    cure = "Set api_key, bind 127.0.0.1, or state allow_unauthenticated: true."
    return [finding("instance.unauthenticated", text, cure)]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _collisions(entries: Sequence[Mapping[str, Any]]) -> list[Finding]:
    findings: list[Finding] = []
    names: dict[Any, int] = {}
    runs: list[tuple[int, Mapping[str, Any]]] = []
    ports: dict[int, tuple[int, Any]] = {}
    for index, entry in enumerate(entries):
        name = entry.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            continue  # it has its finding
        first = names.setdefault(name, index)
        if first != index:
            text = f"{SETTING}[{index}].name {name!r} is taken by {SETTING}[{first}]."
            findings.append(finding("instance.name_duplicate", text, "Give each instance of a node its own name."))
        if (entry.get("state") or "started") != "started":
            continue
        if first == index:
            findings += _shared_gpus(runs, index, entry)
            runs.append((index, entry))
        port = _port(entry)
        owner, owner_name = ports.setdefault(port, (index, name))
        if owner != index and owner_name != name:
            text = f"{SETTING}[{index}] ({name}).port {port} is taken by {SETTING}[{owner}] ({owner_name})."
            taken = {_port(other) for other in entries}
            free = next(number for number in [*range(port + 1, 65536), *range(1024, 65536)] if number not in taken)
            findings.append(finding("instance.port_duplicate", text, f"{free} is used by no instance of this node."))
    return findings


def _shared_gpus(
    others: Sequence[tuple[int, Mapping[str, Any]]], index: int, entry: Mapping[str, Any]
) -> list[Finding]:
    """Compare an instance with those before it; no `gpus` means all of them, and `device: cpu` none."""
    for other_index, other in others:
        if any((one.get("args") or {}).get("device") == "cpu" for one in (entry, other)):
            continue
        here, there = entry.get("gpus"), other.get("gpus")
        if here == [] or there == []:
            continue
        if here is not None and there is not None and not set(map(int, here)) & set(map(int, there)):
            continue
        both = "all" if here is None or there is None else str(sorted(set(map(int, here)) & set(map(int, there))))
        text = (
            f"{SETTING}[{index}] ({entry['name']}).gpus and {SETTING}[{other_index}] ({other['name']}).gpus share "
            f"{'GPUs, as one of them may use all' if both == 'all' else f'the GPUs {both}'}."
        )
        cure = "Give each its own GPUs, or each a mem-fraction-static that leaves room for the other."
        return [finding("instance.gpu_shared", text, cure)]
    return []
