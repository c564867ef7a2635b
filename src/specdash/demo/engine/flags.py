"""SGLang's command line as the box's engine takes it, and SGLang's rules for speculation.

Own table, own rules: the product's flag editor is tested against this one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdash.demo.model import Shape

ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
AUTO = (3, 1, 4)
MAX_STEPS_IN_MEMORY = 48

_TEXT: tuple[tuple[str, ...], ...] = (
    ("--model-path", "--model"),
    ("--tokenizer-path",),
    ("--served-model-name",),
    ("--load-format",),
    ("--dtype",),
    ("--quantization",),
    ("--kv-cache-dtype",),
    ("--attention-backend",),
    ("--sampling-backend",),
    ("--grammar-backend",),
    ("--moe-runner-backend",),
    ("--reasoning-parser",),
    ("--tool-call-parser",),
    ("--chat-template",),
    ("--schedule-policy",),
    ("--log-level",),
    ("--api-key",),
    ("--admin-api-key",),
    ("--device",),
    ("--dist-init-addr", "--nccl-init-addr"),
    ("--revision",),
    ("--download-dir",),
    ("--speculative-algorithm",),
    ("--speculative-draft-model-path", "--speculative-draft-model"),
    ("--speculative-draft-model-revision",),
    ("--speculative-draft-model-quantization",),
    ("--speculative-draft-kv-cache-dtype",),
    ("--speculative-token-map",),
    ("--speculative-attention-mode",),
    ("--speculative-draft-attention-backend",),
    ("--speculative-moe-runner-backend",),
    ("--speculative-adaptive-config",),
)
_WHOLE: tuple[tuple[str, ...], ...] = (
    ("--tensor-parallel-size", "--tp-size", "--tp"),
    ("--data-parallel-size", "--dp-size", "--dp"),
    ("--pipeline-parallel-size", "--pp-size", "--pp"),
    ("--expert-parallel-size", "--ep-size", "--ep"),
    ("--context-length",),
    ("--max-running-requests",),
    ("--max-queued-requests",),
    ("--max-total-tokens",),
    ("--chunked-prefill-size",),
    ("--max-prefill-tokens",),
    ("--cuda-graph-max-bs",),
    ("--page-size",),
    ("--stream-interval",),
    ("--decode-log-interval",),
    ("--random-seed",),
    ("--nnodes",),
    ("--node-rank",),
    ("--watchdog-timeout",),
    ("--speculative-num-steps",),
    ("--speculative-eagle-topk",),
    ("--speculative-num-draft-tokens",),
    ("--speculative-draft-window-size",),
    ("--speculative-ngram-max-trie-depth",),
)
_REAL: tuple[tuple[str, ...], ...] = (
    ("--mem-fraction-static",),
    ("--schedule-conservativeness",),
    ("--speculative-accept-threshold-single",),
    ("--speculative-accept-threshold-acc",),
)
_SWITCHES: str = (
    "--trust-remote-code --enable-metrics --enable-cache-report --disable-cuda-graph "
    "--disable-radix-cache --disable-overlap-schedule --enable-torch-compile "
    "--skip-server-warmup --enable-mixed-chunk --enable-p2p-check --disable-custom-all-reduce "
    "--enable-multi-layer-eagle --speculative-adaptive --speculative-use-rejection-sampling "
    "--enable-flashinfer-allreduce-fusion --enable-dp-attention --log-requests "
    "--enable-memory-saver --enable-hierarchical-cache"
)


class IllegalError(Exception):
    """What SGLang would die of; ``str()`` is the last line of its traceback."""


@dataclass(slots=True)
class Args:
    """The resolved command line. ``warnings`` are log lines SGLang writes about it."""

    raw: dict[str, Any]
    shape: Shape
    algorithm: str | None
    warnings: list[str]

    def text(self, name: str) -> str | None:
        value = self.raw.get(name)
        return None if value is None else str(value)

    def whole(self, name: str) -> int | None:
        value = self.raw.get(name)
        return value if isinstance(value, int) else None

    @property
    def model_name(self) -> str:
        return self.text("served_model_name") or self.text("model_path") or ""

    def server_args(self) -> dict[str, object]:
        """The resolved arguments, as ``/server_info`` flattens them."""
        off = self.shape.steps == 0
        return {
            **self.raw,
            "speculative_algorithm": self.algorithm,
            "speculative_num_steps": None if off else self.shape.steps,
            "speculative_eagle_topk": None if off else self.shape.topk,
            "speculative_num_draft_tokens": None if off else self.shape.draft_tokens,
        }


def parser() -> argparse.ArgumentParser:
    """Unique prefixes are accepted and errors end with status 2, as SGLang's own parser does."""
    made = argparse.ArgumentParser(prog="launch_server.py")
    add: Callable[..., object] = made.add_argument
    for kind, table in ((str, _TEXT), (int, _WHOLE), (float, _REAL)):
        for names in table:
            add(*names, type=kind, dest=names[0].lstrip("-").replace("-", "_"))
    add("--host", type=str, default="127.0.0.1")
    add("--port", type=int, default=30000)
    for name in _SWITCHES.split():
        add(name, action="store_true")
    return made


def parse(argv: list[str]) -> Args:
    """Parse and apply the rules. SystemExit(2) for bad words, IllegalError for bad sense."""
    made = parser()
    raw = vars(made.parse_args(argv))
    if not raw["model_path"]:
        made.error("the following arguments are required: --model-path/--model")
    for name, default in _DEFAULTS.items():
        if raw[name] is None:
            raw[name] = default
    warnings: list[str] = []
    algorithm, shape = _speculation(raw, warnings)
    raw["tp_size"] = raw.pop("tensor_parallel_size")
    raw["dp_size"] = raw.pop("data_parallel_size")
    return Args(raw, shape, algorithm, warnings)


_DEFAULTS: dict[str, object] = {
    "tensor_parallel_size": 1,
    "data_parallel_size": 1,
    "mem_fraction_static": 0.85,
    "context_length": 262144,
    "decode_log_interval": 40,
    "stream_interval": 1,
    "chunked_prefill_size": 8192,
    "max_prefill_tokens": 16384,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
}


def _speculation(raw: dict[str, Any], warnings: list[str]) -> tuple[str | None, Shape]:
    tp = min(4, max(1, raw["tensor_parallel_size"]))
    word = raw["speculative_algorithm"]
    if word is None or str(word).upper() == "NONE":
        return None, Shape(tp=tp)
    algorithm = str(word).upper()
    if algorithm not in ALGORITHMS:
        raise IllegalError(f"ValueError: Unknown speculative algorithm name: {algorithm}")
    if algorithm == "NEXTN":
        algorithm = "EAGLE"
    steps, topk, drafts = (
        raw["speculative_num_steps"],
        raw["speculative_eagle_topk"],
        raw["speculative_num_draft_tokens"],
    )
    if raw["max_running_requests"] is None:
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. You can override this "
            "by explicitly setting --max-running-requests."
        )
    if steps is None:
        if topk is not None or drafts is not None:
            raise IllegalError("AssertionError")
        steps, topk, drafts = AUTO
    if topk is None:
        raise IllegalError("TypeError: '>' not supported between instances of 'NoneType' and 'int'")
    if steps < 1 or topk < 1:
        raise IllegalError("AssertionError: speculative_num_steps and speculative_eagle_topk > 0")
    if topk == 1 and drafts != steps + 1:
        if drafts is not None:
            warnings.append(
                "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
                "speculative_eagle_topk == 1"
            )
        drafts = steps + 1
    if drafts is None:
        raise IllegalError("TypeError: unsupported operand type(s) for -: 'NoneType' and 'int'")
    if drafts < 2:
        raise IllegalError("AssertionError: speculative_num_draft_tokens >= 2")
    if algorithm in ("EAGLE", "EAGLE3", "STANDALONE") and not raw["speculative_draft_model_path"]:
        raise IllegalError(
            "ValueError: --speculative-draft-model-path is required for this algorithm"
        )
    return algorithm, Shape(steps=steps, topk=topk, draft_tokens=drafts, tp=tp)


def tree_overflows(shape: Shape) -> bool:
    """A tree that cannot fill its draft tokens: SGLang starts and the first request dies."""
    if shape.topk <= 1:
        return False
    return shape.draft_tokens - 1 > shape.topk + (shape.steps - 1) * shape.topk**2


def missing_path(args: Args) -> str | None:
    """A model path that is given as a path and is not there."""
    names = ["model_path", *(["speculative_draft_model_path"] if args.shape.steps else [])]
    for name in names:
        value = args.text(name)
        if value is not None and not (Path(value) / "config.json").is_file():
            return value
    return None
