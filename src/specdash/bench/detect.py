"""What answers at an address: the engine, the model and what it can hold.

Facts: SGLang's ``/server_info`` (older: ``/get_server_info``, which logs a warning on newer
servers, so it is asked second) carries its resolved arguments; llama.cpp's ``/props`` the number of
slots; vLLM's ``/version`` only a version, its name is in ``/metrics``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from specdash.bench.client import Client, Reply
from specdash.bench.counters import read_metrics
from specdash.bench.protocol import Dialect
from specdash.core.errors import UnreachableError

PROBE_S = 5.0

_REMEDIES = {
    "refused": "Is the server running, and is this its port?",
    "no-such-host": "Check the host name.",
    "no-route": "Check the address and the network.",
    "connect-timeout": "Check the address, the firewall and the network.",
    "tls": "Check the certificate, or use http://.",
}


@dataclass(frozen=True, slots=True)
class Found:
    """``capacity`` is the number of requests it runs at once, None where it does not say."""

    dialect: Dialect
    model: str | None
    capacity: int | None = None
    has_metrics: bool = False


async def detect(client: Client, *, dialect: Dialect = "auto", model: str | None = None) -> Found:
    """Ask the address what it is. ``dialect`` and ``model``, where given, stand.

    Raises UnreachableError where nobody answers or everything is refused for want of a key. A
    server that accepts the connection and never answers is somebody: its cells will fail.
    """
    models, info, props, version, metrics = await asyncio.gather(
        client.get("/models", timeout_s=PROBE_S, api=True),
        client.get("/server_info", timeout_s=PROBE_S),
        client.get("/props", timeout_s=PROBE_S),
        client.get("/version", timeout_s=PROBE_S),
        client.get("/metrics", timeout_s=PROBE_S),
    )
    replies = [models, info, props, version, metrics]
    _raise_unreachable(client, replies)
    if info.status in (404, 405):
        info = await client.get("/get_server_info", timeout_s=PROBE_S)
    server = _object(info)
    slots = _object(props)
    scrape = read_metrics(metrics.text) if metrics.status == 200 else None
    engine: Dialect = "openai"
    if "internal_states" in server or "speculative_algorithm" in server:
        engine = "sglang"
    elif "default_generation_settings" in slots or "total_slots" in slots:
        engine = "llama.cpp"
    elif scrape is not None and scrape.engine in ("vllm", "sglang", "llamacpp"):
        names: dict[str, Dialect] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
        engine = names[scrape.engine]
    elif _owner(models) in ("vllm", "sglang"):
        engine = "vllm" if _owner(models) == "vllm" else "sglang"
    elif _owner(models) == "llamacpp":
        engine = "llama.cpp"
    return Found(
        dialect=engine if dialect == "auto" else dialect,
        model=model or _first_model(models) or _text(server, "served_model_name"),
        capacity=_sglang_capacity(server) if server else _integer(slots, "total_slots"),
        has_metrics=scrape is not None and scrape.engine is not None,
    )


def _raise_unreachable(client: Client, replies: list[Reply]) -> None:
    shown = client.address.shown
    troubles = [reply.trouble for reply in replies if reply.trouble is not None]
    if len(troubles) == len(replies) and not any(trouble.connected for trouble in troubles):
        first = troubles[0]
        raise UnreachableError(
            f"nobody answers at {shown} ({first.cause})",
            remedy=_REMEDIES.get(first.cause, "Check the address and the network."),
            code=first.cause,
            evidence=[first.detail],
        )
    statuses = {reply.status for reply in replies if reply.status is not None}
    if statuses and statuses <= {401, 403}:
        raise UnreachableError(
            f"{shown} refuses us (HTTP {min(statuses)})",
            remedy="Name the environment variable that holds the key (--api-key-env, api_key_env).",
            code="unauthorized",
        )


def _object(reply: Reply) -> dict[str, Any]:
    body = reply.json() if reply.status == 200 else None
    return body if isinstance(body, dict) else {}


def _models(reply: Reply) -> list[dict[str, Any]]:
    data = _object(reply).get("data")
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def _first_model(reply: Reply) -> str | None:
    for item in _models(reply):
        if isinstance(item.get("id"), str) and item["id"]:
            return str(item["id"])
    return None


def _owner(reply: Reply) -> str | None:
    return next((str(item.get("owned_by")) for item in _models(reply)), None)


def _text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) and value else None


def _integer(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def _sglang_capacity(server: dict[str, Any]) -> int | None:
    """What all data-parallel workers run at once."""
    states = server.get("internal_states")
    per_worker = [
        _integer(state, "effective_max_running_requests_per_dp")
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict)
    ]
    known = [number for number in per_worker if number is not None]
    if known and len(known) == len(per_worker):
        workers = _integer(server, "dp_size") or 1
        return sum(known) if len(known) >= workers else known[0] * workers
    return _integer(server, "max_running_requests")
