# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kimi-K2.5 on 8x RTX PRO 6000: the figures and verdicts that this case must give."""

from __future__ import annotations

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, plan
from plan_samples import GIB, KIMI, NEW, OLD, inputs, latent, node, planned, seed


def test_the_tokens_of_0_85_to_the_token() -> None:
    assert planned(seed(0.85)).tokens.best == 116_171


@pytest.mark.parametrize(
    ("version", "fraction", "kv", "tokens"),
    [
        (OLD, 0.88, "auto", 159_076),
        (OLD, 0.90, "auto", 187_680),
        (OLD, 0.93, "auto", 230_586),
        (OLD, 0.88, "fp8_e4m3", 318_153),
        (OLD, 0.93, "fp8_e5m2", 461_172),
        (NEW, 0.88, "bf16", 157_584),  # 1,492 fewer: B keeps 100 MiB for images
    ],
)
def test_the_tokens_of_other_fractions(version: str, fraction: float, kv: str, tokens: int) -> None:
    found = planned(seed(fraction, **{"kv-cache-dtype": kv}), version=version)
    assert found.tokens.best == pytest.approx(tokens, abs=1)
    assert found.tokens.low < tokens < found.tokens.high
    assert (found.tokens.high - found.tokens.low) / 2 < tokens * 0.005
    assert found.origin == "measured"


@pytest.mark.parametrize(
    ("fraction", "verdict"), [(0.80, "ok"), (0.85, "ok"), (0.88, "warn"), (0.90, "refuse"), (0.93, "refuse")]
)
def test_the_verdict_on_a_fraction(fraction: float, verdict: str) -> None:
    assert planned(seed(fraction)).verdict_of("gpu.slack") == verdict


def test_what_was_never_measured_must_leave_half_of_sglangs_reserve() -> None:
    # Few requests and small graphs need little, by an estimate that no start with images and 8 ranks has proved.
    small = {"max-running-requests": 64, "cuda-graph-max-bs-decode": 64}
    found = planned(seed(0.93, **small), version=NEW)
    assert found.gpu.need_bytes < found.gpu.slack_bytes.low < found.gpu.reserve_bytes / 2
    refused = next(item for item in found.findings if item.id == "gpu.slack")
    assert refused.verdict == "refuse"
    assert "less than half" in refused.message and "SGLang 0.5.23, images, 8 ranks" in refused.message
    assert planned(seed(0.91, **small), version=NEW).verdict_of("gpu.slack") == "warn"


def test_the_seed_is_refused_for_both_of_its_faults() -> None:
    found = planned(seed(0.93, 300))
    assert found.verdict == "refuse"
    refused = {item.id: item for item in found.findings if item.verdict == "refuse"}
    assert set(refused) == {"gpu.slack", "hicache.node_budget"}
    tier = refused["hicache.node_budget"]
    assert "2,410.7 GB needed, 408 GB available" in tier.message
    assert "hicache-size is 300" in tier.message and "8 ranks" in tier.message
    assert "44" in tier.suggestion
    assert "0.930" in refused["gpu.slack"].message
    asked = [one for one in found.suggestions if one.finding == "gpu.slack"]
    assert [(one.setting, one.verdict) for one in asked] == [
        ("mem-fraction-static", "ok"),
        ("mem-fraction-static", "warn"),
        ("", "refuse"),  # no other lever makes 0.93 safe
    ]
    assert 0.845 < asked[0].value < 0.86 and 0.885 < asked[1].value < 0.9
    assert all(one.text in refused["gpu.slack"].suggestion for one in asked)


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(300, "refuse"), (50, "refuse"), (49, "warn"), (48, "warn"), (45, "warn"), (44, "ok"), (40, "ok")],
)
def test_the_verdict_on_a_host_tier(size: int, verdict: str) -> None:
    found = planned(seed(0.88, size))
    assert found.verdict_of("hicache.node_budget") == verdict
    if verdict != "ok":
        best = [one for one in found.suggestions if one.finding == "hicache.node_budget"]
        assert [(one.setting, one.value, one.verdict, one.beyond) for one in best] == [("hicache-size", 44, "ok", 45)]


def test_48_and_40_of_408() -> None:
    assert "394.7 of 408 GB" in next(
        item.message for item in planned(seed(0.88, 48)).findings if item.id == "hicache.node_budget"
    )
    assert planned(seed(0.88, 40)).verdict in ("ok", "warn")


def test_what_the_host_tier_holds() -> None:
    found = planned(seed(0.88, 48))
    assert found.host_tokens == 683_061  # 48e9 // 70,272 and one page more
    copies = next(item for item in found.findings if item.id == "plan.copies_per_rank")
    assert copies.verdict == "ok" and "683,061" in copies.message
    assert planned(seed(0.88, 48, **{"kv-cache-dtype": "fp8_e4m3"})).host_tokens == 1_366_121


def test_the_newer_engine_races_above_26() -> None:
    assert planned(seed(0.88, 26), version=NEW).verdict_of("hicache.race") == "ok"
    found = planned(seed(0.88, 27), version=NEW)
    assert found.verdict_of("hicache.race") == "warn"
    assert [(one.value, one.beyond) for one in found.suggestions if one.setting == "hicache-size"] == [(26, 27)]
    assert planned(seed(0.88, 27), version=OLD).verdict_of("hicache.race") == "ok"


@pytest.mark.parametrize(("version", "size", "verdict"), [(OLD, 12, "ok"), (OLD, 11, "refuse"), (NEW, 11, "warn")])
def test_a_host_tier_smaller_than_the_gpus_pool(version: str, size: int, verdict: str) -> None:
    found = planned(seed(0.88, size), version=version)
    assert found.verdict_of("hicache.host_smaller_than_device") == verdict
    if verdict == "refuse":
        assert [(one.value, one.beyond) for one in found.suggestions if one.setting == "hicache-size"] == [(12, 11)]


def test_the_default_fraction_and_why_it_does_not_do() -> None:
    old, new = planned({"tp-size": 8}), planned({"tp-size": 8}, version=NEW)
    assert old.gpu.fraction == pytest.approx(0.7715, abs=0.001)
    assert new.gpu.fraction == pytest.approx(0.7575, abs=0.001)
    assert new.verdict_of("gpu.no_room_for_kv") == "refuse"
    text = planned({"tp-size": 8, "language-model-only": True}, version=NEW)
    assert text.gpu.fraction == 0.833


def test_the_table_of_requests_is_what_the_slack_pays_first() -> None:
    gib = planned(seed(0.88)).gpu.request_table_bytes / GIB
    assert gib == pytest.approx(2.001, abs=0.003)
    assert planned(seed(0.88, **{"max-running-requests": 128})).gpu.request_table_bytes / GIB == pytest.approx(
        0.127, abs=0.002
    )


def test_before_the_first_start_the_interval_holds_the_truth() -> None:
    found = planned(seed(0.88), facts=Facts())
    assert found.origin == "estimated"
    assert found.tokens.low < 159_076 < found.tokens.high
    assert found.gpu.pre_bytes.best / GIB == pytest.approx(93.6, rel=0.01)


@pytest.mark.parametrize("fraction", [0.5, 0.8, 0.88, 0.95])
def test_the_band_of_an_estimate_is_bounded(fraction: float) -> None:
    found = planned(seed(fraction), latent(weights_gib=200.0), facts=Facts())
    half = (found.tokens.high - found.tokens.low) / 2 * found.gpu.cell_bytes
    bound = fraction * 0.01 * found.gpu.pre_bytes.best + 0.005 * found.gpu.weights_bytes.best
    assert 0.9 * bound < half <= bound


def test_levers_say_what_they_do_not_do() -> None:
    found = planned(seed(0.88, 40), expected_request_tokens=8_000)
    said = {item.id: item for item in found.findings}
    assert said["plan.prefix_cache_only"].verdict == "ok"
    assert said["plan.context_exceeds_pool"].verdict == "warn"
    assert found.requests_at_context == found.tokens.low // 8_000
    without = planned(seed(0.88), expected_request_tokens=8_000)
    assert without.requests_at_context == found.requests_at_context


def test_an_accepted_finding_warns_and_says_so() -> None:
    found = plan(inputs(seed(0.93, 40), accept=("gpu.slack",)))
    assert found.verdict == "warn"
    assert "(accepted)" in next(item.message for item in found.findings if item.id == "gpu.slack")
    assert plan(inputs(seed(0.93, 300), accept=("gpu.slack",))).verdict == "refuse"


def test_what_the_outgoing_release_holds_counts_as_free() -> None:
    busy = node(*node().gpus, available=100e9, mem_total_bytes=500_000_000_000)
    assert planned(seed(0.88, 40), KIMI, busy).verdict_of("hicache.node_budget") == "refuse"
    assert planned(seed(0.88, 40), KIMI, busy, release_host_bytes=308 * 10**9).verdict_of("hicache.node_budget") == "ok"


def test_a_plan_is_plain_data() -> None:
    data = planned(seed(0.93, 300)).as_dict()
    assert data["verdict"] == "refuse"
    assert data["gpu"]["left_bytes"] < 0
    assert data["host"]["needed_bytes"] == pytest.approx(2_410.7e9, rel=1e-4)
    assert {"id", "verdict", "message", "suggestion"} <= set(data["findings"][0])
