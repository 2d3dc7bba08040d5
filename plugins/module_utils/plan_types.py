# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a plan and what comes out of it. Units are in the names: _bytes, _gib (2**30), _gb (10**9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from ansible_collections.headroom.serving.plugins.module_utils.findings import Finding, Verdict
from ansible_collections.headroom.serving.plugins.module_utils.hardware import Hardware
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape

Source = Literal["measured", "estimated"]


@dataclass(frozen=True)
class Interval:
    """A figure with the band in which the truth is expected."""

    low: float
    best: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return the interval times a factor that is not negative."""
        return Interval(self.low * factor, self.best * factor, self.high * factor)


@dataclass(frozen=True)
class Facts:
    """What a start of the same model, engine, TP and type has shown; None is not measured.

    pre_gib: free memory of a GPU before the weights. overhead_gib: by how much that was less than what was free before
    the start, which is CUDA's context and communicators and the same whatever others hold. weights_gib: weights of a
    rank. tokens: KV tokens. slack_gib: free memory of a GPU once the server was ready. host_pool_gb: all host pools of
    a rank, decimal GB, and host_pool_planned_gb what the plan of that start had said. rss_rank_gb: memory of a rank's
    process without pools. draft_weights_gib: weights of draft models on a rank. kv_gib: what a GPU with pre_gib had
    left for KV at the fraction kv_fraction, give or take half of kv_page_gib; None where a limit and not that memory
    sized the pool.
    """

    pre_gib: float | None = None
    weights_gib: float | None = None
    tokens: int | None = None
    slack_gib: float | None = None
    host_pool_gb: float | None = None
    rss_rank_gb: float | None = None
    host_pool_planned_gb: float | None = None
    draft_weights_gib: float | None = None
    kv_gib: float | None = None
    kv_fraction: float | None = None
    kv_page_gib: float = 0.0
    overhead_gib: float | None = None


@dataclass(frozen=True)
class PlanInput:
    """One instance on one node.

    gpus: indexes of its GPUs, all of the node's if empty. release_gpu_bytes: what the outgoing release gives back, by
    the GPU's index. release_host_bytes: the same of host memory. others: plans of other instances of this node that are
    to run as well, are started before this one, and whose memory the facts of the hardware do not show yet. later: the
    same of those that are started after it: they get what this one leaves of a GPU, and the host must hold them all.
    accept: ids of findings that may not refuse. draft_shape: the draft model of speculative decoding.
    expected_request_tokens: length of a usual request, 0 for the whole context. side_pool_bytes_per_rank: host pools
    beside the main one, where they are known.
    """

    name: str
    args: EffectiveArgs
    shape: ModelShape
    hardware: Hardware
    gpus: tuple[int, ...] = ()
    facts: Facts = Facts()
    release_gpu_bytes: Mapping[int, int] = field(default_factory=dict)
    release_host_bytes: int = 0
    others: tuple[Plan, ...] = ()
    later: tuple[Plan, ...] = ()
    accept: tuple[str, ...] = ()
    draft_shape: ModelShape | None = None
    expected_request_tokens: int = 0
    side_pool_bytes_per_rank: int | None = None


@dataclass(frozen=True)
class GpuBudget:
    """Memory of the instance's fullest GPU, in bytes; on a CPU the memory of a rank.

    pre_bytes is what is free before the weights; fraction x pre is for weights and KV, the rest is slack. The parts of
    the slack, with their sum in need_bytes: request_table, decode_graph, chunk (activations of a prefill chunk, or the
    prefill graphs that hold them), vision, workspace, communicator, fragments. reserve_bytes is SGLang's own figure for
    the same. left_bytes is what no estimate claims. load_peak_bytes are weights as they lie there before SGLang
    quantises them itself, 0 where they never do.
    """

    total_bytes: int
    pre_bytes: Interval
    pre_source: Source
    fraction: float
    weights_bytes: Interval
    weights_source: Source
    draft_weight_bytes: int
    multimodal_bytes: int
    cell_bytes: float
    kv_bytes: int
    draft_kv_bytes: int
    state_bytes: int
    tokens: Interval
    swa_tokens: int
    states: int
    max_running_requests: int
    overflow_bytes: int
    slack_bytes: Interval
    reserve_bytes: int
    request_table_bytes: int
    decode_graph_bytes: int
    chunk_bytes: int
    vision_bytes: int
    workspace_bytes: int
    communicator_bytes: int
    fragment_bytes: int
    claimed_by_others_bytes: int
    minimum_fraction: float
    load_peak_bytes: int

    @property
    def need_bytes(self) -> int:
        """What the slack must hold, by estimate."""
        return (
            self.request_table_bytes
            + self.decode_graph_bytes
            + self.chunk_bytes
            + self.vision_bytes
            + self.workspace_bytes
            + self.communicator_bytes
            + self.fragment_bytes
            + self.overflow_bytes
        )

    @property
    def left_bytes(self) -> int:
        """What is left of the slack; negative if it can't hold its parts."""
        return int(self.slack_bytes.low) - self.need_bytes

    @property
    def claim_bytes(self) -> int:
        """What the instance takes of a GPU in all."""
        parts = self.draft_weight_bytes + self.kv_bytes + self.draft_kv_bytes + self.state_bytes + self.multimodal_bytes
        return int(self.weights_bytes.best) + parts + self.need_bytes

    @property
    def claim_interval(self) -> Interval:
        """What it may have taken when the next instance starts: less, as some parts are for a load only."""
        if self.tokens.high > self.tokens.low:
            swing = self.fraction * (self.pre_bytes.high - self.pre_bytes.low) / 2
        else:
            swing = (self.weights_bytes.high - self.weights_bytes.low) / 2
        claim, idle = self.claim_bytes, self.need_bytes - self.request_table_bytes
        return Interval(claim - idle - swing, claim, claim + swing)


@dataclass(frozen=True)
class HostBudget:
    """Host memory on the node, in bytes. pool_bytes and side_bytes are of one rank, all others of the node.

    offload_bytes are weights that cpu-offload-gb keeps there.
    """

    total_bytes: int
    available_bytes: int
    claimed_by_others_bytes: int
    ranks: int
    pool_bytes: int
    side_bytes: int
    side_source: Source
    pools_bytes: int
    reserve_bytes: int
    process_bytes: int
    process_source: Source
    computing_bytes: int
    offload_bytes: int
    load_window_bytes: int
    tokens: int
    unique_tokens: int
    size_gb: float
    ratio: float
    certain_size_bytes: int
    registration_bytes: int

    @property
    def needed_bytes(self) -> int:
        """What is certain: pools, SGLang's reserve, offloaded weights, and on a CPU weights and KV."""
        return self.pools_bytes + self.reserve_bytes + self.computing_bytes + self.offload_bytes

    @property
    def claim_bytes(self) -> int:
        """What the instance takes of the node's memory in all, without SGLang's reserve."""
        return self.pools_bytes + self.computing_bytes + self.offload_bytes + self.process_bytes


@dataclass(frozen=True)
class Suggestion:
    """A value that was tried by planning again: `value` gives `verdict` on the finding, `beyond` a worse one.

    Findings that say the same in other words count as one. `beyond` is the next step, None where the setting has none.
    `setting` is empty if nothing helps.
    """

    finding: str
    setting: str
    value: Any
    verdict: Verdict
    beyond: Any
    text: str


@dataclass(frozen=True)
class Plan:
    """What an instance needs and gets on a node, and what is to be said about it.

    accepted: ids of findings that refuse and were told not to.
    """

    name: str
    engine_version: str
    gpus: tuple[int, ...]
    gpu: GpuBudget
    host: HostBudget
    tokens: Interval
    host_tokens: int
    max_running_requests: int
    requests_at_context: int
    request_tokens: int
    context_tokens: int
    estimates: tuple[str, ...]
    findings: tuple[Finding, ...]
    suggestions: tuple[Suggestion, ...] = ()
    accepted: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The harshest verdict of all findings."""
        verdicts = {item.verdict for item in self.findings}
        return "refuse" if "refuse" in verdicts else "warn" if "warn" in verdicts else "ok"

    @property
    def origin(self) -> Source:
        """Whether both figures behind the tokens, free memory and weights, were measured."""
        both = (self.gpu.pre_source, self.gpu.weights_source)
        return "measured" if both == ("measured", "measured") else "estimated"

    def verdict_of(self, kind_id: str) -> Verdict:
        """Return the harshest verdict of one id, "ok" if the plan has no finding of it."""
        verdicts = {item.verdict for item in self.findings if item.id == kind_id}
        return "refuse" if "refuse" in verdicts else "warn" if "warn" in verdicts else "ok"

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, with the sums and the verdict."""
        data = asdict(self)
        data["gpu"].update(need_bytes=self.gpu.need_bytes, left_bytes=self.gpu.left_bytes)
        data["host"].update(needed_bytes=self.host.needed_bytes, claim_bytes=self.host.claim_bytes)
        data.update(verdict=self.verdict, origin=self.origin)
        return data
