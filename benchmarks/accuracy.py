# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the plan with the starts of a real SGLang that were recorded: prediction, measurement, error.

Without a GPU: the recordings are test data. --write renews the tables and the picture of docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy.svg"
# Flags that all starts have: random weights, and no kernels that the machine could not compile.
_EVERYWHERE = ("load-format", "sampling-backend", "grammar-backend", "enable-metrics", "attention-backend")
_SHORT = {
    "mem-fraction-static": "f",
    "cuda-graph-max-bs-decode": "graph",
    "cuda-graph-max-bs": "graph",
    "cuda-graph-bs": "graph",
    "max-running-requests": "requests",
    "max-total-tokens": "tokens",
    "chunked-prefill-size": "chunk",
    "kv-cache-dtype": "kv",
    "hicache-size": "hicache",
    "hicache-ratio": "hicache x",
    "tp-size": "tp",
    "disable-prefill-cuda-graph": "no prefill graphs",
    "disable-decode-cuda-graph": "no decode graphs",
}
_UNSAID = ("enable-hierarchical-cache", "hicache-write-policy", "hicache-io-backend")


@dataclass(frozen=True)
class Row:
    """A recorded start beside its plans: from the shape alone, and given free memory and weights as its log said."""

    start: dict[str, Any]
    alone: Any
    given: Any

    @property
    def outcome(self) -> str:
        """What became of the start."""
        if not self.start["served"]:
            return "died at start"
        if not self.start.get("load"):
            return "served, no load"
        return "survived" if self.start["survived"] else "died under load"

    @property
    def slack_gib(self) -> float:
        """What the fraction left beside weights and KV, by the log."""
        return float(self.start["pre_gib"] * (1 - self.given.gpu.fraction))

    @property
    def taken_gib(self) -> float | None:
        """The most that was taken of it at any time, None without a load that was answered."""
        from plan_samples import GIB

        load = self.start.get("load")
        if not load or not self.start["survived"]:
            return None
        least = min(self.start["least_free_at_start_mib"], *load["least_free_mib"].values()) / 1024
        kv = self.start["tokens"] * self.given.gpu.cell_bytes / GIB
        return float(self.start["pre_gib"] - self.start["weights_gib"] - kv - least)


def rows() -> list[Row]:
    """Plan all recorded starts that got as far as the weights."""
    for folder in ("playbooks/collections", "tests/unit"):
        if str(ROOT / folder) not in sys.path:
            sys.path.insert(0, str(ROOT / folder))
    from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts
    from plan_samples import LOADED, MIB, RECORDED, planned, recorded_model, recorded_node

    found = []
    for start in [*RECORDED["starts"], *LOADED["starts"]]:
        if start["weights_gib"] is None:
            continue
        node = recorded_node(start)
        # One start waited until the memory of the one before had come back.
        free = [replace(gpu, used_bytes=0, free_bytes=143_156 * MIB) if gpu.used_bytes else gpu for gpu in node.gpus]
        node, model = replace(node, gpus=tuple(free)), recorded_model(start["model"])
        facts = Facts(pre_gib=start["pre_gib"], weights_gib=start["weights_gib"])
        alone, given = (planned(start["args"], model, node, RECORDED["engine"], one) for one in (Facts(), facts))
        found.append(Row(start, alone, given))
    return found


def flags(start: dict[str, Any]) -> str:
    """Return the flags that make a start what it is, in short."""
    said = []
    for name, value in start["args"].items():
        if name in _EVERYWHERE or name in _UNSAID:
            continue
        short = _SHORT.get(name, name)
        number = max(value) if isinstance(value, list) else value
        said.append(short if value is True else f"{short} {number}")
    return ", ".join(said)


def off(predicted: float, measured: float) -> str:
    """Return a relative error in per cent, with its sign."""
    return f"{(predicted / measured - 1) * 100:+.2f} %"


def tokens_table(found: list[Row]) -> list[str]:
    """Return the table of KV tokens with what they come from."""
    from plan_samples import GIB

    lines = [
        "| start | flags | tokens, measured | from the shape alone | error | given pre and weights | error "
        "| pre, GiB | predicted | weights, GiB | predicted |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in found:
        start, alone, given = row.start, row.alone, row.given
        cells = [start["name"], flags(start)]
        if start["tokens"]:
            band = f"{alone.tokens.best:,.0f} ({alone.tokens.low:,.0f} to {alone.tokens.high:,.0f})"
            cells += [f"{start['tokens']:,}", band, off(alone.tokens.best, start["tokens"])]
            cells += [f"{given.tokens.best:,.0f}", off(given.tokens.best, start["tokens"])]
        else:
            cells += ["none", f"{alone.tokens.best:,.0f}", "", f"{given.tokens.best:,.0f}", ""]
        cells += [f"{start['pre_gib']:.2f}", f"{alone.gpu.pre_bytes.best / GIB:.2f}"]
        cells += [f"{start['weights_gib']:.2f}", f"{alone.gpu.weights_bytes.best / GIB:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def slack_table(found: list[Row]) -> list[str]:
    """Return the table of what must fit beside weights and KV, tightest first within a kind."""
    from plan_samples import GIB

    lines = [
        "| start | slack, GiB | needed, predicted | taken, measured | error | SGLang's reserve | outcome "
        "| verdict, from the shape alone | given pre and weights |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for row in found:
        need, taken = row.given.gpu.need_bytes / GIB, row.taken_gib
        cells = [row.start["name"], f"{row.slack_gib:.2f}", f"{need:.2f}"]
        cells += ["", ""] if taken is None else [f"{taken:.2f}", f"{need - taken:+.2f}"]
        cells += [f"{row.given.gpu.reserve_bytes / GIB:.1f}", row.outcome]
        for plan in (row.alone, row.given):
            refused = [item.id for item in plan.findings if item.verdict == "refuse"]
            cells.append(f"{plan.verdict} ({', '.join(refused)})" if refused else plan.verdict)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def host_table(found: list[Row]) -> list[str]:
    """Return the table of host pools and of the processes' own memory."""
    lines = [
        "| start | ranks | pool of a rank, GB | predicted | a rank's own memory, GB | front | planned for all "
        "| outcome |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in found:
        start, host = row.start, row.given.host
        if not host.tokens:
            continue
        own = start.get("process_gb")
        pool = start["host_pool_gb"]
        cells = [start["name"], str(host.ranks), "none" if pool is None else f"{pool:.2f}"]
        cells += [
            f"{host.pool_bytes / 1e9:.2f}",
            f"{own['rank']:.2f}" if own else "",
            f"{own['front']:.2f}" if own else "",
        ]
        cells += [f"{host.process_bytes / 1e9:.0f}", row.outcome]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(found: list[Row]) -> list[str]:
    """Return the figures that sum the tables up."""
    whole = [row for row in found if row.start["tokens"]]
    given = max(abs(row.given.tokens.best / row.start["tokens"] - 1) for row in whole)
    alone = max(abs(row.alone.tokens.best / row.start["tokens"] - 1) for row in whole)
    lived = [row for row in found if row.start.get("load") and row.start["survived"]]
    tight = [row for row in lived if row.slack_gib * 2**30 < 0.75 * row.given.gpu.reserve_bytes]
    died = [row for row in found if row.start.get("died_of")]
    return [
        f"* {len(whole)} starts with a KV pool. Given free memory and weights as their logs say, tokens are at most "
        f"{given * 100:.2f} % off;",
        f"  from the shape alone {alone * 100:.2f} %. The intervals hold the truth in {_held(whole, 'given')} and "
        f"{_held(whole, 'alone')} of {len(whole)}.",
        f"* {len(lived)} starts got a load and survived it, {len(tight)} of them with less than three quarters of "
        "SGLang's own reserve.",
        f"  {_both(lived)}.",
        f"* {len(died)} starts of the same series died of memory.",
        f"  {_both(died)}.",
    ]


def _both(found: list[Row]) -> str:
    alone, given = _refused(found, "alone"), _refused(found, "given")
    return f"The plan refuses {alone} of them from the shape alone, {given} given free memory and weights"


def _held(found: list[Row], how: str) -> int:
    bands = [(getattr(row, how).tokens, row.start["tokens"]) for row in found]
    return sum(1 for band, tokens in bands if band.low <= tokens <= band.high)


def _refused(found: list[Row], how: str) -> int:
    return sum(1 for row in found if getattr(row, how).verdict == "refuse")


def picture(found: list[Row]) -> str:
    """Return an SVG: for each start what the slack had to hold, by estimate and measured, and how much it was."""
    from plan_samples import GIB

    shown = [row for row in found if row.start.get("died_of") != "host" and row.start.get("load") is not None]
    shown += [row for row in found if row.start.get("died_of") == "gpu" and row.start.get("load") is None]
    shown = sorted((row for row in shown if row.start["tokens"]), key=lambda row: row.slack_gib)
    left, scale, step, most = 150, 70, 18, 10.0
    height = step * len(shown) + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + int(most * scale) + 40}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="8" y="16" font-size="13">What the slack had to hold, GiB: predicted (bar), taken (tick), '
        "and how much it was (dot: survived, cross: died)</text>",
    ]
    bottom = height - 24
    for gib in range(int(most) + 1):
        x = left + gib * scale
        parts.append(
            f'<path d="M{x} 26V{bottom}" stroke="#ddd"/><text x="{x}" y="{bottom + 14}" '
            f'text-anchor="middle">{gib}</text>'
        )
    for place, row in enumerate(shown):
        y = 38 + place * step
        need, slack = row.given.gpu.need_bytes / GIB, row.slack_gib
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{row.start["name"]}</text>')
        parts.append(f'<rect x="{left}" y="{y - 5}" width="{need * scale:.0f}" height="10" fill="#9bbfe0"/>')
        if row.taken_gib is not None:
            x = left + row.taken_gib * scale
            parts.append(f'<path d="M{x:.0f} {y - 7}V{y + 7}" stroke="#1f4e79" stroke-width="2"/>')
        x = left + min(slack, most + 0.3) * scale
        if row.start["survived"]:
            parts.append(f'<circle cx="{x:.0f}" cy="{y}" r="4" fill="#2e7d32"/>')
        else:
            parts.append(f'<path d="M{x - 4:.0f} {y - 4}l8 8m0 -8l-8 8" stroke="#c62828" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page(text: str, found: list[Row]) -> str:
    """Return the page with what stands between its markers renewed."""
    for name, lines in _tables(found):
        begin, end = f"<!-- {name}: written by benchmarks/accuracy -->", f"<!-- end of {name} -->"
        head, middle, rest = text.partition(begin)
        _old, last, tail = rest.partition(end)
        if not middle or not last:
            raise SystemExit(f"benchmarks/accuracy: {PAGE.relative_to(ROOT)} lacks '{begin}' or '{end}'")
        text = "\n".join([f"{head}{begin}", "", *lines, "", f"{end}{tail}"])
    return text


def _tables(found: list[Row]) -> Iterator[tuple[str, list[str]]]:
    yield "summary", summary(found)
    yield "tokens", tokens_table(found)
    yield "slack", slack_table(found)
    yield "host", host_table(found)


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, or write them with --write; return 0."""
    parser = argparse.ArgumentParser(prog="benchmarks/accuracy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew docs/accuracy.md and docs/accuracy.svg")
    options = parser.parse_args(arguments)
    found = rows()
    if not options.write:
        for _name, lines in _tables(found):
            print("\n".join([*lines, ""]))
        return 0
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    PICTURE.write_text(picture(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
