"""Keep secrets out of logs, journals, exports and screens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MASK = "********"

_FLAG = re.compile(
    r"(?P<head>--?(?:api[-_]?key|admin[-_]?api[-_]?key|hf[-_]?token|token|password|passwd|secret)(?:=|\s+)['\"]?)"
    r"(?P<value>[^\s'\"\\]+)",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    r"(?P<head>\b[A-Za-z0-9_]*(?:API_?KEY|TOKEN|PASSWORD|PASSWD|SECRET)\b\s*[=:]\s*['\"]?)"
    r"(?P<value>[^\s'\"\\,]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<head>\bBearer\s+)(?P<value>[A-Za-z0-9._~+/=-]{4,})", re.IGNORECASE)
_SECRET_FLAG = re.compile(
    r"--?(?:api[-_]?key|admin[-_]?api[-_]?key|hf[-_]?token|token|password|passwd|secret)",
    re.IGNORECASE,
)


class Redactor:
    """Masks known secret values, and what looks like one by the name before it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Very short values would mask ordinary words everywhere.
        self._secrets = tuple(sorted({s for s in secrets if len(s) >= 4}, key=len, reverse=True))

    def text(self, text: str) -> str:
        """``text`` with every secret value replaced by :data:`MASK`."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        for pattern in (_FLAG, _ASSIGNMENT, _BEARER):
            text = pattern.sub(lambda m: m["head"] + MASK, text)
        return text

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The same for an argument list, where a flag and its value are two items."""
        out: list[str] = []
        mask_next = False
        for item in argv:
            out.append(MASK if mask_next else self.text(item))
            mask_next = _SECRET_FLAG.fullmatch(item) is not None
        return tuple(out)
