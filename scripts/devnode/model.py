# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Qwen2 checkpoint of half a megabyte: random weights from a seed, a tokenizer trained on Python's library.

`make` needs numpy, safetensors and tokenizers (`.cache/bootstrap` has them), but no torch; the rest runs without them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from .names import Clone
from .steps import Steps

NAME = "tiny-qwen"
SEED = 20260707
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 64, 128, 2, 4, 2, 1024, 4096
END, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, START_OF_TURN, END_OF_TURN)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Modules that every Python 3.11 has and whose text does not change within the release's life in a distribution.
TRAINED_ON = ("argparse", "ast", "collections/__init__", "dataclasses", "inspect", "subprocess", "tarfile", "typing")


def config() -> dict[str, Any]:
    """The checkpoint's config.json."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "use_sliding_window": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, under the names that Qwen2 gives them."""
    head = HIDDEN // HEADS
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        found[prefix + "input_layernorm.weight"] = (HIDDEN,)
        found[prefix + "post_attention_layernorm.weight"] = (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", KV_HEADS * head), ("v", KV_HEADS * head)):
            found[prefix + f"self_attn.{name}_proj.weight"] = (rows, HIDDEN)
            found[prefix + f"self_attn.{name}_proj.bias"] = (rows,)
        found[prefix + "self_attn.o_proj.weight"] = (HIDDEN, HIDDEN)
        found[prefix + "mlp.gate_proj.weight"] = (INTERMEDIATE, HIDDEN)
        found[prefix + "mlp.up_proj.weight"] = (INTERMEDIATE, HIDDEN)
        found[prefix + "mlp.down_proj.weight"] = (HIDDEN, INTERMEDIATE)
    found["model.norm.weight"] = (HIDDEN,)
    found["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return found


def _write_weights(folder: Path, unsaid: list[int]) -> None:
    """Random weights, under which the tokens `unsaid` never are the likeliest."""
    import numpy
    from safetensors.numpy import save_file

    random = numpy.random.Generator(numpy.random.PCG64(SEED))
    tensors = {}
    for name, shape in shapes().items():
        if name.endswith("norm.weight"):
            tensors[name] = numpy.ones(shape, dtype=numpy.float32)
        else:
            # So wide that the likeliest token is well ahead of the next: greedy text is then no matter of rounding.
            tensors[name] = random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.2)
    tensors["lm_head.weight"][unsaid] = 0.0  # the likeliest logit of a thousand is always above 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(folder: Path) -> list[int]:
    """Train and write the tokenizer; returns the tokens that would spoil a terminal or end the text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library = Path(sysconfig.get_path("stdlib"))
    texts = [(library / f"{name}.py").read_text(encoding="utf-8") for name in TRAINED_ON]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    plain = {*map(chr, range(0x21, 0x7F)), "\u0120", "\u010a"}  # as the byte level writes them: space, new line
    vocabulary = tokenizer.get_vocab()
    return sorted(number for text, number in vocabulary.items() if text in SPECIAL or not set(text) <= plain)


def make(folder: Path) -> None:
    """Write the checkpoint into the existing `folder`; the same interpreter and packages give the same bytes."""
    _write_weights(folder, _write_tokenizer(folder))
    files: dict[str, dict[str, Any]] = {
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "do_sample": False},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "bos_token": END,
            "eos_token": END_OF_TURN,
            "pad_token": END,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
        "config.json": config(),
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def ensure(clone: Clone, steps: Steps) -> None:
    """Make the checkpoint in the folder that the nodes see as /shared, unless it is there."""
    done = clone.shared / NAME
    with clone.locked("model"):
        stamp = clone.cache / "model.txt"
        maker = hashlib.sha256(Path(__file__).read_bytes() + clone.lock.read_bytes()).hexdigest()
        if done.is_dir() and stamp.exists() and stamp.read_text(encoding="utf-8") == maker:
            return
        with steps.step(f"making the model {NAME}"):
            draft = clone.shared / f".{NAME}.new"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            draft.chmod(0o755)
            python = clone.bootstrap / "bin" / "python"
            env = {"PYTHONPATH": str(clone.root / "scripts")}
            steps.run([python, "-m", "devnode.model", draft], "model", env=env)
            for path in draft.iterdir():
                path.chmod(0o644)  # safetensors writes for the owner only, and the service is another user
            shutil.rmtree(done, ignore_errors=True)
            draft.replace(done)
            stamp.write_text(maker, encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
