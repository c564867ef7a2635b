"""What llama-server's log says when it fails to start, root causes first."""

from __future__ import annotations

from specdash.engines.causes import AFTERMATH, GPU_OUT_OF_MEMORY, HOST, PORT, symptom

SYMPTOMS = (
    symptom(
        r"error while handling argument \"(?P<flag>[^\"]*)\": the argument has been removed\.?"
        r"\s*(?P<hint>.{0,200})",
        "unknown-flag",
        "This llama-server no longer takes {flag}: {hint}",
        "Spell the flag as this build does.",
    ),
    symptom(
        r"(?:error: )?(?:invalid|unknown) argument: (?P<flag>\S+)",
        "unknown-flag",
        "This llama-server does not know {flag}.",
        "Take it out, or spell it as this build does (llama-server --help).",
    ),
    symptom(
        r"error while handling argument \"(?P<flag>[^\"]*)\": (?P<text>.{1,200})",
        "unknown-flag",
        "llama-server refuses the value of {flag}: {text}",
        "Correct the value in the launch config.",
    ),
    symptom(
        r"couldn't bind HTTP server socket.*port: ?(?P<port>\d+)",
        "port-in-use",
        "Port {port} is already taken: most often the old process still runs.",
        "Find who holds the port and end it, then start again.",
    ),
    *PORT,
    symptom(
        GPU_OUT_OF_MEMORY + r"|unable to allocate \S+ buffer|failed to allocate (?:buffer|compute)"
        r"|failed to fit params to free device memory",
        "out-of-memory",
        "The device ran out of memory.",
        "Put fewer layers on the GPU (-ngl, -ngld), shrink the context (-c) or the slots (-np), "
        "and make sure that nothing else holds the GPU.",
    ),
    symptom(
        r"failed to load draft model,? '(?P<path>[^']*)'",
        "missing-weights",
        "The draft model cannot be read: {path}",
        "Check the path of the draft model on the service's host.",
    ),
    symptom(
        r"failed to open GGUF file '(?P<path>[^']*)' \((?P<why>[^)]*)\)",
        "missing-weights",
        "The model file cannot be opened: {path} ({why})",
        "Check the path and the rights of the model file on the service's host.",
    ),
    symptom(
        r"invalid magic characters|unsupported (?:GGUF|model) version|unknown model architecture",
        "missing-weights",
        "The model file is not one that this build can read.",
        "Check that it is a whole GGUF file, and that the build is new enough for it.",
    ),
    symptom(
        r"(?:common_init_\w*|load_model): failed to load model,? '(?P<path>[^']*)'",
        "missing-weights",
        "The model cannot be loaded: {path}",
        "Read the lines above it in the log.",
    ),
    symptom(
        r"failed to initialize speculative decoding context: (?P<text>.{1,200})"
        r"|(?P<same>draft model .{0,80}(?:vocab|not compatible).{0,120})",
        "illegal-combination",
        "Speculation cannot be set up: {text}{same}",
        "Give a draft model that fits the target and the --spec-type.",
    ),
    *HOST,
    *AFTERMATH,
)
