"""Takes secrets out of text before it is written anywhere.

Known secrets are replaced wherever they stand; unknown ones where their place gives them away (after
`Bearer`, `Authorization`, `api_key` and the like, in a URL's userinfo, or by the form `sk-…`). What a
validation error quotes of the input goes as well: it is somebody's prompt. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "[redacted]"

SHORTEST_SECRET = 4
"""Anything shorter would blank out ordinary words."""

_NAMES = r"(?:x-)?api[-_]?key|token|password|passwd|secret"
_SEPARATOR = r"b?[\"']?\s*[:=]\s*b?[\"']?|[\"']\s*,\s*b?[\"']"
"""`key=…`, `"key": "…"`, `(b'key', b'…')`."""
_PATTERNS = (
    # Headers whose value may have any form: up to the quote or the line's end.
    (
        re.compile(rf"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)({_SEPARATOR})[^\"'\r\n]+"),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)[ \t]+[^\s\"',;]+"), rf"\1 {MASK}"),
    (re.compile(rf"(?i)\b({_NAMES})({_SEPARATOR})[^\s\"',;&)}}\]]+"), rf"\1\2{MASK}"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), MASK),
    (re.compile(r"(\w+://)[^/\s@\"']+@"), rf"\1{MASK}@"),
    # pydantic's errors quote what was sent.
    (re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL), f"input_value={MASK}"),
)
# No pattern can match text without one of these: most lines are done with one search.
_HINT = re.compile(
    r"(?i)bearer|basic|authorization|api[-_]?key|token|passw|secret|cookie|sk-|://|input_value="
)


class Redactor:
    """Knows this gateway's secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Secrets shorter than `SHORTEST_SECRET` are not looked for."""
        self._secrets: tuple[str, ...] = ()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Know these as well; nothing is forgotten, since what was a secret may still be in use."""
        known = {*self._secrets, *(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)}
        self._secrets = tuple(sorted(known, key=len, reverse=True))

    def known(self, text: str) -> str:
        """Replace the known secrets only: for text of our own making."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def __call__(self, text: str) -> str:
        text = self.known(text)
        if _HINT.search(text) is None:
            return text
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text
