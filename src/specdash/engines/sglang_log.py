"""SGLang's log lines while it loads, in the wordings of 2025 and 2026."""

from __future__ import annotations

from specdash.engines.logscan import mark

# The bars come from tqdm: ``name:  25%|##   | 1/4 [00:01<00:03, ...]``.
_BAR = r"(?P<percent>\d{1,3})%(?: Completed)? ?\|.*?(?P<done>\d+)/(?P<total>\d+) ?\["

MARKS = (
    mark(r"The server is fired up and ready to roll", "ready", "fired up"),
    mark(r"server_args=ServerArgs\(", "process", "reading arguments"),
    mark(r"Loading safetensors checkpoint shards:\s*" + _BAR, "weights", "shards {done}/{total}"),
    mark(r"Loading pt checkpoint shards:\s*" + _BAR, "weights", "shards {done}/{total}"),
    mark(r"Multi-thread loading shards:\s*" + _BAR, "weights", "shards {done}/{total}"),
    mark(r"Load weight begin\.", "weights", "reading weights", fraction=0.0),
    mark(r"Load weight end\.", "weights", "loaded", fraction=1.0),
    mark(
        r"KV Cache is allocated\..*?#tokens: ?(?P<tokens>[\d,]*\d)",
        "kv-cache",
        "{tokens} tokens",
    ),
    mark(r"KV Cache is allocated\.", "kv-cache", "allocated"),
    mark(r"Memory pool end\.", "kv-cache", "memory pool made", fraction=1.0),
    mark(r"Capturing batches\b.*?:\s*" + _BAR, "graphs", "batch sizes {done}/{total}"),
    mark(r"Capture (?P<what>.*?)(?:CUDA|cuda|cpu|npu|xpu) graph begin", "graphs", "{what}graphs"),
    mark(
        r"Capture (?P<what>.*?)(?:CUDA|cuda|cpu|npu|xpu) graph end", "graphs", "{what}graphs done"
    ),
    mark(r"FlashInfer autotune|\[AutoTuner\]: Tuning", "graphs", "autotuning kernels"),
    mark(
        r"max_total_num_tokens=(?P<tokens>\d+),.*max_running_requests=(?P<requests>\d+)",
        "warm-up",
        "{tokens} KV tokens, {requests} requests at once",
    ),
    mark(r"Engine startup timings \(s\)", "warm-up", "engine up"),
    mark(r"Application startup complete", "warm-up", "first request"),
    mark(r"Uvicorn running on ", "warm-up", "first request"),
)
