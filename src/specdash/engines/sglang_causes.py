"""What SGLang's log says when it fails to start, root causes first."""

from __future__ import annotations

from specdash.engines.causes import AFTERMATH, GPU_OUT_OF_MEMORY, HOST, PORT, symptom

SYMPTOMS = (
    # Two opposite remedies: too little reserved for weights and cache, or too much.
    symptom(
        r"Not enough memory\. Please try to increase --mem-fraction-static\.?"
        r"(?:.*?(?P<now>mem_fraction_static=[\d.]*\d))?",
        "memory-too-small",
        "The share of GPU memory for weights and KV cache is too small for this model and "
        "its draft. {now}",
        "Raise --mem-fraction-static, take a smaller or quantised draft, or fewer steps.",
    ),
    symptom(
        GPU_OUT_OF_MEMORY,
        "out-of-memory",
        "A GPU ran out of memory.",
        "Lower --mem-fraction-static, capture graphs for smaller batches, or take fewer steps; "
        "first make sure that nothing else holds the GPUs.",
    ),
    symptom(
        r"memory capacity is unbalanced",
        "orphan-worker",
        "The GPUs do not have the same free memory: another process holds some of it.",
        "Find who holds the GPUs (often a scheduler that outlived the last run) and end it.",
    ),
    symptom(
        r"(?P<what>\w*port\w*)\W.*is used by a process already",
        "orphan-worker",
        "SGLang's internal {what} is still held: a worker of the last run is alive.",
        "End the residual sglang:: processes, then start again.",
    ),
    *PORT,
    symptom(
        r"unrecognized arguments: (?P<flags>.{1,200})",
        "unknown-flag",
        "This SGLang does not know {flags}.",
        "Take the flag out, or spell it as this version does (sglang.launch_server --help).",
    ),
    symptom(
        r"error: (?P<what>(?:argument \S+: (?:invalid|expected)|ambiguous option).{1,200})",
        "unknown-flag",
        "SGLang refuses its command line: {what}",
        "Correct the flag in the launch config.",
    ),
    symptom(
        r"selected index k out of range",
        "illegal-combination",
        "More draft tokens were asked for than the tree of steps and topk can hold.",
        "Lower the draft tokens, or raise steps or topk.",
    ),
    symptom(
        r"'>' not supported between instances of 'NoneType' and 'int'",
        "illegal-combination",
        "Steps were set without topk: SGLang compares a missing value.",
        "Set steps, topk and draft tokens together, or none of them.",
    ),
    symptom(
        r"only supports topk = 1|speculative_eagle_topk.{0,20}> 1 with page_size",
        "illegal-combination",
        "This attention backend cannot verify a tree.",
        "Use topk 1, page size 1, or another attention backend.",
    ),
    symptom(
        r"is not in the adaptive config candidate_steps",
        "illegal-combination",
        "Adaptive speculation is on and this step count is not one of its candidates.",
        "Take adaptive speculation out to try fixed depths.",
    ),
    symptom(
        r"(?P<text>(?:ValueError|AssertionError|NotImplementedError): .{0,200}"
        r"(?:[Ss]peculative|speculative_|topk|draft).{0,200})",
        "illegal-combination",
        "SGLang refuses the speculation settings: {text}",
        "Change the settings as the message says.",
    ),
    symptom(
        r"(?P<text>(?:No such file or directory: .*(?:safetensors|config\.json|\.bin|token)"
        r"|is not a local folder and is not a valid model identifier"
        r"|Repository Not Found|Cannot find any model weights|does not appear to have a file named"
        r"|Can't load the configuration of|HFValidationError|is gated|Cannot access gated repo).*)",
        "missing-weights",
        "The model or the draft model cannot be read: {text}",
        "Check the paths of the model and of the draft model on the service's host.",
    ),
    symptom(
        r"is not supported by the draft|draft.*vocab|Draft model.*(?:mismatch|incompatible)",
        "illegal-combination",
        "The draft model does not fit the target.",
        "Take the draft that was trained for this target.",
    ),
    *HOST,
    symptom(
        r"Capture (?:\w+ )*(?:cuda|CUDA) graph failed: (?P<text>.{0,300})",
        "crash",
        "Capturing CUDA graphs failed: {text}",
        "SGLang suggests a smaller --mem-fraction-static or graphs for smaller batches.",
    ),
    symptom(
        r"Initialization failed\. warmup error",
        "crash",
        "The server started and its first request failed.",
        "Read the traceback in the log; too many draft tokens for the tree fail like this.",
    ),
    *AFTERMATH,
    symptom(
        r"Received sigquit from a child process",
        "crash",
        "A worker of SGLang failed and took the server down.",
        "Read the worker's traceback above this line.",
    ),
)
