# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures in the log of a start: each message of both releases, whoever says it and whatever stands before it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.start_facts import MESSAGES, FactsReader, StartFacts
from ansible_collections.headroom.serving.plugins.module_utils.startup_log import StartupLog

OLD, NEW = "0.5.14", "0.5.23"
# One message a row: who writes it, which message it is, its text, what it shows.
ROWS: list[tuple[str, str, str, dict[str, Any]]] = [
    (OLD, "arguments", "server_args=ServerArgs(model_path='/m', mem_fraction_static=0.88, x=1)", {"fraction": 0.88}),
    (NEW, "arguments", "server_args={'model_path': '/m', 'mem_fraction_static': 0.757, 'x': 1}", {"fraction": 0.757}),
    (OLD, "load_begin", "Load weight begin. avail mem=139.13 GB", {"pre_gib": 139.13}),
    (NEW, "load_begin", "Load weight begin. avail mem=93.60 GB", {"pre_gib": 93.6}),
    (
        OLD,
        "load_end",
        "Load weight end. elapsed=0.26 s, type=DeepseekV2ForCausalLM, avail mem=110.43 GB, mem usage=28.70 GB.",
        {"weights_gib": 28.7},
    ),
    (
        OLD,
        "load_end",
        "Load weight end. elapsed=9.1 s, type=KimiK25ForConditionalGeneration, quant=compressed-tensors, bits=4, "
        "avail mem=21.64 GB, mem usage=71.96 GB.",
        {"weights_gib": 71.96},
    ),
    # On a CPU the free memory is the host's, and pages that others give back may outweigh the weights.
    (
        OLD,
        "load_end",
        "Load weight end. elapsed=1.0 s, type=Q, avail mem=9.01 GB, mem usage=-0.01 GB.",
        {"weights_gib": -0.01},
    ),
    (
        NEW,
        "load_end",
        "Load weight end. elapsed=0.26 s, type=Q, fp8, avail mem=60.00 GB, mem usage=33.60 GB.",
        {"weights_gib": 33.6},
    ),
    # With overlapped loading 0.5.23 does not say what the weights take.
    (
        NEW,
        "",
        "Load weight end. Committed real weights after CUDA graph capture in 1.00 s (capture overlap)",
        {},
    ),
    (
        OLD,
        "kv",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 796872, K size: 54.72 GB, V size: 54.71 GB",
        {"tokens": 796872, "kv_gib": 109.43},
    ),
    (
        OLD,
        "kv",
        "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 928956, KV size: 26.91 GB",
        {"tokens": 928956, "kv_gib": 26.91},
    ),
    (
        NEW,
        "kv",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159072, KV size: 10.41 GB",
        {"tokens": 159072, "kv_gib": 10.41},
    ),
    (
        NEW,
        "kv",
        "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 512, K size: 0.01 GB, V size: 0.01 GB",
        {"tokens": 512, "kv_gib": 0.02},
    ),
    (
        NEW,
        "kv",
        "MiniMax MSA-v1 main NVFP4 KV Cache is allocated. dtype: torch.uint8, #tokens: 640, KV size: 1.00 GB",
        {"tokens": 640, "kv_gib": 1.0},
    ),
    (
        NEW,
        "kv",
        "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 700, K size: 1.00 GB, V size: 1.00 GB",
        {"tokens": 700, "kv_gib": 2.0, "sized_after_capture": True},
    ),
    (NEW, "", "KV Cache skipped (no-op pool). Logical #tokens: 9, physical K/V size: ~1.0 KB placeholder", {}),
    (
        OLD,
        "windows",
        "SWAKVPool mem usage: 9.50 GB, swa size: 80, full size: 100",
        {"tokens": 100, "swa_tokens": 80, "kv_gib": 9.5},
    ),
    (
        OLD,
        "windows",
        "SWAKVPool mem usage: 9.50 GB, swa size: 80, full size: 0",
        {"tokens": 80, "swa_tokens": 80, "kv_gib": 9.5},
    ),
    (
        NEW,
        "windows",
        "SWAKVPool mem usage: 9.50 GB, swa size: 80, full size: 100",
        {"tokens": 100, "swa_tokens": 80, "kv_gib": 9.5},
    ),
    (
        NEW,
        "windows",
        "SWAKVPool VA upper bound: 9.50 GB, swa size: 8, full size: 10",
        {"tokens": 10, "swa_tokens": 8, "kv_gib": 9.5, "sized_after_capture": True},
    ),
    (
        OLD,
        "states",
        "Mamba Cache is allocated. max_mamba_cache_size: 77, conv_state size: 0.10GB, ssm_state size: 5.20GB ",
        {"states": 77},
    ),
    (
        NEW,
        "states",
        "Mamba Cache is allocated. max_mamba_cache_size: 78, conv_state size: 0.10GB, ssm_state size: 5.20GB "
        "intermediate_ssm_state_cache size: 0.50GB intermediate_conv_window_cache size: 0.01GB ",
        {"states": 78},
    ),
    (OLD, "pool_end", "Memory pool end. avail mem=15.96 GB", {}),
    (NEW, "pool_end", "Memory pool end. avail mem=15.96 GB", {}),
    (
        OLD,
        "graphs",
        "Capture target prefill CUDA graph end. elapsed=42.84 s, mem usage=1.29 GB, avail mem=14.58 GB.",
        {"prefill_graph_gib": 1.29},
    ),
    (
        OLD,
        "graphs",
        "Capture target decode CUDA graph end. elapsed=2.6 s, mem usage=0.04 GB, avail mem=14.54 GB.",
        {"decode_graph_gib": 0.04},
    ),
    (
        OLD,
        "graphs",
        "Capture target verify CUDA graph end. elapsed=2.6 s, mem usage=0.05 GB, avail mem=14.54 GB.",
        {"decode_graph_gib": 0.05},
    ),
    (
        OLD,
        "graphs",
        "Capture target decode CPU graph end. elapsed=2.6 s, mem usage=0.06 GB, avail mem=14.54 GB.",
        {"decode_graph_gib": 0.06},
    ),
    (
        OLD,
        "graphs",
        "Capture draft extend CUDA graph end. backend=full, elapsed=2.6 s, mem usage=0.07 GB, avail mem=14.54 GB.",
        {"draft_graph_gib": 0.07},
    ),
    (
        NEW,
        "graphs",
        "Capture target decode CUDA graph end. bs=[1, 2], elapsed=2.60 s, mem usage=0.04 GB, avail mem=14.54 GB.",
        {"decode_graph_gib": 0.04},
    ),
    (
        NEW,
        "graphs",
        "Capture draft prefill CUDA graph end. elapsed=2 s, mem usage=0.08 GB, avail mem=14.54 GB.",
        {"draft_graph_gib": 0.08},
    ),
    (NEW, "", "Capture Frozen-KV MTP draft cuda graph end.", {}),
    (
        NEW,
        "kv_after_capture",
        "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 600, KV size: 1.71 GB, "
        "avail mem=1.65 GB",
        {"tokens": 600, "kv_gib": 1.71, "sized_after_capture": True},
    ),
    (
        NEW,
        "windows_after_capture",
        "Post-capture KV sizing: full_layer_tokens=600, swa_layer_tokens=480",
        {"swa_tokens": 480},
    ),
    (NEW, "windows_after_capture", "Post-capture KV sizing: full_layer_tokens=600, swa_layer_tokens=0", {}),
    (
        NEW,
        "",
        "Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 600, KV size: 0.10 GB",
        {},
    ),
    (OLD, "host_pool", "Allocating 40.00 GB host memory for hierarchical KV cache.", {"host_pool_gb": 40.0}),
    (
        OLD,
        "host_pool",
        "Allocating 7.00 GB host memory for hierarchical Mamba cache (layout=page_first).",
        {"host_pool_gb": 7.0},
    ),
    (OLD, "host_pool", "Allocating 2.50 GB host memory for DSA indexer (layout=page_first).", {"host_pool_gb": 2.5}),
    (
        OLD,
        "host_pool",
        "Allocating 2.50 GB host memory for V4 paged pool 'c4' (layout=page_first).",
        {"host_pool_gb": 2.5},
    ),
    (
        NEW,
        "host_pool",
        "Allocating kv hierarchical KV host pool: 683061 tokens, 48.00 GB host memory.",
        {"host_pool_gb": 48.0},
    ),
    (
        NEW,
        "host_pool",
        "Allocating kv hierarchical KV host pool: 9 tokens, 4.00 GB host memory, packed MTP KV layers: "
        "target_layers=61, draft_layers=1, total_layers=62.",
        {"host_pool_gb": 4.0},
    ),
    (
        NEW,
        "host_pool",
        "Allocating 7.00 GB host memory for hierarchical Mamba cache (9 state slots, layout=x).",
        {"host_pool_gb": 7.0},
    ),
    (NEW, "host_pool", "Allocating 2.50 GB host memory for DSA indexer (layout=page_first).", {"host_pool_gb": 2.5}),
    (
        NEW,
        "host_pool",
        "Allocating 2.50 GB host memory for MiniMax NVFP4 index cache (layout=page_first).",
        {"host_pool_gb": 2.5},
    ),
    (
        OLD,
        "summary",
        "max_total_num_tokens=796872, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, "
        "context_len=40960, available_gpu_mem=14.54 GB",
        {
            "tokens": 796872,
            "chunked_prefill_size": 8192,
            "max_running_requests": 4096,
            "context_len": 40960,
            "slack_gib": 14.54,
        },
    ),
    (
        NEW,
        "summary",
        "max_total_num_tokens=4096, chunked_prefill_size=-1, max_prefill_tokens=16384, max_running_requests=64, "
        "context_len=2048, available_cpu_mem=11.05 GB",
        {
            "tokens": 4096,
            "chunked_prefill_size": -1,
            "max_running_requests": 64,
            "context_len": 2048,
            "slack_gib": 11.05,
        },
    ),
    (OLD, "", "Init torch distributed ends. elapsed=0.23 s, mem usage=0.09 GB", {}),
    (NEW, "", "Memory baseline taken. mem usage=0.09 GB", {}),
    (NEW, "", "HiCache memory headroom: host 380.0 GiB, cgroup 100.0 GiB", {}),
    (NEW, "", "max_total_tokens=9 is larger than the profiled value 8. Use the profiled value instead.", {}),
    (OLD, "", "Not enough host memory available. Requesting 300.00 GB but only have 120.51 GB free.", {}),
]
SUMMARY = (
    "max_total_num_tokens={}, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests={}, "
    "context_len=40960, available_gpu_mem={:.2f} GB"
)
HEADERS = [
    ("[2026-11-30 04:22:10] ", "alone"),
    ("[2026-11-30 04:22:10.123] ", "milliseconds"),
    ("[2026-11-30 04:22:10 TP3] ", "a rank"),
    ("[2026-11-30 04:22:10 DP1 PP0 ATTN_CP1 MOE_DP0 TP7 EP7] ", "a rank of everything"),
    ("python[4711]: [2026-11-30 04:22:10 TP0] ", "syslog"),
    ("[2026-11-30 04:22:09 TP1] [2026-11-30 04:22:10 TP0] ", "a line that another rank began"),
    ("Capturing batches (bs=8 avail_mem=9.99 GB):   0%| | 0/4 [00:00<?, ?it/s][2026-11-30 04:22:10 TP0] ", "a bar"),
]


def read(*lines: str) -> StartFacts:
    reader = FactsReader()
    for line in lines:
        reader.feed(line)
    return reader.result()


def at(rank: str, text: str) -> str:
    return f"[2026-11-30 04:22:10{' ' if rank else ''}{rank}] {text}"


@pytest.mark.parametrize(("_release", "_kind", "text", "shown"), ROWS)
def test_a_message(_release: str, _kind: str, text: str, shown: dict[str, Any]) -> None:
    assert read(at("", text)) == StartFacts(**shown)


@pytest.mark.parametrize(("release", "kind", "text", "_shown"), ROWS)
def test_the_table_knows_the_message_by_its_id_alone(
    release: str, kind: str, text: str, _shown: dict[str, Any]
) -> None:
    known = [message for message in MESSAGES if re.match(message.pattern, text)]
    assert [message.id for message in known] == ([kind] if kind else [])
    assert all(message.old if release == OLD else message.new for message in known)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.id)
def test_every_message_has_a_row_for_each_release_that_writes_it(message: Any) -> None:
    there = {release for release, kind, _text, _shown in ROWS if kind == message.id}
    assert there == {release for release, source in ((OLD, message.old), (NEW, message.new)) if source}


@pytest.mark.parametrize("header", [header for header, _name in HEADERS], ids=[name for _header, name in HEADERS])
@pytest.mark.parametrize(("_release", "_kind", "text", "shown"), ROWS[2::6])
def test_whatever_stands_before_a_message(
    header: str, _release: str, _kind: str, text: str, shown: dict[str, Any]
) -> None:
    assert read(header + text + "\n") == StartFacts(**shown)


@pytest.mark.parametrize(
    "line",
    [
        "Load weight begin. avail mem=139.13 GB",  # a format of the user's own does not tell whose line it is
        "2026-11-30 04:22:10 - Load weight begin. avail mem=139.13 GB",
        "[2026-11-30 04:22:10 TP0] he said: Load weight begin. avail mem=139.13 GB",
        "[2026-11-30 04:22:10 TP0] Load weight begin. avail mem=nan GB",
        "[2026-11-30 04:22:10 TP0] Load weight begin. avail mem=1.2.3 GB",
        "[2026-11-30 04:22:10 TP0] Load weight begin. avail mem= GB",
        f"[2026-11-30 04:22:10 TP0] Load weight begin. avail mem={'9' * 5000} GB",
        f"[2026-11-30 04:22:10] SWAKVPool mem usage: 1.00 GB, swa size: {'9' * 5000}, full size: 1",
        "[2026-11-30 04:22:10] server_args=ServerArgs(mem_fraction_static=None, x=1)",
        "[2026-11-30 04:22:10] server_args=" + "x" * 200_000 + "GB",
        "[2026-11-30 04:22:10] " * 2_000 + "GB",
        "GB" * 100_000,
        "\x1b[1;33m'--cuda-graph-bs' is deprecated. GB\x1b[0m",
        "\x00\udcff GB",
        "",
    ],
    ids=range(15),
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert read(line) == StartFacts()


def test_the_least_and_the_most_of_several_ranks() -> None:
    found = read(
        at("TP0", "Load weight begin. avail mem=93.60 GB"),
        at("TP1", "Load weight begin. avail mem=93.58 GB"),
        at("TP1", "Load weight end. elapsed=9 s, type=K, avail mem=21.60 GB, mem usage=71.98 GB."),
        at("TP0", "Load weight end. elapsed=9 s, type=K, avail mem=21.64 GB, mem usage=71.96 GB."),
        at("TP0", "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 116171, KV size: 7.60 GB"),
        at("TP1", "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 116171, KV size: 7.60 GB"),
        at("TP1", "Capture target decode CUDA graph end. elapsed=2 s, mem usage=0.30 GB, avail mem=10.90 GB."),
        at("TP0", "Capture target decode CUDA graph end. elapsed=2 s, mem usage=0.20 GB, avail mem=11.00 GB."),
        at("TP1", "Allocating 48.00 GB host memory for hierarchical KV cache."),
        at("TP0", "Allocating 48.00 GB host memory for hierarchical KV cache."),
        at("TP0", SUMMARY.format(116171, 2048, 11.0)),
    )
    assert (found.pre_gib, found.weights_gib, found.draft_weights_gib) == (93.58, 71.98, None)
    assert (found.tokens, found.kv_gib, found.decode_graph_gib) == (116171, 7.6, 0.3)
    assert (found.slack_gib, found.host_pool_gb) == (10.9, 48.0)


def test_the_pools_of_a_rank_are_added_not_those_of_ranks() -> None:
    texts = [
        "Allocating 48.00 GB host memory for hierarchical KV cache.",
        "Allocating 6.10 GB host memory for DSA indexer (layout=page_first).",
        "Allocating 1.20 GB host memory for hierarchical KV cache.",
    ]
    assert read(*[at(rank, text) for text in texts for rank in ("TP0", "TP1")]).host_pool_gb == 55.3


def test_each_copy_of_the_scheduler_sums_up_for_itself() -> None:
    found = read(at("DP0 TP0", SUMMARY.format(900, 30, 5.0)), at("DP1 TP0", SUMMARY.format(800, 40, 6.0)))
    assert (found.tokens, found.max_running_requests, found.slack_gib) == (800, 30, 5.0)


DRAFT = [
    "Load weight begin. avail mem=139.13 GB",
    "Load weight end. elapsed=1 s, type=LlamaForCausalLM, avail mem=124.13 GB, mem usage=15.00 GB.",
    "Load weight begin. avail mem=124.00 GB",
    "Load weight end. elapsed=1 s, type=LlamaForCausalLMEagle3, avail mem=123.25 GB, mem usage=0.75 GB.",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 5000, K size: 1.00 GB, V size: 1.00 GB",
    "Memory pool end. avail mem=120.00 GB",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 5001, K size: 0.10 GB, V size: 0.10 GB",
    "Memory pool end. avail mem=119.00 GB",
    "Capture target verify CUDA graph end. elapsed=2 s, mem usage=0.30 GB, avail mem=118.70 GB.",
    "Capture draft decode CUDA graph end. backend=full, elapsed=2 s, mem usage=0.10 GB, avail mem=118.60 GB.",
    "Capture draft extend CUDA graph end. backend=full, elapsed=2 s, mem usage=0.20 GB, avail mem=118.40 GB.",
]


@pytest.mark.parametrize("ranks", [("",), ("TP0", "TP1"), ("DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1")])
def test_a_draft_model_is_kept_apart(ranks: tuple[str, ...]) -> None:
    found = read(*[at(rank, text) for text in DRAFT for rank in ranks])
    assert (found.pre_gib, found.weights_gib, found.draft_weights_gib) == (139.13, 15.0, 0.75)
    assert (found.tokens, found.kv_gib) == (5000, 2.0)
    assert (found.decode_graph_gib, found.draft_graph_gib) == (0.3, 0.3)


def test_several_draft_models_are_added() -> None:
    assert read(*[at("", text) for text in [*DRAFT[:4], *DRAFT[2:4]]]).draft_weights_gib == 1.5


def test_a_draft_that_needs_the_pool_of_the_target_to_load() -> None:
    order = [*DRAFT[:2], *DRAFT[4:6], *DRAFT[2:4], *DRAFT[6:]]
    assert read(*[at("", text) for text in order]) == read(*[at("", text) for text in DRAFT])


def test_two_pools_of_window_layers() -> None:
    found = read(
        at("", "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 80, K size: 0.40 GB, V size: 0.40 GB"),
        at("", "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100, K size: 0.50 GB, V size: 0.50 GB"),
        at("", "SWAKVPool mem usage: 1.80 GB, swa size: 80, full size: 100"),
    )
    assert (found.tokens, found.swa_tokens, found.kv_gib) == (100, 80, 1.8)


def test_a_pool_that_shrinks_after_the_graphs() -> None:
    found = read(
        at("", "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 700, K size: 1.00 GB, V size: 1.00 GB"),
        at("", "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 600, KV size: 1.71 GB, "
           "avail mem=1.65 GB"),
    )  # fmt: skip
    assert (found.tokens, found.kv_gib, found.sized_after_capture) == (600, 1.71, True)


def test_no_slack_before_a_scheduler_is_ready() -> None:
    assert read(at("", DRAFT[0]), at("", "Memory pool end. avail mem=120.00 GB")).slack_gib is None


def test_the_log_of_a_start_reads_the_figures() -> None:
    log = StartupLog()
    for text in DRAFT:
        log.feed(at("TP0", text))
    assert log.facts.result() == read(*[at("TP0", text) for text in DRAFT])
    assert log.facts.result().weights_gib == 15.0
