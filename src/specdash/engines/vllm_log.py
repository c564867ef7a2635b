"""vLLM's log lines while it loads (V1 engine)."""

from __future__ import annotations

from specdash.engines.logscan import mark

_BAR = r"(?P<percent>\d{1,3})%(?: Completed)? ?\|.*?(?P<done>\d+)/(?P<total>\d+) ?\["

MARKS = (
    mark(r"Application startup complete", "ready", "serving"),
    mark(r"Starting vLLM (?:API )?server", "warm-up", "starting the API server"),
    mark(r"Initializing a V1 LLM engine \(v(?P<version>[^)]*)\)", "process", "vLLM {version}"),
    mark(r"Loading drafter model", "draft-weights", "reading weights"),
    mark(
        r"Loading (?:safetensors|pt) checkpoint shards:\s*" + _BAR,
        "weights",
        "shards {done}/{total}",
    ),
    mark(r"Starting to load model", "weights", "reading weights", fraction=0.0),
    mark(r"Model loading took (?P<took>[\d.]+ GiB)", "weights", "loaded {took}", fraction=1.0),
    mark(r"Compiling a graph|torch\.compile takes", "graphs", "compiling"),
    mark(r"Available KV cache memory: (?P<size>[\d.]+ GiB)", "kv-cache", "{size}"),
    mark(r"GPU KV cache size: (?P<tokens>[\d,]*\d) tokens", "kv-cache", "{tokens} tokens"),
    mark(r"Capturing CUDA graphs[^:]*:\s*" + _BAR, "graphs", "batch sizes {done}/{total}"),
    mark(r"Graph capturing finished", "graphs", "captured", fraction=1.0),
    mark(r"init engine .* took (?P<took>[\d.]+) s", "warm-up", "engine up after {took} s"),
)
