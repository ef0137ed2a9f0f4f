"""Looking after the members: one task each asks for health, names and, when in doubt, counters.

A probe never runs the model. The engine's counters are read only while requests run on a member that
has sent nothing for a while: that is what tells a frozen engine from a slow answer. The verdict is
`gateway.fleet.health`'s.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time

import msgspec

from gateway.fleet.evidence import Kind
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member
from gateway.settings.tree import Health
from gateway.upstream.faults import Fault, Unreachable
from gateway.upstream.fetch import Answer, fetch

logger = logging.getLogger(__name__)

NAMES_EVERY_S = 30.0
"""Between two readings of a member's model names."""

AWAY_S = 0.2
"""Between two probes of a member that leaves, at most: most come back soon, with other weights."""

JITTER = 0.2
"""Probes are spread by this share of the interval, so that many members are not asked at once."""

_TOKENS = re.compile(rb"^vllm:(?:prompt|generation)_tokens_total\{[^}]*\}\s+([0-9.e+]+)", re.MULTILINE)
_RUNNING = re.compile(rb"^vllm:num_requests_running\{[^}]*\}\s+([0-9.e+]+)", re.MULTILINE)

KIND_OF = {
    Fault.REFUSED: Kind.REFUSED,
    Fault.CONNECT_TIMEOUT: Kind.FIRST_BYTE,
    Fault.LOST: Kind.RESET,
    Fault.TRUNCATED: Kind.TRUNCATED,
    Fault.MALFORMED: Kind.MALFORMED,
}
"""What a fault of a connection says about the member."""


class ModelCard(msgspec.Struct):
    id: str


class ModelList(msgspec.Struct):
    data: list[ModelCard]


async def watch(fleet: Fleet, member: Member, options: Health) -> None:
    """Probe one member until cancelled."""
    names_at = 0.0
    while True:
        started = time.monotonic()
        try:
            answer = await _probe(fleet, member, options)
            if answer is not None and started >= names_at:
                await _learn_names(fleet, member, options)
                names_at = started + NAMES_EVERY_S
            if member.in_flight and member.health.silent_s(time.monotonic()) > options.interval_s:
                await _read_counters(fleet, member, options)
        except Exception:
            # A member that nobody looks after any more would stay as it is for ever.
            logger.exception("Probing %s/%s failed; it goes on", fleet.model, member.name)
        interval_s = min(options.interval_s, AWAY_S) if member.health.away else options.interval_s
        pause = interval_s * (1 + JITTER * (random.random() - 0.5))
        await asyncio.sleep(max(0.0, started + pause - time.monotonic()))


async def _probe(fleet: Fleet, member: Member, options: Health) -> Answer | None:
    try:
        answer = await fetch(member.pool, "GET", "/health", timeout_s=options.timeout_s)
    except TimeoutError:
        detail = f"no answer within {options.timeout_s:g} s"
        fleet.note(member, member.health.probe_failed(time.monotonic(), Kind.FIRST_BYTE, detail))
        return None
    except Unreachable as error:
        kind = KIND_OF[error.fault]
        fleet.note(member, member.health.probe_failed(time.monotonic(), kind, str(error)))
        return None
    now = time.monotonic()
    if answer.header(b"x-changeover-elsewhere"):
        fleet.note(member, member.health.probe_failed(now, Kind.ELSEWHERE))
        return None
    if answer.status != 200:
        detail = f"health answered {answer.status}"
        fleet.note(member, member.health.probe_failed(now, Kind.BAD_STATUS, detail))
        return None
    fleet.learn_version(member, answer.header(b"x-model-version"))
    fleet.note(member, member.health.probe_ok(now))
    return answer


async def _learn_names(fleet: Fleet, member: Member, options: Health) -> None:
    try:
        answer = await fetch(
            member.pool, "GET", "/v1/models", timeout_s=options.timeout_s, headers=member.authorization
        )
        cards = msgspec.json.decode(answer.body, type=ModelList).data
    except (TimeoutError, Unreachable, msgspec.DecodeError):
        return  # an engine that lists no models still answers to the configured name
    fleet.learn_names(member, tuple(card.id for card in cards))


async def _read_counters(fleet: Fleet, member: Member, options: Health) -> None:
    tokens: float | None = None
    running = member.in_flight
    try:
        answer = await fetch(member.pool, "GET", "/metrics", timeout_s=options.timeout_s)
    except (TimeoutError, Unreachable):
        # An engine that does not even show its counters has not moved them.
        member.series.load_errors.add()
        return
    if answer.status == 200:
        counts = [float(number) for number in _TOKENS.findall(answer.body)]
        tokens = sum(counts) if counts else None
        running = max(running, int(sum(float(number) for number in _RUNNING.findall(answer.body))))
    if tokens is None:
        member.series.load_errors.add()
    fleet.note(member, member.health.counters(time.monotonic(), tokens, running))
