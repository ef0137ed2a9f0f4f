"""Which requests may get an answer that was computed for another one. Pure.

Without the caller's word only those whose answer follows from the request: temperature 0 (written down:
left out, it is the engine's default, which is not 0) or a seed, and one answer a prompt. On the caller's word
(`Cache-Control: max-age=N`, or `cache: true` on /predict) any. The same rule decides whether identical
requests that are under way share one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True)
class Reuse:
    """How a request may use answers of others, and others its answer."""

    look_up: bool = True
    """Whether an answer that exists, or is under way, will do. Else a new one is computed, and kept."""
    max_age_s: float = inf
    """The oldest answer that will do."""


_PLAIN = Reuse()
_FRESH = Reuse(look_up=False)


def deterministic(temperature: Any, seed: Any, n: Any) -> bool:
    """Whether the fields of a body say that its answer is always the same.

    A value of a strange type (which the engine may read leniently) says nothing.
    """
    if n is not None and (n != 1 or isinstance(n, bool)):
        return False
    if isinstance(seed, int) and not isinstance(seed, bool):
        return True
    return isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0


def reuse(certain: bool, cache_control: bytes, wish: bool | None = None) -> Reuse | None:
    """What a request allows; None: its answer is its own, and nobody else's.

    `certain`: it is deterministic. `wish`: the `cache` field of /predict, which counts for more.
    Directives are those of RFC 9111, 5.2.1; what cannot be read is left out.
    """
    if not cache_control and wish is None:
        return _PLAIN if certain else None
    if wish is False:
        return None
    directives = {name.strip().lower(): value for name, value in _directives(cache_control)}
    if b"no-store" in directives:
        return None
    max_age_s = _seconds(directives.get(b"max-age"))
    if not (certain or wish or max_age_s is not None):
        return None
    if b"no-cache" in directives or max_age_s == 0:
        return _FRESH
    return _PLAIN if max_age_s is None else Reuse(max_age_s=max_age_s)


def _directives(cache_control: bytes) -> list[tuple[bytes, bytes]]:
    parts = (part.partition(b"=") for part in cache_control.split(b",") if part.strip())
    return [(name, value.strip().strip(b'"')) for name, _, value in parts]


def _seconds(value: bytes | None) -> float | None:
    return float(value) if value is not None and value.isdigit() and len(value) < 12 else None
