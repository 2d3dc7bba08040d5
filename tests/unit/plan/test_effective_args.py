# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang makes of flags: origins, defaults by GPU, graphs, pages, types of KV, and values that can't be one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils.effective_args import (
    EffectiveArgs,
    changed,
    loader_threads,
    resolve,
)
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import generation, table
from ansible_collections.headroom.serving.plugins.module_utils.mirrored_rules import (
    prefill_graph_sizes,
    reserved_mib,
    sizes_by_memory,
    vision_factor,
)
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from ansible_collections.headroom.serving.plugins.module_utils.sizing_flags import SIZING
from plan_samples import KIMI, NEW, OLD, dense, gpu, latent, node


def found(args: dict[str, Any], version: str = OLD, model: ModelShape | None = None, **more: Any) -> EffectiveArgs:
    return resolve(args, version, model or dense(), more.pop("hardware", node()), **more)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_every_value_has_an_origin_and_a_source(version: str) -> None:
    args = found({"tp-size": 8, "mem-fraction-static": 0.8}, version)
    assert {entry.origin for entry in args.values()} == {"given", "default", "rule"}
    assert all(entry.source for entry in args.values())
    assert args["tp-size"].origin == "given"
    assert args["hicache-size"].origin == "default"
    assert args["chunked-prefill-size"].origin == "rule" and ".py:" in args["chunked-prefill-size"].source
    assert set(args) <= set(SIZING) and len(args) > 40


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_must_have_a_value_has_one(version: str) -> None:
    args = found({}, version)
    for name in ("mem-fraction-static", "chunked-prefill-size", "cuda-graph-max-bs-decode", "page-size", "device"):
        assert args.value(name) is not None, name
    assert args.value("kv-cache-dtype") == "bfloat16"
    assert args.value("context-length") == 32_768


@pytest.mark.parametrize(
    ("version", "total_mib", "tp", "chunk", "graph"),
    [
        (OLD, 16_000, 1, 2048, 8),
        (OLD, 24_564, 1, 2048, 24),
        (OLD, 24_564, 4, 2048, 80),
        (NEW, 24_564, 1, 4096, 48),
        (NEW, 32_607, 8, 4096, 160),
        (OLD, 46_068, 1, 4096, 32),
        (NEW, 46_068, 4, 4096, 160),
        (OLD, 81_559, 1, 8192, 256),
        (NEW, 81_559, 4, 8192, 512),
        (OLD, 97_887, 8, 8192, 512),
        (OLD, 143_771, 2, 8192, 256),
        (NEW, 183_359, 1, 16_384, 512),
    ],
)
def test_defaults_by_size_of_gpu(version: str, total_mib: int, tp: int, chunk: int, graph: int) -> None:
    where = node(*[gpu(index, total_mib) for index in range(8)])
    args = found({"tp-size": tp}, version, hardware=where)
    assert (args.integer("chunked-prefill-size"), args.integer("cuda-graph-max-bs-decode")) == (chunk, graph)


def test_without_a_gpu_to_look_at() -> None:
    assert sizes_by_memory(OLD, None, 1)[:2] == (4096, 160)
    nothing = replace(node(), gpus=())
    assert found({}, OLD, hardware=nothing).value("mem-fraction-static") == 0.88
    assert found({}, NEW, hardware=nothing).value("mem-fraction-static") == 0.95


def test_the_newer_engine_captures_no_more_than_can_run() -> None:
    assert found({"max-running-requests": 100}, NEW).integer("cuda-graph-max-bs-decode") == 100
    assert found({"max-running-requests": 100}, OLD).integer("cuda-graph-max-bs-decode") == 256


@pytest.mark.parametrize(
    ("args", "version", "decode", "prefill", "largest"),
    [
        ({"cuda-graph-max-bs": 16}, OLD, "full", "tc_piecewise", 16),
        ({"cuda-graph-bs": [1, 8, 160]}, OLD, "full", "tc_piecewise", 160),
        ({"cuda-graph-bs": "1 8 64"}, OLD, "full", "tc_piecewise", 64),
        ({"cuda-graph-bs-decode": [4, 2]}, NEW, "full", "breakable", 4),
        ({"disable-cuda-graph": True}, OLD, "disabled", "disabled", 256),
        ({"disable-piecewise-cuda-graph": True}, OLD, "full", "disabled", 256),
        ({"disable-decode-cuda-graph": True}, NEW, "disabled", "breakable", 256),
        ({"cuda-graph-backend-prefill": "full", "enable-hierarchical-cache": True}, OLD, "full", "full", 256),
        ({"enable-hierarchical-cache": True}, OLD, "full", "disabled", 256),
        ({"enable-hierarchical-cache": True}, NEW, "full", "breakable", 256),
        ({"pp-size": 2}, OLD, "full", "disabled", 256),
        ({"pp-size": 2}, NEW, "full", "disabled", 256),
        ({"dp-size": 2, "enable-dp-attention": True, "tp-size": 2}, OLD, "full", "disabled", 256),
        ({"moe-a2a-backend": "deepep"}, OLD, "full", "disabled", 256),
        ({"moe-a2a-backend": "deepep"}, NEW, "full", "breakable", 256),
        ({"attention-backend": "torch_native"}, OLD, "disabled", "disabled", 256),
        ({"device": "cpu"}, OLD, "disabled", "disabled", 512),
    ],
)
def test_graphs(args: dict[str, Any], version: str, decode: str, prefill: str, largest: int) -> None:
    there = found(args, version)
    assert there.text("cuda-graph-backend-decode") == decode
    assert there.text("cuda-graph-backend-prefill") == prefill
    assert there.integer("cuda-graph-max-bs-decode") == largest


def test_a_vision_model_captures_its_prefill_only_where_it_is_listed() -> None:
    assert found({}, OLD, KIMI).text("cuda-graph-backend-prefill") == "disabled"
    assert found({}, NEW, KIMI).text("cuda-graph-backend-prefill") == "breakable"
    linear = dense(architecture="Qwen3NextForCausalLM")
    assert found({}, OLD, linear).text("cuda-graph-backend-prefill") == "disabled"
    assert found({}, NEW, linear).text("cuda-graph-backend-prefill") == "breakable"
    other = replace(KIMI, architecture="SomeForConditionalGeneration")
    assert found({}, NEW, other).text("cuda-graph-backend-prefill") == "disabled"


@pytest.mark.parametrize(
    ("args", "pages"),
    [
        ({}, 1),
        ({"page-size": 16}, 16),
        ({"attention-backend": "flashmla"}, 64),
        ({"attention-backend": "trtllm_mla", "page-size": 32}, 32),
        ({"decode-attention-backend": "trtllm_mla", "page-size": 16}, 64),
        ({"attention-backend": "cutlass_mla"}, 128),
    ],
)
def test_pages(args: dict[str, Any], pages: int) -> None:
    assert found(args).integer("page-size") == pages


@pytest.mark.parametrize(
    ("args", "model", "capability", "kind"),
    [
        ({}, dense(dtype="float16"), (9, 0), "float16"),
        ({"dtype": "float32"}, dense(), (9, 0), "float32"),
        ({}, dense(kv_cache_quant="fp8"), (9, 0), "fp8_e4m3"),
        ({"kv-cache-dtype": "bf16"}, dense(kv_cache_quant="fp8"), (9, 0), "bf16"),
        ({}, latent(index=128), (9, 0), "bfloat16"),
        ({}, latent(index=128), (10, 0), "fp8_e4m3"),
    ],
)
def test_types_of_kv(args: dict[str, Any], model: ModelShape, capability: tuple[int, int], kind: str) -> None:
    where = node(gpu(0, compute_capability=capability), gpu(1, compute_capability=(12, 0)))
    assert found(args, OLD, model, hardware=where, gpus=(0,)).text("kv-cache-dtype") == kind


def test_layouts_of_the_host_tier_follow_the_io_back_end() -> None:
    on = {"enable-hierarchical-cache": True}
    assert found({**on, "hicache-io-backend": "direct"}).text("hicache-mem-layout") == "page_first_direct"
    assert found({**on, "hicache-mem-layout": "page_first_direct"}).text("hicache-io-backend") == "direct"
    assert found(on).text("hicache-mem-layout") == "page_first"


@pytest.mark.parametrize(
    ("args", "ranks", "on_node", "attention_tp"),
    [
        ({"tp-size": 8}, 8, 8, 8),
        ({"tensor-parallel-size": 4, "pp-size": 2}, 8, 8, 4),
        ({"tp-size": 2, "dp-size": 4}, 8, 8, 2),
        ({"tp-size": 8, "dp-size": 4, "enable-dp-attention": True}, 8, 8, 2),
        ({"tp-size": 16, "nnodes": 2}, 16, 8, 16),
    ],
)
def test_ranks(args: dict[str, Any], ranks: int, on_node: int, attention_tp: int) -> None:
    there = found(args)
    assert (there.ranks, there.ranks_on_node, there.attention_tp) == (ranks, on_node, attention_tp)


def test_the_newer_name_of_attention_data_parallelism() -> None:
    there = found({"tp-size": 8, "attn-dp-size": 8}, NEW)
    assert (there.attention_dp, there.attention_tp, there.ranks) == (8, 1, 8)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("tp-size", 0),
        ("tp-size", "eight"),
        ("tp-size", 1.5),
        ("mem-fraction-static", 0),
        ("mem-fraction-static", 1.0),
        ("mem-fraction-static", "nan"),
        ("mem-fraction-static", "most"),
        ("hicache-size", -1),
        ("hicache-size", 2.5),
        ("hicache-ratio", 0),
        ("hicache-ratio", float("inf")),
        ("max-running-requests", 0),
        ("page-size", 0),
        ("context-length", "long"),
        ("chunked-prefill-size", [1, 2, "x"]),
        ("tp-size", [1, 2]),
        ("pp-size", 33),
        ("pp-size", 10**9),
        ("tp-size", True),
        ("cuda-graph-bs", ["a"]),
        ("swa-full-tokens-ratio", 1.5),
        ("mamba-full-memory-ratio", -1),
        ("context-length", 0),
    ],
)
def test_values_that_can_not_be_one(flag: str, value: Any) -> None:
    with pytest.raises(HeadroomError) as caught:
        found({flag: value, **({"enable-hierarchical-cache": True} if "hicache" in flag else {})})
    assert [item.id for item in caught.value.findings] == ["settings.invalid"]
    assert flag in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "tokens"), [("64k", 64_000), ("1Mi", 1_048_576), ("25.6k", 25_600), (7, 7), ("7", 7)])
def test_readable_numbers(text: Any, tokens: int) -> None:
    assert found({"max-total-tokens": text}).integer("max-total-tokens") == tokens


def test_flags_that_are_off_or_unknown_are_not_there() -> None:
    there = found({"enable-hierarchical-cache": False, "no-such-flag": 1, "hicache-host-memory-fraction": 0.5})
    assert not there.flag("enable-hierarchical-cache")
    assert "no-such-flag" not in there and "hicache-host-memory-fraction" not in there
    assert found({"hicache-host-memory-fraction": 0.5}, NEW).number("hicache-host-memory-fraction") == 0.5


def test_changes_are_resolved_again() -> None:
    where = node()
    first = found({"tp-size": 8, "max-running-requests": 64}, NEW, hardware=where)
    assert first.integer("cuda-graph-max-bs-decode") == 64
    second = changed(first, {"max-running-requests": None, "page-size": 16}, dense(), where, ())
    assert second.integer("cuda-graph-max-bs-decode") == 512
    assert second.integer("page-size") == 16
    assert second.given == {"tp-size": 8, "page-size": 16}


def test_the_device_is_the_cpu_only_where_that_is_said() -> None:
    nothing = replace(node(), gpus=())
    assert not found({}, hardware=nothing).on_cpu
    assert found({}, hardware=nothing, env={"SGLANG_USE_CPU_ENGINE": "1"}).on_cpu
    assert found({"device": "cpu"}).on_cpu
    assert not found({}, env={"SGLANG_USE_CPU_ENGINE": "1"}).on_cpu


def test_threads_of_the_loader() -> None:
    assert loader_threads(found({})) == 8
    assert loader_threads(found({"model-loader-extra-config": '{"num_threads": 3}'})) == 3
    assert loader_threads(found({"model-loader-extra-config": '{"num_threads": "3"}'})) == 8
    assert loader_threads(found({"model-loader-extra-config": "{"})) == 8


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.14", OLD),
        ("0.5.23", NEW),
        ("0.5.22.post1", OLD),
        ("0.5.23.post2", NEW),
        ("0.6.0", NEW),
        ("1.0", NEW),
        ("0.4.9", OLD),
        ("dev", OLD),
        ("", OLD),
    ],
)
def test_which_release_a_version_follows(version: str, release: str) -> None:
    assert generation(version) == release


@pytest.mark.parametrize(("release", "flags", "names"), [(OLD, 420, 431), (NEW, 531, 547)])
def test_the_tables_hold_all_flags(release: str, flags: int, names: int | None) -> None:
    there = table(release)
    assert len({flag.names for flag in there.values()}) == flags
    if names:
        assert len(there) == names
    assert there["tensor-parallel-size"].names[0] == "tp-size"
    assert there["hicache-write-policy"].choices == ("write_back", "write_through", "write_through_selective")
    assert there["hicache-ratio"].default == (2.0 if release == OLD else None)
    assert there["enable-metrics"].kind == "flag"
    assert ("cuda-graph-max-bs" in there) == (release == OLD)


def test_the_reserve_of_the_seeds_case() -> None:
    assert reserved_mib(OLD, 97_887, 8192, 512, True, 8, 1, 0, True, False) == 14_848
    assert reserved_mib(NEW, 97_887, 8192, 512, True, 8, 1, 58, True, False) == 16_384
    assert reserved_mib(OLD, 97_887, 2048, 8, True, 1, 1, 0, False, False) == 10_240  # the floor of large GPUs
    assert reserved_mib(NEW, 97_887, 2048, 8, False, 1, 1, 0, False, True) == 10_240
    assert reserved_mib(OLD, 49_140, 4096, 160, True, 8, 8, 0, True, False) == 512 + 6144 + 1024 + 320 + 3840
    assert reserved_mib(OLD, 49_140, 4096, 320, True, 8, 2, 0, True, False) == 512 + 6144 + 1024 + 640 + 2880


def test_small_rules() -> None:
    assert prefill_graph_sizes(8192) == 58
    assert prefill_graph_sizes(2048) == 42
    assert vision_factor(27, 1152) == pytest.approx(0.9097, abs=1e-4)
    assert vision_factor(24, 1024) == pytest.approx(0.95)
    assert vision_factor(80, 4096) == pytest.approx(0.76)
