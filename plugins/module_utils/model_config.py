# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""config.json of a model, read as SGLang reads it: the text model's figures, wherever they are nested.

Mirrors sglang/srt/utils/hf_transformers/common.py (get_hf_text_config, get_context_length) and
sglang/srt/configs/model_config.py (_derive_model_shapes, get_total_num_kv_heads, _parse_quant_hf_config,
_get_and_verify_dtype) of 0.5.14 and 0.5.23.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import model_bounds
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

# Real ones have a few kB; a tree of objects takes thirty times its text.
LARGEST_BYTES = 4_000_000
_CURE = "Copy or download the model's config.json again."
# Bytes of an element, by the names that a config may give.
DTYPES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4, "float64": 8}
# The order in which SGLang looks for them.
CONTEXT = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "top_k_experts")


@dataclass(frozen=True)
class Figures:
    """A mapping of config.json whose values are checked when they are asked for."""

    values: Mapping[str, Any]
    where: str

    def whole(self, *names: str, default: int | None = None, least: int = 0, most: int = model_bounds.DIMENSION) -> int:
        """Return the first figure that is given, as SGLang takes the first of several names.

        Raises:
            HeadroomError: If it is no whole number, too small or larger than any model's, or if none is given and
                there is no default.
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            fault = model_bounds.whole_fault(value, least, most)
            if fault:
                raise invalid(f"{self.where}: {name} is {_shown(value)}; {fault}")
            return int(value)
        if default is None:
            raise invalid(f"{self.where} has no {names[0]}")
        return default

    def text(self, *names: str) -> str:
        """Return the first text that is given, or ''."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str):
                return value
        return ""

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, or () where there is none.

        Raises:
            HeadroomError: If it is there but holds something else.
        """
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid(f"{self.where}: {name} is {_shown(value)}; it must be a list of texts")
        return tuple(self._of_layers(name, value))

    def wholes(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, or () where there is none.

        Raises:
            HeadroomError: If it is there but holds something else.
        """
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise invalid(f"{self.where}: {name} is {_shown(value)}; it must be a list of whole numbers")
        return tuple(self._of_layers(name, value))

    def _of_layers(self, name: str, value: list[Any]) -> list[Any]:
        """Return a list that has one entry for each layer at most."""
        if len(value) > model_bounds.LAYERS:
            raise invalid(
                f"{self.where}: {name} has {len(value):,} entries; {model_bounds.LAYERS:,} layers are the most that "
                "any model could have"
            )
        return value

    def inner(self, *names: str) -> Figures | None:
        """Return the first nested mapping that is given, or None."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, dict):
                return Figures(value, f"{self.where}: {name}")
        return None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a switch; anything that is no boolean counts as not given."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else default


@dataclass(frozen=True)
class ModelConfig:
    """What config.json says of a model. `top` is the whole file, `text` the part of the language model."""

    top: Figures
    text: Figures
    architecture: str
    model_type: str
    layers: int
    hidden_size: int
    vocab_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    intermediate_size: int
    experts: int
    experts_per_token: int
    moe_intermediate_size: int
    context_tokens: int
    dtype: str
    quantization: str
    kv_cache_quant: str
    tied_embeddings: bool
    draft_layers: int
    is_multimodal: bool
    vision_layers: int
    vision_hidden_size: int
    approximate: tuple[str, ...] = field(default=())

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an element that is not quantised, once loaded."""
        return DTYPES[self.dtype]

    @property
    def is_draft(self) -> bool:
        """Whether this is the draft model of another one (EAGLE, MTP), which lends it embedding and output."""
        return any(word in self.architecture.lower() for word in ("eagle", "nextn", "mtp"))


def invalid(message: str) -> HeadroomError:
    """Return the error for a figure of config.json that can't be used."""
    return refusal("model.config_invalid", f"{message}.", _CURE)


def read(folder: Path) -> ModelConfig:
    """Read config.json of a model's directory, and hf_quant_config.json where there is one.

    Raises:
        HeadroomError: With `model.missing`, `model.no_config` or `model.config_invalid`.
    """
    if not folder.is_dir():
        raise refusal("model.missing", f"{folder} is no directory.", "Give the directory of the model.")
    path = folder / "config.json"
    top = _object(path)
    if top is None:
        raise refusal("model.no_config", f"{folder} has no config.json.", "Give the directory that holds one.")
    quant = _object(folder / "hf_quant_config.json")
    return parse(top, quant, str(path))


def parse(
    top: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None = None, where: str = "config.json"
) -> ModelConfig:
    """Return what a config.json says, with the values that SGLang takes where it is silent.

    Args:
        top: The file's object.
        hf_quant_config: The object of hf_quant_config.json (ModelOptimizer's exports have one), if there is one.
        where: The file's name, for messages.

    Raises:
        HeadroomError: With `model.config_invalid`.
    """
    whole = Figures(top, where)
    text = _text_config(whole)
    notes: list[str] = []
    architectures = whole.words("architectures")
    if not architectures:
        raise invalid(f"{where} has no architectures")
    if not model_bounds.is_name(architectures[0]):
        raise invalid(f"{where}: architectures[0] is {_shown(architectures[0])}; that is no name of one")
    hidden_size = text.whole("hidden_size", "n_embd", "d_model", "dim", least=1)
    heads = text.whole("num_attention_heads", "n_head", "num_heads", "n_heads", least=1)
    head_dim = text.whole("head_dim", default=max(1, hidden_size // heads), least=1)
    experts = text.whole(*_EXPERTS, default=0, most=model_bounds.EXPERTS)
    intermediate = text.whole("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", default=0)
    dtype = _dtype(whole, text)
    if dtype == "float16" and not whole.text("dtype", "torch_dtype") and not text.text("dtype", "torch_dtype"):
        notes.append("config.json names no dtype; float16 is what SGLang then takes")
    quantization, kv_cache_quant = _quantization(whole, text, hf_quant_config)
    vision = whole.inner("vision_config", "visual") or Figures({}, where)
    thinker = whole.inner("thinker_config")
    if thinker is not None:
        vision = thinker.inner("vision_config") or vision
    return ModelConfig(
        top=whole,
        text=text,
        architecture=architectures[0],
        model_type=whole.text("model_type") or text.text("model_type"),
        layers=_layers(text),
        hidden_size=hidden_size,
        vocab_size=text.whole("vocab_size", least=1, most=model_bounds.VOCABULARY),
        attention_heads=heads,
        kv_heads=_kv_heads(whole, text, heads),
        head_dim=head_dim,
        v_head_dim=text.whole("v_head_dim", default=head_dim, least=1),
        intermediate_size=intermediate,
        experts=experts,
        experts_per_token=text.whole(*_EXPERTS_PER_TOKEN, default=0, most=model_bounds.EXPERTS),
        moe_intermediate_size=text.whole(
            "moe_intermediate_size", "expert_ffn_hidden_size", default=intermediate if experts else 0
        ),
        context_tokens=_context(text),
        dtype=dtype,
        quantization=quantization,
        kv_cache_quant=kv_cache_quant,
        tied_embeddings=whole.flag("tie_word_embeddings", text.flag("tie_word_embeddings")),
        draft_layers=text.whole(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, most=model_bounds.LAYERS
        ),
        is_multimodal=bool(vision.values) or thinker is not None or whole.inner("audio_config") is not None,
        vision_layers=_vision(whole, ("num_hidden_layers", "vt_num_hidden_layers"), 24, model_bounds.LAYERS),
        vision_hidden_size=_vision(whole, ("hidden_size", "vt_hidden_size"), 1024, model_bounds.DIMENSION),
        approximate=tuple(notes),
    )


def _object(path: Path) -> dict[str, Any] | None:
    """Return the object of a JSON file, or None where there is no such file."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise invalid(f"{path} has {path.stat().st_size} bytes, more than any such file")
        found = json.loads(path.read_text(encoding="utf-8"), parse_int=_number)
    except FileNotFoundError:
        if path.is_symlink():
            raise invalid(f"{path} is a link to {path.readlink()}, which is not there") from None
        return None
    except OSError as error:
        raise refusal("model.no_config", f"{path} can't be read: {error.strerror or error}.", _CURE) from error
    except (ValueError, RecursionError) as error:
        raise refusal("model.no_config", f"{path} is no JSON: {str(error)[:120]}.", _CURE) from error
    if not isinstance(found, dict):
        raise refusal("model.no_config", f"{path} is no JSON object.", _CURE)
    return found


def _number(digits: str) -> int | float:
    """Return a number of JSON; one of millions of digits, which int() takes hours for, is none of a model's."""
    return int(digits) if len(digits) <= 40 else float(digits)


def _layers(text: Figures) -> int:
    pattern = text.text("hybrid_override_pattern")
    if len(pattern) > model_bounds.LAYERS:
        raise invalid(
            f"{text.where}: hybrid_override_pattern has {len(pattern):,} letters; {model_bounds.LAYERS:,} layers are "
            "the most that any model could have"
        )
    return text.whole(*_LAYERS, default=len(pattern) or None, least=1, most=model_bounds.LAYERS)


def _text_config(whole: Figures) -> Figures:
    """Return the language model's part, in SGLang's order of precedence."""
    thinker = whole.inner("thinker_config")
    if thinker is not None:
        return thinker.inner("text_config") or thinker
    return whole.inner("llm_config", "language_config", "text_config") or whole


def _vision(whole: Figures, names: tuple[str, ...], default: int, most: int) -> int:
    """Return a figure of the vision tower as SGLang's rule for images reads it; 0 where that finds no tower.

    It looks for a vision_config at the top and there for these names only (A server_args.py:6997-7008, B
    memory_hook.py:430-441); a tower that names its layers otherwise, such as "depth", counts as one of 24. The classes
    of Kimi-K2.5 (configs/kimi_k25.py) have those names for what its file calls vt_*.
    """
    vision = whole.inner("vision_config")
    return 0 if vision is None else vision.whole(*names, default=default, most=most)


def _kv_heads(whole: Figures, text: Figures, heads: int) -> int:
    if text.flag("multi_query") and not whole.flag("new_decoder_architecture"):
        return 1
    attention = text.inner("attn_config")
    if attention is not None and attention.values.get("kv_n_heads") is not None:
        return attention.whole("kv_n_heads", least=1)
    return text.whole(*_KV_HEADS, default=heads, least=1)


def _context(text: Figures) -> int:
    """Return the context length; a RoPE factor counts only where no original length stands beside it."""
    factor: float = 1
    scaling = text.inner("rope_scaling", "rope_parameters")
    # Gemma 3 has one set of parameters for each kind of layer, so SGLang finds no factor there.
    if scaling is not None and not text.text("model_type").startswith("gemma3"):
        given = scaling.values.get("factor", 1)
        usable = isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given) and given > 0
        kind = scaling.text("rope_type")
        if usable and "original_max_position_embeddings" not in scaling.values and kind != "llama3":
            factor = given
    tokens = factor * text.whole(*CONTEXT, default=2048, least=1, most=model_bounds.TOKENS)
    if not 1 <= tokens <= model_bounds.TOKENS:
        raise invalid(
            f"{text.where}: factor is {_shown(factor)}, which makes the context {tokens:.3g} tokens; it must be from 1 "
            f"to {model_bounds.TOKENS:,}, the most that any model could have"
        )
    return int(tokens)


def context_tokens(override: Mapping[str, Any], own: int) -> int:
    """Return the context length once some keys of config.json are overridden; `own` is that of the file.

    Raises:
        HeadroomError: With `model.config_invalid`.
    """
    return _context(Figures({"max_position_embeddings": own, **override}, "json-model-override-args"))


def _dtype(whole: Figures, text: Figures) -> str:
    """Return the type in which SGLang loads what is not quantised (`--dtype auto`)."""
    given = text.text("dtype", "torch_dtype") or whole.text("dtype", "torch_dtype")
    quantization = whole.inner("quantization_config")
    if not given and quantization is not None and quantization.text("quant_method") == "mxfp4":
        return "bfloat16"  # server_args.py sets it for gpt-oss, whose config names none
    named = given.replace("torch.", "") or "float32"
    if named not in DTYPES:
        raise invalid(f"{whole.where}: dtype is {_shown(given)}; known are {', '.join(DTYPES)}")
    if named in ("float32", "float"):
        return "bfloat16" if (text.text("model_type") or "").startswith("gemma") else "float16"
    return "float16" if named == "half" else named


def _quantization(whole: Figures, text: Figures, hf_quant_config: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the method ('' for none) and the type that the checkpoint wants for the KV cache ('' or 'fp8').

    Only ModelOptimizer's exports change the KV cache on their own: the key is read by ModelOptQuantConfig (and by
    Fp8Config in 0.5.23); the `kv_cache_scheme` of compressed-tensors is not.
    """
    found = whole.inner("quantization_config", "compression_config") or text.inner("quantization_config")
    if found is None and hf_quant_config is not None:
        found = Figures(hf_quant_config, "hf_quant_config.json").inner("quantization")
    if found is None:
        return "", ""
    method = found.text("quant_method")
    algorithm = found.text("quant_algo").upper()
    if method in ("", "modelopt"):
        inner = found.inner("quantization") or found
        algorithm = algorithm or inner.text("quant_algo").upper()
        method = "modelopt_fp4" if "FP4" in algorithm else "modelopt_fp8" if "FP8" in algorithm else "modelopt"
        return method, _kv_cache(inner)
    return method, _kv_cache(found) if method.startswith(("modelopt", "fp8")) else ""


def _kv_cache(found: Figures) -> str:
    if found.text("kv_cache_quant_algo").upper() == "FP8":
        return "fp8"
    scheme = found.inner("kv_cache_scheme")
    is_fp8 = scheme is not None and scheme.text("type") == "float" and scheme.values.get("num_bits") == 8
    return "fp8" if is_fp8 else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
