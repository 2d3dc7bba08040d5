# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings: what a check says about a node, an instance or a start, under ids that stay the same.

People and tests match on the ids, so an id is never renamed. docs/findings.md is generated from CATALOGUE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "refuse"]


@dataclass(frozen=True)
class FindingKind:
    """An entry of the catalogue: what a finding of this id means and what cures it in general."""

    id: str
    verdict: Verdict
    title: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One concrete observation: `message` names the setting, its value and the reason, `suggestion` what would work."""

    id: str
    verdict: Verdict
    message: str
    suggestion: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as plain data, as modules return it."""
        return {"id": self.id, "verdict": self.verdict, "message": self.message, "suggestion": self.suggestion}

    def line(self) -> str:
        """Return the finding as the one line that is shown to people."""
        message = self.message if self.message.endswith((".", "!", "?")) else f"{self.message}."
        return " ".join(part for part in (message, self.suggestion, f"[{self.id}]") if part)


_KINDS = (
    FindingKind(
        "settings.unknown",
        "refuse",
        "Unknown setting",
        "A variable with a role's prefix, or a key of an instance or engine, that no role knows. Usually a typo; the "
        "nearest known name is suggested.",
    ),
    FindingKind(
        "settings.invalid",
        "refuse",
        "Setting with an unusable value",
        "A known setting whose value has the wrong type or lies outside what is allowed.",
    ),
    FindingKind(
        "host.unsupported_distribution",
        "refuse",
        "Unsupported distribution",
        "The node runs a distribution for which the collection has no package table, or runs a processor for which "
        "no engine exists.",
    ),
    FindingKind(
        "host.no_systemd",
        "refuse",
        "No systemd",
        "The node was not booted with systemd as process 1. Instances are systemd units, so nothing can be deployed.",
    ),
    FindingKind(
        "engine.interpreter_missing",
        "refuse",
        "No such interpreter",
        "The Python interpreter that an engine asks for is not on the node and no package of the distribution's "
        "table brings it.",
    ),
    FindingKind(
        "engine.lock_invalid",
        "refuse",
        "Unusable lock",
        "The lock of an engine can't be used: a requirement without a hash or version, or one given by URL.",
    ),
    FindingKind(
        "engine.wheelhouse_incomplete",
        "refuse",
        "Wheelhouse lacks a wheel",
        "The wheelhouse of an engine does not hold a file with a hash that the lock names.",
    ),
    FindingKind(
        "engine.install_failed",
        "refuse",
        "Engine does not install",
        "The lock could not be installed or the installed engine could not be imported. The engines that were there "
        "before stay as they were.",
    ),
    FindingKind(
        "engine.missing",
        "refuse",
        "Engine not installed",
        "An instance names an engine that is not installed on the node and that this run does not install.",
    ),
    FindingKind(
        "instance.name_duplicate",
        "refuse",
        "Two instances with one name",
        "Two entries of sglang_server_instances have the same name. The name is the unit's and the directory's name.",
    ),
    FindingKind(
        "instance.port_duplicate",
        "refuse",
        "Two instances on one port",
        "Two instances of a node that are meant to run ask for the same TCP port.",
    ),
    FindingKind(
        "instance.gpu_shared",
        "warn",
        "Two instances on one GPU",
        "Two instances of a node that are meant to run may use the same GPU. That can be meant, with a "
        "mem-fraction-static for each that leaves room for the other; otherwise the second one dies of memory.",
    ),
    FindingKind(
        "instance.port_taken",
        "refuse",
        "Port held by another process",
        "A process that is not this instance listens on the instance's port. It is named with its PID.",
    ),
    FindingKind(
        "instance.reserved_flag",
        "refuse",
        "Flag that has a setting of its own",
        "A flag in `args` that the role sets itself from a key of the instance.",
    ),
    FindingKind(
        "instance.secret_in_clear",
        "refuse",
        "Secret on the command line or in the environment",
        "A key or token in `args` or `env` would be visible in `ps`, `systemctl cat` and logs.",
    ),
    FindingKind(
        "instance.unauthenticated",
        "refuse",
        "Open to the network without a key",
        "The instance would listen on an address other than the loopback one without an API key.",
    ),
    FindingKind(
        "instance.unlisted",
        "warn",
        "Instance that the inventory no longer lists",
        "The node has a managed instance that sglang_server_instances does not name. It is left as it is; list it "
        "with `state: absent` to remove it.",
    ),
    FindingKind(
        "model.missing",
        "refuse",
        "Model directory not found",
        "The model path does not exist on the node, or the service account can't read it.",
    ),
    FindingKind(
        "model.no_config",
        "refuse",
        "Not a model directory",
        "The model path has no readable config.json, so it is not a checkpoint that SGLang can load.",
    ),
    FindingKind(
        "start.died",
        "refuse",
        "Server died while it started",
        "The server process ended before it was ready. The last relevant lines of its log are in the message.",
    ),
    FindingKind(
        "start.timeout",
        "refuse",
        "Server did not become ready in time",
        "The server still runs but did not become ready within the limit computed from the size of the weights and "
        "the expected read speed.",
    ),
    FindingKind(
        "verify.wrong_model",
        "refuse",
        "Server answers with another model",
        "The server that answers on the port does not serve the name that was asked for.",
    ),
    FindingKind(
        "verify.no_generation",
        "refuse",
        "Server does not generate",
        "The server claims to be ready but a real completion request failed or returned no token.",
    ),
    FindingKind(
        "model.config_invalid",
        "refuse",
        "Unusable config.json",
        "The config.json of a model lacks a figure that says how the model is built, or has one that can't be true.",
    ),
    FindingKind(
        "model.weights_missing",
        "refuse",
        "Weights are not all there",
        "The index of a model names a file or tensor that is not in the directory, a link leads nowhere, or there are "
        "no weights at all. SGLang itself starts without a missing file and generates garbage.",
    ),
    FindingKind(
        "model.weights_damaged",
        "refuse",
        "Damaged weights",
        "A file of weights is cut off, or its header contradicts itself or the file's size.",
    ),
    FindingKind(
        "model.weights_mixed",
        "refuse",
        "Tensor in two files",
        "Two files of a model hold a tensor of one name, so which one counts is chance. Mostly two checkpoints lie in "
        "one directory.",
    ),
    FindingKind(
        "model.record_invalid",
        "refuse",
        "Not a record of a model",
        "What was given as the record of a model is damaged, or was written by another version of the collection.",
    ),
    FindingKind(
        "model.weights_format",
        "refuse",
        "Format of weights that can't be planned",
        "The directory holds weights in a format whose memory can't be told before a start, such as GGUF.",
    ),
    FindingKind(
        "gpu.none",
        "refuse",
        "No GPU to run on",
        "The instance needs a GPU and the node shows none, or none of those that the instance names.",
    ),
    FindingKind(
        "gpu.too_few",
        "refuse",
        "Fewer GPUs than ranks",
        "Each rank of tensor and pipeline parallelism takes a GPU; the instance has fewer on this node.",
    ),
    FindingKind(
        "gpu.mixed_gpus",
        "refuse",
        "GPUs of different models",
        "The GPUs of an instance differ. Sizes follow the smallest of them, and kernels are built for one kind.",
    ),
    FindingKind(
        "gpu.unbalanced",
        "refuse",
        "GPUs with unequal free memory",
        "One GPU of the instance has over a tenth less free memory than another, so SGLang refuses to start. What "
        "holds the memory is named with its PID.",
    ),
    FindingKind(
        "gpu.foreign_memory",
        "warn",
        "GPU memory held by others",
        "Processes that are not this instance hold memory of its GPUs. The plan counts with what is left.",
    ),
    FindingKind(
        "gpu.shared_by_instances",
        "warn",
        "Two instances on one GPU",
        "Another instance that is to run takes memory of the same GPU. Instances are started one after the other in "
        "the inventory's order, so each is planned with the claims of those before it taken off.",
    ),
    FindingKind(
        "gpu.fraction_computed",
        "ok",
        "Fraction computed by SGLang",
        "mem-fraction-static is not given, so SGLang computes one from the GPUs, the parallelism and the model. The "
        "effective value is shown.",
    ),
    FindingKind(
        "gpu.no_room_for_kv",
        "refuse",
        "Weights leave no room for KV",
        "The part of the GPU's memory that mem-fraction-static gives does not hold the weights and any KV. SGLang "
        "would end after the load; the fraction must rise, or the weights need more GPUs.",
    ),
    FindingKind(
        "gpu.slack",
        "refuse",
        "Too little GPU memory outside of weights and KV",
        "What the fraction leaves must hold the table of requests, the CUDA graphs and the activations of a prefill. "
        "It refuses where that does not fit by estimate, or where the estimate was never compared with a start of this "
        "kind and less than half of SGLang's own reserve is left; it warns where SGLang itself would reserve more.",
    ),
    FindingKind(
        "gpu.window_pool_too_small",
        "refuse",
        "Sliding-window pool smaller than a window",
        "The KV pool of the sliding-window layers can't hold one request, so the server would never answer.",
    ),
    FindingKind(
        "gpu.state_cache_too_small",
        "refuse",
        "No room for states of linear attention",
        "The state cache of a hybrid model holds too few states for one request.",
    ),
    FindingKind(
        "hicache.node_budget",
        "refuse",
        "Host pools larger than the node's free memory",
        "hicache-size counts for each rank: the pools of all ranks, the pools beside them and the 10 GiB that SGLang "
        "keeps free exceed the available memory. It warns where only the processes' own memory does not fit beside "
        "them.",
    ),
    FindingKind(
        "hicache.host_smaller_than_device",
        "refuse",
        "Host tier smaller than the GPU's pool",
        "The host pool holds no more tokens than the GPU's. SGLang 0.5.14 ends with an AssertionError; 0.5.23 only "
        "warns, and so does the plan.",
    ),
    FindingKind(
        "hicache.race",
        "warn",
        "Host pools that pass by luck",
        "Each rank of SGLang 0.5.23 compares its pool with the memory that is free while the other ranks allocate "
        "theirs. Above a certain size a start fails now and then.",
    ),
    FindingKind(
        "hicache.single_registration",
        "warn",
        "Over 512 GiB pinned in one call",
        "SGLang 0.5.14 pins a host pool in one call, and NVIDIA's drivers from 580 on are known to fail from 512 GiB "
        "on.",
    ),
    FindingKind(
        "hicache.pool_overhead",
        "warn",
        "Host pools larger than planned",
        "An earlier start took more host memory for a rank's pools than its size said: pools of an indexer, a draft "
        "model or states come on top. The plan counts them.",
    ),
    FindingKind(
        "hicache.needs_radix_cache",
        "refuse",
        "Hierarchical cache without radix cache",
        "SGLang refuses enable-hierarchical-cache together with disable-radix-cache.",
    ),
    FindingKind(
        "hicache.not_enabled",
        "warn",
        "Host tier configured but off",
        "A flag of the hierarchical cache is given, but enable-hierarchical-cache is not.",
    ),
    FindingKind(
        "host.memlock",
        "warn",
        "Low limit for locked memory",
        "Host pools are pinned, and the node's hard limit for locked memory is below their size, so the unit can't "
        "raise it.",
    ),
    FindingKind(
        "host.load_window",
        "refuse",
        "Loading takes more memory than there is",
        "weight-loader-disable-mmap reads whole files into memory, several for each rank at once, instead of mapping "
        "them.",
    ),
    FindingKind(
        "host.memory",
        "refuse",
        "Too little host memory",
        "Weights and KV of a server on the CPU exceed the available memory. It warns where only the processes' own "
        "memory does not fit.",
    ),
    FindingKind(
        "plan.engine_unknown",
        "warn",
        "Engine that the plan does not know",
        "The plan follows the sizes of the nearest release that was studied.",
    ),
    FindingKind(
        "plan.requests_at_context",
        "ok",
        "How many requests run at a time",
        "The KV tokens divided by the length of a request: the expected one, or the whole context.",
    ),
    FindingKind(
        "plan.context_exceeds_pool",
        "warn",
        "Context longer than the KV pool",
        "A request as long as the context allows can't be served: all of its KV must be on the GPU at a time.",
    ),
    FindingKind(
        "plan.limit_above_pool",
        "warn",
        "Limit of tokens above what fits",
        "max-total-tokens can only lower the KV pool.",
    ),
    FindingKind(
        "plan.requests_lowered",
        "warn",
        "Fewer running requests than asked for",
        "SGLang lowers max-running-requests to what the KV pool or the state cache has room for.",
    ),
    FindingKind(
        "plan.prefix_cache_only",
        "ok",
        "What the host tier is for",
        "The hierarchical cache keeps prefixes that come again. It does nothing for requests that are short of KV "
        "while they run.",
    ),
    FindingKind(
        "plan.copies_per_rank",
        "ok",
        "Host pools that hold the same",
        "With latent attention (MLA), or fewer KV heads than ranks, ranks keep copies: more ranks need more host "
        "memory and hold no more tokens.",
    ),
    FindingKind(
        "plan.draft_counted",
        "ok",
        "Draft model counted",
        "Weights and KV of the draft model of speculative decoding are part of the plan.",
    ),
    FindingKind(
        "plan.draft_unknown",
        "warn",
        "Draft model not read",
        "The draft model of speculative decoding could not be read; the plan counts one layer of the model instead.",
    ),
    FindingKind(
        "gpu.lost",
        "warn",
        "GPU does not answer",
        "The driver counts a GPU that it can't reach any more: it fell off the bus or wants a reset. The others are "
        "read as usual; an instance that wants this one can't start.",
    ),
    FindingKind(
        "gpu.driver_mismatch",
        "refuse",
        "Driver and libraries of different versions",
        "The driver's libraries were upgraded while the kernel module of the version before is still loaded, so no "
        "program can use a GPU until the node is rebooted.",
    ),
    FindingKind(
        "plan.order",
        "refuse",
        "Fits in the end, but not on the way",
        "Instances of a node are replaced one after the other. This one would start while the present release of a "
        "later one still holds its memory, and both together do not fit.",
    ),
    FindingKind(
        "gpu.load_peak",
        "refuse",
        "Weights do not fit before they are quantised",
        "With `quantization` or `torchao-config` SGLang itself quantises weights that the files hold otherwise, once "
        "all of them are loaded as they are. They must fit on the GPU by then.",
    ),
    FindingKind(
        "host.offload",
        "refuse",
        "Offloaded weights exceed the host's memory",
        "cpu-offload-gb counts for each rank, and so much of the weights is kept in pinned host memory. It warns where "
        "only what pinning rounds up, or the processes' own memory, does not fit.",
    ),
    FindingKind(
        "plan.weights_uncertain",
        "warn",
        "Weights that only a start will show",
        "A flag makes something else of the weights than the files hold, such as quantization while loading or "
        "json-model-override-args, and it can't be computed exactly. The plan judges by the upper end of a wide band.",
    ),
    FindingKind(
        "hicache.needs_gpu",
        "refuse",
        "Host tier without a GPU",
        "The hierarchical cache copies between host and GPU memory. SGLang on a processor loads the model, allocates "
        "KV and then ends with an AssertionError.",
    ),
    FindingKind(
        "plan.start_order",
        "warn",
        "Fits in the deploy's order only",
        "Instances that share a GPU are started one after the other by a deploy, but together after a reboot. If a "
        "later one is first then, it takes a part of all that is free, and this one does not fit any more.",
    ),
)

CATALOGUE: dict[str, FindingKind] = {kind.id: kind for kind in _KINDS}


# The families that the memory plan tells, which a user may accept; what else refuses has no way to succeed.
_PLANNED = ("gpu.", "hicache.", "host.", "plan.")
# Of the same family, but told by the runtime's checks.
_OF_THE_SYSTEM = ("host.unsupported_distribution", "host.no_systemd")


def acceptable() -> list[str]:
    """Return the ids of refusing findings that `sglang_server_accept` may name."""
    planned = [kind for kind in _KINDS if kind.id.startswith(_PLANNED) and kind.id not in _OF_THE_SYSTEM]
    return [kind.id for kind in planned if kind.verdict == "refuse"]


def finding(kind_id: str, message: str, suggestion: str = "", verdict: Verdict | None = None) -> Finding:
    """Build a finding of a catalogued kind.

    Args:
        kind_id: An id of CATALOGUE.
        message: The setting, its value and the reason, without a final newline.
        suggestion: What would work; may be empty.
        verdict: Overrides the catalogue's verdict where a case is milder or harsher than usual.

    Raises:
        KeyError: If the id is not in the catalogue.
    """
    kind = CATALOGUE[kind_id]
    return Finding(kind.id, verdict or kind.verdict, message, suggestion)


def refusals(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that forbid a start, in their order."""
    return [item for item in findings if item.verdict == "refuse"]


def one_line(findings: Iterable[Finding]) -> str:
    """Return the refusing findings as one line, for the message of a failed task."""
    return "; ".join(item.line() for item in refusals(findings))
