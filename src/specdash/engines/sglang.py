"""SGLang, versions of 2025 and 2026."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdash.core.settings import OFF, Candidate, Capacity, Resolution, Settings
from specdash.engines import sglang_rules
from specdash.engines.answers import (
    PROMPT,
    PROMPT_TOKENS,
    as_dict,
    as_list,
    complete,
    first_model,
    int_at,
    judged,
    readiness_of,
    refusal_of,
    text_at,
)
from specdash.engines.causes import first_cause
from specdash.engines.compare import difference
from specdash.engines.knobs import SGLANG
from specdash.engines.logscan import scan
from specdash.engines.programs import ProgramForms, matches
from specdash.engines.protocol import (
    Cause,
    EngineInfo,
    Generation,
    Http,
    LogFact,
    Readiness,
)
from specdash.engines.sglang_causes import SYMPTOMS
from specdash.engines.sglang_log import MARKS
from specdash.launch.knobs import KnobTable
from specdash.rig.schema import EngineKind

# A healthy answer takes a second or more: the server generates a token to find out.
_HEALTH_S = 25.0
_FORMS = ProgramForms(
    titles=("sglang::",),
    programs=(("sglang", "serve"),),
    modules=("sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.cli.main"),
)


class Sglang:
    """SGLang behind :class:`~specdash.engines.protocol.Engine`."""

    kind: EngineKind = "sglang"
    knob_word = "steps"
    knobs: KnobTable = SGLANG
    has_topk = True

    def resolve(self, current: Settings, candidate: Candidate) -> Resolution:
        return sglang_rules.resolve(current, candidate)

    def same_depth(self, asked: Settings, resolved: Settings) -> str:
        if (asked.algorithm or "").upper() in sglang_rules.BLOCK_ALGORITHMS:
            # Steps and topk are the engine's own there, whatever the launch config says.
            asked = replace(asked, num_steps=None, eagle_topk=None)
        return difference(asked, resolved, self.knob_word)

    def is_own_process(self, command: str) -> bool:
        return matches(command, _FORMS)

    async def readiness(self, http: Http) -> Readiness:
        """``/health`` 200. An open port and ``/v1/models`` 200 come long before that."""
        return readiness_of(
            await http.get("/health", timeout_s=_HEALTH_S),
            loading="starting: the port is open, /health still answers 503",
        )

    async def info(self, http: Http) -> EngineInfo:
        """``/server_info``, its older name where that is missing, and the model's name."""
        reply = await http.get("/server_info")
        if reply.status in (404, 405):
            reply = await http.get("/get_server_info")
        server = as_dict(reply.json()) if reply.status == 200 else {}
        model = text_at(server, "served_model_name") or first_model(await http.get("/v1/models"))
        if model is None:
            model = await _model_path(http)
        warnings = () if server else (f"/server_info does not say: {refusal_of(reply)}",)
        return EngineInfo(
            settings=read_settings(server),
            capacity=read_capacity(server),
            model=model or text_at(server, "model_path"),
            version=text_at(server, "version"),
            warnings=(*warnings, *adaptive_warnings(server)),
            simulated=server.get("simulated") is True,
        )

    async def generate(self, http: Http, model: str | None) -> Generation:
        """``/generate``; where that route is hidden, the OpenAI one."""
        reply = await http.post(
            "/generate",
            {
                "text": PROMPT,
                "sampling_params": {"max_new_tokens": PROMPT_TOKENS, "temperature": 0},
            },
        )
        if reply.status in (404, 405):
            return await complete(http, model)
        if reply.status != 200:
            return Generation(False, error=refusal_of(reply))
        answer = reply.json()
        answer = as_dict(answer[0] if isinstance(answer, list) and answer else answer)
        meta = as_dict(answer.get("meta_info"))
        return judged(int_at(meta, "completion_tokens"), text_at(answer, "text") or "", reply)

    def read_log(self, line: str) -> LogFact | None:
        return scan(line, MARKS)

    def diagnose(self, lines: Sequence[str]) -> Cause | None:
        return first_cause(lines, SYMPTOMS)


def read_settings(server: Mapping[str, Any]) -> Settings | None:
    """The resolved settings in a ``/server_info`` answer; None where it does not mention them."""
    if "speculative_algorithm" not in server:
        return None
    algorithm = text_at(server, "speculative_algorithm")
    if algorithm is None:
        return OFF
    return Settings(
        algorithm=algorithm,
        num_steps=int_at(server, "speculative_num_steps"),
        eagle_topk=int_at(server, "speculative_eagle_topk"),
        num_draft_tokens=int_at(server, "speculative_num_draft_tokens"),
        draft_model=text_at(server, "speculative_draft_model_path"),
        enabled=True,
    )


def read_capacity(server: Mapping[str, Any]) -> Capacity:
    """Requests at once and KV tokens, summed over data-parallel ranks where each reports."""
    ranks = [as_dict(state) for state in as_list(server.get("internal_states"))]
    requests = _sum([int_at(rank, "effective_max_running_requests_per_dp") for rank in ranks])
    tokens = _sum([int_at(as_dict(rank.get("memory_usage")), "token_capacity") for rank in ranks])
    return Capacity(
        max_running_requests=requests
        if requests is not None
        else int_at(server, "max_running_requests"),
        kv_tokens=tokens if tokens is not None else int_at(server, "max_total_num_tokens"),
    )


def adaptive_warnings(server: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes the reported steps other than the ones in use."""
    if server.get("speculative_adaptive") is True:
        return (
            (
                "Adaptive speculation is on: the engine changes its steps while it runs, so a fixed "
                "depth means nothing. Take --speculative-adaptive out to measure one."
            ),
        )
    steps = int_at(server, "speculative_num_steps")
    active = {
        now
        for state in as_list(server.get("internal_states"))
        if (now := int_at(as_dict(state), "speculative_num_steps")) is not None
    }
    if steps is None or active <= {steps}:
        return ()
    shown = ", ".join(str(now) for now in sorted(active))
    return (f"The engine was started with steps {steps} and now runs {shown}.",)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


async def _model_path(http: Http) -> str | None:
    reply = await http.get("/model_info")
    if reply.status in (404, 405):
        reply = await http.get("/get_model_info")
    return text_at(as_dict(reply.json()), "model_path") if reply.status == 200 else None
