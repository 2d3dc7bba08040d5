# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang allocates on a GPU beside weights and KV: tables, graphs, activations.

What is known exactly names the line of SGLang that allocates it ("A" is 0.5.14, "B" 0.5.23). The rest was fitted to
32 starts of 0.5.14 on H200s, with a load on those that served and the border of death on both sides of it:
docs/accuracy.md. B was not measured and is taken for the same, except where a function says otherwise.
"""

from __future__ import annotations

from ansible_collections.headroom.serving.plugins.module_utils import effective_args, mirrored_rules
from ansible_collections.headroom.serving.plugins.module_utils.effective_args import EffectiveArgs
from ansible_collections.headroom.serving.plugins.module_utils.flag_tables import NEW
from ansible_collections.headroom.serving.plugins.module_utils.kv_pool import GIB
from ansible_collections.headroom.serving.plugins.module_utils.model_shape import ModelShape
from ansible_collections.headroom.serving.plugins.module_utils.plan_types import PlanInput

MIB = 2**20
# The list of free pages of the KV pool, int64 (A mem_cache/allocator/token.py:44): 2.2 GiB of the recorded toy model's.
FREE_PAGE_BYTES = 8
# Numbers of a token that are there at a time: so many times the hidden size beside those of attention and MLP, when run
# eagerly; graphs hold more, so many times each.
EAGER_HIDDEN, GRAPH_HIDDEN, GRAPH_ATTENTION, GRAPH_MOE = 5, 9, 2, 1.7
# Prefill graphs beyond their activations, and the part of an eager run that capturing them leaves in the cache.
PREFILL_GRAPH_BASE_BYTES = 80 * MIB
CAPTURE_SHARE = 0.75
# Decode graphs: all of them, and each. Measured: 0.06 to 0.18 GiB for 6 to 52 graphs beyond their tensors, with latent
# attention 0.07 to 0.31 for 4 to 52.
GRAPH_BASE_BYTES = 48 * MIB
GRAPH_EACH_BYTES, MLA_GRAPH_EACH_BYTES = 4 * MIB, 6 * MIB
# Of each entry of the vocabulary and request: float32 logits and those of the model's type, which the graphs keep; and
# what sampling makes of them (probabilities and copies; 9 to 12 measured).
GRAPH_LOGIT_BYTES, SAMPLE_LOGIT_BYTES = 6, 11
# What a back end keeps for itself: 0.1 GiB from the first kernels to ready; FlashInfer's and TensorRT-LLM's buffers are
# 384 to 512 MiB more (A layers/attention/flashinfer_backend.py:355-391).
KERNELS_BYTES = int(0.1 * GIB)
BUFFER_BYTES = 512 * MIB
_WITHOUT_BUFFER = {"triton", "fa3", "fa4", "flashmla", "torch_native", "flex_attention"}
FRAGMENT_BYTES = int(0.12 * GIB)
# NCCL's channels at first use, with more than one rank: 0.58 GiB measured with two, more are an estimate.
COMMUNICATOR_BYTES = int(0.6 * GIB)
VISION_BYTES = 3 * GIB // 2  # activations of the encoder and its cache of embeddings. An estimate.
# A GPU of 129 to 256 multiprocessors splits the KV of latent attention so often (A triton_backend.py:52).
_MLA_SPLITS = 256
_MLA_BLOCK_TOKENS = 32


def parts(inputs: PlanInput, requests: int, kv_tokens: int) -> dict[str, int]:
    """Return the parts of the slack by the names that GpuBudget has for them, in bytes.

    Args:
        inputs: The instance.
        requests: The most requests that may run at once.
        kv_tokens: The most tokens that the KV pool may hold.
    """
    args, shape = inputs.args, inputs.shape
    graphs = decode_graph_bytes(args, shape, requests)
    cpu = args.on_cpu
    backend = _decode_backend(args)
    return {
        "request_table_bytes": table_bytes(args, requests, kv_tokens),
        "decode_graph_bytes": graphs,
        "chunk_bytes": prefill_bytes(args, shape, requests, graphs),
        "vision_bytes": VISION_BYTES if effective_args.uses_vision(args, shape) else 0,
        "workspace_bytes": 0 if cpu else KERNELS_BYTES + (0 if backend in _WITHOUT_BUFFER else BUFFER_BYTES),
        "communicator_bytes": COMMUNICATOR_BYTES if args.ranks > 1 and not cpu else 0,
        "fragment_bytes": 0 if cpu else FRAGMENT_BYTES,
    }


def unmeasured(args: EffectiveArgs, shape: ModelShape) -> list[str]:
    """Return what of an instance no recorded start had, in words; the parts of its slack are less sure then."""
    backend = _decode_backend(args)
    said = {
        f"SGLang {args.engine_version}": args.release == NEW,
        "images": effective_args.uses_vision(args, shape),
        f"{args.ranks} ranks": args.ranks > 2,
        f"attention by {backend or 'an unknown back end'}": backend != "triton",
        "a draft model": effective_args.uses_draft(args),
        "windows or states": any(group.kind in ("swa", "linear") for group in shape.groups),
    }
    return [text for text, holds in said.items() if holds]


def table_bytes(args: EffectiveArgs, requests: int, kv_tokens: int) -> int:
    """Return the table of requests and the list of free pages.

    Mirrors A mem_cache/memory_pool.py:229-255, B :376-408: int32, one row for padding, 4 tokens beyond the context.
    """
    row = args.integer("context-length") + 4 + args.integer("speculative-num-draft-tokens")
    return (requests + 1) * row * 4 + kv_tokens // args.integer("page-size", 1) * FREE_PAGE_BYTES


def decode_graph_bytes(args: EffectiveArgs, shape: ModelShape, requests: int) -> int:
    """Return what the decode graphs hold: the back end's tables for the largest batch, logits, and the graphs.

    No batch is larger than the requests that may run, padded to the ranks of an attention group where their tokens are
    gathered (A and B model_executor/runner/base_cuda_graph_runner.py, get_batch_sizes_to_capture).
    """
    if args.text("cuda-graph-backend-decode") == "disabled":
        return 0
    padding = args.attention_tp * args.integer("attn-cp-size", 1) if args.attention_dp > 1 else 1
    batch = args.integer("cuda-graph-max-bs-decode")
    if requests > 0:  # else nothing fits, and the figure is for what would be tried
        batch = min(batch, -(-requests // padding) * padding)
    drafts = effective_args.uses_draft(args)
    rows = batch * max(1, args.integer("speculative-num-draft-tokens") if drafts else 1)
    tables = rows * (args.integer("context-length") * _index_bytes(args) + _split_bytes(args, shape))
    each = MLA_GRAPH_EACH_BYTES if effective_args.is_mla(shape) else GRAPH_EACH_BYTES
    graphs = GRAPH_BASE_BYTES + mirrored_rules.decode_graph_sizes(batch) * each
    return int(tables) + (rows * shape.vocab_size * GRAPH_LOGIT_BYTES + graphs) * (2 if drafts else 1)


def prefill_bytes(args: EffectiveArgs, shape: ModelShape, requests: int, decode_graphs_bytes: int) -> int:
    """Return what a prefill needs: the graphs that hold its activations, and what then runs outside of them.

    While they are captured, an eager run of the same tokens lies in the cache and can't be freed; the decode graphs
    come later, so only what that takes beyond them counts.
    """
    chunk = args.integer("chunked-prefill-size")
    chunk = chunk if chunk > 0 else args.integer("max-prefill-tokens")
    batch = min(max(1, requests), max(1, args.integer("cuda-graph-max-bs-decode")))
    outside: float = batch * shape.vocab_size * SAMPLE_LOGIT_BYTES
    number = effective_args.number_bytes(args, shape)
    eager = number * _eager_numbers(args, shape, chunk)
    if args.text("cuda-graph-backend-prefill") == "disabled":
        return int(max(outside, eager))
    captured = args.integer("cuda-graph-max-bs-prefill")
    # A runs latent attention eagerly at times even where the graphs would do; seen with chunks of 2,048.
    if chunk > captured or (effective_args.is_mla(shape) and args.release != NEW):
        outside = max(outside, eager)
    if args.release == NEW:
        # B captures what it would run eagerly, without compiling it; not measured.
        return int(PREFILL_GRAPH_BASE_BYTES + number * _eager_numbers(args, shape, captured) + outside)
    held = PREFILL_GRAPH_BASE_BYTES + captured * number * _graph_width(args, shape)
    capturing = number * _eager_numbers(args, shape, captured) * CAPTURE_SHARE
    return int(held + max(outside, capturing - decode_graphs_bytes))


def _decode_backend(args: EffectiveArgs) -> str:
    return args.text("decode-attention-backend") or args.text("attention-backend")


def _index_bytes(args: EffectiveArgs) -> float:
    """Return the bytes of each token of the context in a decode graph's index of the KV.

    A and B layers/attention/triton_backend.py (init_cuda_graph_state: int64, in A and for drafts a mask of bytes),
    flashinfer_backend.py:837 (int32), flashattention_backend.py:1621 (int32, of pages).
    """
    backend = _decode_backend(args)
    if backend == "triton":
        return 8 if args.release == NEW and not effective_args.uses_draft(args) else 9
    return 4 if backend in ("", "flashinfer") else 4 / args.integer("page-size", 1)


def _split_bytes(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return Triton's partial results of a request: float32 for each head and split of the KV (triton_backend.py)."""
    if _decode_backend(args) != "triton":
        return 0
    splits = args.integer("triton-attention-num-kv-splits", 8)
    values = [group.v_head_dim for group in shape.groups]
    if effective_args.is_mla(shape):
        blocks = -(-args.integer("context-length", 1) // _MLA_BLOCK_TOKENS)
        splits = max(splits, min(_MLA_SPLITS, 1 << (blocks - 1).bit_length()))
        values = [group.kv_lora_rank for group in shape.groups]
    return _heads(args, shape) * splits * (max(values, default=0) + 1) * 4


def _heads(args: EffectiveArgs, shape: ModelShape) -> int:
    return -(-shape.attention_heads // args.attention_tp)


def _attention_width(args: EffectiveArgs, shape: ModelShape) -> int:
    """Return the numbers of a token that attention has at a time, on a rank."""
    widths = [0]
    for group in shape.groups:
        if group.kind == "mla":
            widths.append(_heads(args, shape) * 2 * group.kv_lora_rank)
        elif group.kind != "linear":
            widths.append((_heads(args, shape) + 2 * -(-group.kv_heads // args.attention_tp)) * group.head_dim)
    return max(widths)


def _mlp_width(args: EffectiveArgs, shape: ModelShape) -> tuple[float, float]:
    """Return the numbers of a token in a dense MLP and in the routed experts (gate, up, their product; output)."""
    tp, ep = args.integer("tp-size", 1), args.integer("ep-size", 1)
    routed = 0.0
    if shape.experts_per_token:
        routed = shape.experts_per_token * (3 * shape.moe_intermediate_size * ep / tp + shape.hidden_size)
    dense = shape.intermediate_size or (0 if routed else 4 * shape.hidden_size)
    return 3 * dense / tp, routed


def _eager_numbers(args: EffectiveArgs, shape: ModelShape, tokens: int) -> float:
    """Return the numbers that are there at a time for so many tokens of a rank's attention.

    Ranks of data-parallel attention gather the tokens of all of them before an MLP (A layers/dp_attention.py), unless
    experts are reached by all-to-all: input and output are there once more then.
    """
    own = tokens * (EAGER_HIDDEN * shape.hidden_size + _attention_width(args, shape))
    if args.attention_dp > 1 and not effective_args.uses_all_to_all(args):
        return own + tokens * args.attention_dp * (2 * shape.hidden_size + max(_mlp_width(args, shape)))
    return own + tokens * max(_mlp_width(args, shape))


def _graph_width(args: EffectiveArgs, shape: ModelShape) -> float:
    dense, routed = _mlp_width(args, shape)
    attention = GRAPH_ATTENTION * _attention_width(args, shape)
    return GRAPH_HIDDEN * shape.hidden_size + attention + max(dense, GRAPH_MOE * routed)
