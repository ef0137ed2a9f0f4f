"""A request's way to a member: lease, connect, send; and on to another one, as far as the rules allow.

Retries: at most `retries.attempts`, only before the first byte of an answer, only on another member,
only for refused, 502, 503, 504 or a connection that died before any byte, and only within the budget. The
head of a stream is no part of it: engines send that before they have computed anything, so it is held back
until the first byte of the body.

The lower half of a call, with `gateway.flow.resume.continuing` above it. It never blocks and
needs no task, except to open a new connection.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING

from gateway.fleet.member import Lease, Member
from gateway.flow.phase import CONNECTING, PLACED, WAITING
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.flow.ticket import Ticket
from gateway.observe.labels import Attempt, RetryReason
from gateway.upstream.connection import Connection
from gateway.upstream.faults import Fault, Unreachable
from gateway.upstream.headers import Headers, Told

if TYPE_CHECKING:
    from gateway.flow.service import Service
    from gateway.flow.shared import Shared
    from gateway.http.exchange import Exchange


class Attempting(Ticket, ABC):
    """`start` whenever it is admitted. What comes back from the connection is the subclass's."""

    # Defaults stand in the class, so that a request pays only for what it sets.
    phase = PLACED
    _lease: Lease | None = None
    _connection: Connection | None = None
    _connect: asyncio.Task[None] | None = None
    _tried: tuple[str, ...] = ()
    _replaced = False
    _head: Told | None = None
    """Of a stream whose body has not begun."""
    _pinned = ""
    """The version that has to answer, because it began to."""

    def __init__(
        self,
        service: Service,
        exchange: Exchange | Shared,
        request: Request,
        deadline: float,
        priority: int,
        now: float,
    ) -> None:
        # Named, not `super()`: that makes an object for each request.
        Ticket.__init__(self, request.tokens, deadline, priority)
        self._service = service
        self.exchange: Exchange | Shared = exchange
        self.request = request
        self._record = Record(request.route, service.name, now)

    @property
    def wait_until(self) -> float:
        """Until when a request that reached nobody goes on looking for a member."""
        aim = self.request.aim
        if aim is not None and aim.patient(self._service.fleet):
            return self.deadline
        return self._record.started + self._service.limits.max_queue_s

    @property
    def member(self) -> Member | None:
        return self._lease.member if self._lease is not None else None

    # Out

    def start(self, now: float) -> None:
        """The request is admitted: go to a member."""
        if self.phase is not PLACED:
            return
        self._record.admitted = now
        lease = self._find(self._tried)
        if lease is None:
            self._service.defer(self, now)
        else:
            self._go(lease)

    def _find(self, tried: tuple[str, ...]) -> Lease | None:
        """A place on a member that will do."""
        request = self.request
        if self._pinned:
            return self._service.fleet.lease_at(self._pinned, request.hint, request.tokens, tried)
        if request.aim is None:
            return self._service.fleet.lease(request.hint, request.tokens, tried)
        return self._service.lease_aimed(request, request.aim, tried)

    def _go(self, lease: Lease) -> None:
        self._lease = lease
        if self._replaced:
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

    # Back: see `gateway.upstream.connection.Receiver`

    @abstractmethod
    def on_head(self, status: int, headers: Headers) -> None: ...

    @abstractmethod
    def on_data(self, data: bytes) -> None: ...

    @abstractmethod
    def on_whole(self, told: Told, body: bytes) -> None: ...

    @abstractmethod
    def on_done(self) -> None: ...

    @abstractmethod
    def on_lost(self, fault: Fault) -> None: ...

    @abstractmethod
    def _broken(self, fault: Fault) -> None:
        """An attempt has failed before the first byte of an answer."""

    # Elsewhere

    def _retry(self, reason: RetryReason, attempt: Attempt, now: float) -> bool:
        """Try another member, if the rules allow it and there is one."""
        lease = self._lease
        assert lease is not None
        tried = (*self._tried, lease.member.name)
        service = self._service
        if len(tried) > service.retries.attempts or not self.exchange.open:
            return False
        # No engine has worked for it yet: then trying again makes no overload worse, and costs no budget.
        free = reason in (RetryReason.DRAINING, RetryReason.REFUSED, RetryReason.VERSION)
        following = self._find(tried)
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
        if now >= self.wait_until or self._pinned or not self.exchange.open:
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
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.abandon()
        task = self._connect
        if task is not None:
            self._connect = None
            task.cancel()
        lease = self._lease
        if lease is not None:
            self._lease = None
            if attempt is not None and not lease.member.retired:
                lease.member.series.attempts.add(attempt)
            lease.release()
