# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of one start of SGLang, from the lines of its log.

SGLang prints GiB (2**30) as "GB", with two decimals; only host pools are decimal GB (10**9). Each rank logs for itself,
named in the line's header. A draft model loads, allocates and captures after the target, with the same messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StartFacts:
    """What a start has shown; None is not shown.

    fraction: mem_fraction_static as resolved. pre_gib: free memory before the weights, the least over the ranks.
    weights_gib: the target's weights on a rank, the most; draft_weights_gib: all draft models' likewise. tokens: KV
    tokens of a rank, with kv_gib of memory; swa_tokens: those of sliding windows; states: states of linear attention.
    sized_after_capture: KV got what was left after the graphs, instead of its part of pre. prefill_, decode_ and
    draft_graph_gib: graphs, the most over the ranks. slack_gib: free memory when the schedulers were ready, the least.
    host_pool_gb: all host pools of one rank, in decimal GB. max_running_requests: of one copy of the scheduler.
    context_len and chunked_prefill_size: in tokens; the second is -1 where chunking is off.
    """

    fraction: float | None = None
    pre_gib: float | None = None
    weights_gib: float | None = None
    draft_weights_gib: float | None = None
    tokens: int | None = None
    kv_gib: float | None = None
    swa_tokens: int | None = None
    states: int | None = None
    sized_after_capture: bool = False
    prefill_graph_gib: float | None = None
    decode_graph_gib: float | None = None
    draft_graph_gib: float | None = None
    slack_gib: float | None = None
    host_pool_gb: float | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    chunked_prefill_size: int | None = None


@dataclass(frozen=True)
class Message:
    """A message with figures, from its first character on, and the lines of `sglang/srt` that write it.

    `old` is in 0.5.14, `new` in 0.5.23; empty where a release has no such message.
    """

    id: str
    pattern: str
    old: str
    new: str


_GB = r"(-?\d{1,9}(?:\.\d{1,9})?) ?GB"
_INT = r"(-?\d{1,18})"
MESSAGES = (
    Message(
        "arguments",
        r"server_args=.*?\bmem_fraction_static'?(?:=|: )(\d{0,3}\.?\d{1,17})\b",
        "entrypoints/engine.py:784",
        "entrypoints/engine.py:1185",
    ),
    Message(
        "load_begin",
        rf"Load weight begin\. avail mem={_GB}",
        "model_executor/model_runner.py:1339",
        "model_executor/model_runner.py:1274",
    ),
    Message(
        "load_end",
        rf"Load weight end\. .*avail mem={_GB}, mem usage={_GB}",
        "model_executor/model_runner.py:1493",
        "model_executor/model_runner.py:1373",
    ),
    Message(
        "kv",
        rf"(?:[\w-]+ ){{0,4}}KV Cache (is allocated|VA upper bound)\. dtype: \S+ #tokens: {_INT}, "
        rf"(?:K size: {_GB}, V size: {_GB}|KV size: {_GB})",
        "mem_cache/memory_pool.py:1023, :1029",
        "mem_cache/memory_pool.py:2088, :2096",
    ),
    Message(
        "windows",
        rf"SWAKVPool (mem usage|VA upper bound): {_GB}, swa size: {_INT}, full size: {_INT}",
        "mem_cache/swa_memory_pool.py:89",
        "mem_cache/swa_memory_pool.py:133",
    ),
    Message(
        "states",
        rf"Mamba Cache is allocated\. max_mamba_cache_size: {_INT}, conv_state size: {_GB}, ssm_state size: {_GB}",
        "mem_cache/memory_pool.py:504, :516",
        "mem_cache/memory_pool.py:984, :1005",
    ),
    Message(
        "pool_end",
        rf"Memory pool end\. avail mem={_GB}",
        "model_executor/model_runner_kv_cache_mixin.py:1091",
        "mem_cache/kv_cache_configurator.py:499",
    ),
    Message(
        "graphs",
        rf"Capture (.{{0,40}}?) graph end\. .*mem usage={_GB}, avail mem={_GB}",
        "model_executor/model_runner.py:2588, :2753; speculative/eagle_worker_v2.py:405, :463",
        "model_executor/model_runner_components/cuda_graph_setup.py:696, :788, eagle_worker_v2.py:533, :654",
    ),
    Message(
        "kv_after_capture",
        rf"Post-capture KV sizing: KV cache allocated\. dtype: \S+ #tokens: {_INT}, KV size: {_GB}, avail mem={_GB}",
        "",
        "model_executor/model_runner_components/kv_pool_runtime.py:195",
    ),
    Message(
        "windows_after_capture",
        rf"Post-capture KV sizing: full_layer_tokens={_INT}, swa_layer_tokens={_INT}",
        "",
        "model_executor/model_runner_components/kv_pool_runtime.py:190",
    ),
    Message(
        "host_pool",
        rf"Allocating .{{0,80}}?{_GB} host memory",
        "mem_cache/pool_host/base.py:87, mem_cache/memory_pool_host.py:1460, :2125, :2503, :3005",
        "mem_cache/pool_host/base.py:262, :274, mamba.py:195, dsa.py:232, :243, mha.py:955, minimax_m3_nvfp4.py:95",
    ),
    Message(
        "summary",
        rf"max_total_num_tokens={_INT}, chunked_prefill_size={_INT}, max_prefill_tokens={_INT}, "
        rf"max_running_requests={_INT}, context_len={_INT}, available_[gc]pu_mem={_GB}",
        "managers/scheduler.py:936",
        "managers/scheduler.py:1269",
    ),
)
_COMPILED = tuple((message.id, re.compile(message.pattern)) for message in MESSAGES)
_AVAILABLE = re.compile(rf"\b(?:avail mem|available_[gc]pu_mem)={_GB}")
# SGLang's own header (A utils/common.py:1357, managers/scheduler.py:4133; B :2618, :6280). A progress bar may stand
# before it. A line without it, such as one of a logging configuration of the user's, does not tell its rank.
_HEADER = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?((?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] ")


@dataclass
class _Rank:
    """What one scheduler process has said, in its order."""

    pre_gib: float | None = None
    loads_gib: list[float] = field(default_factory=list)
    pools_ended: int = 0
    tokens: int | None = None
    kv_gib: float = 0.0
    swa_tokens: int | None = None
    states: int | None = None
    sized_after_capture: bool = False
    graphs_gib: dict[str, float] = field(default_factory=dict)
    available_gib: float | None = None
    host_pools_gb: list[float] = field(default_factory=list)
    summary: tuple[int, int, int, int] | None = None


class FactsReader:
    """Reads the lines of one start in their order; lines without figures are passed over, none is an error."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Rank] = {}
        self._fraction: float | None = None

    def feed(self, line: str) -> None:
        """Take one line."""
        # A cheap look first: most lines of a start have no figures.
        if not ("GB" in line or "mem_fraction_static" in line or "_layer_tokens" in line):
            return
        headers = list(_HEADER.finditer(line))
        if not headers:
            return
        name, text = headers[-1].group(1), line[headers[-1].end() :]
        for kind, pattern in _COMPILED:
            found = pattern.match(text)
            if found and kind == "arguments":
                self._fraction = float(found.group(1))
            elif found:
                _take(self._ranks.setdefault(name, _Rank()), kind, found)
        available = _AVAILABLE.search(text)
        if available and name in self._ranks:
            self._ranks[name].available_gib = float(available.group(1))

    def result(self) -> StartFacts:
        """Return what the lines so far have shown."""
        ranks = list(self._ranks.values())
        summaries = [rank.summary for rank in ranks if rank.summary is not None]
        loaded = [rank.loads_gib for rank in ranks if rank.loads_gib]
        drafts = [sum(loads[1:]) for loads in loaded if len(loads) > 1]
        pools = [rank for rank in ranks if rank.tokens is not None]
        said = [summary[0] for summary in summaries]
        return StartFacts(
            fraction=self._fraction,
            pre_gib=min((rank.pre_gib for rank in ranks if rank.pre_gib is not None), default=None),
            weights_gib=max((loads[0] for loads in loaded), default=None),
            draft_weights_gib=_rounded(max(drafts, default=None)),
            tokens=min(said or [rank.tokens for rank in pools if rank.tokens is not None], default=None),
            kv_gib=_rounded(max((rank.kv_gib for rank in pools), default=None)),
            swa_tokens=min((rank.swa_tokens for rank in ranks if rank.swa_tokens is not None), default=None),
            states=min((rank.states for rank in ranks if rank.states is not None), default=None),
            sized_after_capture=any(rank.sized_after_capture for rank in ranks),
            prefill_graph_gib=_most_graphs(ranks, "prefill"),
            decode_graph_gib=_most_graphs(ranks, "decode"),
            draft_graph_gib=_most_graphs(ranks, "draft"),
            slack_gib=_slack(ranks) if summaries else None,
            host_pool_gb=_rounded(max((sum(rank.host_pools_gb) for rank in ranks if rank.host_pools_gb), default=None)),
            max_running_requests=min((summary[2] for summary in summaries), default=None),
            context_len=min((summary[3] for summary in summaries), default=None),
            chunked_prefill_size=min((summary[1] for summary in summaries), default=None),
        )


def _take(rank: _Rank, kind: str, found: re.Match[str]) -> None:
    """Note what a message says; what a rank says of its pool before the first one is done is of the target."""
    of_target = rank.pools_ended == 0
    if kind == "load_begin" and rank.pre_gib is None:
        rank.pre_gib = float(found.group(1))
    elif kind == "load_end":
        rank.loads_gib.append(float(found.group(2)))
    elif kind == "kv" and of_target:
        rank.tokens = int(found.group(2))
        rank.kv_gib += sum(float(size) for size in found.groups()[2:] if size)
        rank.sized_after_capture = rank.sized_after_capture or found.group(1) != "is allocated"
    elif kind == "windows" and of_target:
        rank.kv_gib, rank.swa_tokens = float(found.group(2)), int(found.group(3))
        rank.tokens = int(found.group(4)) or rank.swa_tokens
        rank.sized_after_capture = found.group(1) != "mem usage"
    elif kind == "states" and of_target:
        rank.states = int(found.group(1))
    elif kind == "pool_end":
        rank.pools_ended += 1
    elif kind == "graphs":
        name = found.group(1).lower()
        part = "draft" if "draft" in name else "prefill" if "prefill" in name else "decode"
        rank.graphs_gib[part] = rank.graphs_gib.get(part, 0.0) + float(found.group(2))
    elif kind == "kv_after_capture":
        rank.tokens, rank.kv_gib, rank.sized_after_capture = int(found.group(1)), float(found.group(2)), True
    elif kind == "windows_after_capture" and int(found.group(2)):
        rank.swa_tokens = int(found.group(2))
    elif kind == "host_pool":
        rank.host_pools_gb.append(float(found.group(1)))
    elif kind == "summary":
        tokens, chunk, _prefill, requests, context = (int(found.group(index)) for index in range(1, 6))
        rank.summary = (tokens, chunk, requests, context)


def _most_graphs(ranks: list[_Rank], part: str) -> float | None:
    return _rounded(max((rank.graphs_gib[part] for rank in ranks if part in rank.graphs_gib), default=None))


def _slack(ranks: list[_Rank]) -> float | None:
    return min((rank.available_gib for rank in ranks if rank.available_gib is not None), default=None)


def _rounded(value: float | None) -> float | None:
    """Return a sum of logged figures with their two decimals."""
    return None if value is None else round(value, 2)
