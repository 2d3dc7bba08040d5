# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts have shown, for the next plan of the same model, engine and split.

One file on the node holds the last starts of one key. Without it, or where it is damaged, the plan estimates again.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from ansible_collections.headroom.serving.plugins.module_utils import (
    flag_tables,
    gpu_budget,
    host_budget,
    kept_starts,
    kv_pool,
)
from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Gpu
from ansible_collections.headroom.serving.plugins.module_utils.kept_starts import KeptStart, Setting
from ansible_collections.headroom.serving.plugins.module_utils.kv_pool import GIB
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import Facts, PlanInput
from ansible_collections.headroom.serving.plugins.module_utils.start_facts import StartFacts

DIRECTORY = Path("/var/lib/headroom/measured")
# What changes the weights of a rank or the memory that is free before them. The KV's type, its fraction, graphs and
# the host tier don't, so that one start serves the plans of all their values.
_ARGUMENTS = (
    "attn-cp-size",
    "cpu-offload-gb",
    "dcp-size",
    "device",
    "disable-custom-all-reduce",
    "disable-shared-experts-fusion",
    "disaggregation-mode",
    "dtype",
    "elastic-ep-backend",
    "enable-deepep-waterfill",
    "enable-dp-lm-head",
    "enable-fp32-lm-head",
    "enable-lora",
    "enable-memory-saver",
    "enable-mscclpp",
    "enable-multi-layer-eagle",
    "enable-multimodal",
    "enable-nccl-nvls",
    "enable-symm-mem",
    "enable-torch-symm-mem",
    "enable-waterfill",
    "encoder-only",
    "ep-num-redundant-experts",
    "ep-size",
    "fp4-gemm-backend",
    "fp8-gemm-backend",
    "json-model-override-args",
    "kt-method",
    "kt-num-gpu-experts",
    "kt-weight-path",
    "language-model-only",
    "language-only",
    "load-format",
    "lora-paths",
    "max-lora-rank",
    "max-loras-per-batch",
    "mm-enable-dp-encoder",
    "mm-feature-transport",
    "model-impl",
    "modelopt-quant",
    "moe-a2a-backend",
    "moe-dense-tp-size",
    "moe-dp-size",
    "moe-runner-backend",
    "nnodes",
    "offload-group-size",
    "offload-mode",
    "offload-num-in-group",
    "pp-size",
    "quantization",
    "quantize-and-serve",
    "revision",
    "speculative-algorithm",
    "speculative-draft-load-format",
    "speculative-draft-model-path",
    "speculative-draft-model-quantization",
    "speculative-draft-model-revision",
    "torchao-config",
    "tp-size",
)
_ENVIRONMENT = ("CUDA_", "NCCL_", "PYTORCH_", "SGLANG_")
# What lies between the weights and the pool was 0.01 to 0.05 GiB in the recorded starts. A KV that misses more than
# this was sized by something that is not known here.
_UNEXPLAINED_GIB = 2.0
# A start with less free memory than another by this part had it because somebody else held some.
_HELD_PART = 0.01
# Two starts whose contexts and communicators differ by no more took the same: the log rounds to 0.01 GiB.
_SAME_GIB = 0.02
_Figure = TypeVar("_Figure", int, float)


def key(args: EffectiveArgs, model_digest: str, engine_id: str, gpus: Sequence[Gpu] = ()) -> str:
    """Return what starts with comparable figures have in common, as 16 hex digits.

    Args:
        args: Effective arguments of the instance.
        model_digest: Digest of the model's files.
        engine_id: Id of the engine.
        gpus: The instance's GPUs; others, of another size or make, show other figures.
    """
    known = flag_tables.table(args.release)
    given = {known[name].names[0] if name in known else name: value for name, value in args.given.items()}
    # Each step of multi-layer EAGLE has weights of its own.
    names = [*_ARGUMENTS, "speculative-num-steps"] if given.get("enable-multi-layer-eagle") else _ARGUMENTS
    flags = {name: args.value(name) if name in args else given.get(name) for name in names}
    unset = {name: (None, False, "", known[name].default if name in known else None) for name in names}
    flags = {name: str(value) for name, value in flags.items() if value not in unset[name]}
    flags.update({"attention-dp": str(args.attention_dp), "replicas": str(args.replicas)})
    same = {
        "model": model_digest,
        "engine": engine_id,
        "gpus": sorted({f"{gpu.name} {gpu.total_bytes}" for gpu in gpus}),
        "flags": flags,
        "environment": {name: str(value) for name, value in args.env.items() if name.startswith(_ENVIRONMENT)},
    }
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]


def setting(inputs: PlanInput, is_alone: bool = True) -> Setting:
    """Return what to keep of a plan's inputs together with what the start will show.

    Args:
        inputs: What the plan was made from.
        is_alone: Whether no other instance was planned to start on the same GPUs before it.

    Raises:
        HeadroomError: If a flag has a value that can't be one.
    """
    args = inputs.args
    gpu = gpu_budget.budget(inputs)
    # Planned anew by the formula alone: a surplus that was measured before is what the next start must show again.
    host = host_budget.budget(replace(inputs, facts=replace(inputs.facts, host_pool_gb=None)), gpu)
    layout = gpu_budget.layout(inputs)
    token_bytes, fixed_bytes = kv_pool.cost_bytes(layout, args)
    planned = (host.pool_bytes + host.side_bytes) / 1e9
    # What others were yet to take is an estimate, so what was free before this start is not known then.
    free_gib = gpu_budget.free_gib(inputs) if is_alone and not gpu.claimed_by_others_bytes else 0.0
    return Setting(
        name=inputs.name,
        engine_version=args.engine_version,
        on_cpu=args.on_cpu,
        fraction=gpu.fraction,
        page_tokens=args.integer("page-size", 1),
        token_bytes=token_bytes,
        fixed_bytes=fixed_bytes,
        state_bytes=layout.state_request_bytes,
        limit_tokens=args.value("max-total-tokens"),
        draft_gib=gpu.draft_weight_bytes / GIB,
        multimodal_gib=gpu.multimodal_bytes / GIB,
        # What the engine shrinks to the memory that is free says nothing of another start.
        host_pool_planned_gb=None if not planned or host_budget.is_auto_sized(args) else planned,
        host_pool_tokens=0 if host.size_gb else int(gpu.tokens.high),
        free_gib=None if args.on_cpu or not free_gib else free_gib,
        overhead_gib=gpu_budget.overhead_gib(inputs),
    )


def save(root: Path, key: str, start: StartFacts, setting: Setting, rss_rank_gb: float | None, when: float) -> None:
    """Keep what a start has shown, as the first of the last few; one that showed nothing of memory is not kept.

    Args:
        root: Directory of all keys; made if it lacks.
        key: What `key` returned.
        start: What the log said.
        setting: What the start was asked for.
        rss_rank_gb: Memory of its largest rank without shared pools, decimal GB; None if it was not read.
        when: Seconds since 1970.

    Raises:
        OSError: If it can't be written. The file is the old one or the new one, never a part.
    """
    if start.pre_gib is None and start.weights_gib is None:
        return
    path = root / f"{key}.json"
    kept_starts.write(path, [KeptStart(when, start, setting, rss_rank_gb), *kept_starts.read(path)])


def load(root: Path, key: str) -> tuple[Facts, str]:
    """Return what starts of a key have shown, and in words when; no facts and no words if there are none.

    The newest start counts. What it did not show, such as a KV pool that a limit had not cut, is of the newest one that
    did.
    """
    starts = kept_starts.read(root / f"{key}.json")
    if not starts:
        return Facts(), ""
    newest = starts[0]
    pre, overhead = _before_weights(starts)
    text = f"measured at the start of {_utc(newest)}"
    facts = Facts(
        pre_gib=pre,
        overhead_gib=overhead,
        weights_gib=_first(one.start.weights_gib for one in starts),
        draft_weights_gib=_first(one.start.draft_weights_gib for one in starts),
        tokens=newest.start.tokens,
        slack_gib=newest.start.slack_gib,
        rss_rank_gb=_first(one.rss_rank_gb for one in starts if not one.setting.on_cpu),
    )
    for one in starts:
        planned = _host_pool_planned_gb(one)
        if one.start.host_pool_gb is not None and planned:
            facts = replace(facts, host_pool_gb=one.start.host_pool_gb, host_pool_planned_gb=planned)
            break
    reasons = [_unusable(one) for one in starts]
    if pre is not None and "" in reasons:
        one = starts[reasons.index("")]
        fraction, gib, page_gib = _kv(one)
        # As if that start had found the memory that the plan reckons with.
        gib += fraction * (pre - (one.start.pre_gib or 0.0))
        facts = replace(facts, kv_gib=gib, kv_fraction=fraction, kv_page_gib=page_gib)
        text += "" if one is newest else f", its KV at that of {_utc(one)}"
    if reasons[0]:
        text += f"; what KV got at {_utc(newest)} tells nothing: {reasons[0]}"
    return facts, text


def _unusable(one: KeptStart) -> str:
    """Return why the KV of a start tells nothing of its weights; empty if it does."""
    start, setting = one.start, one.setting
    if start.tokens is None or start.pre_gib is None:
        return "the log did not show it"
    if start.sized_after_capture:
        return "it was sized after the graphs were captured"
    limit = setting.limit_tokens
    if limit is not None and start.tokens >= limit // setting.page_tokens * setting.page_tokens:
        return "it was limited by max-total-tokens"
    if setting.state_bytes and start.states is None:
        return "the log did not show the states of linear attention"
    if start.weights_gib is not None:
        fraction, gib, _page = _kv(one)
        draft = setting.draft_gib if start.draft_weights_gib is None else start.draft_weights_gib
        missing = fraction * start.pre_gib - gib - start.weights_gib - draft - setting.multimodal_gib
        if abs(missing) > _UNEXPLAINED_GIB:
            return f"{missing:.1f} GiB of it are not explained"
    return ""


def _kv(one: KeptStart) -> tuple[float, float, float]:
    """Return (fraction, GiB that KV got, GiB of a page, by which that is uncertain) of a start that shows tokens."""
    start, setting = one.start, one.setting
    taken = (start.tokens or 0) * setting.token_bytes + setting.fixed_bytes + (start.states or 0) * setting.state_bytes
    page = setting.page_tokens * setting.token_bytes
    return start.fraction or setting.fraction, (taken + page / 2) / GIB, page / GIB


def _before_weights(starts: Sequence[KeptStart]) -> tuple[float | None, float | None]:
    """Return (free memory before the weights, what had gone of it by then) of a start that is typical; in GiB.

    The second is None if no start tells: what was free before it was not kept, or had changed by the time it started.
    Of two that differ the larger counts, of more the middle one. Where the newest pool that tells anything is of a
    typical start, it is that start's: the log's rounding is the same in both then, and cancels out.
    """
    shown = [(gib, one) for one in starts for gib in [_overhead_gib(one)] if gib is not None]
    if not shown:
        return _pre_gib(starts), None
    middle = statistics.median_high([gib for gib, _one in shown])
    typical = [(gib, one) for gib, one in shown if abs(gib - middle) <= _SAME_GIB]
    gib, one = next((pair for pair in typical if not _unusable(pair[1])), typical[0])
    return one.start.pre_gib, gib


def _overhead_gib(one: KeptStart) -> float | None:
    """Return what went of a GPU's free memory before the weights of a start; None if it was not that alone."""
    free, pre = one.setting.free_gib, one.start.pre_gib
    if free is None or pre is None or not gpu_budget.is_overhead(free - pre, one.setting.overhead_gib):
        return None
    return free - pre


def _pre_gib(starts: Sequence[KeptStart]) -> float | None:
    """Return the free memory before the weights: the newest, unless an older one shows that some was held then."""
    known = [one.start.pre_gib for one in starts if one.start.pre_gib is not None]
    if not known:
        return None
    return known[0] if known[0] >= max(known) * (1 - _HELD_PART) else max(known)


def _host_pool_planned_gb(one: KeptStart) -> float | None:
    planned, tokens = one.setting.host_pool_planned_gb, one.setting.host_pool_tokens
    if planned is None or not tokens:
        return planned
    return None if one.start.tokens is None else planned * one.start.tokens / tokens


def _first(values: Iterable[_Figure | None]) -> _Figure | None:
    return next((value for value in values if value is not None), None)


def _utc(one: KeptStart) -> str:
    return datetime.fromtimestamp(one.when, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
