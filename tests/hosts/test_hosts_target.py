from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.errors import UsageError
from specdash.hosts.ssh_target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-box", Target("gpu-box")),
        ("root@gpu-service.lan", Target("gpu-service.lan", "root")),
        ("root@gpu:2222", Target("gpu", "root", 2222)),
        ("gpu:2222", Target("gpu", None, 2222)),
        ("10.0.0.1", Target("10.0.0.1")),
        ("fe80::1%eth0", Target("fe80::1%eth0")),
        ("::1", Target("::1")),
        ("root@2001:db8::7", Target("2001:db8::7", "root")),
        ("root@[2001:db8::7]:22", Target("2001:db8::7", "root", 22)),
        ("[::1]", Target("::1")),
        ("ssh://me@host:7/", Target("host", "me", 7)),
        ("dom\\user@host", Target("host", "dom\\user")),
        ("me@corp.lan@jump", Target("jump", "me@corp.lan")),
        (" host ", Target("host")),
    ],
)
def test_forms(text: str, expected: Target) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "@host",
        "user@",
        "host:",
        "host:0",
        "host:65536",
        "host:x",
        "host:22:22",
        "[::1",
        "[::1]:",
        "-oProxyCommand=x",
        "root@-x",
        "-x@host",
        "a b",
        "a;id",
        "$(id)",
        "`id`",
        "a\nb",
        "host/path",
        "u`id`@host",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert caught.value.remedy


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_a_usage_error(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError:
        return
    assert target.host
    assert not set(target.host) & set(" \t\n'\"`$;&|<>\\")
    assert parse_target(str(target)) == target
