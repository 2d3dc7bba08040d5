# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts have shown: recorded logs to facts to the next plan, which facts belong together, and what misleads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import flag_tables, measured_facts
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu, Hardware
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, PlanInput, plan
from ansible_collections.headroom.serving.plugins.module_utils.start_facts import FactsReader, StartFacts
from plan_samples import (
    GIB,
    HYBRID,
    KIMI,
    MIB,
    NEW,
    OLD,
    RECORDED,
    WINDOWED,
    dense,
    gpu,
    inputs,
    latent,
    node,
    planned,
    process,
    recorded_model,
    recorded_node,
    seed,
)

# Of the machine's logs all lines with figures, and some of the others. Those longer than 60,000 characters (full,
# starved) were recorded without their middle, so the graphs are not in them.
LOGS = json.loads((Path(__file__).parent / "recorded_logs.json").read_text(encoding="utf-8"))
STARTS = {start["name"]: start for start in RECORDED["starts"]}
SERVED = [name for name, log in LOGS.items() if log["server_info"]]
WHEN = 1764480000.0  # 2025-11-30 05:20 UTC
KEY = "0a1b2c3d4e5f6071"


def logged(name: str) -> StartFacts:
    reader = FactsReader()
    for line in LOGS[name]["lines"]:
        reader.feed(line)
    return reader.result()


def recorded_inputs(name: str, facts: Facts | None = None, **changes: Any) -> PlanInput:
    """Return what the plan of a recorded start was made from, on a machine whose memory has all come back."""
    start = STARTS[name]
    machine = recorded_node(start)
    whole = replace(machine.gpus[0], used_bytes=0, free_bytes=143_156 * MIB)
    named = {flag.replace("_", "-"): value for flag, value in changes.items()}
    args = {flag: value for flag, value in {**start["args"], **named}.items() if value is not None}
    return inputs(
        args, recorded_model(start["model"]), replace(machine, gpus=(whole,)), RECORDED["engine"], facts or Facts()
    )


def keep(root: Path, item: PlanInput, start: StartFacts, rss_gb: float | None = None, when: float = WHEN) -> None:
    measured_facts.save(root, KEY, start, measured_facts.setting(item), rss_gb, when)


def learned(root: Path, item: PlanInput, start: StartFacts) -> Facts:
    keep(root, item, start)
    return measured_facts.load(root, KEY)[0]


# --- recorded logs against what the server said of itself, and what the plan makes of them


@pytest.mark.parametrize("name", SERVED)
def test_a_recorded_log_says_what_the_server_says(name: str) -> None:
    found, said, start = logged(name), LOGS[name]["server_info"], STARTS[name]
    assert found.tokens == said["max_total_num_tokens"] == said["token_capacity"]
    assert found.weights_gib == said["weight"]
    assert found.kv_gib == pytest.approx(said["kvcache"], abs=0.011)  # two rounded figures are added
    assert found.pre_gib == start["pre_gib"]
    assert found.fraction == start["args"]["mem-fraction-static"]
    assert found.host_pool_gb == start["host_pool_gb"]
    if name not in ("full", "starved"):
        assert found.decode_graph_gib == said["graph"]
        assert found.max_running_requests == said["max_running_requests"]
        assert found.prefill_graph_gib == start["prefill_graph_gib"]
        assert found.slack_gib == start["ready_gib"]
        assert found.chunked_prefill_size == start["effective"]["chunked_prefill_size"]


def test_there_are_logs_of_servers_that_served_and_of_some_that_died() -> None:
    assert len(LOGS) == 10
    assert len(SERVED) == 5
    assert logged("err-small-f") == StartFacts(fraction=0.15, pre_gib=139.13, weights_gib=28.7)
    assert logged("mla-hicache300").tokens == STARTS["mla-hicache300"]["tokens"]
    for name in ("err-flag", "err-model", "err-nogpu"):
        assert logged(name) == StartFacts()


@pytest.mark.parametrize("name", ["full", "gqa-088", "mla-hicache300", "tiny-triton"])
def test_the_same_again_gets_the_same_tokens(tmp_path: Path, name: str) -> None:
    found = plan(recorded_inputs(name, learned(tmp_path, recorded_inputs(name), logged(name))))
    assert found.tokens.best == STARTS[name]["tokens"]
    assert found.tokens.low <= STARTS[name]["tokens"] <= found.tokens.high
    assert found.origin == "measured"
    assert found.gpu.weights_bytes.best / GIB == pytest.approx(STARTS[name]["weights_gib"], abs=0.06)
    assert found.verdict_of("gpu.no_room_for_kv") == "ok"


def test_another_graph_batch_gets_the_same_tokens(tmp_path: Path) -> None:
    facts = learned(tmp_path, recorded_inputs("gqa-088"), logged("gqa-088"))
    assert plan(recorded_inputs("full", facts)).tokens.best == STARTS["full"]["tokens"]


@pytest.mark.parametrize("name", ["starved", "starved-hicache"])
def test_a_start_that_was_limited_tells_weights_but_no_pool(tmp_path: Path, name: str) -> None:
    facts = learned(tmp_path, recorded_inputs(name), logged(name))
    assert (facts.kv_gib, facts.kv_fraction) == (None, None)
    assert (facts.pre_gib, facts.weights_gib) == (139.13, 12.99)
    assert "limited by max-total-tokens" in measured_facts.load(tmp_path, KEY)[1]
    found = plan(recorded_inputs("full", facts))
    assert found.tokens.best == pytest.approx(STARTS["full"]["tokens"], rel=0.005)
    assert plan(recorded_inputs(name, facts)).tokens.best == 64_000


def test_a_limit_that_did_not_bind_misleads_nobody(tmp_path: Path) -> None:
    limited = recorded_inputs("gqa-088", max_total_tokens=900_000)
    facts = learned(tmp_path, limited, logged("gqa-088"))
    assert facts.kv_fraction == 0.88
    assert plan(recorded_inputs("full", facts)).tokens.best == STARTS["full"]["tokens"]


def test_a_limit_that_is_no_whole_page(tmp_path: Path) -> None:
    paged = recorded_inputs("starved", max_total_tokens=64_063, page_size=64)
    assert learned(tmp_path, paged, logged("starved")).kv_gib is None
    assert "limited by max-total-tokens" in measured_facts.load(tmp_path, KEY)[1]


# --- the case of eight GPUs

SHOWN = StartFacts(fraction=0.85, pre_gib=93.6, weights_gib=71.96, tokens=116_171, kv_gib=7.6, slack_gib=9.1)


@pytest.mark.parametrize(
    ("fraction", "kind", "tokens", "tolerance"),
    [
        (0.85, "auto", 116_171, 0),
        (0.88, "auto", 159_076, 0.003),
        (0.90, "auto", 187_680, 0.003),
        (0.93, "auto", 230_586, 0.003),
        (0.85, "fp8_e4m3", 232_342, 0.00001),
        (0.88, "fp8_e5m2", 318_153, 0.003),
        (0.80, "auto", 44_661, 0.005),
    ],
)
def test_from_one_fraction_to_all(tmp_path: Path, fraction: float, kind: str, tokens: int, tolerance: float) -> None:
    facts = learned(tmp_path, inputs(seed(0.85)), SHOWN)
    found = planned(seed(fraction, **{"kv-cache-dtype": kind}), facts=facts)
    assert found.tokens.best == pytest.approx(tokens, rel=tolerance)
    assert found.tokens.low <= tokens <= found.tokens.high
    assert (found.tokens.high - found.tokens.low) / 2 < 0.004 * tokens
    assert found.origin == "measured"
    assert found.gpu.weights_bytes.best / GIB == pytest.approx(71.957, abs=0.001)


def test_the_log_alone_would_miss_the_tokens_by_its_rounding() -> None:
    assert planned(seed(0.80), facts=Facts(pre_gib=93.6, weights_gib=71.965)).tokens.best < 44_661 - 100


def test_what_the_newer_engine_keeps_for_images_is_not_taken_twice(tmp_path: Path) -> None:
    shown = replace(SHOWN, tokens=114_679)
    facts = learned(tmp_path, inputs(seed(0.85), version=NEW), shown)
    found = planned(seed(0.85), version=NEW, facts=facts)
    assert found.gpu.multimodal_bytes == 100 * MIB
    assert found.tokens.best == 114_679
    assert found.gpu.weights_bytes.best / GIB == pytest.approx(71.957, abs=0.001)


def test_a_draft_model_is_measured_for_itself_and_taken_once(tmp_path: Path) -> None:
    args = seed(0.88, **{"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/m/draft"})
    guessed = planned(args)
    shown = replace(SHOWN, fraction=0.88, tokens=130_000, draft_weights_gib=1.75)
    facts = learned(tmp_path, inputs(args), shown)
    found = planned(args, facts=facts)
    assert found.tokens.best == 130_000
    assert found.gpu.draft_weight_bytes == int(1.75 * GIB) != guessed.gpu.draft_weight_bytes
    static = 0.88 * 93.6 - 130_000.5 * found.gpu.cell_bytes / GIB
    assert found.gpu.weights_bytes.best / GIB == pytest.approx(static - 1.75, abs=1e-6)


# --- what others hold of the GPUs


def held(mib: int, first: int | None = None) -> Hardware:
    """Return the node with somebody on its GPUs, on the first one more if so given."""
    sizes = [mib if first is None or index else first for index in range(8)]
    gpus = [
        gpu(index, used_mib=size, processes=(process(100 + index, size),) if size else ())
        for index, size in enumerate(sizes)
    ]
    return node(*gpus)


def shown_beside(mib: int) -> StartFacts:
    """Return what a start at 0.85 shows on a node where others hold so much."""
    pre = 93.6 - mib / 1024
    return replace(SHOWN, pre_gib=round(pre, 2), tokens=int((0.85 * pre - 71.95708) * GIB // 70_272))


def truth_beside(mib: int, fraction: float) -> float:
    return (fraction * (93.6 - mib / 1024) - 71.95708) * GIB // 70_272


@pytest.mark.parametrize("fraction", [0.85, 0.88])
@pytest.mark.parametrize(
    ("then", "now"), [(0, 2_000), (0, 300), (8_192, 0), (300, 0), (8_192, 8_192), (8_192, 2_048), (2_048, 8_192)]
)
def test_what_others_held_at_a_start_and_what_they_hold_now_are_told_apart(
    tmp_path: Path, then: int, now: int, fraction: float
) -> None:
    facts = learned(tmp_path, inputs(seed(0.85), KIMI, held(then)), shown_beside(then))
    assert facts.overhead_gib == pytest.approx(95.007 - 93.6, abs=0.01)
    found = planned(seed(fraction), KIMI, held(now), facts=facts)
    truth = truth_beside(now, fraction)
    assert found.origin == "measured"
    assert found.tokens.low <= max(0, truth) <= found.tokens.high
    assert found.tokens.best == pytest.approx(max(0, truth), abs=300)  # the log's rounding of 0.01 GiB
    assert (found.verdict_of("gpu.no_room_for_kv") == "ok") is (truth > 2_000)


def test_only_the_fullest_gpu_counts(tmp_path: Path) -> None:
    facts = learned(tmp_path, inputs(seed(0.85), KIMI, held(0, first=8_192)), shown_beside(8_192))
    assert planned(seed(0.85), facts=facts).tokens.best == pytest.approx(116_171, abs=300)


def test_what_the_outgoing_release_gave_back_was_free_at_the_start(tmp_path: Path) -> None:
    gives = dict.fromkeys(range(8), 80000 * MIB)
    facts = learned(tmp_path, inputs(seed(0.85), KIMI, held(80_000), release_gpu_bytes=gives), SHOWN)
    assert planned(seed(0.85), facts=facts).tokens.best == 116_171
    # The driver names 10 MiB less of a process than comes back when it ends.
    gives = dict.fromkeys(range(8), 79990 * MIB)
    found = planned(seed(0.85), KIMI, held(80_000), facts=facts, release_gpu_bytes=gives)
    assert found.tokens.best == 116_171 and found.origin == "measured"
    assert found.tokens.low < truth_beside(10, 0.85)


@pytest.mark.parametrize("change_gib", [-13.6, -2.0, 1.3])
def test_a_reading_that_was_old_by_the_start_teaches_nothing_of_free_memory(tmp_path: Path, change_gib: float) -> None:
    """Between the plan and the start somebody took memory or gave some back."""
    pre = 93.6 + change_gib
    shown = replace(SHOWN, pre_gib=pre, tokens=int((0.9 * pre - 71.95708) * GIB // 70_272), fraction=0.9)
    facts = learned(tmp_path, inputs(seed(0.9)), shown)
    assert facts.overhead_gib is None
    found = planned(seed(0.88), facts=facts)
    assert (found.gpu.pre_source, found.gpu.weights_source) == ("estimated", "measured")
    assert found.gpu.pre_bytes.low <= 93.6 * GIB <= found.gpu.pre_bytes.high
    assert found.tokens.low <= 159_076 <= found.tokens.high


def test_of_two_starts_that_differ_the_careful_one_counts_and_of_three_the_middle(tmp_path: Path) -> None:
    taken = []
    for number, more in enumerate((0.0, 1.0, 0.0)):
        keep(tmp_path, inputs(seed(0.85)), replace(SHOWN, pre_gib=93.6 - more), when=WHEN + number)
        taken.append(measured_facts.load(tmp_path, KEY)[0].overhead_gib)
    assert taken == pytest.approx([1.407, 2.407, 1.407], abs=0.001)


def test_what_others_were_yet_to_take_is_not_known_to_be_free(tmp_path: Path) -> None:
    small = planned({"mem-fraction-static": 0.1}, dense(weights_gib=1.0), name="b", gpus=(0,))
    assert small.gpu.claim_bytes > 0
    item = inputs(seed(0.85))
    beside = replace(item, others=(small,))
    assert measured_facts.setting(item).free_gib == pytest.approx(95.007, abs=0.001)
    assert measured_facts.setting(item, is_alone=False).free_gib is None
    assert measured_facts.setting(beside).free_gib is None
    # Nor is what they take an exact figure for the plan.
    found = plan(replace(beside, facts=learned(tmp_path, item, SHOWN)))
    assert (found.gpu.pre_source, found.gpu.weights_source) == ("estimated", "measured")


def kept_without_free(root: Path, item: PlanInput, start: StartFacts) -> Facts:
    """Return what a start has taught whose file is of before free memory was kept with it."""
    keep(root, item, start)
    file = root / f"{KEY}.json"
    data = json.loads(file.read_text())
    for one in data["starts"]:
        del one["setting"]["free_gib"], one["setting"]["overhead_gib"]
    file.write_text(json.dumps(data))
    facts, _text = measured_facts.load(root, KEY)
    assert facts.overhead_gib is None and facts.pre_gib is not None
    return facts


def test_an_old_file_counts_as_long_as_free_memory_bears_it_out(tmp_path: Path) -> None:
    facts = kept_without_free(tmp_path, inputs(seed(0.85)), SHOWN)
    found = planned(seed(0.85), facts=facts)
    assert found.tokens.best == 116_171 and found.origin == "measured"
    assert found.tokens.high - found.tokens.low < 0.002 * 116_171


def test_an_old_file_does_not_keep_a_load_that_has_gone(tmp_path: Path) -> None:
    busy = inputs(seed(0.85), KIMI, held(8_192))
    facts = kept_without_free(tmp_path, busy, shown_beside(8_192))
    found = planned(seed(0.88), facts=facts)
    assert (found.gpu.pre_source, found.gpu.weights_source) == ("estimated", "measured")
    assert found.tokens.low <= 159_076 <= found.tokens.high
    assert plan(replace(busy, facts=facts)).gpu.pre_source == "measured"


@pytest.mark.parametrize("now", [200, 500, 900, 2_000, 8_192])
def test_an_old_file_never_approves_what_others_hold_now(tmp_path: Path, now: int) -> None:
    facts = kept_without_free(tmp_path, inputs(seed(0.85)), SHOWN)
    found = planned(seed(0.88), KIMI, held(now), facts=facts)
    assert found.gpu.pre_source == "estimated"
    assert found.tokens.low <= max(0, truth_beside(now, 0.88)) <= found.tokens.high


def test_free_memory_of_another_gpu_is_not_believed() -> None:
    """A figure that was measured while somebody held 59 GiB, and nothing that says so."""
    model = latent(weights_gib=68.0 * 8)
    where = node(*[gpu(index, 143_771) for index in range(8)])
    facts = Facts(pre_gib=80.0, weights_gib=68.0, kv_gib=0.88 * 80 - 68.03, kv_fraction=0.88)
    found = planned(seed(0.84), model, where, facts=facts)
    assert found.verdict_of("gpu.no_room_for_kv") == "ok"
    assert found.gpu.pre_bytes.best == pytest.approx(planned(seed(0.84), model, where).gpu.pre_bytes.best)


def test_more_room_is_never_promised_by_a_start_that_others_had_squeezed(tmp_path: Path) -> None:
    keep(tmp_path, inputs(seed(0.85)), SHOWN)
    squeezed = int((0.85 * 90.0 - 71.95708) * GIB // 70_272)
    keep(tmp_path, inputs(seed(0.85)), replace(SHOWN, pre_gib=90.0, tokens=squeezed), when=WHEN + 60)
    facts, _text = measured_facts.load(tmp_path, KEY)
    assert facts.pre_gib == 93.6
    assert planned(seed(0.88), facts=facts).tokens.best == pytest.approx(159_076, rel=0.003)


def test_a_little_less_free_memory_is_the_new_truth(tmp_path: Path) -> None:
    keep(tmp_path, inputs(seed(0.85)), SHOWN)
    fewer = int((0.85 * 93.2 - 71.95708) * GIB // 70_272)
    keep(tmp_path, inputs(seed(0.85)), replace(SHOWN, pre_gib=93.2, tokens=fewer), when=WHEN + 60)
    facts, _text = measured_facts.load(tmp_path, KEY)
    assert facts.pre_gib == 93.2
    assert planned(seed(0.85), facts=facts).tokens.best == fewer


# --- other kinds of pools


def test_states_of_linear_attention_count_as_room(tmp_path: Path) -> None:
    args = {"tp-size": 2, "mem-fraction-static": 0.9}
    first = planned(args, HYBRID, facts=Facts(pre_gib=93.6, weights_gib=75.0))
    tokens, states = int(first.tokens.best), first.gpu.states
    shown = StartFacts(pre_gib=93.6, weights_gib=75.0, tokens=tokens, states=states)
    item = inputs(args, HYBRID)
    facts = learned(tmp_path, item, shown)
    assert facts.kv_gib == pytest.approx(0.9 * 93.6 - 75.0, abs=0.001)
    again = plan(replace(item, facts=facts))
    assert (again.tokens.best, again.gpu.states) == (tokens, states)
    assert learned(tmp_path / "b", item, replace(shown, states=None)).kv_gib is None


def test_windows_that_are_sized_by_requests_count_as_room(tmp_path: Path) -> None:
    args = {"mem-fraction-static": 0.9, "max-running-requests": 64, "disable-radix-cache": True}
    first = planned(args, WINDOWED, facts=Facts(pre_gib=93.6, weights_gib=16.0))
    tokens = int(first.tokens.best)
    facts = learned(tmp_path, inputs(args, WINDOWED), StartFacts(pre_gib=93.6, weights_gib=16.0, tokens=tokens))
    assert facts.kv_gib == pytest.approx(0.9 * 93.6 - 16.0, abs=0.001)
    assert planned(args, WINDOWED, facts=facts).tokens.best == tokens
    # Without the radix cache windows go by requests, with it by a ratio: what both share is the memory.
    other = {**args, "disable-radix-cache": False}
    truth = planned(other, WINDOWED, facts=Facts(pre_gib=93.6, weights_gib=16.0)).tokens.best
    assert planned(other, WINDOWED, facts=facts).tokens.best == pytest.approx(truth, abs=1)


def test_a_pool_that_was_sized_after_the_graphs_tells_nothing_of_the_weights(tmp_path: Path) -> None:
    facts = learned(tmp_path, inputs(seed(0.85)), replace(SHOWN, sized_after_capture=True))
    assert facts.kv_gib is None
    assert facts.weights_gib == 71.96


@pytest.mark.parametrize("tokens", [50_000, 250_000])
def test_a_pool_that_nothing_here_explains_is_not_relied_on(tmp_path: Path, tokens: int) -> None:
    facts = learned(tmp_path, inputs(seed(0.85)), replace(SHOWN, tokens=tokens))
    assert facts.kv_gib is None
    assert "are not explained" in measured_facts.load(tmp_path, KEY)[1]


def test_the_fraction_is_the_one_that_the_engine_resolved(tmp_path: Path) -> None:
    assert learned(tmp_path, inputs(seed(0.99)), SHOWN).kv_fraction == 0.85
    assert learned(tmp_path / "b", inputs(seed(0.85)), replace(SHOWN, fraction=None)).kv_fraction == 0.85


# --- host memory


def tier(size_gb: int = 0, **more: Any) -> dict[str, Any]:
    size = {"hicache-size": size_gb} if size_gb else {}
    return {"tp-size": 4, "mem-fraction-static": 0.8, "enable-hierarchical-cache": True, **size, **more}


def test_pools_beside_the_kv_are_not_forgotten_by_the_start_after_next(tmp_path: Path) -> None:
    item = inputs(tier(270), dense(), node(available=3e12))
    facts = Facts()
    for _start in range(3):
        again = replace(item, facts=facts)
        keep(tmp_path, again, StartFacts(pre_gib=93.0, weights_gib=4.0, host_pool_gb=335.34))
        facts, _text = measured_facts.load(tmp_path, KEY)
        assert facts.host_pool_planned_gb == pytest.approx(270, rel=1e-4)
        found = plan(replace(item, facts=facts))
        assert found.host.pools_bytes / 1e9 == pytest.approx(4 * 335.34, rel=1e-3)
        assert found.verdict_of("hicache.pool_overhead") == "warn"


def test_pools_that_took_what_was_planned_say_nothing(tmp_path: Path) -> None:
    item = recorded_inputs("starved-hicache")
    facts = learned(tmp_path, item, logged("starved-hicache"))
    assert (facts.host_pool_gb, facts.host_pool_planned_gb) == (40.0, pytest.approx(40.0, abs=0.001))
    assert plan(replace(item, facts=facts)).verdict_of("hicache.pool_overhead") == "ok"


def test_pools_by_ratio_are_compared_for_the_tokens_that_there_were(tmp_path: Path) -> None:
    item = inputs(tier(**{"hicache-ratio": 2.0}), dense(), node(available=3e12))
    first = plan(item)
    tokens = int(first.tokens.low)
    assert tokens < 0.99 * first.tokens.high
    pool_gb = 2 * tokens * first.gpu.cell_bytes / 1e9
    facts = learned(tmp_path, item, StartFacts(pre_gib=93.0, weights_gib=4.0, tokens=tokens, host_pool_gb=pool_gb))
    assert facts.host_pool_planned_gb == pytest.approx(pool_gb, rel=1e-4)
    unsaid = StartFacts(pre_gib=93.0, weights_gib=4.0, host_pool_gb=pool_gb)
    assert learned(tmp_path / "b", item, unsaid).host_pool_gb is None


def test_pools_that_the_engine_shrinks_are_not_compared(tmp_path: Path) -> None:
    item = inputs(tier(), dense(), node(available=3e11), NEW)
    facts = learned(tmp_path, item, StartFacts(pre_gib=93.0, weights_gib=4.0, tokens=9, host_pool_gb=12.0))
    assert (facts.host_pool_gb, facts.host_pool_planned_gb) == (None, None)


def test_the_memory_of_processes_counts_where_it_was_read(tmp_path: Path) -> None:
    item = inputs(seed(0.85))
    keep(tmp_path, item, SHOWN, rss_gb=3.2)
    keep(tmp_path, item, SHOWN, rss_gb=None, when=WHEN + 60)
    facts, _text = measured_facts.load(tmp_path, KEY)
    assert facts.rss_rank_gb == 3.2
    assert planned(seed(0.88, 40), facts=facts).host.process_bytes == 8 * 3_200_000_000 + 6_000_000_000


def test_on_a_cpu_weights_and_kv_would_count_twice(tmp_path: Path) -> None:
    item = inputs({"device": "cpu", "mem-fraction-static": 0.5}, dense(), node(gpus=()))
    keep(tmp_path, item, StartFacts(pre_gib=100.0, weights_gib=16.0, tokens=9_000), rss_gb=40.0)
    assert measured_facts.load(tmp_path, KEY)[0].rss_rank_gb is None


# --- the store


def test_nothing_measured_nothing_said(tmp_path: Path) -> None:
    assert measured_facts.load(tmp_path / "none", KEY) == (Facts(), "")
    keep(tmp_path, inputs(seed(0.85)), StartFacts(tokens=4_096))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"{KEY}.json").write_text("{")
    assert measured_facts.load(tmp_path, KEY) == (Facts(), "")


def test_a_start_after_damage_is_kept(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.json").write_text("{")
    assert learned(tmp_path, inputs(seed(0.85)), SHOWN).pre_gib == 93.6


def test_when_it_was_measured(tmp_path: Path) -> None:
    item = inputs(seed(0.85))
    keep(tmp_path, item, SHOWN)
    assert measured_facts.load(tmp_path, KEY)[1] == "measured at the start of 2025-11-30 05:20 UTC"
    limited = inputs(seed(0.85, **{"max-total-tokens": 1_000}))
    keep(tmp_path, limited, replace(SHOWN, tokens=1_000), when=WHEN + 3600)
    facts, text = measured_facts.load(tmp_path, KEY)
    assert text == (
        "measured at the start of 2025-11-30 06:20 UTC, its KV at that of 2025-11-30 05:20 UTC; "
        "what KV got at 2025-11-30 06:20 UTC tells nothing: it was limited by max-total-tokens"
    )
    assert (facts.tokens, facts.kv_fraction) == (1_000, 0.85)


def test_five_starts_are_kept_the_newest_first(tmp_path: Path) -> None:
    item = inputs(seed(0.85))
    for number in range(7):
        keep(tmp_path, item, replace(SHOWN, weights_gib=71.0 + number), when=WHEN + number)
    starts = json.loads((tmp_path / f"{KEY}.json").read_text())["starts"]
    assert [start["when"] for start in starts] == [WHEN + number for number in (6, 5, 4, 3, 2)]
    assert measured_facts.load(tmp_path, KEY)[0].weights_gib == 77.0


def test_a_start_that_died_before_its_kv_tells_the_weights(tmp_path: Path) -> None:
    facts = learned(tmp_path, recorded_inputs("err-small-f"), logged("err-small-f"))
    assert (facts.pre_gib, facts.weights_gib, facts.kv_gib) == (139.13, 28.7, None)


# --- what starts must have in common

BASE = {"tp-size": 8, "mem-fraction-static": 0.85}


def key(changes: dict[str, Any] | None = None, env: dict[str, str] | None = None, version: str = OLD) -> str:
    item = inputs({**BASE, **(changes or {})}, KIMI, version=version, env=env)
    return measured_facts.key(item.args, "model", "engine")


@pytest.mark.parametrize(
    "changes",
    [
        {"mem-fraction-static": 0.93},
        {"kv-cache-dtype": "fp8_e4m3"},
        {"cuda-graph-max-bs-decode": 16},
        {"chunked-prefill-size": 2048},
        {"max-running-requests": 64},
        {"max-total-tokens": 64_000},
        {"enable-hierarchical-cache": True, "hicache-size": 40},
        {"context-length": 32_768},
        {"page-size": 64},
        {"disable-cuda-graph": True},
        {"dtype": "auto"},
        {"enable-lora": False},
        {"pp-size": 1},
        {"moe-runner-backend": "auto"},
        {"quantization": ""},
    ],
    ids=str,
)
def test_one_start_serves_the_plans_of_other_values(changes: dict[str, Any]) -> None:
    assert key(changes) == key()


@pytest.mark.parametrize(
    "changes",
    [
        {"tp-size": 4},
        {"pp-size": 2},
        {"ep-size": 8},
        {"nnodes": 2},
        {"dp-size": 8, "enable-dp-attention": True},
        {"dp-size": 2},
        {"dtype": "float16"},
        {"quantization": "fp8"},
        {"load-format": "dummy"},
        {"device": "cpu"},
        {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/m/draft"},
        {"cpu-offload-gb": 8},
        {"moe-runner-backend": "triton"},
        {"moe-data-parallel-size": 2},
        {"enable-lora": True},
        {"disable-custom-all-reduce": True},
        {"language-only": True},
    ],
    ids=str,
)
def test_what_changes_weights_or_free_memory_starts_anew(changes: dict[str, Any]) -> None:
    assert key(changes) != key()


def test_a_flag_counts_by_any_of_its_names() -> None:
    assert key({"tensor-parallel-size": 4, "tp-size": None}) == key({"tp-size": 4})
    assert key({"moe-data-parallel-size": 2}) == key({"moe-dp-size": 2})


def test_the_steps_of_a_draft_count_where_each_has_weights() -> None:
    steps = {"speculative-algorithm": "EAGLE", "speculative-num-steps": 2}
    assert key(steps) == key({**steps, "speculative-num-steps": 3})
    layers = {**steps, "enable-multi-layer-eagle": True}
    assert key(layers) != key({**layers, "speculative-num-steps": 3})


@pytest.mark.parametrize(("name", "same"), [("NCCL_BUFFSIZE", False), ("SGLANG_VLM_CACHE_SIZE_MB", False), ("X", True)])
def test_the_environment_counts_as_far_as_it_takes_memory(name: str, same: bool) -> None:
    assert (key(env={name: "16777216"}) == key()) is same


def test_model_engine_and_gpus_count() -> None:
    args = inputs(BASE).args
    base = measured_facts.key(args, "model", "engine")
    assert len(base) == 16
    assert len({base, measured_facts.key(args, "other", "engine"), measured_facts.key(args, "model", "other")}) == 3

    def on(*gpus: Gpu) -> str:
        return measured_facts.key(args, "model", "engine", gpus)

    assert on(gpu(0), gpu(1)) == on(gpu(2), gpu(3)) != on(gpu(0, name="H200"), gpu(1, name="H200")) != base


@pytest.mark.parametrize("flag", measured_facts._ARGUMENTS)
def test_each_flag_is_one_of_a_known_release(flag: str) -> None:
    tables = [flag_tables.table(version) for version in (OLD, NEW)]
    assert any(flag in table and table[flag].names[0] == flag for table in tables)


def test_facts_of_another_page_still_hold(tmp_path: Path) -> None:
    facts = learned(tmp_path, inputs(seed(0.85, **{"page-size": 64})), replace(SHOWN, tokens=116_160))
    found = planned(seed(0.85), facts=facts)
    assert abs(found.tokens.best - 116_171) <= 64
    assert found.tokens.low <= 116_171 <= found.tokens.high


def test_a_smaller_pool_than_the_logs_rounding_is_not_refused(tmp_path: Path) -> None:
    small = latent(weights_gib=8 * 79.54)
    shown = StartFacts(fraction=0.85, pre_gib=93.6, weights_gib=79.53, tokens=400)
    facts = learned(tmp_path, inputs(seed(0.85), small), shown)
    found = planned(seed(0.85), small, facts=facts)
    assert found.tokens.best == 400
    assert found.verdict_of("gpu.no_room_for_kv") == "ok"
