# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a plan as one page of HTML that needs nothing else: no script, no font, no address.

Bars are drawn in percent of their own width, so they are to scale on any screen while their letters keep their size.
Parts are told apart by letters as well as by colours, which are those of Okabe and Ito.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from ansible_collections.headroom.serving.plugins.plugin_utils import plan_budgets, plan_text
from ansible_collections.headroom.serving.plugins.plugin_utils.plan_budgets import Budget, Row
from ansible_collections.headroom.serving.plugins.plugin_utils.plan_style import STYLE

_BAR_TOP, _BAR_HEIGHT, _LIMIT_HEIGHT = 6, 34, 26
# Below this a letter would not stand in its part on a telephone's screen.
_LETTER_PERCENT = 3.6
# What the GPU's bar shows as one part, as the bar below it is about nothing else.
_NEED = ("request_table", "decode_graph", "chunk", "vision", "workspace", "communicator", "overflow", "fragment")


def render(report: Mapping[str, Any], node: str) -> str:
    """Return the page for one planned instance of a node."""
    title = f"{report['instance']} on {node}"
    gpu, slack, host = plan_budgets.of(report)
    concerns, notes = plan_text.split(report["plan"]["findings"])
    verdict = report["plan"]["verdict"]
    parts = [
        f'<header><p class="verdict {_text(verdict)}">{_text(verdict)}</p>',
        f"<h1>{_text(title)}</h1>",
        f"<p>Memory plan for SGLang {_text(report['engine_version'])}</p></header>",
        _list(plan_text.gains(report), "gains"),
        _findings("Findings", concerns, report["instance"], "Nothing speaks against it."),
        _section(_merged(gpu)),
        _section(slack),
        _section(host),
        _findings("To know", notes, report["instance"], "No more than the figures say."),
        "<section><h2>What it was made from</h2>",
        _list(plan_text.facts(report), "facts"),
        "</section>",
        _arguments(report["effective"]),
    ]
    return _PAGE.format(title=_text(title), style=STYLE, body="\n".join(parts))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: memory plan</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _text(value: object) -> str:
    return escape(str(value))


def _list(rows: Iterable[tuple[str, str]], kind: str) -> str:
    items = "\n".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in rows)
    return f'<dl class="{kind}">\n{items}\n</dl>'


def _findings(title: str, findings: Sequence[Mapping[str, str]], instance: str, none: str) -> str:
    items = [_finding(item, instance) for item in findings]
    body = "\n".join(['<ul class="findings">', *items, "</ul>"]) if items else f"<p>{none}</p>"
    return f"<section><h2>{title}</h2>\n{body}\n</section>"


def _finding(item: Mapping[str, str], instance: str) -> str:
    badge = "" if item["verdict"] == "ok" else f'<span class="verdict {item["verdict"]}">{item["verdict"]}</span> '
    cure = f'<p class="cure">{_text(item["suggestion"])}</p>' if item["suggestion"] else ""
    message = _text(plan_text.said(item, instance))
    return f"<li>{badge}<code>{_text(item['id'])}</code><p>{message}</p>{cure}</li>"


def _merged(gpu: Budget) -> Budget:
    """Return the GPU's budget with all that lives in the slack as one part: the next bar is about nothing else."""
    need = [row for row in gpu.parts if row.key in _NEED]
    whole = Row("need", "part", "all else, see below", *(sum(sizes) for sizes in zip(*(row.pair for row in need))))
    rows = [row for row in gpu.rows if row.key not in _NEED]
    return replace(gpu, rows=(*rows[:-1], whole, rows[-1]))


def _section(budget: Budget) -> str:
    rows = budget.visible()
    drawn = [row.key for row in rows if row.kind == "part" and row.worst_bytes > 0]
    letters = {key: chr(ord("A") + place) for place, key in enumerate(drawn)}
    differ = any(row.expected_bytes != row.worst_bytes for row in rows)
    names = ("expected", "worst case") if differ else ("size",)
    body = []
    for row in rows:
        letter = letters.get(row.key)
        swatch = f'<span class="swatch p-{row.key}">{letter}</span>' if letter else ""
        figures = "".join(f"<td>{budget.shown(size)}</td>" for size in row.pair[: len(names)])
        body.append(f'<tr class="{row.kind}"><th scope="row">{swatch}{_text(row.label)}</th>{figures}</tr>')
    return f"""<section>
<h2>{_text(budget.title)}</h2>
{_bar(budget, letters)}
{_table(f"part, {budget.unit}", names, body)}
</section>"""


def _table(corner: str, names: Sequence[str], body: Iterable[str], kind: str = "budget") -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in (corner, *names))
    lines = "\n".join(body)
    return f"""<div class="scroll"><table class="{kind}">
<thead><tr>{head}</tr></thead>
<tbody>
{lines}
</tbody>
</table></div>"""


def _bar(budget: Budget, letters: Mapping[str, str]) -> str:
    """Return the worst case as a stacked bar under lines for its limits, all to one scale."""
    limits, parts = _limits(budget), budget.parts
    taken = sum(row.worst_bytes for row in parts)
    frame = limits[0][2]
    scale = max(taken, *(end for _label, _start, end in limits), 1)

    def percent(size: int) -> str:
        return f"{100 * size / scale:.4f}%"

    top = _BAR_TOP + _LIMIT_HEIGHT * len(limits)
    over = taken - frame
    height = top + _BAR_HEIGHT + (_LIMIT_HEIGHT if over > 0 else _BAR_TOP)
    shown = [f"{row.label} {budget.shown(row.worst_bytes)} {budget.unit}" for row in parts if row.worst_bytes > 0]
    excess = f" {budget.shown(over)} {budget.unit} more than there is." if over > 0 else ""
    lines = [
        f'<svg class="bar" role="img" width="100%" height="{height}" aria-labelledby="{budget.key}-t {budget.key}-d">',
        f'<title id="{budget.key}-t">{_text(budget.title)}, in the worst case</title>',
        f'<desc id="{budget.key}-d">{_text("; ".join(shown))}. {_text(_said_limits(budget, limits))}.{excess}</desc>',
    ]
    for place, (label, start, end) in enumerate(limits):
        lines += _limit(f"{label}: {budget.shown(end - start)} {budget.unit}", start / scale, end / scale, place)
    lines.append(f'<rect class="frame" x="0%" y="{top}" width="{percent(frame)}" height="{_BAR_HEIGHT}"/>')
    reached, marks = 0, []
    for row in parts:
        size = max(0, row.worst_bytes)
        if size:
            lines.append(
                f'<rect class="part p-{row.key}" data-bytes="{size}" x="{percent(reached)}" y="{top}" '
                f'width="{percent(size)}" height="{_BAR_HEIGHT}"/>'
            )
        if row.key in letters and 100 * size / scale >= _LETTER_PERCENT:
            middle = percent(reached + size // 2)
            marks.append(f'<text class="letter l-{row.key}" x="{middle}" y="{top + 22}">{letters[row.key]}</text>')
        reached += size
    if over > 0:
        lines += _overflow(budget, top, (frame, taken), scale)
    lines += marks
    lines.append("</svg>")
    return "\n".join(lines)


def _overflow(budget: Budget, top: int, span: tuple[int, int], scale: int) -> list[str]:
    """Return the marks on what lies between the end of the memory and the end of what is wanted of it."""
    hatch, over = f"hatch-{budget.key}", span[1] - span[0]
    start, end, width = (f"{100 * size / scale:.4f}%" for size in (*span, over))
    bottom = top + _BAR_HEIGHT
    # The text stands on the side where there is room for it.
    at = f'x="{end}" text-anchor="end"' if 2 * span[1] > scale else f'x="{start}"'
    return [
        f'<defs><pattern id="{hatch}" width="8" height="8" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect class="hatch" width="3" height="8"/></pattern></defs>',
        f'<rect class="over" data-bytes="{over}" fill="url(#{hatch})" x="{start}" y="{top}" width="{width}" '
        f'height="{_BAR_HEIGHT}"/>',
        f'<line class="end" x1="{start}" x2="{start}" y1="{top - 4}" y2="{bottom + 6}"/>',
        f'<text class="excess" {at} y="{bottom + 18}">{budget.shown(over)} {budget.unit} too much</text>',
    ]


def _limits(budget: Budget) -> list[tuple[str, int, int]]:
    """Return (label, start, end) of each limit in the worst case; the first is the end of the memory."""
    found = []
    for row in budget.rows:
        if row.kind != "limit":
            continue
        size = row.worst_bytes
        if budget.key == "gpu" and row.key == "slack":
            # Drawn from the other end: the share of weights and KV, which the slack leaves.
            free, total = budget["free"].worst_bytes, budget["total"].worst_bytes
            found.append(("for weights and KV", total - free, total - size))
        elif row.key in ("free", "available"):
            total = budget["total"].worst_bytes
            found.append((row.label, total - size, total))
        else:
            found.append((row.label, 0, size))
    return found


def _said_limits(budget: Budget, limits: Iterable[tuple[str, int, int]]) -> str:
    return "; ".join(f"{label} {budget.shown(end - start)} {budget.unit}" for label, start, end in limits)


def _limit(label: str, start: float, end: float, place: int) -> list[str]:
    """Return a line from `start` to `end`, as parts of the width, with its label above it."""
    y = _BAR_TOP + _LIMIT_HEIGHT * place + 18
    low, high = f"{100 * start:.4f}%", f"{100 * end:.4f}%"
    at = f'x="{high}" text-anchor="end"' if start > 0.5 else f'x="{low}"'
    return [
        f'<text class="limit" {at} y="{y - 6}">{_text(label)}</text>',
        f'<line class="limit" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>',
        *(f'<line class="limit" x1="{x}" x2="{x}" y1="{y - 4}" y2="{y + 4}"/>' for x in (low, high)),
    ]


def _arguments(effective: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for name, entry in effective.items():
        if entry["value"] is not None:
            cells = "".join(
                f"<td>{_text(cell)}</td>" for cell in (_shown(entry["value"]), entry["origin"], entry["source"])
            )
            rows.append(f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>')
    return f"""<details>
<summary>Flags that size anything, as the server will use them</summary>
{_table("flag", ("value", "origin", "from"), rows, "flags")}
</details>"""


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
