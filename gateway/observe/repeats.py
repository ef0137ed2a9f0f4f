"""Keeps repeated messages from flooding the log: once per change, or once per interval. Pure, bounded."""

from __future__ import annotations

from collections import OrderedDict

MAX_KEYS = 4096
"""The keys longest unused are forgotten: their next message is written again."""


class OncePerChange:
    """Says whether something is news: `if changes.news(member, state): logger.info(…)`."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, object] = OrderedDict()

    def news(self, key: str, value: object) -> bool:
        """True if `value` differs from the last one given for `key`, or is the first."""
        known = key in self._last
        same = known and self._last[key] == value
        self._last[key] = value
        self._last.move_to_end(key)
        if len(self._last) > MAX_KEYS:
            self._last.popitem(last=False)
        return not same

    def forget(self, key: str) -> None:
        self._last.pop(key, None)


class AtMostEvery:
    """Lets a message with the same key through once per interval, and counts the others."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def due(self, key: str, now: float) -> int | None:
        """None: keep silent. Else write, and say how many were suppressed since the last time.

        `now` on CLOCK_MONOTONIC, in seconds.
        """
        last = self._seen.get(key)
        if last is not None and now - last[0] < self._interval_s:
            self._seen[key] = (last[0], last[1] + 1)
            return None
        self._seen[key] = (now, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)
        return last[1] if last is not None else 0
