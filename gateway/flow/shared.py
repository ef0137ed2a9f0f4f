"""A call whose answer goes to more than one client: what it talks to, and what it does not do.

The shared thing (a `Crowd`, a `Batch`) stands where a Call expects its client and its client's answer.
Upstream all is as ever: lease, retries, limits, one end. What concerns clients (records, outcomes, grants)
is theirs: `ended` tells the shared thing how the call went.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gateway.flow.call import Call
from gateway.flow.record import Record
from gateway.flow.request import Answer, Request
from gateway.upstream.headers import Headers, Told

if TYPE_CHECKING:
    from gateway.flow.service import Service


class Shared(Answer, Protocol):
    """Stands for its clients towards one call."""

    on_gone: Callable[[], None]
    """Set by the call; to be called once when nobody wants the answer any more."""
    on_drained: Callable[[], None]
    """Set by a call that has paused; to be called when it may go on."""
    call: SharedCall | None
    """The call that is under way."""

    @property
    def open(self) -> bool:
        """Whether anybody still wants an answer."""

    @property
    def started(self) -> bool:
        """Whether anybody has got a part of it."""

    @property
    def congested(self) -> bool:
        """Whether nobody keeps up, so that the call had better pause."""

    def cut(self) -> None:
        """The call gives up on clients that do not read."""

    def ended(self, record: Record) -> None:
        """The call is over, and everything it held is free. Called once for each call."""


class SharedCall(Call):
    """Its clients are counted one by one elsewhere; members count its attempts as they do all others."""

    counted = False

    def __init__(self, service: Service, shared: Shared, request: Request, now: float) -> None:
        super().__init__(service, shared, request, None, now)
        self.shared = shared
        shared.call = self

    @property
    def record(self) -> Record:
        return self._record

    def on_whole(self, told: Told, body: bytes) -> None:
        if self.member is not None:
            self._record.member = self.member.name
        super().on_whole(told, body)

    def on_head(self, status: int, headers: Headers) -> None:
        if self.member is not None:
            self._record.member = self.member.name
        super().on_head(status, headers)
