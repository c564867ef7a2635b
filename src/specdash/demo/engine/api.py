"""SGLang's endpoints over the simulated batch."""

from __future__ import annotations

import asyncio
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from specdash.demo.engine.batch import Batch, Request
from specdash.demo.engine.bodies import (
    BadRequestError,
    content_of,
    json_object,
    prompts_of,
    whole,
)
from specdash.demo.engine.flags import Args
from specdash.demo.engine.http import Ask
from specdash.demo.engine.streams import (
    ChatStream,
    Collect,
    CompletionStream,
    Counts,
    GenerateStream,
    Reply,
    Text,
    generate_meta,
    usage,
)
from specdash.demo.faults import Fault, FaultSwitch

VERSION = "0.5.23+simulated"
DEFAULT_NEW_TOKENS = 128
HEAD_ROOM = 5
NATURAL_END = range(180, 700)


class Api:
    """Routes requests. ``ready`` is set when the warm-up is done."""

    def __init__(
        self,
        args: Args,
        batch: Batch,
        *,
        faults: FaultSwitch,
        kv_tokens: int,
        memory_gb: Mapping[str, float],
        log: Callable[[str], None],
    ) -> None:
        self._args = args
        self._batch = batch
        self._faults = faults
        self._kv_tokens = kv_tokens
        self._memory = dict(memory_gb)
        self._log = log
        self._seen: set[int] = set()
        self.ready = False
        self.stopping = False
        self._routes: dict[str, tuple[frozenset[str], Callable[[Ask], Any]]] = {
            "/health": (_GET, self._health),
            "/health_generate": (_GET, self._health_generate),
            "/server_info": (_GET, self._server_info),
            "/get_server_info": (_GET, self._server_info),
            "/model_info": (_GET, self._model_info),
            "/get_model_info": (_GET, self._model_info),
            "/v1/models": (_GET, self._models),
            "/metrics": (_GET, self._metrics),
            "/flush_cache": (_ANY, self._flush),
            "/generate": (_POST, self._generate),
            "/v1/completions": (_POST, self._completions),
            "/v1/chat/completions": (_POST, self._chat),
        }

    async def handle(self, ask: Ask) -> None:
        """Answer one request."""
        route = self._routes.get(ask.path)
        if ask.path in ("/metrics", "/metrics/") and not self._args.raw["enable_metrics"]:
            route = None
        if route is None:
            ask.connection.reply(404, {"detail": "Not Found"})
            return
        methods, handler = route
        if ask.method not in methods:
            ask.connection.reply(405, {"detail": "Method Not Allowed"})
            return
        key = self._args.text("api_key")
        open_to_all = ask.path.startswith("/health") or ask.path == "/metrics"
        if key and not open_to_all and ask.headers.get("authorization") != f"Bearer {key}":
            ask.connection.reply(401, {"error": "Unauthorized"})
            return
        try:
            await handler(ask)
        except BadRequestError as error:
            ask.connection.reply(
                400,
                {
                    "object": "error",
                    "message": str(error),
                    "type": "BadRequestError",
                    "param": None,
                    "code": 400,
                },
            )

    # State

    async def _health(self, ask: Ask) -> None:
        ready = self.ready and not self.stopping and not self._faults.on(Fault.NEVER_READY)
        ask.connection.reply(200 if ready else 503)

    async def _health_generate(self, ask: Ask) -> None:
        if not self.ready or self.stopping or self._faults.on(Fault.NEVER_READY):
            ask.connection.reply(503)
            return
        await self.one_token()
        ask.connection.reply(200)

    async def one_token(self, tokens: int = 1) -> None:
        """Generate for nobody: the warm-up and the health probe."""
        collect = Collect()
        self._batch.submit(Request(6, tokens, collect))
        await collect.done

    async def _server_info(self, ask: Ask) -> None:
        totals = self._batch.totals
        state: dict[str, object] = {
            **self._args.server_args(),
            "last_gen_throughput": totals.tok_s,
            "memory_usage": self._memory,
            "effective_max_running_requests_per_dp": self._batch.capacity,
            "load": len(self._batch.running) + len(self._batch.waiting),
        }
        if totals.rounds and self._args.shape.steps:
            state["avg_spec_accept_length"] = totals.accepted / totals.rounds
        ask.connection.reply(
            200,
            {
                **self._args.server_args(),
                "status": "ready" if self.ready else "starting",
                "max_total_num_tokens": self._kv_tokens,
                "max_req_input_len": 131066,
                "max_running_requests": self._batch.capacity,
                "internal_states": [state],
                "version": VERSION,
                "simulated": True,
            },
        )

    async def _model_info(self, ask: Ask) -> None:
        ask.connection.reply(
            200,
            {
                "model_path": self._args.text("model_path"),
                "tokenizer_path": self._args.text("tokenizer_path")
                or self._args.text("model_path"),
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "model_type": "qwen3_5_moe",
                "architectures": ["Qwen3_5MoeForCausalLM"],
            },
        )

    async def _models(self, ask: Ask) -> None:
        ask.connection.reply(
            200,
            {
                "object": "list",
                "data": [
                    {
                        "id": self._args.model_name,
                        "object": "model",
                        "created": int(time.time()),
                        "owned_by": "sglang",
                        "root": self._args.model_name,
                        "max_model_len": self._args.whole("context_length"),
                    }
                ],
            },
        )

    async def _flush(self, ask: Ask) -> None:
        if not self._batch.flush():
            self._log(
                "Cache not flushed because there are pending requests. #queue-req: "
                f"{len(self._batch.waiting)}, #running-req: {len(self._batch.running)}"
            )
            ask.connection.reply(400, b"", kind="text/plain")
            return
        self._seen.clear()
        ask.connection.reply(
            200,
            b"Cache flushed.\nPlease check backend logs for more details. (When there are running "
            b"or waiting requests, the operation will not be performed.)\n",
            kind="text/plain",
        )

    async def _metrics(self, ask: Ask) -> None:
        totals, batch = self._batch.totals, self._batch
        gauges: dict[str, float] = {
            "num_running_reqs": len(batch.running),
            "num_queue_reqs": len(batch.waiting),
            "num_used_tokens": batch.held_tokens(),
            "token_usage": batch.held_tokens() / self._kv_tokens,
            "gen_throughput": totals.tok_s if batch.running else 0.0,
            "max_total_num_tokens": self._kv_tokens,
            "cache_hit_rate": 0.0,
            "spec_accept_length": totals.accept_length if self._args.shape.steps else 0.0,
            "spec_accept_rate": max(0.0, totals.accept_length - 1)
            / max(1, self._args.shape.draft_tokens - 1),
            "spec_num_steps": self._args.shape.steps,
        }
        counters = {
            "prompt_tokens_total": totals.prompt_tokens,
            "generation_tokens_total": totals.generated,
            "num_requests_total": totals.requests,
        }
        label = f'{{model_name="{self._args.model_name}"}}'
        lines = []
        for kind, table in (("gauge", gauges), ("counter", counters)):
            for name, value in table.items():
                lines.append(f"# TYPE sglang:{name} {kind}")
                lines.append(f"sglang:{name}{label} {float(value)}")
        ask.connection.reply(
            200, "\n".join(lines).encode() + b"\n", kind="text/plain; version=0.0.4"
        )

    # Generation

    async def _generate(self, ask: Ask) -> None:
        body = json_object(ask)
        prompts = prompts_of(body, "text", "input_ids")
        params = body.get("sampling_params") or {}
        if isinstance(params, list):
            params = params[0] if params else {}
        if not isinstance(params, dict):
            raise BadRequestError("sampling_params must be an object")
        wanted = whole(params, "max_new_tokens", DEFAULT_NEW_TOKENS)
        ignore_eos = bool(params.get("ignore_eos", False))
        if body.get("stream"):
            if len(prompts) != 1:
                raise BadRequestError("the box streams one prompt a request")
            counts, request = self._request(prompts[0], wanted, ignore_eos)
            await self._run(ask, GenerateStream(ask.connection, counts, request), request)
            return
        answers = await asyncio.gather(
            *(self._collect(ask, prompt, wanted, ignore_eos) for prompt in prompts)
        )
        if any(answer is None for answer in answers):
            return
        out = [
            {"text": counts.text.upto(request.emitted), "meta_info": generate_meta(counts, request)}
            for counts, request in (answer for answer in answers if answer is not None)
        ]
        listed = isinstance(body.get("text"), list)
        ask.connection.reply(200, out if listed else out[0])

    async def _completions(self, ask: Ask) -> None:
        body = json_object(ask)
        prompts = prompts_of(body, "prompt", "prompt")
        wanted = whole(body, "max_tokens", 16)
        await self._openai(ask, body, prompts[0], wanted, CompletionStream, "text_completion")

    async def _chat(self, ask: Ask) -> None:
        body = json_object(ask)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequestError("messages: a list with at least one message is required")
        prompt = "\n".join(content_of(message) for message in messages)
        name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        wanted = whole(body, name, 512)
        await self._openai(ask, body, prompt, wanted, ChatStream, "chat.completion")

    async def _openai(
        self,
        ask: Ask,
        body: dict[str, Any],
        prompt: str,
        wanted: int,
        stream: type[CompletionStream] | type[ChatStream],
        kind: str,
    ) -> None:
        ignore_eos = bool(body.get("ignore_eos", False))
        options = body.get("stream_options") or {}
        counts, request = self._request(prompt, wanted, ignore_eos)
        counts.model = str(body.get("model") or self._args.model_name)
        counts.include_usage = bool(options.get("include_usage"))
        counts.continuous_usage = bool(options.get("continuous_usage_stats"))
        if body.get("stream"):
            await self._run(ask, stream(ask.connection, counts, request), request)
            return
        if await self._collected(ask, counts, request) is None:
            return
        text = counts.text.upto(request.emitted)
        choice: dict[str, object] = {
            "index": 0,
            "logprobs": None,
            "finish_reason": request.finish,
            "matched_stop": None,
        }
        if kind == "chat.completion":
            choice["message"] = {"role": "assistant", "content": text, "reasoning_content": None}
        else:
            choice["text"] = text
        ask.connection.reply(
            200,
            {
                "id": counts.rid,
                "object": kind,
                "created": int(time.time()),
                "model": counts.model,
                "choices": [choice],
                "usage": usage(counts, request),
            },
        )

    def _request(self, prompt: str, wanted: int, ignore_eos: bool) -> tuple[Counts, Request]:
        tokens = max(1, len(prompt) // 4)
        limit = (self._args.whole("context_length") or 131072) - HEAD_ROOM
        if tokens + wanted > limit:
            raise BadRequestError(
                f"Requested token count exceeds the model's maximum context length of {limit}."
            )
        mark = zlib.crc32(prompt.encode("utf-8", "replace"))
        finish = "length"
        if not ignore_eos:
            natural = NATURAL_END[mark % len(NATURAL_END)]
            if natural <= wanted:
                wanted, finish = natural, "stop"
        cached = 0
        if mark in self._seen and not self._args.raw["disable_radix_cache"]:
            cached = tokens - 1
        self._seen.add(mark)
        counts = Counts(
            rid=secrets.token_hex(16),
            text=Text(mark),
            started=time.monotonic(),
            faults=self._faults.now(),
            cache_report=bool(self._args.raw["enable_cache_report"]),
        )
        request = Request(tokens, wanted, Collect(), finish=finish, cached_tokens=cached)
        return counts, request

    async def _run(self, ask: Ask, stream: Reply, request: Request) -> None:
        """Stream until the end, the client's loss, or what a fault makes of it."""
        if await self._refused(ask):
            return
        request.sink = stream
        ask.on_lost.append(lambda: self._batch.cancel(request))
        ask.connection.begin_stream()
        if request.wanted == 0:
            stream.tokens(0, request.finish)
        else:
            self._batch.submit(request)
        await stream.done

    async def _collect(
        self, ask: Ask, prompt: str, wanted: int, ignore_eos: bool
    ) -> tuple[Counts, Request] | None:
        counts, request = self._request(prompt, wanted, ignore_eos)
        return await self._collected(ask, counts, request)

    async def _collected(
        self, ask: Ask, counts: Counts, request: Request
    ) -> tuple[Counts, Request] | None:
        if await self._refused(ask):
            return None
        collect = Collect()
        request.sink = collect
        ask.on_lost.append(lambda: self._batch.cancel(request))
        if request.wanted:
            self._batch.submit(request)
            await collect.done
        return counts, request

    async def _refused(self, ask: Ask) -> bool:
        if not self.ready or self.stopping:
            ask.connection.reply(503, {"error": {"message": "the server is not ready"}})
            return True
        faults = self._faults.now()
        if Fault.GENERATE_500 in faults:
            ask.connection.reply(500, {"error": {"message": "Internal Server Error"}})
            return True
        if Fault.GENERATE_HANGS in faults:
            await asyncio.Event().wait()
        return False


_GET = frozenset({"GET", "HEAD"})
_POST = frozenset({"POST", "PUT"})
_ANY = _GET | _POST
