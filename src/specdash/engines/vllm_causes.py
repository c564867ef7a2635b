"""What vLLM's log says when it fails to start, root causes first.

Read in the source of 0.32 and in public reports, not yet seen on a run of ours.
"""

from __future__ import annotations

from specdash.engines.causes import AFTERMATH, GPU_OUT_OF_MEMORY, HOST, PORT, symptom

SYMPTOMS = (
    symptom(
        r"Free memory on device (?P<device>\S+) \((?P<free>[^)]*)\) on startup is less than",
        "orphan-worker",
        "{device} has too little free memory at the start ({free}): another process holds it.",
        "Find who holds the GPU (often an EngineCore that outlived the last run) and end it.",
    ),
    symptom(
        r"No available memory for the cache blocks"
        r"|larger than the maximum number of tokens that can be stored in KV cache",
        "memory-too-small",
        "Too little GPU memory is left for the KV cache.",
        "Raise --gpu-memory-utilization, shrink --max-model-len, or take a smaller draft.",
    ),
    symptom(
        GPU_OUT_OF_MEMORY,
        "out-of-memory",
        "A GPU ran out of memory.",
        "Lower --gpu-memory-utilization, or free the GPU first.",
    ),
    *PORT,
    symptom(
        r"unrecognized arguments: (?P<flags>.{1,200})",
        "unknown-flag",
        "This vLLM does not know {flags}.",
        "Take the flag out, or spell it as this version does (vllm serve --help).",
    ),
    symptom(
        r"error: (?P<what>argument \S+: .{1,200})",
        "unknown-flag",
        "vLLM refuses its command line: {what}",
        "Correct the flag in the launch config.",
    ),
    symptom(
        r"(?P<text>(?:ValueError|ValidationError|AssertionError|NotImplementedError).{0,200}"
        r"[Ss]peculative.{0,200})",
        "illegal-combination",
        "vLLM refuses the speculation settings: {text}",
        "Change --speculative-config as the message says.",
    ),
    symptom(
        r"(?P<text>(?:is not a local folder and is not a valid model identifier"
        r"|Repository Not Found|Cannot find any model weights|Invalid repository ID"
        r"|does not appear to have a file named|is gated).*)",
        "missing-weights",
        "The model or the draft model cannot be read: {text}",
        "Check the paths of the model and of the draft model on the service's host.",
    ),
    *HOST,
    *AFTERMATH,
    symptom(
        r"Engine core initialization failed|EngineCore failed to start",
        "crash",
        "vLLM's engine core failed to start.",
        "Read the root cause above this line in the log.",
    ),
)
