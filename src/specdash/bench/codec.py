"""The lines between specdash and its measuring process: JSON in, JSON out, one object a line.

Jobs go in on stdin, endpoint and secrets included, so that no secret is ever an argument or an
environment variable. Everything read back is checked: the other side may be broken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast, get_args

from specdash.bench.protocol import BenchEvent, Dialect, Endpoint, Identity, SshTunnel, Workload
from specdash.core.events import CellMeasured, CellProgress, CellStarted
from specdash.core.records import Cell, CellFlag, RequestCounts, Spread
from specdash.core.settings import Capacity
from specdash.rig.schema import HostSpec

FLAGS: tuple[CellFlag, ...] = get_args(CellFlag)
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


class GarbledError(ValueError):
    """A line or a document that is not what it should be; the message says where."""


def dump_line(body: Mapping[str, object]) -> bytes:
    """One object as one line, in ASCII: what a server names itself may not even be Unicode."""
    return json.dumps(body, allow_nan=False).encode() + b"\n"


def load_line(line: bytes) -> dict[str, Any]:
    """The object on one line. Raises GarbledError for anything else."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GarbledError(f"not JSON: {line[:80]!r}") from error
    if not isinstance(body, dict):
        raise GarbledError(f"not an object: {line[:80]!r}")
    return body


def endpoint_to_wire(endpoint: Endpoint) -> dict[str, object]:
    """With its secrets: for the stdin pipe and nothing else."""
    tunnel = endpoint.tunnel
    return {
        "url": endpoint.url,
        "dialect": endpoint.dialect,
        "model": endpoint.model,
        "api_key": endpoint.api_key,
        "headers": dict(endpoint.headers),
        "tunnel": None
        if tunnel is None
        else {
            "via": tunnel.via,
            "hosts": {name: asdict(spec) for name, spec in tunnel.hosts.items()},
            "ssh_config": None
            if tunnel.ssh_config is None
            else [str(path) for path in tunnel.ssh_config],
            "secrets": dict(tunnel.secrets),
        },
    }


def endpoint_from_wire(body: Mapping[str, Any]) -> Endpoint:
    tunnel = body["tunnel"]
    return Endpoint(
        url=body["url"],
        dialect=body["dialect"],
        model=body["model"],
        api_key=body["api_key"],
        headers=body["headers"],
        tunnel=None
        if tunnel is None
        else SshTunnel(
            via=tunnel["via"],
            hosts={name: HostSpec(**spec) for name, spec in tunnel["hosts"].items()},
            ssh_config=None
            if tunnel["ssh_config"] is None
            else tuple(Path(path) for path in tunnel["ssh_config"]),
            secrets=tunnel["secrets"],
        ),
    )


def workload_to_wire(workload: Workload) -> dict[str, object]:
    return asdict(workload)


def workload_from_wire(body: Mapping[str, Any]) -> Workload:
    return Workload(**body)


def capacity_from_wire(body: Mapping[str, Any]) -> Capacity:
    return Capacity(body["max_running_requests"], body["kv_tokens"])


def identity_to_wire(identity: Identity) -> dict[str, object]:
    return asdict(identity)


def identity_from_wire(body: object) -> Identity:
    where = _mapping(body, "identity")
    dialect = where.get("dialect")
    if dialect not in DIALECTS:
        raise GarbledError(f"identity: unknown dialect {dialect!r}")
    model = where.get("model")
    return Identity(
        url=str(where.get("url")), dialect=dialect, model=None if model is None else str(model)
    )


_PROGRESS = tuple(item.name for item in fields(CellProgress) if item.name != "t")


def progress_to_wire(progress: CellProgress) -> dict[str, object]:
    return {name: getattr(progress, name) for name in _PROGRESS}


def event_from_wire(kind: str, body: object, t: float) -> BenchEvent:
    """A line of the measuring process as an event that happened at ``t``."""
    where = _mapping(body, kind)
    try:
        if kind == "started":
            return CellStarted(
                t=t, concurrency=int(where["concurrency"]), requests=_integer(where, "requests")
            )
        if kind == "progress":
            return CellProgress(
                t=t,
                concurrency=int(where["concurrency"]),
                warming=bool(where["warming"]),
                tok_s=_number(where, "tok_s"),
                mean_tok_s=_number(where, "mean_tok_s"),
                per_request_tok_s=_number(where, "per_request_tok_s"),
                ttft_ms=_number(where, "ttft_ms"),
                accept_length=_number(where, "accept_length"),
                in_flight=int(where["in_flight"]),
                done=int(where["done"]),
                failed=int(where["failed"]),
                elapsed_s=float(where["elapsed_s"]),
                budget_s=float(where["budget_s"]),
            )
        if kind == "measured":
            return CellMeasured(t=t, cell=cell_from_json(where.get("cell")))
    except (KeyError, TypeError, ValueError) as error:
        raise GarbledError(f"{kind}: {error}") from error
    raise GarbledError(f"unknown kind {kind!r}")


def cell_from_json(body: object) -> Cell:
    """A CELL object of the contract as a value. Raises GarbledError, naming the key."""
    where = _mapping(body, "cell")
    concurrency = _integer(where, "concurrency")
    if concurrency is None or concurrency < 1:
        raise GarbledError("cell: concurrency must be a whole number above 0")
    counts = _mapping(where.get("requests") or {}, "requests")
    errors = _mapping(counts.get("errors") or {}, "requests.errors")
    histogram = where.get("accept_histogram")
    flags = where.get("flags") or []
    if not isinstance(flags, Sequence) or isinstance(flags, str):
        raise GarbledError("cell: flags must be a list")
    if histogram is not None and not (
        isinstance(histogram, list) and all(isinstance(item, int) for item in histogram)
    ):
        raise GarbledError("cell: accept_histogram must be a list of whole numbers")
    return Cell(
        concurrency=concurrency,
        output_tok_s=_number(where, "output_tok_s"),
        output_tok_s_low=_number(where, "output_tok_s_low"),
        output_tok_s_high=_number(where, "output_tok_s_high"),
        per_request_tok_s=_number(where, "per_request_tok_s"),
        ttft_ms=_spread(where, "ttft_ms"),
        tpot_ms=_spread(where, "tpot_ms"),
        itl_ms=_spread(where, "itl_ms"),
        chunk_gap_ms=_spread(where, "chunk_gap_ms"),
        accept_length=_number(where, "accept_length"),
        accept_histogram=None if histogram is None else tuple(histogram),
        output_tokens=_integer(where, "output_tokens"),
        chunks=_integer(where, "chunks"),
        requests=RequestCounts(
            ok=_integer(counts, "ok") or 0,
            failed=_integer(counts, "failed") or 0,
            errors={str(cause): _integer(errors, cause) or 0 for cause in errors},
        ),
        window_s=_number(where, "window_s"),
        joules_per_token=_number(where, "joules_per_token"),
        flags=tuple(cast("CellFlag", flag) for flag in flags if flag in FLAGS),
    )


def _mapping(body: object, what: str) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise GarbledError(f"{what}: not an object")
    return body


def _number(where: Mapping[str, Any], key: str) -> float | None:
    value = where.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise GarbledError(f"{key}: not a number: {value!r}")
    return float(value)


def _integer(where: Mapping[str, Any], key: str) -> int | None:
    value = where.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise GarbledError(f"{key}: not a whole number: {value!r}")
    return value


def _spread(where: Mapping[str, Any], key: str) -> Spread:
    body = where.get(key)
    if body is None:
        return Spread()
    inner = _mapping(body, key)
    return Spread(*(_number(inner, name) for name in ("mean", "p50", "p95", "p99")))
