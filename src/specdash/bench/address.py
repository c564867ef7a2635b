"""What a user's URL means: a root, an API base such as ``/v1``, or a full endpoint. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from specdash.core.errors import UsageError

Route = Literal["generate", "chat", "completions"]
"""``generate`` is SGLang's own, the others are OpenAI's."""

ROUTE_SUFFIX: dict[Route, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "generate": "/generate",
}
_API_BASE = re.compile(r"/v\d+[a-z0-9]*$")


@dataclass(frozen=True, slots=True)
class Address:
    """``root`` answers the engine's own paths (/server_info), ``api`` the OpenAI ones.

    ``route`` is set where the URL names a full endpoint; ``query`` goes with each generation.
    ``authorization`` comes from ``user:password@`` and is never part of a text.
    """

    root: str
    api: str
    route: Route | None = None
    query: str = ""
    authorization: str | None = None
    shown: str = ""

    def url(self, route: Route) -> str:
        """Where to send a generation."""
        head = self.root if route == "generate" else self.api
        return head + ROUTE_SUFFIX[route] + (f"?{self.query}" if self.query else "")


def parse_address(url: str) -> Address:
    """Raises UsageError, naming what is wrong, for anything but an http(s) URL of a host."""
    text = url.strip()
    if "://" not in text:
        text = "http://" + text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _bad(url, str(error)) from error
    if parts.scheme not in ("http", "https"):
        raise _bad(url, f"the scheme {parts.scheme!r} is not http or https")
    if not parts.hostname or any(char.isspace() or ord(char) < 32 for char in text):
        raise _bad(url, "it names no host")
    try:
        parts.hostname.encode("idna")
    except UnicodeError as error:
        raise _bad(url, "it names no possible host") from error
    if port == 0:
        raise _bad(url, "port 0 cannot be connected to")
    path = parts.path.rstrip("/")
    route: Route | None = None
    for name, suffix in ROUTE_SUFFIX.items():
        if path.endswith(suffix):
            route, path = name, path.removesuffix(suffix)
            break
    base = _API_BASE.search(path)
    if base is not None:
        root, api = path[: base.start()], path
    elif route in ("chat", "completions"):
        root = api = path
    else:
        root, api = path, path + "/v1"
    origin = f"{parts.scheme}://{_host_port(parts)}"
    return Address(
        root=origin + root,
        api=origin + api,
        route=route,
        query=parts.query,
        authorization=_basic(parts),
        shown=urlunsplit((parts.scheme, _host_port(parts), parts.path, "", "")),
    )


def _host_port(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _basic(parts: SplitResult) -> str | None:
    if parts.username is None and parts.password is None:
        return None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _bad(url: str, why: str) -> UsageError:
    shown = re.sub(r"//[^/@]*@", "//", url)
    return UsageError(
        f"--url: {shown!r} cannot be used: {why}",
        remedy="Give a root (http://host:30000), .../v1, or a full endpoint.",
        code="bad-url",
    )
