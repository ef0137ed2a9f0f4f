"""One request's way to an engine and back: lease, send, retry, answer, and exactly one end.

A Call is a small state machine driven by callbacks: the connection's (`on_head`, `on_data`, `on_done`,
`on_lost`), the client's (`on_gone`, `on_drained`) and time's (`tick`). It never blocks and needs no task,
except to open a new connection. Whatever happens, `_finish` runs once: it gives back the lease and the
admission, closes the books, and nothing is sent to the client after it.

Retries: at most `retries.attempts`, only before the first byte of an answer, only on another member,
only for refused, 502, 503, 504 or a connection that died before any byte, and only within the budget. The
head of a stream is no part of it: engines send that before they have computed anything, so it is held back
until the first byte of the body.
A kept-alive connection that the engine closed just as it was used is replaced once and not counted.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from gateway.errors import BackendFailed, DeadlineExceeded, GatewayError, ShuttingDown
from gateway.fleet.evidence import Kind
from gateway.fleet.member import Lease, Member
from gateway.flow.marks import marks
from gateway.flow.phase import (
    ANSWERING,
    CONNECTING,
    ENDED,
    FAILED,
    FAULTS,
    PLACED,
    RETRY_STATUS,
    WAITING,
)
from gateway.flow.quota import Grant
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.flow.ticket import Ticket
from gateway.http.exchange import Exchange
from gateway.observe.labels import Attempt, RetryReason
from gateway.observe.outcome import Outcome
from gateway.upstream.connection import Connection, Headers
from gateway.upstream.faults import Fault, Unreachable
from gateway.upstream.headers import Told, read_answer

if TYPE_CHECKING:
    from gateway.flow.service import Service
    from gateway.flow.shared import Shared


_OK, _DONE = Outcome.OK, Attempt.OK


class Call(Ticket):
    """Made by the pipeline for each request; `start` whenever it is admitted."""

    # Defaults stand in the class, so that a request pays only for what it sets.
    counted = True
    """Whether it is a client's request, and not what several share."""
    phase = PLACED
    _lease: Lease | None = None
    _connection: Connection | None = None
    _connect: asyncio.Task[None] | None = None
    _tried: tuple[str, ...] = ()
    _replaced = False
    _head: Told | None = None
    """Of a stream whose body has not begun."""
    _paused_at = 0.0
    _own_limit = False
    """Whether the client's own limit is the shorter one."""

    def __init__(
        self, service: Service, exchange: Exchange | Shared, request: Request, grant: Grant | None, now: float
    ) -> None:
        limits = service.timeouts
        total = limits.stream_total_s if request.stream else limits.total_s
        priority = request.key.priority if request.key is not None else 0
        wanted = request.timeout_s or total
        super().__init__(request.tokens, now + min(total, wanted), priority)
        self._service = service
        self._grant = grant
        self.exchange: Exchange | Shared = exchange
        self.request = request
        if wanted < total:
            self._own_limit = True
        self._spoke_at = now
        self._record = Record(request.route, service.name, now)
        self.wait_until = now + service.limits.max_queue_s
        """Until when a request that reached nobody goes on looking for a member."""
        exchange.on_gone = self.leave

    def __repr__(self) -> str:
        return f"<Call {self.request.route} {self.phase.value} on={self.member} tried={self._tried}>"

    @property
    def member(self) -> Member | None:
        return self._lease.member if self._lease is not None else None

    # Out

    def start(self, now: float) -> None:
        """The request is admitted: go to a member."""
        if self.phase is PLACED:
            self._record.admitted = now
            self._attempt(now)

    def _attempt(self, now: float) -> None:
        request = self.request
        lease = self._service.fleet.lease(request.hint, request.tokens, self._tried)
        if lease is None:
            self.phase = PLACED
            self._service.defer(self, now)
        else:
            self._go(lease)

    def _go(self, lease: Lease) -> None:
        self._lease = lease
        self._replaced = False
        self._record.tries += 1
        connection = lease.member.pool.take()
        if connection is not None:
            self._send(lease, connection)
        else:
            self._open(lease)

    def _open(self, lease: Lease) -> None:
        self.phase = CONNECTING
        self._connect = self._service.tasks.start("connect", self._connect_to(lease))

    async def _connect_to(self, lease: Lease) -> None:
        try:
            connection = await lease.member.pool.open()
        except Unreachable as error:
            self._connect = None
            if self.phase is CONNECTING and self._lease is lease:
                self._broken(error.fault)
            return
        self._connect = None
        if self.phase is CONNECTING and self._lease is lease:
            self._send(lease, connection)
        else:
            connection.abandon()

    def _send(self, lease: Lease, connection: Connection) -> None:
        request = self.request
        self.phase = WAITING
        self._connection = connection
        self._record.sent = monotonic()
        head = lease.member.head(request.path, request.block, len(request.body))
        connection.send(head, request.body, self)

    # Back: the connection's callbacks

    def on_head(self, status: int, headers: Headers) -> None:
        lease = self._lease
        assert lease is not None
        member = lease.member
        now = self._record.answered = monotonic()
        told = read_answer(headers)
        self.phase = ANSWERING
        if status in RETRY_STATUS:
            if self._turned_away(member, told.elsewhere, now):
                return
        elif status >= 500:
            self._service.blame(member, Kind.ERROR_STATUS, now)
        self._name_version(told, member)
        if status == 200 and self.request.stream:
            self._head = told
            self.phase = WAITING
        else:
            self._answer(status, told)

    def on_whole(self, headers: Headers, body: bytes) -> None:
        lease = self._lease
        assert lease is not None
        member = lease.member
        record = self._record
        self._connection = None
        self.phase = ANSWERING
        record.status = 200
        now = record.answered = record.first = record.last = monotonic()
        told = read_answer(headers)
        self._name_version(told, member)
        if self.request.answer.whole(told, self._marks(told.version), body):
            self._succeed(member, now)
        else:
            self._cut_off(Fault.TRUNCATED, now)

    def _name_version(self, told: Told, member: Member) -> None:
        """The weights that answer: as the answer says, else as the member said before."""
        if not told.version:
            told.version = member.version_mark
        elif told.version != member.version_mark:
            self._service.fleet.learn_version(member, told.version.decode("latin-1"))
        self._record.version = member.version

    def _answer(self, status: int, told: Told) -> None:
        """From here on the answer is this member's."""
        self.phase = ANSWERING
        if self._head is not None:
            self._head = None
        self._record.status = status
        self.request.body = b""
        self.request.answer.head(status, told, self._marks(told.version))

    def _turned_away(self, member: Member, leaving: bytes, now: float) -> bool:
        """The member cannot take it. True if it goes elsewhere, and the client hears nothing of it."""
        if not leaving:
            self._service.blame(member, Kind.BAD_STATUS, now)
            return self._retry(RetryReason.UNAVAILABLE, Attempt.UNAVAILABLE, now)
        self._service.blame(member, Kind.ELSEWHERE, now)
        return self._retry(RetryReason.DRAINING, Attempt.DRAINING, now) or self._wait_for_another(
            Attempt.DRAINING, now
        )

    def on_data(self, data: bytes) -> None:
        now = monotonic()
        record = self._record
        if record.first:
            self._service.series.inter_chunk.observe(now - record.last)
        else:
            record.first = now
            if self._head is not None:
                self._answer(200, self._head)
        record.last = self._spoke_at = now
        lease = self._lease
        assert lease is not None
        lease.member.health.flowing(now)
        self.request.answer.data(data)
        if self.exchange.congested and self._connection is not None and self.phase is ANSWERING:
            self._paused_at = now
            self._connection.pause()
            self.exchange.on_drained = self._drained

    def on_done(self) -> None:
        if self.phase is ENDED:
            return
        self._connection = None
        if self._head is not None:
            self._answer(200, self._head)
        lease = self._lease
        assert lease is not None
        record = self._record
        now = record.last = monotonic()
        if not self.request.answer.done():
            self._cut_off(Fault.TRUNCATED, now)
            return
        status = record.status
        if status < 400:
            self._succeed(lease.member, now)
        elif status < 500:
            # A refusal of what the client sent says nothing about the engine, good or bad.
            self._finish(Outcome.CLIENT_ERROR, now, Attempt.CLIENT_ERROR)
        else:
            unavailable = status in RETRY_STATUS
            self._finish(
                Outcome.BACKEND_ERROR, now, Attempt.UNAVAILABLE if unavailable else Attempt.SERVER_ERROR
            )

    def _succeed(self, member: Member, now: float) -> None:
        transition = member.health.traffic_ok(now)
        if transition is not None:
            self._service.fleet.note(member, transition)
        member.last_ok_s = now - self._record.sent
        self._finish(_OK, now, _DONE)

    def on_lost(self, fault: Fault) -> None:
        connection, self._connection = self._connection, None
        if self.phase is ENDED:
            return
        if self.phase is ANSWERING:
            self._cut_off(fault, monotonic())
            return
        if fault is Fault.LOST and connection is not None and connection.reused and not self._replaced:
            # The engine closed an idle connection just as we used it (keep-alive race): nobody's fault.
            self._replaced = True
            assert self._lease is not None
            self._open(self._lease)
            return
        self._broken(fault)

    def _broken(self, fault: Fault) -> None:
        """An attempt has failed before the first byte of an answer."""
        lease = self._lease
        assert lease is not None
        now = monotonic()
        kind, attempt, reason = FAULTS[fault]
        self.phase = FAILED
        self._service.blame(lease.member, kind, now)
        untouched = fault in (Fault.REFUSED, Fault.CONNECT_TIMEOUT, Fault.LOST) or self._head is not None
        if untouched and self._retry(reason, attempt, now):
            return
        if fault in (Fault.REFUSED, Fault.CONNECT_TIMEOUT) and self._wait_for_another(attempt, now):
            return
        self._fail(BackendFailed(f"The request failed: {fault.sentence}."), now, attempt)

    def _cut_off(self, fault: Fault, now: float) -> None:
        """The answer broke after its head."""
        lease = self._lease
        assert lease is not None
        kind, attempt, _ = FAULTS[fault]
        self._service.blame(lease.member, kind, now)
        error = BackendFailed(f"The answer is incomplete: {Fault.TRUNCATED.sentence}.")
        self._record.error = error.message
        started = self.exchange.started
        self.request.answer.broken(error, self._marks(b""))
        self._finish(Outcome.TRUNCATED if started else Outcome.BACKEND_ERROR, now, attempt)

    # Retry

    def _retry(self, reason: RetryReason, attempt: Attempt, now: float) -> bool:
        """Try another member, if the rules allow it and there is one."""
        lease = self._lease
        assert lease is not None
        tried = (*self._tried, lease.member.name)
        service = self._service
        if len(tried) > service.retries.attempts or not self.exchange.open:
            return False
        # No engine has worked for it yet: then trying again makes no overload worse, and costs no budget.
        free = reason in (RetryReason.DRAINING, RetryReason.REFUSED)
        following = service.fleet.lease(self.request.hint, self.request.tokens, tried)
        if following is None:
            return False
        if not free and not service.may_retry(now):
            following.release()
            return False
        service.series.retries.add(reason)
        self._let_go(attempt)
        self._record.answered = 0.0
        self._tried = tried
        self._go(following)
        return True

    def _wait_for_another(self, attempt: Attempt, now: float) -> bool:
        """Nothing was begun and nobody else is there: wait for a member, within the queue's limit."""
        if now >= self.wait_until or not self.exchange.open:
            return False
        self._let_go(attempt)
        self._record.answered = 0.0
        self._tried = ()
        self.phase = PLACED
        self._service.defer(self, now)
        return True

    def fail_over(self, member: Member) -> None:
        """The member was found faulty: if nothing has come from it yet, go elsewhere."""
        lease = self._lease
        if lease is None or lease.member is not member:
            return
        if self.phase is WAITING:
            self._retry(RetryReason.TIMEOUT, Attempt.TIMEOUT, monotonic())
        elif self.phase is CONNECTING:
            self._retry(RetryReason.REFUSED, Attempt.REFUSED, monotonic())

    def _let_go(self, attempt: Attempt | None) -> None:
        """End the present attempt: nothing of it may be heard again."""
        if self._head is not None:
            self._head = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()
        task, self._connect = self._connect, None
        if task is not None:
            task.cancel()
        lease, self._lease = self._lease, None
        if lease is not None:
            if attempt is not None and not lease.member.retired:
                lease.member.series.attempts.add(attempt)
            lease.release()

    # Time and the client

    def tick(self, now: float) -> None:
        """Look at the limits; called some times a second."""
        limits = self._service.timeouts
        record = self._record
        if now >= self.deadline:
            # An answer that flows is no fault of the backend's, however long it gets.
            ours = self.phase in (CONNECTING, WAITING) and not self._own_limit
            error = DeadlineExceeded("The request took longer than its limit.")
            self._expire(error, Kind.FIRST_BYTE if ours else Kind.CLIENT_DEADLINE, now)
        elif self._paused_at:
            if now - self._paused_at > limits.silence_s:
                self._give_up_on_client(now)
        elif self.phase is ANSWERING:
            if now - max(record.last, record.answered) > limits.silence_s:
                error = DeadlineExceeded(f"The backend sent nothing for {limits.silence_s:g} s.")
                self._expire(error, Kind.SILENCE, now)
        elif self.phase is WAITING and self.request.stream and now - record.sent > limits.first_byte_s:
            error = DeadlineExceeded(f"The backend sent nothing within {limits.first_byte_s:g} s.")
            self._expire(error, Kind.FIRST_BYTE, now)
        if self.phase is not ENDED and now - self._spoke_at > limits.heartbeat_s:
            self._spoke_at = now
            if self.request.stream:
                self.request.answer.heartbeat(self._marks(b""))

    def _expire(self, error: DeadlineExceeded, kind: Kind, now: float) -> None:
        if self.phase is ENDED:
            return  # by what became of another call in the same sweep
        self.phase = FAILED
        if self._lease is not None:
            self._service.blame(self._lease.member, kind, now)
        self._fail(error, now, Attempt.TIMEOUT if kind.counts else Attempt.CANCELLED)

    def _give_up_on_client(self, now: float) -> None:
        self._record.error = "the client stopped reading"
        self._let_go(Attempt.CANCELLED)
        self.exchange.cut()
        self._finish(Outcome.CLIENT_GONE, now, None)

    def _drained(self) -> None:
        self._paused_at = 0.0
        self._record.last = monotonic()
        if self._connection is not None:
            self._connection.resume()

    def leave(self) -> None:
        """The client has gone: everything held for it is free at once."""
        self._finish(Outcome.CLIENT_GONE, monotonic(), Attempt.CANCELLED)

    def shut_down(self) -> None:
        """The gateway ends and cannot wait any longer."""
        self._fail(
            ShuttingDown("This gateway is shutting down.", retry_after_s=1), monotonic(), Attempt.CANCELLED
        )

    def refuse(self, error: GatewayError) -> None:
        """Not admitted, or not any longer."""
        self._fail(error, monotonic(), Attempt.CANCELLED)

    # End

    def _fail(self, error: GatewayError, now: float, attempt: Attempt | None) -> None:
        if self.phase is ENDED:
            return
        self._record.error = error.message
        answered = self._record.answered > 0 and self._head is None
        self._let_go(attempt)
        started = self.exchange.started
        if not started:
            self._record.status = error.status
        self.request.answer.broken(error, b"")
        self._finish(Outcome.TRUNCATED if started and answered else error.outcome, now, None)

    def _finish(self, outcome: Outcome, now: float, attempt: Attempt | None) -> None:
        if self.phase is ENDED:
            return
        self.phase = ENDED
        record = self._record
        member = self.member
        if member is not None:
            record.member = member.name
        self._let_go(attempt)
        record.outcome = outcome
        record.ended = monotonic()
        record.prompt_tokens, record.completion_tokens = self.request.answer.usage
        if self._grant is not None:
            self._close_grant(self._grant)
        self._service.ended(self, record)

    def _close_grant(self, grant: Grant) -> None:
        record = self._record
        if not record.sent:
            grant.cancel(record.ended)
        else:
            grant.close(record.ended, (record.prompt_tokens + record.completion_tokens) or None)

    def _marks(self, version: bytes) -> bytes:
        """The gateway's own header lines."""
        return marks(self._record, self.request.request_id, version)
