"""Prompts: built in and from files, their order and their salt."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from specdash.bench.workloads import KINDS, Prompt, load_prompts
from specdash.core.errors import UsageError, WorkFailedError


@pytest.mark.parametrize("kind", KINDS)
def test_built_in_sets_are_real_and_varied(kind: str) -> None:
    prompts = load_prompts(kind).prompts
    texts = [prompt.text for prompt in prompts]
    assert len(texts) >= 16
    assert len({text[:40] for text in texts}) == len(texts)
    assert all(len(text) > 80 for text in texts)
    assert all("%%" not in text for text in texts)


def test_mixed_holds_every_kind() -> None:
    mixed = {prompt.text for prompt in load_prompts("mixed").prompts}
    for kind in KINDS[1:]:
        assert mixed & {prompt.text for prompt in load_prompts(kind).prompts}


def taken(count: int, kind: str = "chat", **more: int) -> list[str]:
    settings = {"seed": 0, "concurrency": 4, **more}
    return [p.text for p in islice(load_prompts(kind).ordered(**settings), count)]


def test_every_candidate_gets_the_same_requests() -> None:
    assert taken(40) == taken(40)


def test_no_prefix_is_sent_twice() -> None:
    sent = [
        text
        for concurrency in (1, 4, 16)
        for round_ in (0, 1)
        for text in taken(64, concurrency=concurrency, round_=round_)
    ]
    warm = load_prompts("chat").warm_up(seed=0, concurrency=4)
    sent += [prompt.text for prompt in islice(warm, 64)]
    assert len({text[:10] for text in sent}) == len(sent)


def test_a_pass_holds_each_prompt_once_in_an_order_of_its_own() -> None:
    def unsalted(texts: list[str]) -> list[str]:
        return [text[11:] for text in texts]

    first, second = unsalted(taken(16)), unsalted(taken(32)[16:])
    assert sorted(first) == sorted(second)
    assert first != second
    assert first != unsalted(taken(16, seed=1))
    # The work is the same at every concurrency; only the salt differs.
    assert first == unsalted(taken(16, concurrency=9))


def test_the_salt_goes_before_the_first_message() -> None:
    prompt = Prompt((("system", "be kind"), ("user", "hello"))).salted("0a1b2c3d")
    assert prompt.messages[0] == ("system", "[0a1b2c3d] be kind")
    assert prompt.messages[1] == ("user", "hello")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"prompt": "hi"}, (("user", "hi"),)),
        ({"text": "hi"}, (("user", "hi"),)),
        ({"prompt": ["hi", "and then"]}, (("user", "hi"),)),
        ({"turns": ["hi", "and then"]}, (("user", "hi"),)),
        ("hi", (("user", "hi"),)),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
            (("system", "s"), ("user", "hi")),
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b"},
                    {"role": "user", "content": [{"type": "text", "text": "c"}]},
                    {"role": "assistant", "content": "d"},
                ]
            },
            (("user", "a"), ("assistant", "b"), ("user", "c")),
        ),
        (
            {
                "conversations": [
                    {"from": "human", "value": "a"},
                    {"from": "gpt", "value": "b"},
                    {"from": "human", "value": "c"},
                ]
            },
            (("user", "a"),),
        ),
    ],
)
def test_lines_of_a_jsonl_file(tmp_path: Path, line: object, expected: object) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n" + json.dumps(line) + "\n\n", "utf-8")
    assert load_prompts(str(file)).prompts[0].messages == expected
    file = tmp_path / "p.json"
    file.write_text(json.dumps([line]), "utf-8")
    assert load_prompts(str(file)).prompts[0].messages == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\nthree\n", ["one", "two", "three"]),
        ("one\nmore\n\ntwo\n", ["one\nmore", "two"]),
        ("\ufeffone\r\ntwo\r\n", ["one", "two"]),
        ("\n\n  \nonly\n\n", ["only"]),
    ],
)
def test_plain_text(tmp_path: Path, text: str, expected: list[str]) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes(text.encode())
    assert [prompt.text for prompt in load_prompts(str(file)).prompts] == expected


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("a.jsonl", b'{"prompt": "x"}\n{broken\n', "line 2"),
        ("a.jsonl", b'{"other": "x"}\n', "line 1"),
        ("a.jsonl", b'{"prompt": "  "}\n', "line 1"),
        ("a.jsonl", b"[" * 100_000, "line 1"),
        ("a.jsonl", b"", "no prompt"),
        ("a.json", b"{}", "list"),
        ("a.txt", b"\n \n", "no prompt"),
        ("a.txt", b"\xff\xfe", "UTF-8"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, raw: bytes, says: str) -> None:
    file = tmp_path / name
    file.write_bytes(raw)
    with pytest.raises(WorkFailedError) as caught:
        load_prompts(str(file))
    assert says in caught.value.message


@pytest.mark.parametrize("name", ["", "poetry", "no/such/file.txt", ".", "\0", "a" * 5000])
def test_neither_kind_nor_file(name: str) -> None:
    with pytest.raises((UsageError, WorkFailedError)):
        load_prompts(name)
