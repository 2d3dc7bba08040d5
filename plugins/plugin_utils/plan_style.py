# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the page of a plan looks: light, dark and on paper. `p-KEY` colours the part of a budget with that key."""

from __future__ import annotations

STYLE = """\
:root {
  color-scheme: light dark;
  --page: #fff; --ink: #1a1a1a; --faint: #595959; --line: #c8c8c8; --over: #a40000; --empty: #f3f3f3;
}
@media (prefers-color-scheme: dark) {
  :root { --page: #16181b; --ink: #ececec; --faint: #a8adb3; --line: #484d53; --over: #ff8a80; --empty: #23262a; }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1rem 0 0.25rem; }
p { margin: 0.15rem 0; }
header p, .cure, dt, thead th { color: var(--faint); }
header { position: relative; padding-right: 6rem; }
.verdict {
  display: inline-block; padding: 0 0.55em; border-radius: 0.3em; font-weight: 600; background: #009e73; color: #000;
}
header .verdict { position: absolute; right: 0; top: 0.15rem; font-size: 1.1rem; color: #000; }
.verdict.warn { background: #e69f00; }
.verdict.refuse, header .verdict.refuse { background: #a40000; color: #fff; }
dl { margin: 1rem 0; }
dl div { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: 0.15rem 0; border-bottom: 1px solid var(--line); }
dt { flex: 0 0 12rem; }
dd { flex: 1 1 16rem; margin: 0; overflow-wrap: anywhere; }
.gains dd { font-weight: 600; font-variant-numeric: tabular-nums; }
.findings { list-style: none; margin: 0; padding: 0; }
.findings li { padding: 0.5rem 0; border-bottom: 1px solid var(--line); break-inside: avoid; }
.findings p { overflow-wrap: anywhere; }
.cure::before { content: "\\2192\\00a0"; }
code { font: 0.875rem ui-monospace, "DejaVu Sans Mono", monospace; }
section { break-inside: avoid-page; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 0.5rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: normal; }
td, th { padding: 0.2rem 0.5rem; border-bottom: 1px solid var(--line); }
td, thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.limit th, .limit td, .left th, .left td { font-weight: 600; }
.part th { padding-left: 1.25rem; }
.flags td, .flags thead th { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.swatch {
  display: inline-block; width: 1.5em; height: 1.5em; margin-right: 0.5em; border-radius: 0.2em; text-align: center;
  line-height: 1.5em; font-size: 0.8rem; color: #000;
}
details { margin-top: 2rem; }
summary { cursor: pointer; font-weight: 600; }
.bar { display: block; overflow: visible; }
.bar text { font-size: 13px; fill: var(--ink); }
.bar .letter {
  font-size: 14px; text-anchor: middle; fill: #000; stroke: #fff; stroke-width: 4px; stroke-opacity: 0.75;
  paint-order: stroke;
}
.bar line { stroke: var(--faint); }
.bar .frame { fill: var(--empty); stroke: var(--faint); }
.bar .part { stroke: var(--page); stroke-width: 1; }
.bar .over { stroke: var(--over); stroke-width: 2; }
.bar .hatch { fill: #1a1a1a; }
.bar .end { stroke: var(--over); stroke-width: 3; }
.bar .excess { fill: var(--over); font-weight: 600; }
.p-outside, .p-fragment { fill: #a6a6a6; background: #a6a6a6; }
.p-others, .p-request_table, .p-draft_weights { fill: #56b4e9; background: #56b4e9; }
.p-weights, .p-pools, .p-communicator { fill: #0072b2; background: #0072b2; }
.p-multimodal, .p-vision, .p-side_pools { fill: #cc79a7; background: #cc79a7; }
.p-kv, .p-computing, .p-workspace { fill: #e69f00; background: #e69f00; }
.p-draft_kv, .p-chunk, .p-reserve { fill: #f0e442; background: #f0e442; }
.p-need, .p-states, .p-decode_graph, .p-processes { fill: #009e73; background: #009e73; }
.p-excess, .p-overflow, .p-offload { fill: #d55e00; background: #d55e00; }
.p-spare { fill: #dddddd; background: #dddddd; }
.bar .l-weights, .bar .l-pools, .bar .l-communicator { fill: #fff; stroke: #0072b2; stroke-opacity: 1; }
.swatch.p-weights, .swatch.p-pools, .swatch.p-communicator { color: #fff; }
@media (max-width: 30rem) {
  dt { flex-basis: 100%; }
  .part th { padding-left: 0.5rem; }
}
@media print {
  :root { --page: #fff; --ink: #000; --faint: #444; --line: #bbb; --over: #a40000; --empty: #f3f3f3; }
  body { font-size: 10pt; }
  .verdict, .swatch { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .scroll { overflow: visible; }
}
"""
