# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules by which SGLang fills in what was not given, as far as they size memory.

A plan needs them before there is an engine to ask. Each names the source it mirrors: paths are relative to
`sglang/srt/`, "A" is 0.5.14 and "B" is 0.5.23. Memory of a GPU is in MiB here, as in that source.
"""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW

LARGE_GPU_MIB = 60 * 1024
RESERVE_FLOOR_MIB = 10 * 1024
SPECULATIVE_REQUESTS = 48  # running at a time with speculative decoding, unless they are given
HOST_RESERVE_BYTES = 10 * 2**30  # A mem_cache/pool_host/base.py:25, B :28
# A configs/model_config.py:1713
_NO_PREFILL_GRAPH_OLD = {
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForCausalLMNextN",
    "Qwen3NextForCausalLM",
    "BailingMoeV2_5ForCausalLM",
    "LLaDAModelLM",
}
_MULTIMODAL_PREFILL_GRAPH_OLD = {
    "Cohere2VisionForConditionalGeneration",
    "MiniMaxM3SparseForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration",
}
# B arg_groups/cuda_graph_hook.py:180-203: attention of the KDA kind, and DeepSeek-V4
_NO_PREFILL_GRAPH_NEW = {"DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN", "KimiLinearForCausalLM"}
# B configs/model_config.py:2501-2515
_MULTIMODAL_PREFILL_GRAPH_NEW = _MULTIMODAL_PREFILL_GRAPH_OLD | {
    "Glm5NextForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MuseGlimmerForConditionalGeneration",
    "MuseSparkForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
}
# A configs/model_config.py:293; B :692 has one more
_TEXT_ONLY_OLD = frozenset(
    {"Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration", "Step3VLForConditionalGeneration"}
)
_TEXT_ONLY_NEW = _TEXT_ONLY_OLD | {"InklingForConditionalGeneration"}
# A models/mllama4.py:447, B :468 and models/inkling.py:997; Gemma 3 and Step 3 load a tower that they don't use.
TEXT_ONLY_WITHOUT_TOWER = frozenset({"Llama4ForConditionalGeneration", "InklingForConditionalGeneration"})
# Ways to reach experts that spread them over all ranks (A server_args.py:5273-5360, B arg_groups/overrides.py:1578).
SPANNING_ALL_TO_ALL = frozenset(
    {
        *("megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer", "flashinfer_megamoe"),
        *("mori", "pplx"),
    }
)
# Models with attention sinks, which FlashInfer lacks (A configs/model_config.py:648).
_ATTENTION_SINKS = {"GptOssForCausalLM"}
# A server_args.py:4524-4705, B arg_groups: back ends that fix the size of a page, by the pages they bear.
_PAGES = {
    "flashmla": ((64,), 64),
    "cutlass_mla": ((128,), 128),
    "trtllm_mla": ((32, 64), 64),
    "tokenspeed_mla": ((32, 64), 64),
    "cutedsl_mla": ((32, 64), 64),
    "trtllm_mha": ((16, 32, 64), 64),
}


def attention_backend(release: str, major: int, mla: bool, architecture: str) -> tuple[str, str]:
    """Return the attention back end where none is given, and the source (A server_args.py:4401, B the same rules).

    Args:
        release: "0.5.14" or "0.5.23".
        major: First number of the GPUs' compute capability.
        mla: Whether attention is latent (MLA).
        architecture: The model's, as config.json names it.
    """
    source = "arg_groups/model_override_base.py:303" if release == NEW else "server_args.py:4401"
    if major == 9:
        return "fa3", source
    if mla:
        return "flashinfer" if major == 10 else "triton", source
    if major == 10:
        return "trtllm_mha", source
    return "triton" if architecture in _ATTENTION_SINKS else "flashinfer", source


def decode_graph_sizes(max_batch: int) -> int:
    """Return how many decode graphs are captured up to a batch (A server_args.py:3341, B the same)."""
    sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
    counted = sum(1 for size in sizes if size <= max_batch) + max(0, (max_batch - 512) // 32 + 1)
    return counted + int(max_batch not in sizes and (max_batch < 512 or max_batch % 32 > 0))


def sizes_by_memory(release: str, gpu_mib: float | None, tp: int) -> tuple[int, int, str]:
    """Return (chunked prefill in tokens, largest batch of a decode graph, source) for a size of GPU.

    Mirrors A server_args.py:3150-3207 and B arg_groups/memory_hook.py:89-176. None: no GPU to look at.
    """
    new = release == NEW
    source = "arg_groups/memory_hook.py:89" if new else "server_args.py:3150"
    few = tp < 4
    if gpu_mib is None:
        return 4096, 160, source
    if gpu_mib < 20 * 1024:
        return 2048, 8, source
    if gpu_mib < 35 * 1024:
        return (4096, 48 if few else 160, source) if new else (2048, 24 if few else 80, source)
    if gpu_mib < 60 * 1024:
        return 4096, 32 if few else 160, source
    if gpu_mib < 160 * 1024:
        return 8192, 256 if few else 512, source
    return 16384, 512, source


def prefill_graph_sizes(max_tokens: int) -> int:
    """Return how many prefill graphs are captured up to a number of tokens (A server_args.py:3391, B the same)."""
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
    ]
    # Beyond them every 512 tokens; counted, as a limit of many millions would make a long list.
    return sum(1 for size in sizes if size <= max_tokens) + max(0, (max_tokens - 4608) // 512 + 1)


def prefill_graph_by_default(release: str, architecture: str, multimodal: bool) -> bool:
    """Tell whether a model's prefill is captured as far as its architecture goes (A model_config.py:1713, B :2501)."""
    if architecture in (_NO_PREFILL_GRAPH_NEW if release == NEW else _NO_PREFILL_GRAPH_OLD):
        return False
    allowed = _MULTIMODAL_PREFILL_GRAPH_NEW if release == NEW else _MULTIMODAL_PREFILL_GRAPH_OLD
    return not multimodal or architecture in allowed


def text_only_by_default(release: str) -> frozenset[str]:
    """Return the architectures that take no images unless `--enable-multimodal` is given."""
    return _TEXT_ONLY_NEW if release == NEW else _TEXT_ONLY_OLD


def page_tokens(given: int | None, backends: tuple[str, ...], indexed: bool) -> tuple[int, str]:
    """Return the tokens of a page and the source (A server_args.py:4806, :4524-4705, :3622; B the same rules)."""
    for backend in backends:
        if backend in _PAGES:
            borne, forced = _PAGES[backend]
            if given not in borne:
                return forced, "server_args.py:4524 (the attention back end asks for it)"
    if indexed and given != 64:
        return 64, "server_args.py:3622 (sparse attention asks for it)"
    return (1, "server_args.py:4825") if given is None else (given, "args")


def reserved_mib(
    release: str,
    gpu_mib: float | None,
    chunk_tokens: int,
    decode_max_bs: int,
    decode_graph: bool,
    ranks: int,
    attention_dp: int,
    prefill_graphs: int,
    mla: bool,
    deepep: bool,
) -> float:
    """Return what SGLang itself sets aside on a GPU beside weights and KV, in MiB.

    Mirrors A server_args.py:3276-3309 and B memory_hook.py:310-322 with reserve_for_graph_mb (:357-415).

    Args:
        release: "0.5.14" or "0.5.23".
        gpu_mib: Smallest total memory of the node's GPUs; None if unknown.
        chunk_tokens: Chunked prefill size, or the largest prefill where chunking is off.
        decode_max_bs: Largest captured decode batch.
        decode_graph: Whether decode is captured; A counts it either way.
        ranks: tp x pp.
        attention_dp: Size of attention data parallelism, 1 without.
        prefill_graphs: Number of captured prefill sizes, 0 where it is off.
        mla: Whether attention is latent (MLA).
        deepep: Whether experts talk through DeepEP (B only).
    """
    new = release == NEW
    reserved = 512 + max(chunk_tokens, 2048) * 1.5 + ranks / 8 * 1024
    if decode_graph or not new:
        reserved += decode_max_bs * 2
    if attention_dp > 1:
        reserved += decode_max_bs * attention_dp * (4.5 if decode_max_bs > 300 else 3)
    if prefill_graphs:
        reserved += 1536 if mla else prefill_graphs * 8
        if new and deepep:
            reserved += 1024
    if gpu_mib is not None and gpu_mib > LARGE_GPU_MIB:
        reserved = max(reserved, RESERVE_FLOOR_MIB)
    if new and deepep and decode_graph:
        reserved += 2048
    return reserved


def vision_factor(layers: int, hidden_size: int) -> float:
    """Return the factor on the default fraction of a model with a vision tower (A server_args.py:6997, B :417)."""
    complexity = layers * hidden_size**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def default_fraction(
    release: str, gpu_mib: float | None, reserved: float, vision: tuple[int, int] | None
) -> tuple[float, str]:
    """Return the fraction of memory that SGLang takes where none is given, and the source.

    Mirrors A server_args.py:3311-3320 and B memory_hook.py:324-337. `vision` is (layers, hidden size) of a vision
    tower that is in use.
    """
    new = release == NEW
    source = "arg_groups/memory_hook.py:324" if new else "server_args.py:3311"
    if gpu_mib is None:
        return (0.95 if new else 0.88), source
    fraction = round((gpu_mib - reserved) / gpu_mib, 3)
    if vision is not None:
        fraction *= vision_factor(*vision)
    return fraction, source
