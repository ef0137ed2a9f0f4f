"""Clients who asked the same at the same time: one call, its answer for each of them.

Whoever joins late gets what has come so far and then the rest as it comes. A client that leaves, runs out
of time or reads slowly hurts only itself: the answer is held once for all of them, up to a limit, and when
the slowest is further behind than that while others keep up, it is given up. An answer that grows beyond
the limit takes in no one more and is not kept. When nobody is left the call ends.

An engine's failure before anything was sent is tried once more for all who wait, not once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from gateway.errors import BackendFailed, GatewayError
from gateway.flow.cache.key import Question
from gateway.flow.guest import Guest
from gateway.flow.record import Record
from gateway.flow.request import Request, piece_by_piece
from gateway.flow.shared import SharedCall
from gateway.observe.outcome import Outcome
from gateway.upstream.headers import Told

if TYPE_CHECKING:
    from gateway.flow.service import Service

MAX_HELD_BYTES = 4 * 1024 * 1024
"""Of an answer, for those who come late and those who read slowly."""


class Place(NamedTuple):
    """Where an answer is looked for and kept."""

    question: Question
    version: bytes
    """Of the weights that it was to be answered by when it was asked."""
    wish: bytes = b""
    """What its client asks of them: a call may end up with others."""

    @property
    def name(self) -> bytes:
        """Equal for those who may share a call."""
        return self.question.same_bytes + self.version + self.wish


class Keeper(Protocol):
    """Who wants to know what became of a crowd."""

    def closed(self, crowd: Crowd) -> None:
        """It takes in no one more."""

    def keep(self, crowd: Crowd, told: Told, body: bytes) -> None:
        """Its answer has come in order, with status 200, and is not too big."""


def _nothing() -> None:
    pass


class Crowd:
    """Satisfies `gateway.flow.shared.Shared` and `gateway.flow.guest.Host`."""

    def __init__(self, service: Service, leader: Guest, keeper: Keeper, place: Place | None) -> None:
        """`place`: where its answer is to be kept; None: nowhere."""
        self.service = service
        self._keeper = keeper
        self.place = place
        # Sent in the leader's name; its time limit and its key's grant stay the leader's own.
        self.request: Request = replace(leader.request, answer=self, timeout_s=None)
        self.guests: dict[Guest, None] = {}
        self.call: SharedCall | None = None
        self.on_gone: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.on_ended: Callable[[], None] = _nothing
        """Called when its answer is there, or it has failed for good."""
        self.record: Record | None = None
        """Of the call that answers it."""
        self.joinable = True
        self._told: Told | None = None
        self._status = 0
        self._parts: list[bytes] = []
        self._first = 0
        """Number of the first piece that is still held."""
        self._size = 0
        self._whole = False
        self._tries = 1
        self._swallow = False
        self._final: Record | None = None
        self.add(leader)

    def __repr__(self) -> str:
        return f"<Crowd of {len(self.guests)}, {self._size} bytes{' whole' if self._whole else ''}>"

    # Guests

    def add(self, guest: Guest) -> None:
        """Take it in. Only while `joinable`."""
        guest.host = self
        self.guests[guest] = None
        if self._told is not None:
            self._show_head(guest)
            self.pump(guest)

    def drop(self, guest: Guest) -> None:
        self.guests.pop(guest, None)
        if not self.guests and self._final is None:
            self._close()
            self.on_gone()

    def send(self, now: float) -> None:
        """Go to an engine alone."""
        self.service.submit(SharedCall(self.service, self, replace(self.request), now), now)

    # What the call asks

    @property
    def open(self) -> bool:
        return bool(self.guests)

    @property
    def started(self) -> bool:
        return self._told is not None and any(guest.exchange.started for guest in self.guests)

    @property
    def congested(self) -> bool:
        return all(guest.exchange.congested for guest in self.guests)

    def cut(self) -> None:
        for guest in tuple(self.guests):
            guest.give_up()

    # The answer

    def head(self, status: int, told: Told, marks: bytes) -> None:
        if status >= 500 and self._may_try_again():
            self._swallow = True
            return
        self._status = status
        self._told = told
        for guest in tuple(self.guests):
            self._show_head(guest)

    def data(self, data: bytes) -> None:
        if self._swallow:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_HELD_BYTES:
            self._close()
            self._let_go_of_the_slowest()
        for guest in tuple(self.guests):
            self.pump(guest)

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        return piece_by_piece(self, told, marks, body)

    def done(self) -> bool:
        if self._swallow:
            return True
        self._whole = True
        for guest in tuple(self.guests):
            self.pump(guest)
        answered = [guest for guest in self.guests if guest.verdict is not None]
        return not answered or any(guest.verdict is Outcome.OK for guest in answered)

    def broken(self, error: GatewayError, marks: bytes) -> None:
        if self._swallow or (isinstance(error, BackendFailed) and self._may_try_again()):
            self._swallow = True
            return
        for guest in tuple(self.guests):
            if guest.verdict is None:
                self._break(guest, error)

    def heartbeat(self, marks: bytes) -> bool:
        beats = [
            guest.request.answer.heartbeat(guest.marks(b""))
            for guest in tuple(self.guests)
            if not guest.exchange.congested
        ]
        return any(beats)

    def usage(self) -> tuple[int, int]:
        return next((guest.request.answer.usage() for guest in self.guests), (0, 0))

    def ended(self, record: Record) -> None:
        self.call = None
        if self._swallow and self.guests:
            self._swallow = False
            self._tries += 1
            self.send(monotonic())
            return
        self._close()
        self._final = record
        self.on_drained = _nothing
        told = self._told
        good = self._whole and record.status == 200 and not record.changed
        if good and told is not None and self._size <= MAX_HELD_BYTES:
            self._keeper.keep(self, told, b"".join(self._parts))
        for guest in tuple(self.guests):
            if guest.verdict is not None:
                self._conclude(guest)
            elif not self._whole:
                guest.fail(BackendFailed("The call ended without an answer."))
        self.on_ended()

    # Inside

    def _may_try_again(self) -> bool:
        """Whether its failure was tried by one for many: once, and only if nobody has seen any of it."""
        tries = self.call.record.tries if self.call is not None else self._tries
        return self._tries == 1 and tries <= 1 and len(self.guests) > 1 and self._told is None

    def _close(self) -> None:
        if self.joinable:
            self.joinable = False
            self._keeper.closed(self)

    def _show_head(self, guest: Guest) -> None:
        told = self._told
        assert told is not None
        now = monotonic()
        call = self.record or (self.call.record if self.call is not None else self._final)
        record = guest.record
        record.status = self._status
        if call is not None:
            record.admitted = max(record.started, call.admitted)
            record.sent = max(record.started, call.sent)
        record.answered = now
        guest.request.answer.head(self._status, told, guest.marks(told.version))

    def pump(self, guest: Guest) -> None:
        """Give it what has come and it has not got yet, as far as its client keeps up."""
        if guest.verdict is not None or self._told is None:
            return
        exchange, answer = guest.exchange, guest.request.answer
        end = self._first + len(self._parts)
        while guest.taken < end and not exchange.congested:
            data = self._parts[guest.taken - self._first]
            guest.taken += 1
            guest.taken_bytes += len(data)
            if not guest.record.first:
                guest.record.first = monotonic()
            answer.data(data)
        if guest.ended:
            return
        if self._whole and guest.taken == end:
            self._complete(guest)
        elif exchange.congested:
            guest.paused_at = guest.paused_at or monotonic()
            exchange.on_drained = guest.drained
        elif self.on_drained is not _nothing:
            resume, self.on_drained = self.on_drained, _nothing
            resume()

    def _complete(self, guest: Guest) -> None:
        guest.record.last = monotonic()
        if not guest.request.answer.done():
            self._break(guest, BackendFailed("The answer is incomplete: the engine ended it early."))
            return
        guest.verdict = Outcome.OK
        if self._final is not None:
            self._conclude(guest)

    def _break(self, guest: Guest, error: GatewayError) -> None:
        started = guest.exchange.started
        guest.record.error = error.message
        if not started:
            guest.record.status = error.status
        begun = started and self._told is not None
        guest.request.answer.broken(error, guest.marks(b""))
        guest.verdict = Outcome.TRUNCATED if begun else error.outcome
        if self._final is not None:
            self._conclude(guest)

    def _conclude(self, guest: Guest) -> None:
        """The call is over, and so is this client's answer."""
        final, record = self._final, guest.record
        assert final is not None
        assert guest.verdict is not None
        record.member = final.member
        record.version = final.version
        record.tries = final.tries
        if not record.admitted and final.admitted:
            record.admitted = max(record.started, final.admitted)
        if not record.sent and final.sent:
            record.sent = max(record.started, final.sent)
        outcome = guest.verdict
        if outcome is Outcome.OK and final.outcome is not None and final.status >= 400:
            outcome = final.outcome
        guest.finish(outcome)

    def _let_go_of_the_slowest(self) -> None:
        """What everybody has is not held any longer; who is too far behind the others is given up."""
        for guest in tuple(self.guests):
            if self._size - guest.taken_bytes > MAX_HELD_BYTES and not self.congested:
                guest.give_up()
        behind = min((guest.taken for guest in self.guests), default=self._first + len(self._parts))
        if behind > self._first:
            del self._parts[: behind - self._first]
            self._first = behind
