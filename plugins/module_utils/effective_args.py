# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that size anything, each with where it comes from: given, the engine's default, or a mirrored rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.headroom.serving.plugins.module_utils import (
    flag_tables,
    mirrored_rules,
    model_config,
    sizing_flags,
)
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu, Hardware
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

Origin = Literal["given", "default", "rule"]
_MOST_RANKS = 100_000
_CONTEXT_OVERRIDES = frozenset({*model_config.CONTEXT, "rope_scaling", "rope_parameters"})
# What json-model-override-args may set of config.json without a change of weights or KV.
HARMLESS_OVERRIDES = _CONTEXT_OVERRIDES | {
    *("rope_theta", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "transformers_version"),
    *("tokenizer_class", "initializer_range", "attention_dropout", "num_experts_per_tok"),
}


@dataclass(frozen=True)
class Effective:
    """A value as the server will use it; `source` is a place in the instance, a flag table, or a line of SGLang.

    `before` is what SGLang computed its fraction with, where it changes the value after that; else None.
    """

    value: Any
    origin: Origin
    source: str
    before: Any = None


@dataclass(frozen=True)
class EffectiveArgs(Mapping[str, Effective]):
    """Effective values by the flag's own name, what they were resolved from, and for which engine."""

    engine_version: str
    entries: Mapping[str, Effective]
    given: Mapping[str, Any]
    env: Mapping[str, str]

    def __getitem__(self, name: str) -> Effective:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def release(self) -> str:
        """The known release that the engine follows."""
        return flag_tables.generation(self.engine_version)

    def value(self, name: str) -> Any:
        """Return the value of a flag, None if it is not set."""
        found = self.entries.get(name)
        return None if found is None else found.value

    def integer(self, name: str, unset: int = 0) -> int:
        """Return a flag's value as a whole number, `unset` if it is not set."""
        value = self.value(name)
        return unset if value is None else int(value)

    def number(self, name: str, unset: float = 0.0) -> float:
        """Return a flag's value as a number, `unset` if it is not set."""
        value = self.value(name)
        return unset if value is None else float(value)

    def flag(self, name: str) -> bool:
        """Tell whether a switch is on."""
        return bool(self.value(name))

    def text(self, name: str) -> str:
        """Return a flag's value as text, empty if it is not set."""
        value = self.value(name)
        return "" if value is None else str(value)

    @property
    def attention_dp(self) -> int:
        """Size of data parallelism within attention; 1 without (A: dp-size with enable-dp-attention)."""
        if self.flag("enable-dp-attention"):
            return max(self.integer("dp-size", 1), self.integer("attn-dp-size", 1))
        return self.integer("attn-dp-size", 1)

    @property
    def attention_tp(self) -> int:
        """Over how many ranks attention heads are split."""
        return max(1, self.integer("tp-size", 1) // (self.attention_dp * self.integer("attn-cp-size", 1)))

    @property
    def replicas(self) -> int:
        """Whole copies of the model (dp-size without attention data parallelism)."""
        return 1 if self.attention_dp > 1 else self.integer("dp-size", 1)

    @property
    def ranks(self) -> int:
        """Scheduler processes of the instance on all nodes; each has a GPU and host pools of its own."""
        return self.integer("tp-size", 1) * self.integer("pp-size", 1) * self.replicas

    @property
    def ranks_on_node(self) -> int:
        """Scheduler processes on one node."""
        return max(1, self.ranks // self.integer("nnodes", 1))

    @property
    def gpu_places(self) -> tuple[int, ...]:
        """Places of the GPUs of one node's ranks among those that the instance sees, in the order of the ranks.

        Mirrors A entrypoints/engine.py:608-618 and managers/data_parallel_controller.py:296, :535-540, B the same: the
        step counts within tensor parallelism and between copies, not between stages of a pipeline.
        """
        first, step = self.integer("base-gpu-id"), self.integer("gpu-id-step", 1)
        tp, pp, nodes = self.integer("tp-size", 1), self.integer("pp-size", 1), self.integer("nnodes", 1)
        stages, within = max(pp // nodes, 1), tp // max(nodes // pp, 1)
        return tuple(
            first + copy * tp * pp * step + stage * within + rank * step
            for copy in range(self.replicas)
            for stage in range(stages)
            for rank in range(within)
        )

    @property
    def on_cpu(self) -> bool:
        """Whether the server computes on the processor."""
        return self.text("device") == "cpu"


def resolve(
    args: Mapping[str, Any],
    engine_version: str,
    shape: ModelShape,
    hardware: Hardware,
    gpus: tuple[int, ...] = (),
    env: Mapping[str, str] | None = None,
) -> EffectiveArgs:
    """Fill in what an instance does not give, as SGLang would.

    Args:
        args: The instance's `args`: flag without leading dashes -> value.
        engine_version: Version of the engine, such as "0.5.14".
        shape: The model.
        hardware: The node.
        gpus: Indexes of the instance's GPUs; all of the node's if empty.
        env: The instance's environment; decides only what SGLang reads from there.

    Raises:
        HeadroomError: If a value that sizes something can't be one (`settings.invalid`).
    """
    env = dict(env or {})
    table = flag_tables.table(flag_tables.generation(engine_version))
    given = sizing_flags.given(args, table)
    entries: dict[str, Effective] = {}
    for name in sizing_flags.SIZING:
        if name in given:
            entries[name] = Effective(given[name], "given", "args")
        elif name in table:
            entries[name] = Effective(table[name].default, "default", f"flags of {engine_version}")
    if given.get("pp-size", 1) > max(1, shape.layers):
        raise refusal(
            "settings.invalid",
            f"args.pp-size is {given['pp-size']}: the model has {shape.layers} layers, and each stage needs one.",
            f"Set it to {shape.layers} at most.",
        )
    found = EffectiveArgs(engine_version, entries, dict(args), env)
    _ranks(found)
    _kv_dtype(found, entries, shape, [gpu for gpu in hardware.gpus if not gpus or gpu.index in gpus])
    rules = (
        _device,
        _type,
        _context,
        _attention,
        _pages,
        _ratios,
        _all_to_all,
        _hicache_layout,
        _graphs_and_chunk,
        _fraction,
    )
    # SGLang computes the fraction before it comes to the last two.
    for rule in (*rules, _shared_chunk, _speculative):
        rule(found, entries, shape, hardware)
    return found


def changed(
    found: EffectiveArgs, changes: Mapping[str, Any], shape: ModelShape, hardware: Hardware, gpus: tuple[int, ...]
) -> EffectiveArgs:
    """Return the arguments resolved again with some flags set otherwise; a change to None removes a flag."""
    args = {name: value for name, value in found.given.items() if name not in changes}
    args.update({name: value for name, value in changes.items() if value is not None})
    return resolve(args, found.engine_version, shape, hardware, gpus, found.env)


def _ranks(found: EffectiveArgs) -> None:
    """Refuse what can't be spread over nodes (A server_args.py:6632, B validation_hook.py:179) and GPUs."""
    tp, pp, nodes = (found.integer(name, 1) for name in ("tp-size", "pp-size", "nnodes"))
    if found.ranks > _MOST_RANKS:
        raise refusal(
            "settings.invalid",
            f"args.tp-size is {tp}: with pp-size and dp-size that makes {found.ranks:,} ranks, and each takes a GPU.",
            "Set it to the number of GPUs at most.",
        )
    if tp * pp % nodes:
        raise refusal(
            "settings.invalid",
            f"args.nnodes is {nodes}: tp-size x pp-size is {tp * pp}, which {nodes} nodes can't share evenly.",
            f"Set tp-size x pp-size to a multiple of {nodes}.",
        )
    places = found.gpu_places
    if len(set(places)) < len(places):
        raise refusal(
            "settings.invalid",
            f"args.gpu-id-step is {found.integer('gpu-id-step')}: with pp-size {pp} and tp-size {tp} SGLang puts two "
            "ranks on one GPU, as the step does not count between stages.",
            "Leave it out, and name the GPUs by the instance's 'gpus'.",
        )


def _device(found: EffectiveArgs, entries: dict[str, Effective], _shape: ModelShape, hardware: Hardware) -> None:
    # A utils/common.py:2051-2110: the first accelerator there is, a CPU only where the environment asks for it.
    if found.text("device"):
        return
    cpu = not hardware.gpus and found.env.get("SGLANG_USE_CPU_ENGINE") == "1"
    entries["device"] = Effective("cpu" if cpu else "cuda", "rule", "utils/common.py:2051")


def _context(found: EffectiveArgs, entries: dict[str, Effective], shape: ModelShape, _hardware: Hardware) -> None:
    said = override(found)
    if found.value("context-length") is None:
        source, tokens = "configs/model_config.py: the model's config.json", shape.context_tokens
        if not _CONTEXT_OVERRIDES.isdisjoint(said):
            source = "configs/model_config.py: json-model-override-args"
            tokens = model_config.context_tokens(said, tokens)
        entries["context-length"] = Effective(tokens, "rule", source)


def _type(found: EffectiveArgs, _entries: dict[str, Effective], shape: ModelShape, _hardware: Hardware) -> None:
    """Refuse a type that a method of quantization does not bear (A model_loader/loader.py:282, B :266)."""
    method = found.text("quantization").lower() or shape.quantization
    if method in ("", "unquant", "bitsandbytes") or type_bytes(found.text("dtype")) == 2:
        return
    raise refusal(
        "settings.invalid",
        f"args.dtype is {found.text('dtype')}: weights quantised by {method} are used with 16 bits only.",
        "Set it to auto, bfloat16 or float16.",
    )


def _attention(found: EffectiveArgs, entries: dict[str, Effective], shape: ModelShape, hardware: Hardware) -> None:
    majors = [gpu.compute_capability[0] for gpu in hardware.gpus if gpu.compute_capability]
    indexed = any(group.index_head_dim for group in shape.groups)  # sparse attention has back ends of its own
    if found.text("attention-backend") or found.on_cpu or indexed or not majors:
        return
    backend, source = mirrored_rules.attention_backend(found.release, min(majors), is_mla(shape), shape.architecture)
    entries["attention-backend"] = Effective(backend, "rule", source)


def _pages(found: EffectiveArgs, entries: dict[str, Effective], shape: ModelShape, _hardware: Hardware) -> None:
    backends = tuple(found.text(f"{phase}attention-backend") for phase in ("", "decode-", "prefill-"))
    indexed = any(group.index_head_dim for group in shape.groups)
    given = found.value("page-size")
    page, source = mirrored_rules.page_tokens(given, backends, indexed)
    if page != given:
        entries["page-size"] = Effective(page, "rule", source)


def _kv_dtype(found: EffectiveArgs, entries: dict[str, Effective], shape: ModelShape, gpus: list[Gpu]) -> None:
    if found.text("kv-cache-dtype") != "auto":
        return
    major = min((gpu.compute_capability[0] for gpu in gpus if gpu.compute_capability), default=0)
    if shape.kv_cache_quant.startswith("fp8"):
        kind, source = "fp8_e4m3", "model_executor/model_runner.py:2338 (kv_cache_quant_algo of the checkpoint)"
    elif any(group.index_head_dim for group in shape.groups):
        kind = "fp8_e4m3" if major >= 10 else "bfloat16"
        source = "server_args.py:3403 (sparse attention)"
    else:
        given = found.text("dtype")
        kind = shape.dtype if given == "auto" else given
        source = "model_executor/model_runner.py:2338 (the model's own type)"
    entries["kv-cache-dtype"] = Effective(kind, "rule", source)


def _ratios(found: EffectiveArgs, entries: dict[str, Effective], _shape: ModelShape, _hardware: Hardware) -> None:
    for name, value in (("swa-full-tokens-ratio", 0.8), ("mamba-full-memory-ratio", 0.9)):
        if found.value(name) is None:  # B arg_groups/fields/schedule.py:160, :225
            entries[name] = Effective(value, "rule", "arg_groups/fields/schedule.py:160")
    if "moe-a2a-backend" in entries and found.text("moe-a2a-backend") == "":
        entries["moe-a2a-backend"] = Effective("none", "rule", "server_args.py")


def _all_to_all(found: EffectiveArgs, entries: dict[str, Effective], _shape: ModelShape, _hw: Hardware) -> None:
    ranks, backend = found.integer("tp-size", 1), found.text("moe-a2a-backend")
    # A server_args.py:5256-5270, B arg_groups/overrides.py:1596
    filled = found.flag("enable-deepep-waterfill") or found.flag("enable-waterfill")
    if filled and backend not in ("deepep", *(("megamoe",) if found.release == NEW else ())):
        entries["moe-a2a-backend"] = Effective("deepep", "rule", "server_args.py:5256 (enable-deepep-waterfill)")
    if found.release != NEW and _is_on(found, "SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE"):
        entries["moe-a2a-backend"] = Effective("megamoe", "rule", "server_args.py:5264 (the environment)")
    if found.text("moe-a2a-backend") in mirrored_rules.SPANNING_ALL_TO_ALL and found.integer("ep-size", 1) != ranks:
        source = "arg_groups/overrides.py:1611" if found.release == NEW else "server_args.py:5273"
        entries["ep-size"] = Effective(ranks, "rule", f"{source} (moe-a2a-backend)")


def _hicache_layout(found: EffectiveArgs, entries: dict[str, Effective], _shape: ModelShape, _hw: Hardware) -> None:
    # A server_args.py:5560-5590, B arg_groups/hicache_hook.py:171-204
    if not found.flag("enable-hierarchical-cache"):
        return
    layout, backend = found.text("hicache-mem-layout"), found.text("hicache-io-backend")
    if layout == "page_first_direct" and backend == "kernel":
        entries["hicache-io-backend"] = Effective("direct", "rule", "server_args.py:5562")
    elif layout == "page_first" and backend == "direct":
        entries["hicache-mem-layout"] = Effective("page_first_direct", "rule", "server_args.py:5571")


def _graphs_and_chunk(
    found: EffectiveArgs, entries: dict[str, Effective], shape: ModelShape, hardware: Hardware
) -> None:
    new = found.release == NEW
    chunk, largest, source = mirrored_rules.sizes_by_memory(
        found.release, gpu_mib(found, hardware), found.integer("tp-size", 1)
    )
    if found.value("chunked-prefill-size") is None:
        entries["chunked-prefill-size"] = Effective(chunk, "rule", source)
    requests = found.value("max-running-requests")
    if found.value("cuda-graph-max-bs-decode") is None:
        if new and requests is not None and requests < largest:
            largest, source = requests, "arg_groups/memory_hook.py:183"
        entries["cuda-graph-max-bs-decode"] = Effective(largest, "rule", source)
    for phase, default in (("decode", "full"), ("prefill", "breakable" if new else "tc_piecewise")):
        name = f"cuda-graph-backend-{phase}"
        if found.value(name) is not None:
            continue
        off = found.flag(f"disable-{phase}-cuda-graph") or found.text("attention-backend") in (
            "torch_native",
            "flex_attention",
        )
        if off or found.on_cpu or (phase == "prefill" and _prefill_graph_is_off(found, shape)):
            default = "disabled"
        line = "arg_groups/cuda_graph_hook.py:136" if new else "server_args.py:2997"
        entries[name] = Effective(default, "rule", line)
    if found.value("cuda-graph-max-bs-prefill") is None:
        tokens = found.integer("chunked-prefill-size")
        if is_mla(shape):
            tokens = min(8192, tokens) if new else 2048
        limit = found.value("max-total-tokens")
        tokens = min(tokens, limit) if limit else tokens
        if not new and "context-length" in found.given:
            tokens = min(tokens, found.integer("context-length"))
        line = "arg_groups/memory_hook.py:233" if new else "server_args.py:3239"
        entries["cuda-graph-max-bs-prefill"] = Effective(tokens, "rule", line)


def _prefill_graph_is_off(found: EffectiveArgs, shape: ModelShape) -> bool:
    """Mirror A server_args.py:2997-3057 and B arg_groups/cuda_graph_hook.py:145-239 as far as sizes depend on it."""
    multimodal = shape.is_multimodal and not _is_text_only(found, shape)
    if not mirrored_rules.prefill_graph_by_default(found.release, shape.architecture, multimodal):
        return True
    a2a = found.text("moe-a2a-backend") or "none"
    if found.integer("pp-size", 1) > 1 or found.integer("attn-cp-size", 1) > 1:
        return True
    if found.release == NEW:
        return found.integer("dcp-size", 1) > 1 or a2a not in ("none", "deepep", "megamoe", "flashinfer")
    return (
        found.attention_dp > 1
        or a2a != "none"
        or found.flag("enable-lora")
        or found.flag("enable-torch-compile")
        or found.flag("enable-hierarchical-cache")
        or found.integer("cpu-offload-gb") > 0
        or found.text("load-format") == "gguf"
    )


def _fraction(found: EffectiveArgs, entries: dict[str, Effective], shape: ModelShape, hardware: Hardware) -> None:
    if found.value("mem-fraction-static") is not None:
        return
    has_tower = shape.vision_layers > 0 and uses_vision(found, shape)
    vision = (shape.vision_layers, shape.vision_hidden_size) if has_tower else None
    fraction, source = mirrored_rules.default_fraction(
        found.release, gpu_mib(found, hardware), reserved_mib(found, shape, hardware), vision
    )
    entries["mem-fraction-static"] = Effective(fraction, "rule", source)


def _shared_chunk(found: EffectiveArgs, entries: dict[str, Effective], _shape: ModelShape, _hw: Hardware) -> None:
    """Divide the chunk by the ranks of data-parallel attention (A server_args.py:5053, B parallel_hook.py:331)."""
    if found.attention_dp < 2:
        return
    new, whole = found.release == NEW, found.integer("chunked-prefill-size")
    chunk = whole // found.attention_dp
    source = "arg_groups/parallel_hook.py:331" if new else "server_args.py:5053"
    entries["chunked-prefill-size"] = Effective(chunk, "rule", f"{source} ({whole} for all of them)", whole)
    captured = found.integer("cuda-graph-max-bs-prefill")
    if new and chunk < captured and found["cuda-graph-max-bs-prefill"].origin != "given":  # B :347-365
        source = "arg_groups/parallel_hook.py:350"
        entries["cuda-graph-max-bs-prefill"] = Effective(chunk, "rule", source, captured)


def _speculative(found: EffectiveArgs, entries: dict[str, Effective], _shape: ModelShape, _hw: Hardware) -> None:
    # A arg_groups/speculative_hook.py:233, :247, :271, :413; B :442, :856, :996, :1090, :1298, but not for UNO
    if found.value("max-running-requests") is not None or found.text("speculative-algorithm").upper() in ("", "UNO"):
        return
    source = f"arg_groups/speculative_hook.py:{1086 if found.release == NEW else 271}"
    entries["max-running-requests"] = Effective(mirrored_rules.SPECULATIVE_REQUESTS, "rule", source)


def reserved_mib(found: EffectiveArgs, shape: ModelShape, hardware: Hardware) -> float:
    """Return what SGLang sets aside on a GPU for all but weights and KV, in MiB; without its factor for vision."""
    chunk, captured = (_at_first(found, name) for name in ("chunked-prefill-size", "cuda-graph-max-bs-prefill"))
    prefill = found.text("cuda-graph-backend-prefill") != "disabled"
    return mirrored_rules.reserved_mib(
        found.release,
        gpu_mib(found, hardware),
        chunk if chunk > 0 else found.integer("max-prefill-tokens"),
        found.integer("cuda-graph-max-bs-decode"),
        found.text("cuda-graph-backend-decode") != "disabled",
        found.integer("tp-size", 1) * found.integer("pp-size", 1),
        found.attention_dp,
        mirrored_rules.prefill_graph_sizes(captured) if prefill else 0,
        is_mla(shape),
        found.text("moe-a2a-backend") == "deepep",
    )


def _at_first(found: EffectiveArgs, name: str) -> int:
    entry = found[name]
    return int(entry.value if entry.before is None else entry.before)


def gpu_mib(found: EffectiveArgs, hardware: Hardware) -> float | None:
    """Return the memory by which SGLang picks its defaults, in MiB: the smallest of all GPUs of the node.

    Mirrors A utils/common.py:1751 (nvidia-smi sees all GPUs) and :1832 (on a CPU: the memory of a NUMA node).
    """
    if found.on_cpu:
        return hardware.mem_total_bytes / max(1, hardware.numa_nodes) / 2**20
    return min((gpu.total_bytes / 2**20 for gpu in hardware.gpus), default=None)


def is_mla(shape: ModelShape) -> bool:
    """Tell whether a model keeps latent KV (MLA), which is the same on every rank."""
    return any(group.kind == "mla" for group in shape.groups)


def uses_vision(found: EffectiveArgs, shape: ModelShape) -> bool:
    """Tell whether the server will load and run a vision tower."""
    return shape.is_multimodal and not _has_no_tower(found) and not _is_text_only(found, shape)


def leaves_vision_out(found: EffectiveArgs, shape: ModelShape) -> bool:
    """Tell whether the server does not load the vision tower of a model; some load it without using it."""
    text_only = _is_text_only(found, shape) and shape.architecture in mirrored_rules.TEXT_ONLY_WITHOUT_TOWER
    return shape.is_multimodal and (_has_no_tower(found) or text_only)


def _has_no_tower(found: EffectiveArgs) -> bool:
    return found.flag("language-model-only") or found.flag("language-only")


def _is_text_only(found: EffectiveArgs, shape: ModelShape) -> bool:
    # A configs/model_config.py:292, B :691
    if found.flag("enable-multimodal") or found.text("model-impl").lower() == "transformers":
        return False
    return shape.architecture in mirrored_rules.text_only_by_default(found.release)


def type_bytes(name: str) -> int:
    """Return the bytes of a number of a type of weights."""
    return {"float64": 8, "float32": 4, "float": 4}.get(name, 2)


def number_bytes(found: EffectiveArgs, shape: ModelShape) -> int:
    """Return the bytes of a number that is not quantised, once loaded: `--dtype`, or the model's own type."""
    given = found.text("dtype")
    return type_bytes(shape.dtype if given in ("", "auto") else given)


def override(found: EffectiveArgs) -> Mapping[str, Any]:
    """Return what json-model-override-args sets of config.json.

    Raises:
        HeadroomError: If it is no JSON object (`settings.invalid`).
    """
    text = found.value("json-model-override-args") or "{}"
    try:
        said = text if isinstance(text, Mapping) else json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, Mapping):
        return said
    raise refusal(
        "settings.invalid",
        f"args.json-model-override-args is {str(text)[:60]!r}: it is no JSON object.",
        "Write it like '{\"max_position_embeddings\": 65536}'.",
    )


def uses_all_to_all(found: EffectiveArgs) -> bool:
    """Tell whether ranks may hold shared experts whole: A models/deepseek_v2.py:693, B :874; some models never do."""
    return _is_on(found, "SGLANG_SHARED_EXPERT_TP1") or found.text("moe-a2a-backend") not in ("", "none")


def _is_on(found: EffectiveArgs, name: str) -> bool:
    """Tell whether a switch of the environment is on (environ.py, EnvBool)."""
    return str(found.env.get(name, "")).lower() in ("true", "1", "yes", "y")


def uses_draft(found: EffectiveArgs) -> bool:
    """Tell whether speculative decoding runs a draft model; n-grams need none."""
    return bool(found.text("speculative-algorithm")) and found.text("speculative-algorithm").upper() != "NGRAM"


def loader_threads(found: EffectiveArgs) -> int:
    """Return how many threads of a rank read weights (A model_loader/loader.py:351: 8 unless configured)."""
    extra = found.value("model-loader-extra-config")
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except ValueError:
            extra = None
    threads = extra.get("num_threads") if isinstance(extra, Mapping) else None
    return threads if isinstance(threads, int) and threads > 0 else 8
