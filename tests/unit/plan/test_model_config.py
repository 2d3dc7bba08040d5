# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""config.json as SGLang reads it, over many architectures; the figures are those that the models' publishers state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.headroom.serving.plugins.module_utils import layer_groups, model_config
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.layer_groups import LayerGroup

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("model_configs.json").read_text("utf-8"))
PLAIN = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 64}
PLAIN.update(num_hidden_layers=2, num_attention_heads=4, vocab_size=100, max_position_embeddings=512)


def mha(layers: int, heads: int, dim: int, window: int = 0) -> LayerGroup:
    """Return a group that keeps all tokens."""
    return LayerGroup("mha", layers, heads, dim, dim, window_tokens=window)


def mla(layers: int, index: int = 0) -> LayerGroup:
    """Return a latent group of the only size that is in use."""
    return LayerGroup("mla", layers, 0, 192, 128, 512, 64, 0, index)


GROUPS = [
    ("Llama-3.1-8B", [mha(32, 8, 128)]),
    ("Llama-2-7B", [mha(32, 32, 128)]),
    ("Mistral-7B-v0.1", [mha(32, 8, 128, 4096)]),
    ("Qwen2.5-7B", [mha(28, 4, 128)]),
    ("Qwen3-8B", [mha(36, 8, 128)]),
    ("Phi-3.5-mini", [mha(32, 32, 96, 262144)]),
    ("Gemma-2-9B", [mha(21, 8, 256), mha(21, 8, 256, 4096)]),
    ("Gemma-3-27B", [mha(10, 16, 128), mha(52, 16, 128, 1024)]),
    ("Mixtral-8x7B", [mha(32, 8, 128)]),
    ("Qwen3-30B-A3B", [mha(48, 4, 128)]),
    ("DeepSeek-V2-Lite", [mla(27)]),
    ("DeepSeek-V3", [mla(61)]),
    ("DeepSeek-V3.2", [mla(61, 128)]),
    ("GLM-4.5", [mha(92, 8, 128)]),
    ("gpt-oss-120b", [mha(18, 8, 64), LayerGroup("swa", 18, 8, 64, 64, window_tokens=128)]),
    ("Llama-4-Scout", [mha(12, 8, 128), LayerGroup("swa", 36, 8, 128, 128, window_tokens=8192)]),
    ("MiMo-V2-Flash", [LayerGroup("mha", 11, 4, 192, 128), LayerGroup("swa", 37, 8, 192, 128, window_tokens=128)]),
    # A state of 32 x 128 x 128 float32 and a convolution over (32 + 2 x 16) x 128 channels, 3 tokens, bfloat16.
    ("Qwen3-Next-80B", [mha(12, 2, 256), LayerGroup("linear", 36, 32, 128, 128, state_bytes=2097152 + 49152)]),
    # 128 x 80 x 128 float32; (128 x 80 + 2 x 8 x 128) x 3 bfloat16.
    ("Nemotron-Nano-9B-v2", [mha(4, 8, 128), LayerGroup("linear", 27, 128, 128, 80, state_bytes=5242880 + 73728)]),
    ("Falcon-H1-34B", [mha(72, 4, 128), LayerGroup("linear", 72, 32, 256, 128, state_bytes=4194304 + 30720)]),
    ("Granite-4-small", [mha(4, 8, 128), LayerGroup("linear", 36, 128, 128, 64, state_bytes=4194304 + 50688)]),
    ("Kimi-Linear-48B", [mla(7), LayerGroup("linear", 20, 32, 128, 128, state_bytes=2097152 + 73728)]),
    ("LFM2-1.2B", [mha(6, 8, 64), LayerGroup("linear", 10, state_bytes=8192)]),
    ("Qwen2.5-VL-7B", [mha(28, 4, 128)]),
    ("EAGLE3-Llama-3.1-8B", [mha(1, 8, 128)]),
]


@pytest.mark.parametrize(("name", "groups"), GROUPS)
def test_layers_by_what_they_keep(name: str, groups: list[LayerGroup]) -> None:
    config = model_config.parse(CONFIGS[name])
    found, notes = layer_groups.of(config)
    assert list(found) == groups
    assert notes == ()


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_no_layer_is_lost(name: str) -> None:
    config = model_config.parse(CONFIGS[name])
    found, _notes = layer_groups.of(config)
    linear = sum(group.layers for group in found if group.kind == "linear")
    others = sum(group.layers for group in found if group.kind != "linear")
    if name.startswith("Nemotron"):
        assert others + linear < config.layers  # the rest is MLP only
    elif name.startswith("Falcon"):
        assert others == linear == config.layers
    else:
        assert others + linear == config.layers


@pytest.mark.parametrize(
    ("name", "quantization", "kv", "dtype", "dtype_bytes"),
    [
        ("Llama-3.1-8B", "", "", "bfloat16", 2),
        ("Gemma-2-9B", "", "", "bfloat16", 2),
        ("DeepSeek-V3", "fp8", "", "bfloat16", 2),
        ("gpt-oss-120b", "mxfp4", "", "bfloat16", 2),
        ("Llama-3.1-8B-AWQ", "awq", "", "float16", 2),
        ("Llama-3.1-8B-GPTQ", "gptq", "", "float16", 2),
        ("Llama-3.1-8B-NVFP4", "modelopt_fp4", "fp8", "bfloat16", 2),
        ("Llama-3.1-8B-CT-W8", "compressed-tensors", "", "bfloat16", 2),
    ],
)
def test_quantisation(name: str, quantization: str, kv: str, dtype: str, dtype_bytes: int) -> None:
    config = model_config.parse(CONFIGS[name])
    assert (config.quantization, config.kv_cache_quant, config.dtype) == (quantization, kv, dtype)
    assert config.dtype_bytes == dtype_bytes


@pytest.mark.parametrize(
    ("quant", "want"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, ("modelopt_fp8", "fp8")),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": None}, ("modelopt_fp8", "")),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, ("modelopt_fp4", "fp8")),
        ({"quant_algo": "MIXED_PRECISION"}, ("modelopt", "")),
    ],
)
def test_exports_with_a_file_of_their_own(tmp_path: Path, quant: dict[str, Any], want: tuple[str, str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "x"}, "quantization": quant}))
    config = model_config.read(tmp_path)
    assert (config.quantization, config.kv_cache_quant) == want


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("Llama-3.1-8B", 131072),
        ("DeepSeek-V3", 163840),
        ("Gemma-3-27B", 131072),
        ("Qwen3-8B", 40960),
        ("Kimi-Linear-48B", 1048576),
    ],
)
def test_context(name: str, tokens: int) -> None:
    assert model_config.parse(CONFIGS[name]).context_tokens == tokens


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 2048),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}}, 512),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 512),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, 1024),
        ({"rope_scaling": {"factor": "many"}}, 512),
        ({"rope_scaling": {"factor": float("inf")}}, 512),
        ({"rope_scaling": None}, 512),
        ({"max_position_embeddings": None}, 2048),
        ({"seq_length": 100}, 100),
        ({"model_max_length": 300}, 300),
    ],
)
def test_context_of_scaled_positions(changes: dict[str, Any], tokens: int) -> None:
    assert model_config.parse({**PLAIN, **changes}).context_tokens == tokens


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Llama-3.1-8B", (0, 0, 0)),
        ("Mixtral-8x7B", (8, 2, 14336)),
        ("Qwen3-30B-A3B", (128, 8, 768)),
        ("DeepSeek-V3", (256, 8, 2048)),
        ("gpt-oss-120b", (128, 4, 2880)),
        ("Granite-4-small", (72, 10, 768)),
        ("Kimi-Linear-48B", (256, 8, 1024)),
        ("Llama-4-Scout", (16, 1, 8192)),
    ],
)
def test_experts(name: str, want: tuple[int, int, int]) -> None:
    config = model_config.parse(CONFIGS[name])
    assert (config.experts, config.experts_per_token, config.moe_intermediate_size) == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Llama-3.1-8B", (False, 0, 0)),
        ("Gemma-3-27B", (True, 27, 1152)),
        ("Llama-4-Scout", (True, 34, 1408)),
        ("Qwen2.5-VL-7B", (True, 24, 1280)),
        ("Qwen3-VL-8B", (True, 24, 1152)),
        ("Qwen2.5-Omni-7B", (True, 0, 0)),
    ],
)
def test_vision(name: str, want: tuple[bool, int, int]) -> None:
    config = model_config.parse(CONFIGS[name])
    assert (config.is_multimodal, config.vision_layers, config.vision_hidden_size) == want
    assert config.layers > 1 and config.hidden_size > 1000


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"vision_config": {}}, (24, 1024)),
        ({"vision_config": {"depth": 40, "embed_dim": 2000}}, (24, 1024)),
        ({"vision_config": {"num_hidden_layers": 27, "hidden_size": 1152}}, (27, 1152)),
        ({"vision_config": {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152}}, (27, 1152)),
        ({"visual": {"layers": 48, "width": 1664}}, (0, 0)),
        ({"audio_config": {}}, (0, 0)),
    ],
)
def test_what_the_rule_for_images_reads(changes: dict[str, Any], want: tuple[int, int]) -> None:
    config = model_config.parse({**PLAIN, **changes})
    assert (config.vision_layers, config.vision_hidden_size) == want


def test_draft_models_are_told() -> None:
    assert [name for name, top in CONFIGS.items() if model_config.parse(top).is_draft] == [
        "EAGLE-Llama-3.1-8B",
        "EAGLE3-Llama-3.1-8B",
    ]
    assert [name for name, top in CONFIGS.items() if model_config.parse(top).draft_layers] == [
        "DeepSeek-V3",
        "DeepSeek-V3.2",
        "GLM-4.5",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": None}, "has no architectures"),
        ({"architectures": []}, "has no architectures"),
        ({"architectures": "Llama"}, "it must be a list of texts"),
        ({"architectures": [5]}, "it must be a list of texts"),
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"num_hidden_layers": "61"}, "num_hidden_layers is '61'; it must be a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_hidden_layers": 1.5}, "num_hidden_layers is 1.5"),
        ({"num_hidden_layers": [1]}, "num_hidden_layers is [1]"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": 10**30}, "hidden_size is 1000"),
        ({"vocab_size": None}, "has no vocab_size"),
        ({"num_attention_heads": None}, "has no num_attention_heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"torch_dtype": "int7"}, "dtype is 'int7'"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention'"),
        ({"layer_types": [1, 2]}, "layer_types is [1, 2]"),
        ({"kv_lora_rank": 512, "model_type": "deepseek_v3"}, "has no qk_rope_head_dim"),
        ({"linear_num_value_heads": 8}, "has no linear_num_key_heads"),
        ({"linear_attn_config": {"kda_layers": ["1"]}}, "kda_layers is ['1']"),
        ({"linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config has no num_heads"),
    ],
)
def test_a_figure_that_cannot_be_used(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadroomError) as caught:
        layer_groups.of(model_config.parse({**PLAIN, **changes}))
    assert [item.id for item in caught.value.findings] == ["model.config_invalid"]
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"layer_types": ["mamba", "attention"]}, "linear layers is not known"),
        ({"kv_lora_rank": 512}, "taken as plain KV"),
        ({"architectures": ["DeepseekV4ForCausalLM"]}, "its KV is not planned"),
        ({"architectures": ["Gemma4ForCausalLM"], "global_head_dim": 512}, "all layers are counted"),
    ],
)
def test_what_is_not_known_for_sure_is_said(changes: dict[str, Any], note: str) -> None:
    _groups, notes = layer_groups.of(model_config.parse({**PLAIN, **changes}))
    assert len(notes) == 1 and note in notes[0]


def test_a_config_without_dtype_says_what_is_taken() -> None:
    config = model_config.parse({**PLAIN, "torch_dtype": None})
    assert config.dtype == "float16" and "names no dtype" in config.approximate[0]
    assert model_config.parse({**PLAIN, "torch_dtype": "float32"}).approximate == ()


def test_kv_heads_of_older_families() -> None:
    assert model_config.parse({**PLAIN, "multi_query": True}).kv_heads == 1
    assert model_config.parse({**PLAIN, "multi_query": True, "new_decoder_architecture": True}).kv_heads == 4
    assert model_config.parse({**PLAIN, "num_kv_heads": 2}).kv_heads == 2
    assert model_config.parse({**PLAIN, "attn_config": {"kv_n_heads": 3}}).kv_heads == 3
    assert model_config.parse(PLAIN).kv_heads == 4


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (None, "model.no_config", "has no config.json"),
        (b"", "model.no_config", "is no JSON"),
        (b"{", "model.no_config", "is no JSON"),
        (b"[]", "model.no_config", "is no JSON object"),
        (b"\xff\xfe", "model.no_config", "is no JSON"),
        (b"[" * 100_000, "model.no_config", "is no JSON"),
        (b'{"a":' * 100_000, "model.no_config", "is no JSON"),
        (b'{"hidden_size":' + b"9" * 5000 + b"}", None, ""),
        (b" " * 4_000_001, "model.config_invalid", "more than any such file"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: bytes | None, kind: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(HeadroomError) as caught:
        model_config.read(tmp_path)
    assert kind is None or caught.value.findings[0].id == kind
    assert message in str(caught.value) and len(str(caught.value)) < 400


def test_a_directory_that_is_not_there_and_a_link_to_nowhere(tmp_path: Path) -> None:
    with pytest.raises(HeadroomError, match=r"is no directory.*\[model\.missing\]"):
        model_config.read(tmp_path / "gone")
    (tmp_path / "config.json").symlink_to("nowhere")
    with pytest.raises(HeadroomError, match="is a link to nowhere"):
        model_config.read(tmp_path)
