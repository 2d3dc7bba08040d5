# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs on a node, for people: one row an instance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import release, sglang_api, systemd, unit_policy
from ansible_collections.headroom.serving.plugins.module_utils.release import Store

_ANSWER_S = 3.0


@dataclass(frozen=True)
class Row:
    """An instance as it is now; `kv_tokens`, `running` and `queued` are None where the server does not answer."""

    name: str
    release: str
    unit: str
    since: str
    serving: str
    model: str
    port: int
    kv_tokens: int | None
    running: int | None
    queued: int | None
    accepted: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


HEADER = (
    "instance",
    "release",
    "unit",
    "since",
    "serving",
    "model",
    "port",
    "KV tokens",
    "running",
    "queued",
    "accepted",
)


def rows(root: Path) -> list[Row]:
    """Return a row for each instance that has a current release below `root`.

    Raises:
        HeadroomError: If systemd does not answer.
    """
    return [_row(Store(root, name)) for name in release.known(root)]


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row as the texts of a table; numbers with separators, what is unknown as a dash."""
    numbers = [row["kv_tokens"], row["running"], row["queued"]]
    return [
        row["name"],
        row["release"],
        row["unit"],
        row["since"] or "-",
        row["serving"],
        row["model"],
        str(row["port"]),
        *("-" if number is None else f"{number:,}" for number in numbers),
        ", ".join(row["accepted"]) or "-",
    ]


def _row(store: Store) -> Row:
    current = store.link(release.CURRENT)
    record = store.record(current)
    unit = systemd.state(unit_policy.unit_name(store.name))
    model, port = str(record.get("served_name", "-")), int(record.get("port", 0))
    serving, kv_tokens, load = "no", None, None
    whole = "host" in record and bool(port)
    if unit.is_active and whole:
        api = sglang_api.SglangApi(str(record["host"]), port, store.api_key(current))
        try:
            serving = "yes" if model in api.models(_ANSWER_S) else "another model"
            kv_tokens = api.server_info(_ANSWER_S).kv_tokens
            load = api.load(_ANSWER_S)
        except sglang_api.ApiTimeout:
            serving = "busy"
        except sglang_api.ApiError:
            serving = serving if serving == "yes" else "not yet"
    return Row(
        name=store.name,
        release=current if whole else "damaged" if current else "none",
        unit=f"{unit.active} ({unit.sub})" if unit.exists else "missing",
        since=unit.since if unit.is_active else "",
        serving=serving,
        model=model,
        port=port,
        kv_tokens=kv_tokens,
        running=load.running if load else None,
        queued=load.queued if load else None,
        accepted=tuple((store.plan(current).get("report") or {}).get("accepted") or ()),
    )
