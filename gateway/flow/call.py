"""One request's way to an engine and back: send, answer, and exactly one end.

A Call is a small state machine driven by callbacks: the connection's (`on_head`, `on_data`, `on_done`,
`on_lost`), the client's (`on_gone`, `on_drained`) and time's (`tick`). It never blocks. Whatever happens,
`_finish` runs once: it gives back the lease and the admission, closes the books, and nothing is sent to the
client after it. The way to a member and on to another one is `flow.attempt`, the time limits are
`flow.limits`. An answer that breaks after its first byte ends in `_cut_off`, and nowhere else.

A kept-alive connection that the engine closed just as it was used is replaced once and not counted.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from gateway.errors import BackendFailed, DeadlineExceeded, GatewayError, ShuttingDown
from gateway.fleet.evidence import Kind
from gateway.fleet.member import UNVERSIONED, Lease, Member
from gateway.flow.aim import not_served
from gateway.flow.attempt import Attempting
from gateway.flow.limits import Overdue, past_deadline, silent
from gateway.flow.marks import marks
from gateway.flow.phase import ANSWERING, ENDED, FAILED, FAULTS, RETRY_STATUS, WAITING
from gateway.flow.quota import Grant
from gateway.flow.request import Request
from gateway.flow.resume.continuing import Continuing
from gateway.http.exchange import Exchange
from gateway.observe.labels import Attempt, RetryReason
from gateway.observe.outcome import Outcome
from gateway.upstream.faults import Fault
from gateway.upstream.headers import Headers, Told, read_answer

if TYPE_CHECKING:
    from gateway.flow.service import Service
    from gateway.flow.shared import Shared


_OK, _DONE = Outcome.OK, Attempt.OK


class Call(Continuing):
    """Made by the pipeline for each request; `start` whenever it is admitted."""

    counted = True
    """Whether it is a client's request, and not what several share."""
    _paused_at = 0.0
    _own_limit = False
    """Whether the client's own limit is the shorter one."""

    def __init__(
        self, service: Service, exchange: Exchange | Shared, request: Request, grant: Grant | None, now: float
    ) -> None:
        limits = service.timeouts
        total = limits.stream_total_s if request.stream else limits.total_s
        wanted = request.timeout_s or total
        priority = request.key.priority if request.key is not None else 0
        deadline = now + (wanted if wanted < total else total)
        Attempting.__init__(self, service, exchange, request, deadline, priority, now)
        if request.resumable and service.continues:
            self._keep(request)
        self._grant = grant
        if wanted < total:
            self._own_limit = True
        self._spoke_at = now
        exchange.on_gone = self.leave

    def __repr__(self) -> str:
        return f"<Call {self.request.route} {self.phase.value} on={self.member} tried={self._tried}>"

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
        told = self._with_version(told, lease, named=status == 200)
        if (self.request.aim is not None or self._pinned) and status < 400 and self._is_unwanted(now):
            return
        if status == 200 and self.request.stream:
            self._head = told
            self.phase = WAITING
        else:
            self._answer(status, told)

    def on_whole(self, told: Told, body: bytes) -> None:
        lease = self._lease
        assert lease is not None
        member = lease.member
        record = self._record
        self._connection = None
        self.phase = ANSWERING
        record.status = 200
        now = record.answered = record.first = record.last = monotonic()
        told = self._with_version(told, lease, named=True)
        if (self.request.aim is not None or self._pinned) and self._is_unwanted(now):
            return
        if self._kept is not None and told.streams and not self._pinned:
            body = self._kept.shown(body)
        if self.request.answer.whole(told, self._marks(told.version), body):
            self._succeed(member, now)
        else:
            self._cut_off(Fault.TRUNCATED, now)

    def _with_version(self, told: Told, lease: Lease, *, named: bool) -> Told:
        """The weights that answer: as the answer says, else as the member said when it was chosen.

        `named`: an answer that an engine which names its weights would name them on. If it does not, another
        engine has taken the address.
        """
        member, record = lease.member, self._record
        version = told.version
        if version == lease.mark and lease.mark is member.version_mark:
            record.version = member.version
            return told
        if not version:
            version = UNVERSIONED.encode() if named else lease.mark
            told = told.by(version)
        if version != lease.mark:
            record.changed = True
            self._service.fleet.learn_version(member, version.decode("latin-1"))
        record.version = told.version.decode("latin-1")
        return told

    def _is_unwanted(self, now: float) -> bool:
        """Whether these weights will not do. Then it goes elsewhere, and the client gets nothing of them."""
        aim, version = self.request.aim, self._record.version
        if version == self._pinned or (not self._pinned and aim is not None and aim.admits(version)):
            return False
        if self._pinned:
            self._record.version = self._pinned
            if not self._retry(RetryReason.VERSION, Attempt.OTHER_VERSION, now):
                self._stop_short(f"no other engine serves version {self._pinned}", now)
            return True
        assert aim is not None
        self._record.changed = False
        self._record.version = ""
        if not (
            self._retry(RetryReason.VERSION, Attempt.OTHER_VERSION, now)
            or self._wait_for_another(Attempt.OTHER_VERSION, now)
        ):
            self._fail(not_served(aim, self._service.fleet), now, Attempt.OTHER_VERSION)
        return True

    def _answer(self, status: int, told: Told) -> None:
        """From here on the answer is this member's."""
        self.phase = ANSWERING
        if self._head is not None:
            self._head = None
        if not self._pinned:
            self._record.status = status
            self._feeding = self._kept is not None and status == 200 and told.streams
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
        if self._feeding:
            assert self._kept is not None
            data = self._kept.feed(data)
            if not data:
                return
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
        if self._feeding:
            assert self._kept is not None
            if not self._kept.ended:
                self._cut_off(Fault.TRUNCATED, now)
                return
            self.request.answer.data(self._kept.rest())
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
        if self._pinned and self._go_on(attempt):
            return
        self._fail(BackendFailed(f"The request failed: {fault.sentence}."), now, attempt)

    def _cut_off(self, fault: Fault, now: float) -> None:
        """The answer broke after its head."""
        lease = self._lease
        assert lease is not None
        kind, attempt, _ = FAULTS[fault]
        self._service.blame(lease.member, kind, now)
        if self._go_on(attempt):
            return
        error = BackendFailed(f"The answer is incomplete: {Fault.TRUNCATED.sentence}.")
        self._record.error = error.message
        started = self.exchange.started
        self.request.answer.broken(error, self._marks(b""))
        self._finish(Outcome.TRUNCATED if started else Outcome.BACKEND_ERROR, now, attempt)

    # Time and the client

    def tick(self, now: float) -> None:
        """Look at the limits; called some times a second."""
        limits = self._service.timeouts
        if now >= self.deadline:
            self._expire(past_deadline(self.phase, self._own_limit), now)
        elif self._paused_at:
            if now - self._paused_at > limits.silence_s:
                self._give_up_on_client(now)
        else:
            overdue = silent(self.phase, self._record, self.request.stream, limits, now)
            if overdue is not None:
                self._expire(overdue, now)
        if self.phase is not ENDED and now - self._spoke_at > limits.heartbeat_s:
            self._spoke_at = now
            if self.request.stream:
                self.request.answer.heartbeat(self._marks(b""))

    def _expire(self, overdue: Overdue, now: float) -> None:
        if self.phase is ENDED:
            return  # by what became of another call in the same sweep
        self.phase = FAILED
        kind = overdue.kind
        if self._lease is not None:
            self._service.blame(self._lease.member, kind, now)
        attempt = Attempt.TIMEOUT if kind.counts else Attempt.CANCELLED
        if kind is Kind.SILENCE and self._go_on(attempt):
            return
        self._fail(DeadlineExceeded(overdue.sentence), now, attempt)

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
        lease = self._lease
        if lease is not None:
            record.member = lease.member.name
        self._let_go(attempt)
        record.outcome = outcome
        record.ended = monotonic()
        record.prompt_tokens, record.completion_tokens = self.request.answer.usage()
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
