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
        "--speculative-draft-attention-backend",
        "--speculative-draft-window-size",
        "--speculative-draft-sink-size",
        "--speculative-accept-threshold-single",
        "--speculative-accept-threshold-acc",
        "--speculative-use-rejection-sampling",
        "--speculative-use-block-verification",
        "--speculative-token-map",
        "--speculative-attention-mode",
        "--speculative-dsa-topk-backend",
        "--speculative-moe-runner-backend",
        "--speculative-moe-a2a-backend",
        "--speculative-enable-w4a4-mxfp4-megamoe",
        "--speculative-dflash-draft-window-size",
        "--speculative-dflash-block-size",
        "--speculative-domino-candidate-pool-size",
        "--speculative-dspark-block-size",
        "--speculative-dspark-sps-table-path",
        "--speculative-dspark-confidence-sts-path",
        "--speculative-dspark-align-verify-tokens-to-graph-tier",
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
        "--speculative-ngram-external-corpus-path",
        "--speculative-ngram-external-sam-budget",
        "--speculative-ngram-external-corpus-max-tokens",
        "--enable-multi-layer-eagle",
        "--uno-lora-path",
    ),
    switches=(
        "--speculative-use-rejection-sampling",
        "--speculative-use-block-verification",
        "--speculative-enable-w4a4-mxfp4-megamoe",
        "--speculative-dspark-align-verify-tokens-to-graph-tier",
        "--speculative-adaptive",
        "--enable-multi-layer-eagle",
    ),
    anchors=("sglang.launch_server", "sglang serve", "launch_server.py"),
    prefix_matching=True,
    config_flags=("--config",),
    remarks=(
        (
            "--speculative-adaptive",
            (
                "Adaptive speculation changes the steps while the server runs, so a fixed depth says"
                " little; remove --speculative-adaptive to measure one depth."
            ),
        ),
    ),
)

VLLM = KnobTable(
    engine="vllm",
    # Each name is FLAG.KEY: the key inside the JSON value of FLAG. vLLM's parser takes both the
    # whole JSON and this dotted form, and treats "_" and "-" alike in flag names. 0.32 adds plain
    # flags for these three.
    flags=(
        Flag(
            "algorithm",
            "--speculative-config.method",
            aliases=("--speculative_config.method", "-sc.method", "--spec-method"),
        ),
        Flag(
            "num_steps",
            "--speculative-config.num_speculative_tokens",
            aliases=(
                "--speculative_config.num_speculative_tokens",
                "-sc.num_speculative_tokens",
                "--spec-tokens",
            ),
        ),
        Flag(
            "draft_model",
            "--speculative-config.model",
            aliases=("--speculative_config.model", "-sc.model", "--spec-model"),
        ),
    ),
    extras=("--speculative-config", "--speculative_config", "-sc"),
    anchors=("vllm serve", "vllm.entrypoints.openai.api_server", "vllm-openai"),
    prefix_matching=False,
    config_flags=("--config",),
    remarks=(
        (
            "num_speculative_tokens_per_batch_size",
            (
                "num_speculative_tokens_per_batch_size changes the depth with the batch, so"
                " num_speculative_tokens alone does not say it."
            ),
        ),
    ),
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
        "--spec-default",
        "--spec-draft-n-min",
        "--draft-min",
        "--draft-n-min",
        "--spec-draft-p-min",
        "--draft-p-min",
        "--spec-draft-p-split",
        "--draft-p-split",
        "--spec-draft-hf",
        "-hfd",
        "-hfrd",
        "--hf-repo-draft",
        "--spec-draft-ngl",
        "-ngld",
        "--gpu-layers-draft",
        "--n-gpu-layers-draft",
        "--spec-draft-device",
        "-devd",
        "--device-draft",
        "--spec-draft-type-k",
        "-ctkd",
        "--cache-type-k-draft",
        "--spec-draft-type-v",
        "-ctvd",
        "--cache-type-v-draft",
        "--spec-draft-threads",
        "-td",
        "--threads-draft",
        "--spec-draft-threads-batch",
        "-tbd",
        "--threads-batch-draft",
        "--ctx-size-draft",
        "-cd",
        "--spec-ngram-mod-n-min",
        "--spec-ngram-mod-n-max",
        "--spec-ngram-mod-n-match",
        "--spec-ngram-simple-size-n",
        "--spec-ngram-simple-size-m",
        "--spec-ngram-simple-min-hits",
        "--spec-ngram-map-k-size-n",
        "--spec-ngram-map-k-size-m",
        "--spec-ngram-map-k-min-hits",
        "--spec-ngram-map-k4v-size-n",
        "--spec-ngram-map-k4v-size-m",
        "--spec-ngram-map-k4v-min-hits",
        "--spec-ngram-size-n",
        "--spec-ngram-size-m",
        "--spec-ngram-min-hits",
    ),
    switches=("--spec-default",),
    anchors=("llama-server", "llama-server-vulkan"),
    prefix_matching=False,
    off_values=(("algorithm", "none"),),
)

TABLES: Mapping[EngineKind, KnobTable] = MappingProxyType(
    {"sglang": SGLANG, "vllm": VLLM, "llama.cpp": LLAMA_CPP}
)
