"""vLLM, V1 engine. Its facts were read in its documentation and in the source of 0.32; none was
seen on a run of ours yet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specdash.core.settings import OFF, Candidate, Capacity, Resolution, Settings
from specdash.engines.answers import (
    as_dict,
    complete,
    first_model,
    readiness_of,
    refusal_of,
    text_at,
)
from specdash.engines.causes import first_cause
from specdash.engines.compare import difference
from specdash.engines.knobs import VLLM
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
from specdash.engines.single_rules import resolve_single
from specdash.engines.vllm_causes import SYMPTOMS
from specdash.engines.vllm_log import MARKS
from specdash.launch.knobs import KnobTable
from specdash.rig.schema import EngineKind

_FORMS = ProgramForms(
    titles=("VLLM::", "vllm::"),
    programs=(("vllm", "serve"),),
    modules=("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"),
)
_POSITION = re.compile(
    r"^vllm:spec_decode_num_accepted_tokens_per_pos_total\{[^}]*position=\"(\d+)\"", re.MULTILINE
)
_DRAFTS = re.compile(r"^vllm:spec_decode_num_drafts_total\b", re.MULTILINE)
_ANY = re.compile(r"^vllm:num_requests_running\b", re.MULTILINE)
_CACHE = re.compile(r"^vllm:cache_config_info\{(?P<labels>[^}]*)\}", re.MULTILINE)
_LABEL = re.compile(r"(\w+)=\"([^\"]*)\"")


class Vllm:
    """vLLM behind :class:`~specdash.engines.protocol.Engine`."""

    kind: EngineKind = "vllm"
    knob_word = "speculative tokens"
    knobs: KnobTable = VLLM
    has_topk = False

    def resolve(self, current: Settings, candidate: Candidate) -> Resolution:
        """One number. Raises UsageError and IllegalCandidateError."""
        return resolve_single(current, candidate, engine="vLLM", word=self.knob_word)

    def same_depth(self, asked: Settings, resolved: Settings) -> str:
        return difference(asked, resolved, self.knob_word)

    def is_own_process(self, command: str) -> bool:
        return matches(command, _FORMS)

    async def readiness(self, http: Http) -> Readiness:
        """``/health`` 200; the port stays closed until the engine is up."""
        return readiness_of(
            await http.get("/health"), loading="/health answers 503: the engine core is dead"
        )

    async def info(self, http: Http) -> EngineInfo:
        """``/version``, ``/v1/models`` and the counters of ``/metrics``."""
        version = text_at(as_dict((await http.get("/version")).json()), "version")
        model = first_model(await http.get("/v1/models"))
        metrics = await http.get("/metrics")
        if metrics.status != 200:
            return EngineInfo(
                model=model,
                version=version,
                warnings=(f"/metrics does not say how it speculates: {refusal_of(metrics)}",),
            )
        text = metrics.body.decode("utf-8", "replace")
        return EngineInfo(
            settings=read_settings(text),
            capacity=read_capacity(text),
            model=model,
            version=version,
        )

    async def generate(self, http: Http, model: str | None) -> Generation:
        return await complete(http, model)

    def read_log(self, line: str) -> LogFact | None:
        return scan(line, MARKS)

    def diagnose(self, lines: Sequence[str]) -> Cause | None:
        return first_cause(lines, SYMPTOMS)


def read_settings(metrics: str) -> Settings | None:
    """The depth, from how many positions the acceptance counters have.

    The counters exist only where speculation is configured; None where the text is not vLLM's.
    """
    positions = [int(number) for number in _POSITION.findall(metrics)]
    if positions:
        return Settings(num_steps=max(positions) + 1, enabled=True)
    if _DRAFTS.search(metrics) is not None:
        return Settings(enabled=True)
    return OFF if _ANY.search(metrics) is not None else None


def read_capacity(metrics: str) -> Capacity:
    """KV tokens of all data-parallel engines; requests at once are not reported."""
    tokens = [_kv_tokens(dict(_LABEL.findall(row))) for row in _CACHE.findall(metrics)]
    known = [count for count in tokens if count is not None]
    return Capacity(kv_tokens=sum(known) if known and len(known) == len(tokens) else None)


def _kv_tokens(labels: dict[str, str]) -> int | None:
    # The product is too large for models with several kinds of cache; 0.32 has the true number.
    exact = labels.get("kv_cache_size_tokens", "")
    if exact.isdecimal():
        return int(exact)
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdecimal() and size.isdecimal() else None
