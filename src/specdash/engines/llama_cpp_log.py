"""llama-server's log lines while it loads, as builds of 2025 and 2026 print them."""

from __future__ import annotations

from specdash.engines.logscan import mark

MARKS = (
    mark(
        r"\b(?:llama_server|main): (?:server is )?listening on (?P<url>https?://\S+)",
        "ready",
        "{url}",
    ),
    mark(r"all slots are idle", "ready", "slots idle"),
    mark(r"\b(?:llama_server|main): model loaded", "warm-up", "model loaded", fraction=1.0),
    mark(r"common_params_print_info|^build: \d|system_info: n_threads", "process", "started"),
    mark(r"loading draft model '(?P<path>[^']*)'", "draft-weights", "{path}"),
    mark(r"load_model: loading model '(?P<path>[^']*)'", "weights", "{path}"),
    mark(r"llama_model_loader: loaded meta data .* from (?P<path>\S+)", "weights", "{path}"),
    mark(r"load_tensors: (?:offloaded|loading) ", "weights", "tensors"),
    mark(r"load_model: initializing,? ?n_slots = (?P<slots>\d+)", "kv-cache", "{slots} slots"),
    mark(r"initializing slots, n_slots = (?P<slots>\d+)", "kv-cache", "{slots} slots"),
    mark(r"llama_kv_cache\w*:\s+size =", "kv-cache", "allocated"),
    mark(
        r"graph_reserve|sched_reserve|llama_context:\s+\S+ compute buffer size",
        "graphs",
        "compute buffers",
    ),
    mark(r"warming up the model", "warm-up", "empty run"),
)
