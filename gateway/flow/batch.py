"""Prompts of several requests on their way to an engine as one call, and their answers on the way back.

An `Order` is what one crowd wants: some prompts, which may be spread over several batches. A `Batch`
carries parts of orders. Whatever befalls one of them befalls no other: who leaves is left out; when the
engine refuses a batch, or cannot read it, each goes there alone; a deadline is each client's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from gateway.errors import GatewayError
from gateway.flow.crowd import Crowd
from gateway.flow.record import Record
from gateway.flow.request import piece_by_piece
from gateway.flow.shared import SharedCall
from gateway.http import batches
from gateway.http.batches import Batchable, Done
from gateway.observe.outcome import Outcome
from gateway.upstream.headers import Told

if TYPE_CHECKING:
    from gateway.flow.batcher import Group

_JSON = b"application/json"


@dataclass(slots=True, eq=False)
class Order:
    """One crowd's prompts."""

    crowd: Crowd
    wanted: Batchable
    done: dict[int, Done] = field(default_factory=dict)
    carriers: list[Batch] = field(default_factory=list)
    """The batches that it is in."""
    version: bytes | None = None
    closed: bool = False
    """Answered, failed, sent alone, or nobody wants it any more."""

    @property
    def complete(self) -> bool:
        return len(self.done) == len(self.wanted.prompts)


@dataclass(frozen=True, slots=True)
class Part:
    """Some of an order's prompts: from `first` on."""

    order: Order
    first: int
    count: int

    @property
    def prompts(self) -> tuple[bytes, ...]:
        return self.order.wanted.prompts[self.first : self.first + self.count]


def _nothing() -> None:
    pass


class Batch:
    """One call for several orders. Satisfies `gateway.flow.shared.Shared`."""

    started = False
    """Nobody gets a byte before its own answer is whole."""
    congested = False

    def __init__(self, group: Group, parts: Sequence[Part], *, stream: bool) -> None:
        self._group = group
        self._parts = parts
        self.stream = stream
        self.call: SharedCall | None = None
        self.on_gone: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.size = sum(part.count for part in parts)
        self.left = self.size
        """Prompts that are not answered yet."""
        self._places = [(part, part.first + i) for part in parts for i in range(part.count)]
        self._status = 0
        self._told = Told()
        self._body: list[bytes] = []
        self._reader = batches.StreamReader() if stream else None
        self._usage = (0, 0)
        self._failed: list[Order] = []

    def __repr__(self) -> str:
        return f"<Batch of {self.size}, {self.left} left>"

    @property
    def open(self) -> bool:
        return any(not part.order.closed for part in self._parts)

    def usage(self) -> tuple[int, int]:
        return self._usage

    def cut(self) -> None:
        """Never congested, so never called for a slow client."""

    def leave(self) -> None:
        """One of the orders is wanted no more."""
        if not self.open:
            self.on_gone()

    # The answer

    def head(self, status: int, told: Told, marks: bytes) -> None:
        self._status = status
        self._told = told

    def data(self, data: bytes) -> None:
        if self._status != 200 or self._reader is None:
            self._body.append(data)
            return
        try:
            for done in self._reader.feed(data):
                self._put(done)
        except batches.Unreadable as error:
            self._go_alone(error)

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        return piece_by_piece(self, told, marks, body)

    def done(self) -> bool:
        if self._status != 200:
            self._refused()
            return True
        if self._reader is None:
            try:
                for done in batches.read_whole(b"".join(self._body), self.size):
                    self._put(done)
            except batches.Unreadable as error:
                self._go_alone(error)
        # An order that is spread over several batches is open when this one has done its part.
        return self.left == 0 or not self.open

    def broken(self, error: GatewayError, marks: bytes) -> None:
        self._failed = self._orders()
        for order in self._failed:
            order.closed = True
            order.crowd.broken(error, b"")

    def heartbeat(self, marks: bytes) -> bool:
        return False

    def ended(self, record: Record) -> None:
        self.call = None
        for order in self._failed:
            order.crowd.ended(record)
        self._group.landed(self)

    # Inside

    def _orders(self) -> list[Order]:
        """Those that still want an answer."""
        return list({part.order: None for part in self._parts if not part.order.closed})

    def _put(self, done: Done) -> None:
        part, index = self._places[done.index]
        order = part.order
        self.left -= 1
        self._usage = (self._usage[0] + done.prompt_tokens, self._usage[1] + done.completion_tokens)
        if self.stream:
            self._group.lighter()
        if order.closed:
            return
        version = self._told.version
        if order.version is not None and order.version != version:
            # Its prompts were answered by different weights: no answer may mix them.
            self._send_alone(order)
            return
        order.version = version
        order.done[index] = done
        if order.complete:
            self._answer(order, done.index)

    def _answer(self, order: Order, place: int) -> None:
        order.closed = True
        call = self.call
        assert call is not None
        crowd = order.crowd
        body = batches.answer_to([order.done[i] for i in range(len(order.done))], place)
        told = Told(b"content-type: application/json\r\n", len(body), self._told.version, b"", _JSON)
        record = call.record
        now = record.last = monotonic()
        crowd.record = record
        crowd.head(200, told, b"")
        crowd.data(body)
        crowd.done()
        crowd.ended(_as_of(record, now))

    def _refused(self) -> None:
        """The whole batch got an error: whose fault it is, only each of them alone can show."""
        for order in self._orders():
            self._send_alone(order)

    def _go_alone(self, error: batches.Unreadable) -> None:
        if isinstance(error, batches.Uncounted):
            self._group.cannot_count()
        for order in self._orders():
            self._send_alone(order)

    def _send_alone(self, order: Order) -> None:
        order.closed = True
        crowd = order.crowd
        crowd.on_gone = _nothing
        if crowd.open:
            crowd.send(monotonic())


def _as_of(record: Record, now: float) -> Record:
    """How a call stands for one who is answered before it ends."""
    snapshot = copy(record)

    snapshot.outcome = Outcome.OK
    snapshot.ended = now
    return snapshot
