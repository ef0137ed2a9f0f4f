"""The part of a call that leaves a broken stream's engine behind and goes on with it on another one.

Between `gateway.flow.attempt` (which knows members) and `gateway.flow.call` (which knows answers). What the
client has got stays; the rest comes from a member of the same version, or an error event says why not.
"""

from __future__ import annotations

from abc import abstractmethod
from time import monotonic

from gateway.errors import GatewayError
from gateway.flow.attempt import Attempting
from gateway.flow.phase import ANSWERING, CONNECTING
from gateway.flow.request import Request
from gateway.flow.resume.driver import continuation
from gateway.flow.resume.kept import Kept, amended
from gateway.flow.resume.produced import CannotContinue
from gateway.flow.resume.rejoin import cut_short
from gateway.observe.labels import Attempt, Continued
from gateway.observe.outcome import Outcome

MAX_CONTINUED = 3
"""How often one stream may go on elsewhere."""


class Continuing(Attempting):
    """`_keep` before it is sent, `_go_on` when its answer has broken off."""

    _kept: Kept | None = None
    """Of a stream that another engine may go on with: what it has brought."""
    _feeding = False
    """Whether what comes is taken by `_kept` on its way."""

    def _keep(self, request: Request) -> None:
        """Keep what the answer brings, and ask the engine for the ids of its tokens."""
        self._kept = Kept(request.body)
        request.body = amended(request.body)

    def _go_on(self, attempt: Attempt) -> bool:
        """Let another member of the same version finish what this one began, if any of it has been seen."""
        kept, lease = self._kept, self._lease
        if kept is None or lease is None or not self.exchange.open or not self.exchange.started:
            return False
        if kept.continued >= MAX_CONTINUED or not (self._feeding or self._pinned):
            return False
        kept.continued += 1
        kept.drop_half()
        self._feeding = False
        self._pinned = self._pinned or self._record.version
        self._tried = (lease.member.name,)
        self._let_go(attempt)
        self.phase = CONNECTING
        self._connect = self._service.tasks.start("continue", self._find_rest(kept))
        return True

    async def _find_rest(self, kept: Kept) -> None:
        fleet, continuations = self._service.fleet, self._service.series.continuations
        try:
            following = await continuation(fleet, self.request, kept, self._pinned, self._tried)
        except CannotContinue as reason:
            self._connect = None
            continuations.add(Continued.IMPOSSIBLE)
            self._stop_short(str(reason), monotonic())
            return
        self._connect = None
        continuations.add(Continued.CONTINUED)
        if following.request is not None and following.lease is not None:
            self.request = following.request
            self._go(following.lease)
            return
        # All tokens had come.
        now = self._record.last = monotonic()
        self.phase = ANSWERING
        self.request.answer.data(following.rest)
        if self.request.answer.done():
            self._finish(Outcome.OK, now, None)
        else:
            self._stop_short("its end is not understood", now)

    def _stop_short(self, reason: str, now: float) -> None:
        self._fail(cut_short(reason), now, Attempt.RESET)

    @abstractmethod
    def _fail(self, error: GatewayError, now: float, attempt: Attempt | None) -> None: ...

    @abstractmethod
    def _finish(self, outcome: Outcome, now: float, attempt: Attempt | None) -> None: ...
