# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of plans as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import table
from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets
from ansible_collections.headroom.serving.plugins.plugin_utils.plan_budgets import Budget, Row

_ORDER = ("refuse", "warn", "ok")
# Narrower than this a column of text is no help.
_LEAST = 32


def whole(report: Mapping[str, Any], node: str, width: int) -> list[str]:
    """Return all that is to be said of one planned instance.

    Args:
        report: The report.
        node: Name of the node.
        width: Columns of the terminal.
    """
    lines = [heading(report, node), *_indented(facts(report), width), ""]
    gpu, slack, host = plan_budgets.of(report)
    lines += [*_budget(gpu, slack["reserve"]), "", *_budget(host), ""]
    lines += [*_indented(gains(report), width), ""]
    found, notes = split(report["plan"]["findings"])
    if found:
        lines += [*findings_table(found, report["instance"], width - 2), ""]
    for item in notes:
        text = " ".join(filter(None, (f"{said(item, report['instance'])}.", item["suggestion"], f"[{item['id']}]")))
        lines += _wrapped(f"note: {text}", width - 2, "      ")
    return [lines[0], *(f"  {line}".rstrip() for line in lines[1:])]


def concerns(report: Mapping[str, Any], node: str, width: int) -> list[str]:
    """Return what warns or refuses, as a table under the name of the instance; nothing if all is well."""
    found = split(report["plan"]["findings"])[0]
    if not found:
        return []
    body = findings_table(found, report["instance"], width - 2)
    return [heading(report, node), *(f"  {line}" for line in body)]


def general(found: Sequence[Mapping[str, str]], node: str, width: int) -> list[str]:
    """Return what warns or refuses about the node as a whole, as a table under its name; nothing if all is well."""
    shown = split(found)[0]
    return [f"{node}:", *(f"  {line}" for line in findings_table(shown, "", width - 2))] if shown else []


def heading(report: Mapping[str, Any], node: str) -> str:
    """Return the line that names node, instance, engine and verdict."""
    return f"{node}: {report['instance']}, SGLang {report['engine_version']}: {report['plan']['verdict']}"


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the plan was made from and how far its figures go, as names and texts."""
    sources = report["sources"]
    rows = [(name, sources[name]) for name in ("hardware", "model", "facts") if sources.get(name)]
    rows.append(("figures", "; ".join(report["plan"]["estimates"])))
    if report["accepted"]:
        rows.append(("accepted", ", ".join(report["accepted"])))
    return rows


def gains(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the instance gets: tokens and requests."""
    plan = report["plan"]
    tokens = plan["tokens"]
    low, best, high = (int(tokens[key]) for key in ("low", "best", "high"))
    band = f"{best:,}" if low == high else f"{low:,} to {high:,}, {best:,} expected"
    which = "the whole context" if plan["request_tokens"] == plan["context_tokens"] else "the expected length"
    requests = f"{plan['requests_at_context']:,} of {plan['request_tokens']:,} tokens ({which})"
    rows = [
        ("KV tokens", band),
        ("requests at a time", f"{requests}, {plan['max_running_requests']:,} at most"),
    ]
    if plan["host_tokens"]:
        rows.append(("tokens of the host tier", f"{plan['host']['unique_tokens']:,}"))
    if plan["host"]["load_window_bytes"]:
        rows.append(("host memory while loading", f"{plan['host']['load_window_bytes'] / plan_budgets.GB:,.1f} GB"))
    return rows


def split(findings: Iterable[Mapping[str, str]]) -> tuple[list[Mapping[str, str]], list[Mapping[str, str]]]:
    """Return (what refuses or warns, the harshest first; what is only to be known)."""
    ordered = sorted(findings, key=lambda item: _ORDER.index(item["verdict"]))
    return [item for item in ordered if item["verdict"] != "ok"], [item for item in ordered if item["verdict"] == "ok"]


def findings_table(findings: Sequence[Mapping[str, str]], instance: str, width: int) -> list[str]:
    """Return findings as a table: verdict, id, and what is wrong with what would work on lines of its own."""
    header = ("verdict", "finding", "what, and what would work")
    beside = sum(
        max(len(name), *(len(item[key]) for item in findings)) + 2 for name, key in zip(header, ("verdict", "id"))
    )
    room = max(_LEAST, width - beside)
    rows: list[tuple[str, str, str]] = []
    for item in findings:
        lines = _wrapped(said(item, instance), room)
        if item["suggestion"]:
            lines += _wrapped(f"-> {item['suggestion']}", room, "   ")
        rows += [(item["verdict"], item["id"], lines[0]), *(("", "", line) for line in lines[1:])]
    return table.render(header, rows)


def said(item: Mapping[str, str], instance: str) -> str:
    """Return the message without the name of the instance, which stands above it."""
    return item["message"].removeprefix(f"{instance}: ") if instance else item["message"]


def _indented(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    shown = list(rows)
    margin = max(len(name) for name, _text in shown) + 2
    lines: list[str] = []
    for name, text in shown:
        lines += _wrapped(f"{name:{margin}}{text}", width - 2, " " * margin)
    return lines


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, max(_LEAST, width), subsequent_indent=indent, break_on_hyphens=False)


def _budget(budget: Budget, *more: Row) -> list[str]:
    """Return a budget as a table; one column of figures where the worst case is no other than what is expected."""
    shown = [*budget.visible(), *more]
    labels = [("  " if row.kind == "part" else "") + row.label for row in shown]
    figures = [[budget.shown(size) for size in row.pair] for row in shown]
    if all(expected == worst for expected, worst in figures):
        return table.render((budget.title, budget.unit), [(label, pair[0]) for label, pair in zip(labels, figures)])
    header = (f"{budget.title}, {budget.unit}", "expected", "worst case")
    return table.render(header, [(label, *pair) for label, pair in zip(labels, figures)])
