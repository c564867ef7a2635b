"""What engines say over HTTP, from captured answers and from bad ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.settings import OFF, Capacity, Settings
from specdash.engines.protocol import HttpReply
from specdash.engines.registry import ENGINES, engine_for

Capture = Callable[[str], bytes]
GONE = HttpReply(None, error="connection refused")


async def test_sglang_reads_its_resolved_settings(scripted: Any, capture: Capture) -> None:
    http = scripted({"/server_info": capture("sglang/server_info.json")})
    info = await engine_for("sglang").info(http)
    assert info.settings == Settings("EAGLE3", 3, 1, 4, "/models/qwen-122b-eagle3", True)
    assert info.capacity == Capacity(26, 812345)
    assert (info.model, info.version, info.warnings) == ("qwen-122b", "0.5.23", ())


async def test_sglang_falls_back_to_the_old_names(scripted: Any, capture: Capture) -> None:
    http = scripted(
        {
            "/get_server_info": capture("sglang/server_info_old.json"),
            "/get_model_info": '{"model_path": "/models/llama-70b"}',
        }
    )
    info = await engine_for("sglang").info(http)
    assert info.settings == OFF
    assert info.capacity == Capacity(32, 180224)
    assert info.model == "/models/llama-70b"
    assert http.asked.index("/server_info") < http.asked.index("/get_server_info")


async def test_sglang_sums_data_parallel_ranks(scripted: Any) -> None:
    rank = '{"effective_max_running_requests_per_dp": 6, "memory_usage": {"token_capacity": 100}}'
    body = f'{{"speculative_algorithm": "EAGLE", "max_running_requests": 48, "internal_states": [{rank}, {rank}]}}'
    info = await engine_for("sglang").info(scripted({"/server_info": body}))
    assert info.capacity == Capacity(12, 200)


async def test_sglang_says_that_adaptive_makes_a_depth_meaningless(scripted: Any) -> None:
    body = '{"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_adaptive": true}'
    info = await engine_for("sglang").info(scripted({"/server_info": body}))
    assert "Adaptive" in info.warnings[0]


async def test_sglang_says_where_another_depth_is_active(scripted: Any) -> None:
    body = (
        '{"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3,'
        ' "internal_states": [{"speculative_num_steps": 7}]}'
    )
    info = await engine_for("sglang").info(scripted({"/server_info": body}))
    assert info.warnings == ("The engine was started with steps 3 and now runs 7.",)


async def test_sglang_of_a_front_end_without_states(scripted: Any) -> None:
    body = '{"speculative_algorithm": null, "internal_states": [], "max_running_requests": 48}'
    info = await engine_for("sglang").info(scripted({"/server_info": body}))
    assert info.capacity == Capacity(48, None)


@pytest.mark.parametrize(
    "reply",
    [
        GONE,
        HttpReply(200, b"<html>a login page</html>"),
        HttpReply(200, b"[]"),
        HttpReply(500, b"{}"),
        HttpReply(401, b'{"error": "Unauthorized"}'),
    ],
)
async def test_sglang_without_an_answer_knows_nothing_and_says_why(
    scripted: Any, reply: HttpReply
) -> None:
    info = await engine_for("sglang").info(scripted({"/server_info": reply}))
    assert info.settings is None
    assert info.capacity == Capacity()
    assert info.warnings


@pytest.mark.parametrize("kind", list(ENGINES))
@pytest.mark.parametrize(
    ("reply", "ready", "needs_key", "words"),
    [
        (HttpReply(200), True, False, "healthy"),
        (HttpReply(503, b""), False, False, ""),
        (HttpReply(401, b""), False, True, "api_key_env"),
        (HttpReply(403, b""), False, True, "API key"),
        (HttpReply(500, b""), False, False, "HTTP 500"),
        (HttpReply(404, b""), False, False, "HTTP 404"),
        (GONE, False, False, "connection refused"),
    ],
)
async def test_only_health_200_is_ready(
    kind: str, reply: HttpReply, ready: bool, needs_key: bool, words: str, scripted: Any
) -> None:
    http = scripted({"/health": reply, "/v1/models": '{"data": [{"id": "m"}]}'})
    readiness = await ENGINES[kind].readiness(http)  # type: ignore[index]
    assert (readiness.ready, readiness.needs_key) == (ready, needs_key)
    assert words in readiness.detail
    assert readiness.detail


async def test_llama_loading_is_said(scripted: Any, capture: Capture) -> None:
    reply = HttpReply(503, capture("llama_cpp_b10434/health_loading.json"))
    readiness = await engine_for("llama.cpp").readiness(scripted({"/health": reply}))
    assert readiness.detail == "loading the model"


def _llama(capture: Capture, slots: str) -> dict[str, bytes]:
    return {
        "/props": capture("llama_cpp_b10434/props.json"),
        "/slots": capture(f"llama_cpp_b10434/{slots}.json"),
        "/v1/models": capture("llama_cpp_b10434/models.json"),
    }


async def test_llama_tells_that_it_drafts_but_not_how_far(scripted: Any, capture: Capture) -> None:
    info = await engine_for("llama.cpp").info(scripted(_llama(capture, "slots_drafting_idle")))
    assert info.settings == Settings(enabled=True)
    assert info.capacity == Capacity(2, None)
    assert (info.model, info.version) == ("target.gguf", "b1-7e4c0a9")
    assert "does not report the length" in info.warnings[0]


async def test_llama_tells_the_type_once_it_served(scripted: Any, capture: Capture) -> None:
    info = await engine_for("llama.cpp").info(scripted(_llama(capture, "slots_drafting_served")))
    assert info.settings == Settings(algorithm="draft-simple", enabled=True)


async def test_llama_without_speculation_is_off(scripted: Any, capture: Capture) -> None:
    info = await engine_for("llama.cpp").info(scripted(_llama(capture, "slots_off")))
    assert info.settings == OFF
    assert info.warnings == ()


async def test_llama_with_slots_hidden_knows_nothing_of_speculation(
    scripted: Any, capture: Capture
) -> None:
    answers: dict[str, Any] = _llama(capture, "slots_off")
    answers["/slots"] = HttpReply(501, capture("llama_cpp_b10434/metrics_off.json"))
    info = await engine_for("llama.cpp").info(scripted(answers))
    assert info.settings is None
    assert info.capacity == Capacity(2, None)
    assert "HTTP 501" in info.warnings[0]


async def test_vllm_reads_the_depth_from_its_positions(scripted: Any, capture: Capture) -> None:
    http = scripted(
        {
            "/metrics": capture("vllm/metrics_eagle3.txt"),
            "/version": '{"version": "0.32.0"}',
            "/v1/models": '{"object": "list", "data": [{"id": "qwen"}]}',
        }
    )
    info = await engine_for("vllm").info(http)
    assert info.settings == Settings(num_steps=3, enabled=True)
    assert info.capacity == Capacity(None, 491520)
    assert (info.model, info.version) == ("qwen", "0.32.0")


async def test_vllm_off(scripted: Any, capture: Capture) -> None:
    info = await engine_for("vllm").info(scripted({"/metrics": capture("vllm/metrics_off.txt")}))
    assert info.settings == OFF
    assert info.capacity == Capacity(None, 16000)


async def test_vllm_with_metrics_of_something_else(scripted: Any) -> None:
    info = await engine_for("vllm").info(scripted({"/metrics": "sglang:num_running_reqs 0\n"}))
    assert info.settings is None


async def test_vllm_without_metrics_says_so(scripted: Any) -> None:
    info = await engine_for("vllm").info(scripted({}))
    assert info.settings is None
    assert "HTTP 404" in info.warnings[0]


async def test_sglang_generates_by_its_own_route(scripted: Any) -> None:
    http = scripted({"/generate": '{"text": " four", "meta_info": {"completion_tokens": 8}}'})
    generation = await engine_for("sglang").generate(http, None)
    assert (generation.ok, generation.tokens, generation.text) == (True, 8, " four")
    assert http.bodies[0]["sampling_params"] == {"max_new_tokens": 8, "temperature": 0}


async def test_sglang_generates_by_the_openai_route_where_its_own_is_hidden(
    scripted: Any, capture: Capture
) -> None:
    http = scripted(
        {
            "/v1/models": '{"data": [{"id": "qwen"}]}',
            "/v1/completions": capture("llama_cpp_b10434/completion.json"),
        }
    )
    generation = await engine_for("sglang").generate(http, None)
    assert (generation.ok, generation.tokens) == (True, 8)
    assert http.bodies[-1]["model"] == "qwen"


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp"])
async def test_others_generate_by_the_openai_route(
    kind: str, scripted: Any, capture: Capture
) -> None:
    http = scripted({"/v1/completions": capture("llama_cpp_b10434/completion.json")})
    generation = await ENGINES[kind].generate(http, "m")  # type: ignore[index]
    assert (generation.ok, generation.tokens) == (True, 8)
    assert http.bodies[0]["temperature"] == 0
    assert http.bodies[0]["model"] == "m"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (GONE, "connection refused"),
        (HttpReply(500, b'{"error": {"message": "boom"}}'), "HTTP 500: boom"),
        (HttpReply(502, b"<html>Bad Gateway</html>"), "Bad Gateway"),
        (HttpReply(200, b"<html>hello</html>"), "not JSON"),
        (HttpReply(200, b"{}"), "without one token"),
        (HttpReply(200, b'{"choices": [], "usage": {"completion_tokens": 0}}'), "without one"),
        (HttpReply(200, b'{"choices": "x", "usage": 3}'), "without one token"),
    ],
)
@pytest.mark.parametrize("kind", list(ENGINES))
async def test_a_generation_without_tokens_is_no_generation(
    kind: str, reply: HttpReply, words: str, scripted: Any
) -> None:
    http = scripted({"/generate": reply, "/v1/completions": reply})
    generation = await ENGINES[kind].generate(http, "m")  # type: ignore[index]
    assert not generation.ok
    assert words in generation.error


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "internal_states",
                    "speculative_algorithm",
                    "speculative_num_steps",
                    "memory_usage",
                    "data",
                    "id",
                    "params",
                    "speculative",
                    "speculative.types",
                    "choices",
                    "usage",
                    "error",
                    "meta_info",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(value=_JSON, status=st.sampled_from([200, 404, 500]))
async def test_any_json_is_survived(value: object, status: int) -> None:
    import json

    reply = HttpReply(status, json.dumps(value).encode())

    class Same:
        async def get(self, path: str, *, timeout_s: float = 5.0) -> HttpReply:
            return reply

        async def post(self, path: str, body: object, *, timeout_s: float = 60.0) -> HttpReply:
            return reply

    for engine in ENGINES.values():
        info = await engine.info(Same())
        assert info.settings is None or info.settings.num_steps is None or status == 200
        assert (await engine.generate(Same(), None)).ok in (True, False)
