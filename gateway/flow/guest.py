"""One client whose answer may come from a call that it shares, or from the cache.

What a Call is for a client that has one of its own: it has a record, a deadline, a grant and exactly one
end (`finish`), which closes its books. Where the answer comes from is its host's business: a `Crowd`, or the
cache. When the client leaves, or its own time is up, it leaves the host and hurts nobody there.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

from gateway.errors import DeadlineExceeded, GatewayError, ShuttingDown
from gateway.fleet.member import Member
from gateway.flow.marks import marks
from gateway.flow.quota import Grant
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.http.exchange import Exchange
from gateway.observe.outcome import Outcome

if TYPE_CHECKING:
    from gateway.flow.service import Service


class Host(Protocol):
    """Where a guest's answer comes from."""

    def drop(self, guest: Guest) -> None:
        """It has ended, well or not: it gets nothing more."""

    def pump(self, guest: Guest) -> None:
        """Its client can take more."""


class Guest:
    """Made by `gateway.flow.sharing` for each request that may be shared."""

    __slots__ = (
        "_service",
        "deadline",
        "ended",
        "exchange",
        "grant",
        "host",
        "paused_at",
        "record",
        "request",
        "taken",
        "taken_bytes",
        "verdict",
    )

    def __init__(
        self, service: Service, exchange: Exchange, request: Request, grant: Grant | None, now: float
    ) -> None:
        limits = service.timeouts
        total = limits.stream_total_s if request.stream else limits.total_s
        self._service = service
        self.exchange = exchange
        self.request = request
        self.grant = grant
        self.record = Record(request.route, service.name, now)
        self.deadline = now + min(total, request.timeout_s or total)
        self.host: Host | None = None
        self.taken = 0
        """Pieces of the shared answer that its client was given."""
        self.taken_bytes = 0
        self.paused_at = 0.0
        """Since when its client has not kept up; 0: it does."""
        self.verdict: Outcome | None = None
        """How it has ended, once its client was told."""
        self.ended = False
        exchange.on_gone = self.leave
        service.guest_came(self)

    def __repr__(self) -> str:
        return f"<Guest {self.request.route} {self.record.cache} {'ended' if self.ended else 'open'}>"

    def marks(self, version: bytes, age_s: float | None = None) -> bytes:
        return marks(self.record, self.request.request_id, version, age_s)

    # Its ends

    def fail(self, error: GatewayError) -> None:
        """End with an error, in the form that is still possible."""
        if self.ended:
            return
        record = self.record
        record.error = error.message
        begun = self.exchange.started and record.answered > 0
        if not self.exchange.started:
            record.status = error.status
        self.request.answer.broken(error, self.marks(b""))
        self.finish(Outcome.TRUNCATED if begun else error.outcome)

    def leave(self) -> None:
        """The client has gone."""
        self.finish(Outcome.CLIENT_GONE)

    def finish(self, outcome: Outcome) -> None:
        """Close the books. Nothing is sent to the client any more. Idempotent."""
        if self.ended:
            return
        self.ended = True
        record = self.record
        record.outcome = outcome
        record.ended = monotonic()
        record.prompt_tokens, record.completion_tokens = self.request.answer.usage()
        if self.grant is not None:
            close_grant(self.grant, record)
        self._service.guest_ended(self)
        host, self.host = self.host, None
        if host is not None:
            host.drop(self)

    # Time

    def tick(self, now: float) -> None:
        """Look at its own limits; called some times a second."""
        if now >= self.deadline:
            self.fail(DeadlineExceeded("The request took longer than its limit."))
        elif self.paused_at and now - self.paused_at > self._service.timeouts.silence_s:
            self.give_up()

    def give_up(self) -> None:
        """The client does not read what it asked for."""
        self.record.error = "the client stopped reading"
        self.exchange.cut()
        self.finish(Outcome.CLIENT_GONE)

    def drained(self) -> None:
        """The client keeps up again."""
        self.paused_at = 0.0
        if self.host is not None:
            self.host.pump(self)

    def shut_down(self) -> None:
        """The gateway ends and cannot wait any longer."""
        self.fail(ShuttingDown("This gateway is shutting down.", retry_after_s=1))

    def fail_over(self, member: Member) -> None:
        """A member was found faulty: the call's business."""


def close_grant(grant: Grant, record: Record) -> None:
    """Settle what a client took from its key, by what became of its request."""
    if record.sent:
        grant.close(record.ended, (record.prompt_tokens + record.completion_tokens) or None)
    elif record.outcome is Outcome.OK:
        grant.close(record.ended, 0)  # from the cache: no engine worked for it, the request itself counts
    else:
        grant.cancel(record.ended)
