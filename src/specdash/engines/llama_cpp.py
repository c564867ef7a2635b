"""llama.cpp's llama-server, both generations of its flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdash.core.settings import OFF, Candidate, Capacity, Resolution, Settings
from specdash.engines.answers import (
    as_dict,
    as_list,
    complete,
    first_model,
    int_at,
    readiness_of,
    refusal_of,
    text_at,
)
from specdash.engines.causes import first_cause
from specdash.engines.compare import difference
from specdash.engines.knobs import LLAMA_CPP
from specdash.engines.llama_cpp_causes import SYMPTOMS
from specdash.engines.llama_cpp_log import MARKS
from specdash.engines.logscan import scan
from specdash.engines.programs import ProgramForms, matches
from specdash.engines.protocol import (
    Cause,
    EngineInfo,
    Generation,
    Http,
    HttpReply,
    LogFact,
    Readiness,
)
from specdash.engines.single_rules import resolve_single
from specdash.launch.knobs import KnobTable
from specdash.rig.schema import EngineKind

_FORMS = ProgramForms(programs=(("llama-server", ""), ("llama-server-vulkan", "")))
_NO_DEPTH = "llama-server does not report the length of its drafts, only whether it drafts."


class LlamaCpp:
    """llama-server behind :class:`~specdash.engines.protocol.Engine`."""

    kind: EngineKind = "llama.cpp"
    knob_word = "draft tokens"
    knobs: KnobTable = LLAMA_CPP
    has_topk = False

    def resolve(self, current: Settings, candidate: Candidate) -> Resolution:
        """One number. Raises UsageError and IllegalCandidateError.

        0 has to take speculation out of the flags: a ``--spec-draft-n-max 0`` still drafts one
        token a round (seen on build b10434).
        """
        current, notes = _with_type(current, candidate)
        return resolve_single(
            current, candidate, engine="llama.cpp", word=self.knob_word, notes=notes
        )

    def same_depth(self, asked: Settings, resolved: Settings) -> str:
        return difference(asked, resolved, self.knob_word)

    def is_own_process(self, command: str) -> bool:
        return matches(command, _FORMS)

    async def readiness(self, http: Http) -> Readiness:
        """``/health`` 200; 503 while the model loads. The port opens early."""
        return readiness_of(await http.get("/health"), loading="loading the model")

    async def info(self, http: Http) -> EngineInfo:
        """``/props`` and ``/slots``: whether it drafts, how many slots, which build."""
        props = await http.get("/props")
        slots = await http.get("/slots")
        model = first_model(await http.get("/v1/models"))
        settings = read_settings(slots)
        known = as_dict(props.json()) if props.status == 200 else {}
        warnings: list[str] = []
        if settings is None:
            warnings.append(f"/slots does not say whether it drafts: {refusal_of(slots)}")
        elif settings.enabled:
            warnings.append(_NO_DEPTH)
        return EngineInfo(
            settings=settings,
            capacity=read_capacity(slots, int_at(known, "total_slots")),
            model=model or text_at(known, "model_alias", "model_path"),
            version=text_at(known, "build_info"),
            warnings=tuple(warnings),
        )

    async def generate(self, http: Http, model: str | None) -> Generation:
        return await complete(http, model)

    def read_log(self, line: str) -> LogFact | None:
        return scan(line, MARKS)

    def diagnose(self, lines: Sequence[str]) -> Cause | None:
        return first_cause(lines, SYMPTOMS)


def read_settings(slots: HttpReply) -> Settings | None:
    """Whether the slots speculate, and by what means once one of them served a request."""
    rows = [as_dict(row) for row in as_list(slots.json())] if slots.status == 200 else []
    states = [row["speculative"] for row in rows if isinstance(row.get("speculative"), bool)]
    if not states:
        return None
    if not any(states):
        return OFF
    kinds = (text_at(as_dict(row.get("params")), "speculative.types") for row in rows)
    names = [
        name for kind in kinds if kind is not None for name in kind.split(",") if name != "none"
    ]
    return Settings(algorithm=",".join(dict.fromkeys(names)) or None, enabled=True)


def read_capacity(slots: HttpReply, total_slots: int | None) -> Capacity:
    """A slot is a request at once.

    KV tokens stay unknown: slots may share one context or have one each, and the server does
    not say which.
    """
    rows = as_list(slots.json()) if slots.status == 200 else []
    return Capacity(max_running_requests=total_slots or len(rows) or None)


def _with_type(current: Settings, candidate: Candidate) -> tuple[Settings, tuple[str, ...]]:
    """The kind of speculation that the depth needs, where the launch config names none."""
    if candidate.num_steps == 0:
        return current, ()
    kinds = [kind for kind in (current.algorithm or "").split(",") if kind not in ("", "none")]
    if not kinds:
        if current.draft_model is None:
            return replace(current, algorithm=None), (
                (
                    "The launch config names neither a draft model nor a --spec-type; without one "
                    "of them llama-server drafts nothing."
                ),
            )
        if current.algorithm is None:
            return current, (
                (
                    "The launch config names no --spec-type; builds of 2026 draft only with one "
                    "(draft-simple for a draft model)."
                ),
            )
        return replace(current, algorithm="draft-simple"), (
            "--spec-type none becomes draft-simple, for the draft model that is named.",
        )
    if all(kind.startswith("ngram") for kind in kinds):
        return current, (
            (
                f"Under {', '.join(kinds)} builds of 2026 take the length from their own "
                "--spec-ngram-... flags, not from --spec-draft-n-max."
            ),
        )
    return current, ()
