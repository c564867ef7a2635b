"""Train the pair of models again: see PROVENANCE.md beside this file.

    pip install torch transformers tokenizers gguf numpy
    python tests/real/models/rebuild.py OUT_FOLDER [--seconds-target 75] [--seconds-draft 45]

Not part of the tests, and none of their dependencies.
"""

from __future__ import annotations

import argparse
import json
import math
import pydoc_data.topics
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 2048
CHARACTERS = 300_000
SPECIAL = ["<|bos|>", "<|eos|>"]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


def corpus() -> str:
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))[:CHARACTERS]


def train_tokenizer(text: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def new_model(feed_forward: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=64,
            intermediate_size=feed_forward,
            max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
            tie_word_embeddings=False,
            dtype="float32",
        )
    )


def slices(ids: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    starts = torch.randint(0, len(ids) - length - 1, (rows,))
    return torch.stack([ids[start : start + length] for start in starts])


def optimise(
    model: LlamaForCausalLM,
    seconds: float,
    rate: float,
    losses: Callable[[], Iterator[torch.Tensor]],
) -> None:
    """AdamW with a short warm-up and cosine decay over ``seconds`` of wall time."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.95))
    began, step = time.monotonic(), 0
    for loss in losses():
        part = (time.monotonic() - began) / seconds
        if part >= 1:
            return
        decay = 0.5 * (1 + math.cos(math.pi * part)) + 0.02
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, step / 20 + 0.05) * decay
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 50 == 0:
            print(f"  step {step}: loss {loss.item():.3f}", flush=True)


def train_target(ids: torch.Tensor, seconds: float) -> LlamaForCausalLM:
    model = new_model(704)

    def losses() -> Iterator[torch.Tensor]:
        while True:
            batch = slices(ids, 8, 256)
            yield model(input_ids=batch, labels=batch).loss

    optimise(model, seconds, 3e-3, losses)
    return model.eval()


def prune(target: LlamaForCausalLM, ids: torch.Tensor, keep: int) -> LlamaForCausalLM:
    """The target with the ``keep`` feed-forward units that matter most."""
    mlp = target.model.layers[0].mlp
    seen: list[torch.Tensor] = []
    hook = mlp.down_proj.register_forward_pre_hook(
        lambda _module, inputs: seen.append(inputs[0].abs().mean((0, 1)))
    )
    with torch.no_grad():
        target(input_ids=ids[:4096].view(16, 256))
    hook.remove()
    kept = (seen[0] * mlp.down_proj.weight.norm(dim=0)).topk(keep).indices.sort().values
    weights = target.state_dict()
    name = "model.layers.0.mlp."
    for part in ("gate_proj", "up_proj"):
        weights[f"{name}{part}.weight"] = weights[f"{name}{part}.weight"][kept]
    weights[f"{name}down_proj.weight"] = weights[f"{name}down_proj.weight"][:, kept]
    draft = new_model(keep)
    draft.load_state_dict(weights)
    return draft


def distill(
    target: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    ids: torch.Tensor,
    shuffled: Callable[[], list[int]],
    seconds: float,
) -> None:
    """Teach the draft the target's distribution, on text and on the target's own roll-outs.

    ``shuffled``: twelve tokens of words in no order, so that the roll-outs begin anywhere.
    """
    with torch.no_grad():
        rolls = []
        for turn in range(6):
            beginnings = (
                slices(ids, 64, 12)
                if turn % 2 == 0
                else torch.tensor([shuffled() for _ in range(64)])
            )
            rolls.append(
                target.generate(
                    beginnings,
                    max_new_tokens=180,
                    do_sample=False,
                    eos_token_id=None,
                    pad_token_id=1,
                )
            )
        own = torch.cat(rolls)

    def losses() -> Iterator[torch.Tensor]:
        turn = 0
        while True:
            batch = own[torch.randint(0, len(own), (8,))] if turn % 2 else slices(ids, 8, 192)
            with torch.no_grad():
                wanted = functional.softmax(target(input_ids=batch).logits, -1)
            said = functional.log_softmax(draft(input_ids=batch).logits, -1)
            yield -(wanted * said).sum(-1).mean()
            turn += 1

    optimise(draft, seconds, 1e-3, losses)


def write_gguf(model: LlamaForCausalLM, tokenizer: Tokenizer, path: Path) -> None:
    config = model.config
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    write_tokenizer(writer, tokenizer)

    def add(name: str, data: np.ndarray) -> None:
        writer.add_tensor(name, data.astype(np.float16 if data.ndim == 2 else np.float32))

    def rotated(data: np.ndarray) -> np.ndarray:
        """llama.cpp keeps the two halves of each head's rotation side by side."""
        heads = config.num_attention_heads
        rows, columns = data.shape
        return (
            data.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        )

    add("token_embd.weight", weights["model.embed_tokens.weight"])
    add("output_norm.weight", weights["model.norm.weight"])
    add("output.weight", weights["lm_head.weight"])
    layer = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for theirs, ours in layer.items():
        data = weights[f"model.layers.0.{ours}.weight"]
        add(f"blk.0.{theirs}.weight", rotated(data) if theirs in ("attn_q", "attn_k") else data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = [
        gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens
    ]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds-target", type=float, default=75)
    parser.add_argument("--seconds-draft", type=float, default=45)
    args = parser.parse_args()
    torch.manual_seed(0)
    text = corpus()
    tokenizer = train_tokenizer(text)
    ids = torch.tensor(tokenizer.encode(text).ids)
    target = train_target(ids, args.seconds_target)
    draft = prune(target, ids, 128)
    rng, words = random.Random(0), text.split()
    distill(
        target,
        draft,
        ids,
        lambda: tokenizer.encode(" ".join(rng.sample(words, 24))).ids[:12],
        args.seconds_draft,
    )
    args.folder.mkdir(parents=True, exist_ok=True)
    write_gguf(target, tokenizer, args.folder / "target.gguf")
    write_gguf(draft, tokenizer, args.folder / "draft.gguf")


if __name__ == "__main__":
    main()
