"""What a user's URL means."""

from __future__ import annotations

import pytest

from specdash.bench.address import parse_address
from specdash.core.errors import UsageError


@pytest.mark.parametrize(
    ("url", "root", "chat"),
    [
        ("http://h:30000", "http://h:30000", "http://h:30000/v1/chat/completions"),
        ("http://h:30000/", "http://h:30000", "http://h:30000/v1/chat/completions"),
        ("h:30000", "http://h:30000", "http://h:30000/v1/chat/completions"),
        ("http://h/v1", "http://h", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h", "http://h/v1/chat/completions"),
        ("https://h/llm/v1", "https://h/llm", "https://h/llm/v1/chat/completions"),
        ("https://h/llm", "https://h/llm", "https://h/llm/v1/chat/completions"),
        ("http://h/api/paas/v4", "http://h/api/paas", "http://h/api/paas/v4/chat/completions"),
        ("http://[::1]:8000/v1", "http://[::1]:8000", "http://[::1]:8000/v1/chat/completions"),
        ("  http://h  ", "http://h", "http://h/v1/chat/completions"),
    ],
)
def test_roots_and_bases(url: str, root: str, chat: str) -> None:
    address = parse_address(url)
    assert address.route is None
    assert address.root == root
    assert address.url("chat") == chat


@pytest.mark.parametrize(
    ("url", "route", "root"),
    [
        ("http://h/v1/chat/completions", "chat", "http://h"),
        ("http://h/v1/completions", "completions", "http://h"),
        ("http://h/generate", "generate", "http://h"),
        ("http://h/base/generate", "generate", "http://h/base"),
        ("http://h/openai/chat/completions", "chat", "http://h/openai"),
    ],
)
def test_full_endpoints_stand(url: str, route: str, root: str) -> None:
    address = parse_address(url)
    assert address.route == route
    assert address.root == root
    assert address.url(address.route or "chat") == url


def test_a_query_goes_along_and_is_not_shown() -> None:
    address = parse_address("https://h/v1/chat/completions?api-version=1&key=s3cret")
    assert address.url("chat").endswith("/chat/completions?api-version=1&key=s3cret")
    assert "s3cret" not in address.shown


def test_a_password_becomes_a_header_and_is_not_shown() -> None:
    address = parse_address("https://me:s3cret@h:8000/v1")
    assert address.authorization == "Basic bWU6czNjcmV0"
    assert "s3cret" not in address.shown + address.root + address.api
    assert address.shown == "https://h:8000/v1"


@pytest.mark.parametrize(
    "url",
    [
        *("", "http://", "ftp://h", "http://h:99999", "http://h:0", "http://h:x", "http://a b/"),
        *("://", "http://x..y", f"http://{'a' * 70}.com", "http://\udcff"),
    ],
)
def test_what_cannot_be_used_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        parse_address(url)


def test_the_complaint_hides_the_password() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("ftp://me:s3cret@h")
    assert "s3cret" not in caught.value.message
