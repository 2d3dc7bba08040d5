# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budgets of a planned instance, part by part, so that a table and a picture show the same figures.

Made from a report (`plan_report.as_dict`), whose bytes they only put in order. Each figure is there twice: as expected,
and as in the worst case of the plan's bands, by which the plan judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

GIB = 2**30
GB = 10**9
# A limit is what parts are held against; "left" is what the last limit leaves to nobody.
Kind = Literal["limit", "part", "left"]
_NEED = (
    ("request_table", "table of requests"),
    ("decode_graph", "decode graphs"),
    ("chunk", "a prefill chunk"),
    ("vision", "images"),
    ("workspace", "workspace of attention"),
    ("communicator", "NCCL's channels"),
    ("overflow", "KV beyond the budget"),
    ("fragment", "fragments"),
)


class _Pair(NamedTuple):
    """A figure as expected, and in the worst case."""

    expected: int
    worst: int

    @classmethod
    def same(cls, size: int) -> _Pair:
        return cls(size, size)

    def __sub__(self, other: _Pair) -> _Pair:
        return _Pair(self.expected - other.expected, self.worst - other.worst)

    def scaled(self, part: _Pair, whole: int) -> _Pair:
        """Return this share of a part, as it is of the whole."""
        return _Pair(*(size * share // max(1, whole) for size, share in zip(self, part)))


@dataclass(frozen=True)
class Row:
    """One figure of a budget, in bytes; what is left is negative where something does not fit."""

    key: str
    kind: Kind
    label: str
    expected_bytes: int
    worst_bytes: int

    @property
    def pair(self) -> _Pair:
        """Both figures."""
        return _Pair(self.expected_bytes, self.worst_bytes)


@dataclass(frozen=True)
class Budget:
    """What is there, what takes how much of it, and what is left.

    `unit_bytes` is what figures are shown in: GiB for a GPU, decimal GB for a host, as SGLang shows them.
    """

    key: str
    title: str
    unit: str
    unit_bytes: int
    rows: tuple[Row, ...]

    @property
    def parts(self) -> tuple[Row, ...]:
        """The parts in the order in which they are stacked."""
        return tuple(row for row in self.rows if row.kind == "part")

    def __getitem__(self, key: str) -> Row:
        return next(row for row in self.rows if row.key == key)

    def shown(self, size_bytes: float) -> str:
        """Return bytes in the budget's unit, without it."""
        return f"{size_bytes / self.unit_bytes:,.{2 if self.unit_bytes == GIB else 1}f}"

    def visible(self) -> tuple[Row, ...]:
        """Return the rows that say something: all but parts of nothing."""
        nothing = self.shown(0)
        return tuple(
            row
            for row in self.rows
            if row.kind != "part" or {self.shown(row.expected_bytes), self.shown(row.worst_bytes)} != {nothing}
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the budget as plain data."""
        return {**asdict(self), "rows": [asdict(row) for row in self.rows]}


def of(report: Mapping[str, Any]) -> tuple[Budget, Budget, Budget]:
    """Return the budgets of a GPU, of what the fraction leaves there, and of the host."""
    gpu = _gpu(report)
    return gpu, _slack(report, gpu), _host(report)


def gpu_names(indexes: Sequence[int]) -> str:
    """Return indexes of GPUs for people: `GPU 3`, `GPUs 0 to 7`, `GPUs 0, 2, 3`; empty for none."""
    if not indexes:
        return ""
    if len(indexes) == 1:
        return f"GPU {indexes[0]}"
    if len(indexes) > 2 and list(indexes) == list(range(indexes[0], indexes[-1] + 1)):
        return f"GPUs {indexes[0]} to {indexes[-1]}"
    return f"GPUs {', '.join(map(str, indexes))}"


def _gpu(report: Mapping[str, Any]) -> Budget:
    plan, gpu = report["plan"], report["plan"]["gpu"]
    on_cpu = report["effective"].get("device", {}).get("value") == "cpu"
    free = _Pair(int(gpu["pre_bytes"]["best"]), int(gpu["pre_bytes"]["low"]))
    # A processor has no memory of which a part was taken before.
    total = free if on_cpu else _Pair.same(gpu["total_bytes"])
    others = _Pair.same(min(gpu["claimed_by_others_bytes"], max(0, total.worst - free.expected)))
    weights = _Pair(int(gpu["weights_bytes"]["best"]), int(gpu["weights_bytes"]["high"]))
    draft, images = _Pair.same(gpu["draft_weight_bytes"]), _Pair.same(gpu["multimodal_bytes"])
    slack = _Pair(int(gpu["slack_bytes"]["best"]), int(gpu["slack_bytes"]["low"]))
    share = free - slack - weights - draft - images
    kv = [_Pair.same(gpu[key]) for key in ("kv_bytes", "draft_kv_bytes", "state_bytes")]
    pools = sum(item.expected for item in kv)
    room = _Pair(*(max(0, min(pools, size)) for size in share))
    kv_draft, states = (item.scaled(room, pools) for item in kv[1:])
    if on_cpu:
        title, what = "Memory of a rank", "memory of a rank"
    else:
        what = "memory of the GPU"
        title = f"Memory of each of {gpu_names(plan['gpus'])}" if len(plan["gpus"]) > 1 else "Memory of the GPU"
    rows = [
        Row("total", "limit", what, *total),
        Row("outside", "part", "not free before the weights", *(total - free - others)),
        Row("others", "part", "other instances of the node", *others),
        Row("free", "limit", "free before the weights", *free),
        Row("weights", "part", "weights", *weights),
        Row("draft_weights", "part", "weights of the draft model", *draft),
        Row("multimodal", "part", "cache for images", *images),
        Row("kv", "part", "KV", *(room - kv_draft - states)),
        Row("draft_kv", "part", "KV of the draft model", *kv_draft),
        Row("states", "part", "states of linear attention", *states),
        # Less than a page, or what max-total-tokens keeps from the pool.
        Row("spare", "part", "left over by KV", *(max(0, size) for size in share - room)),
        Row("slack", "limit", f"left by mem-fraction-static {gpu['fraction']:.3f}", *slack),
        *(Row(key, "part", label, *_Pair.same(gpu[f"{key}_bytes"])) for key, label in _NEED),
    ]
    return Budget("gpu", title, "GiB", GIB, (*rows, _left(total, rows)))


def _slack(report: Mapping[str, Any], gpu: Budget) -> Budget:
    """Return what the fraction leaves, and what must fit into that: also weights that their own share does not hold."""
    slack = gpu["slack"].pair
    share = gpu["free"].pair - slack
    for key in ("weights", "draft_weights", "multimodal"):
        share -= gpu[key].pair
    rows = [
        gpu["slack"],
        Row("excess", "part", "weights beyond their share", *(max(0, -size) for size in share)),
        *(gpu[key] for key, _label in _NEED),
    ]
    reserve = Row("reserve", "limit", "what SGLang itself would reserve", *[report["plan"]["gpu"]["reserve_bytes"]] * 2)
    title = "What is left beside weights and KV, and what needs it"
    return Budget("slack", title, "GiB", GIB, (*rows, _left(slack, rows), reserve))


def _host(report: Mapping[str, Any]) -> Budget:
    host = report["plan"]["host"]
    ranks = f"{host['ranks']} rank{'s' if host['ranks'] != 1 else ''}"
    total, available = host["total_bytes"], host["available_bytes"]
    taken = max(0, total - available)
    others = min(host["claimed_by_others_bytes"], taken)
    rows = [
        Row("total", "limit", "memory of the host", total, total),
        Row("outside", "part", "in use, or beyond a limit", *_Pair.same(taken - others)),
        Row("others", "part", "other instances of the node", others, others),
        Row("available", "limit", "available", available, available),
    ]
    for key, label, size in (
        ("pools", f"host tier, {ranks} x {host['pool_bytes'] / GB:,.1f}", host["ranks"] * host["pool_bytes"]),
        (
            "side_pools",
            f"pools beside it, {ranks} x {host['side_bytes'] / GB:,.1f}",
            host["ranks"] * host["side_bytes"],
        ),
        ("computing", "weights and KV", host["computing_bytes"]),
        ("offload", "offloaded weights", host.get("offload_bytes", 0)),
        ("reserve", "SGLang's reserve", host["reserve_bytes"]),
        ("processes", f"processes ({host['process_source']})", host["process_bytes"]),
    ):
        rows.append(Row(key, "part", label, size, size))
    return Budget("host", "Memory of the host", "GB", GB, (*rows, _left(_Pair.same(total), rows)))


def _left(limit: _Pair, rows: Sequence[Row]) -> Row:
    for row in rows:
        if row.kind == "part":
            limit -= row.pair
    return Row("left", "left", "left over", *limit)
