"""How each engine spells its speculation settings: tables for the launch-config editor.

The names are facts about foreign tools: SGLang's and llama.cpp's own argument parsers, and
vLLM's speculative configuration, whose settings are keys of one JSON value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from specdash.launch.knobs import Flag, KnobTable
from specdash.rig.schema import EngineKind

SGLANG = KnobTable(
    engine="sglang",
    flags=(
        Flag("algorithm", "--speculative-algorithm"),
        Flag("num_steps", "--speculative-num-steps"),
        Flag("eagle_topk", "--speculative-eagle-topk"),
        Flag("num_draft_tokens", "--speculative-num-draft-tokens"),
        Flag(
            "draft_model",
            "--speculative-draft-model-path",
            aliases=("--speculative-draft-model",),
        ),
    ),
    extras=(
        "--speculative-draft-model-revision",
        "--speculative-draft-load-format",
        "--speculative-draft-model-quantization",
        "--speculative-draft-kv-cache-dtype",
        "--speculative-accept-threshold-single",
        "--speculative-accept-threshold-acc",
        "--speculative-use-rejection-sampling",
        "--speculative-token-map",
        "--speculative-attention-mode",
        "--speculative-draft-attention-backend",
        "--speculative-moe-runner-backend",
        "--speculative-moe-a2a-backend",
        "--speculative-draft-window-size",
        "--speculative-dflash-draft-window-size",
        "--speculative-dflash-block-size",
        "--speculative-dspark-block-size",
        "--speculative-adaptive",
        "--speculative-adaptive-config",
        "--speculative-ngram-min-match-window-size",
        "--speculative-ngram-max-match-window-size",
        "--speculative-ngram-min-bfs-breadth",
        "--speculative-ngram-max-bfs-breadth",
        "--speculative-ngram-match-type",
        "--speculative-ngram-branch-length",
        "--speculative-ngram-max-trie-depth",
        "--speculative-ngram-capacity",
        "--enable-multi-layer-eagle",
    ),
    anchors=("sglang.launch_server", "sglang"),
    prefix_matching=True,
)

VLLM = KnobTable(
    engine="vllm",
    # Each name is FLAG.KEY: the key inside the JSON value of FLAG. vLLM's parser takes both the
    # whole JSON and this dotted form, and treats "_" and "-" alike in flag names.
    flags=(
        Flag(
            "algorithm",
            "--speculative-config.method",
            aliases=("--speculative_config.method", "-sc.method"),
        ),
        Flag(
            "num_steps",
            "--speculative-config.num_speculative_tokens",
            aliases=(
                "--speculative_config.num_speculative_tokens",
                "-sc.num_speculative_tokens",
            ),
        ),
        Flag(
            "draft_model",
            "--speculative-config.model",
            aliases=("--speculative_config.model", "-sc.model"),
        ),
    ),
    extras=("--speculative-config", "--speculative_config", "-sc"),
    anchors=("vllm",),
    prefix_matching=False,
)

LLAMA_CPP = KnobTable(
    engine="llama.cpp",
    flags=(
        Flag("algorithm", "--spec-type", env=("LLAMA_ARG_SPEC_TYPE",)),
        Flag(
            "num_steps",
            "--spec-draft-n-max",
            aliases=("--draft-max", "--draft-n", "--draft"),
            env=("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX"),
        ),
        Flag(
            "draft_model",
            "--spec-draft-model",
            aliases=("--model-draft", "-md"),
            env=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT"),
        ),
    ),
    extras=(
        "--spec-draft-n-min",
        "--draft-min",
        "--draft-n-min",
        "--spec-draft-p-min",
        "--draft-p-min",
        "--spec-draft-p-split",
        "--draft-p-split",
    ),
    anchors=("llama-server", "llama-server-vulkan"),
    prefix_matching=False,
    off_values=(("algorithm", "none"),),
)

TABLES: Mapping[EngineKind, KnobTable] = MappingProxyType(
    {"sglang": SGLANG, "vllm": VLLM, "llama.cpp": LLAMA_CPP}
)
