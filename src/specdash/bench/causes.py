"""Why a request failed, as a stable word and a sentence: exceptions as data."""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass

import aiohttp


@dataclass(frozen=True, slots=True)
class Trouble:
    """``cause`` is a key of ``requests.errors``; ``connected`` says whether anybody answered."""

    cause: str
    detail: str
    connected: bool


_BY_ERRNO = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ETIMEDOUT: "connect-timeout",
    errno.EMFILE: "too-many-files",
    errno.EADDRNOTAVAIL: "no-local-port",
}
_CONNECTED = frozenset({"reset", "stalled", "bad-http", "early-close", "request-failed"})


def trouble_of(error: BaseException) -> Trouble:
    """For what aiohttp and the sockets raise."""
    cause = _cause(error)
    # aiohttp names its default TLS setting even where there is no TLS.
    detail = (str(error) or type(error).__name__).replace(" ssl:default", "")
    return Trouble(cause, detail, cause in _CONNECTED)


def _cause(error: BaseException) -> str:
    if isinstance(error, (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError)):
        return "tls"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, aiohttp.InvalidURL):
        return "bad-address"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no-such-host"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "connect-timeout"
    if isinstance(error, TimeoutError):
        return "stalled"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "reset"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "reset" if _errno(error) == errno.ECONNRESET else "early-close"
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.http.HttpProcessingError)):
        return "bad-http"
    number = _errno(error)
    if number is not None and number in _BY_ERRNO:
        return _BY_ERRNO[number]
    if isinstance(error, aiohttp.ClientConnectionError):
        return "no-connection"
    return "request-failed"


def _errno(error: BaseException | None) -> int | None:
    while error is not None:
        number = getattr(error, "errno", None)
        if isinstance(number, int):
            return number
        error = error.__cause__ or error.__context__
    return None
