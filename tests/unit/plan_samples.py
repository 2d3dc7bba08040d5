# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models, nodes and plans for the tests of the plan."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import effective_args, model_shape
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu, GpuProcess, Hardware
from ansible_collections.headroom.serving.plugins.module_utils.memory_plan import Facts, Plan, PlanInput, plan
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import LayerGroup, ModelShape, WeightPart

OLD, NEW = "0.5.14", "0.5.23"
MIB, GIB = 2**20, 2**30
RECORDED = json.loads((Path(__file__).parent / "plan/recorded_starts.json").read_text(encoding="utf-8"))
# Later ones, of one or two GPUs, each with a load where it served.
LOADED = json.loads((Path(__file__).parent / "plan/recorded_loads.json").read_text(encoding="utf-8"))

# config.json of a GQA model of 16 GiB.
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}


def shape(*groups: LayerGroup, weights_gib: float = 16.0, **more: Any) -> ModelShape:
    """Return a model with these layers, whose weights are split evenly over all ranks."""
    layers = sum(group.layers for group in groups)
    each = int(weights_gib * GIB / layers)
    values: dict[str, Any] = {
        "format": 1,
        "architecture": "Qwen3ForCausalLM",
        "model_type": "qwen3",
        "layers": layers,
        "hidden_size": 4096,
        "vocab_size": 151_936,
        "attention_heads": 32,
        "experts": 0,
        "experts_per_token": 0,
        "moe_intermediate_size": 0,
        "context_tokens": 32_768,
        "dtype": "bfloat16",
        "quantization": "",
        "kv_cache_quant": "",
        "groups": groups,
        "is_multimodal": False,
        "vision_layers": 0,
        "vision_hidden_size": 0,
        "sharded_bytes": each * layers,
        "replicated_bytes": 0,
        "expert_bytes": 0,
        "vision_bytes": 0,
        "tensors": 1,
        "files": 4,
        "total_bytes": each * layers,
        "largest_file_bytes": 4_000_000_000,
        "key": "sample",
        "approximate": (),
        "parts": (WeightPart("mlp", 0, layers, each),),
    }
    return ModelShape(**{**values, **more})


def dense(layers: int = 32, kv_heads: int = 8, **more: Any) -> ModelShape:
    """Return a model with grouped-query attention."""
    return shape(LayerGroup("mha", layers, kv_heads=kv_heads, head_dim=128, v_head_dim=128), **more)


def latent(layers: int = 61, index: int = 0, **more: Any) -> ModelShape:
    """Return a model with latent attention, with a sparse index if `index` is its dimension."""
    group = LayerGroup("mla", layers, kv_lora_rank=512, rope_dim=64, index_head_dim=index)
    return shape(
        group, **{"architecture": "DeepseekV3ForCausalLM", "hidden_size": 7168, "context_tokens": 163_840, **more}
    )


# Kimi-K2.5 in INT4: 61 layers of latent KV, 384 experts, a vision tower; 72 GiB of weights on each of 8 ranks.
KIMI = latent(
    weights_gib=72 * 8,
    architecture="KimiK25ForConditionalGeneration",
    model_type="kimi_k25",
    vocab_size=163_840,
    attention_heads=64,
    intermediate_size=18_432,
    experts=384,
    experts_per_token=8,
    moe_intermediate_size=2048,
    context_tokens=262_144,
    is_multimodal=True,
    vision_layers=27,
    vision_hidden_size=1152,
    largest_file_bytes=9_300_000_000,
)
KIMI_FACTS = Facts(pre_gib=93.6, weights_gib=71.95708)
# Qwen3-Next's layout: 12 layers of full attention among 36 of linear attention.
HYBRID = shape(
    LayerGroup("mha", 12, kv_heads=2, head_dim=256, v_head_dim=256),
    LayerGroup("linear", 36, kv_heads=32, head_dim=128, v_head_dim=128, state_bytes=2_200_000),
    architecture="Qwen3NextForCausalLM",
    hidden_size=2048,
    weights_gib=150,
)
# gpt-oss's layout: half of the layers look at a window only.
WINDOWED = shape(
    LayerGroup("mha", 12, kv_heads=8, head_dim=64, v_head_dim=64),
    LayerGroup("swa", 12, kv_heads=8, head_dim=64, v_head_dim=64, window_tokens=128),
    architecture="GptOssForCausalLM",
    hidden_size=2880,
)


def gpu(index: int, total_mib: int = 97_887, used_mib: int = 0, name: str = "RTX PRO 6000", **more: Any) -> Gpu:
    """Return a GPU; 600 MiB of any are the driver's."""
    values: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": name,
        "total_bytes": total_mib * MIB,
        "used_bytes": used_mib * MIB,
        "free_bytes": max(0, total_mib - used_mib - 600) * MIB,
        "compute_capability": (12, 0),
        "pcie_gen": 5,
        "pcie_width": 16,
        "processes": (),
        "numa_node": 0,
        "mig": False,
    }
    return Gpu(**{**values, **more})


def process(pid: int, used_mib: int, command: str = "python") -> GpuProcess:
    """Return a process that holds memory of a GPU."""
    return GpuProcess(pid=pid, user="u", command=command, used_bytes=used_mib * MIB, unit="")


def node(*gpus: Gpu, available: float = 408e9, **more: Any) -> Hardware:
    """Return a node; with 8 of the GPUs above if none are given. `available` in bytes."""
    values: dict[str, Any] = {
        "format": 1,
        "gpus": gpus or tuple(gpu(index) for index in range(8)),
        "driver_version": "575.57",
        "cuda_driver_version": "12.9",
        "mem_total_bytes": int(available * 1.25),
        "mem_available_bytes": int(available),
        "cgroup_limit_bytes": None,
        "cgroup_available_bytes": None,
        "swap_bytes": 0,
        "shm_total_bytes": int(available / 2),
        "shm_free_bytes": int(available / 2),
        "memlock_hard_bytes": None,
        "cpus": 64,
        "numa_nodes": 1,
        "topology": (),
        "source": "nvml",
        "notes": (),
    }
    return Hardware(**{**values, **more})


def inputs(
    args: dict[str, Any],
    model: ModelShape = KIMI,
    hardware: Hardware | None = None,
    version: str = OLD,
    facts: Facts | None = None,
    env: dict[str, str] | None = None,
    **more: Any,
) -> PlanInput:
    """Return what a plan is made from. The case of KIMI has its measured facts unless others are given."""
    where = hardware or node()
    facts = (KIMI_FACTS if model is KIMI else Facts()) if facts is None else facts
    gpus = more.get("gpus", ())
    found = effective_args.resolve(args, version, model, where, gpus, env)
    return PlanInput(name=more.pop("name", "a"), args=found, shape=model, hardware=where, facts=facts, **more)


def planned(args: dict[str, Any], *rest: Any, **more: Any) -> Plan:
    """Return the plan for `inputs` of the same arguments."""
    return plan(inputs(args, *rest, **more))


def seed(fraction: float = 0.88, hicache_gb: int = 0, **more: Any) -> dict[str, Any]:
    """Return the flags of Kimi on 8 GPUs."""
    tier = {"enable-hierarchical-cache": True, "hicache-size": hicache_gb} if hicache_gb else {}
    return {"tp-size": 8, "mem-fraction-static": fraction, **tier, **more}


@cache
def recorded_model(name: str) -> ModelShape:
    """Return the shape of a model of the recorded starts, from its config.json alone."""
    with tempfile.TemporaryDirectory() as folder:
        config = {**RECORDED["models"], **LOADED["models"]}[name]
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        return model_shape.from_dir(folder, dummy=True)


def recorded_node(start: dict[str, Any]) -> Hardware:
    """Return the machine of a recorded start as it was before."""
    memory = start["gpu_mib"]
    gpus = [
        replace(
            gpu(index, found["total"], found["used"], name=RECORDED["gpu"], compute_capability=(9, 0)),
            free_bytes=found["free"] * MIB,
        )
        for index, found in enumerate(memory if isinstance(memory, list) else [memory])
    ]
    limit = start.get("cgroup_limit_bytes")
    return node(
        *gpus,
        available=start["mem_available_kib"] * 1024,
        mem_total_bytes=start["mem_total_kib"] * 1024,
        driver_version=RECORDED["driver"],
        cgroup_limit_bytes=limit,
        cgroup_available_bytes=limit,
        topology=(("X", "NVL"), ("NVL", "X")) if len(gpus) > 1 else (),
    )
