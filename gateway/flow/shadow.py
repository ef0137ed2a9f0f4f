"""Copies of requests to a candidate that serves nobody yet: answered by it, counted, thrown away.

No client waits for a copy, hears of it, or fails by it. Bounded: a share of the requests, counted out; at
most `AT_ONCE` at a time, and what would be more is left out. `aim` is a rollout's; `copy` is called for each
request that goes to a member while there is something to shadow (`on`).
"""

from __future__ import annotations

import logging
import time
from typing import Final

from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Lease
from gateway.fleet.split import WHOLE
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.observe.outcome import Outcome
from gateway.observe.versions import VersionBook
from gateway.tasks import TaskOwner
from gateway.upstream.faults import Unreachable
from gateway.upstream.fetch import fetch

logger = logging.getLogger(__name__)

AT_ONCE: Final = 16
TIMEOUT_S: Final = 120.0


class Shadow:
    """One model's in this worker."""

    def __init__(self, fleet: Fleet, versions: VersionBook) -> None:
        self._fleet = fleet
        self._versions = versions
        self._tasks = TaskOwner(f"shadow of {fleet.model}")
        self._label = ""
        self._units = 0
        self._owed = 0
        self._running = 0
        self.on = False
        """Something is to be copied: asked for each request."""

    def aim(self, label: str | None, share: float) -> None:
        """Copy this share of the requests to members that serve `label`; None: none."""
        self._label = label or ""
        self._units = round(share * WHOLE) if label is not None else 0
        self.on = self._units > 0

    def copy(self, request: Request) -> None:
        """A request goes to a member; perhaps a copy of it goes to the candidate."""
        self._owed += self._units
        if self._owed < WHOLE:
            return
        self._owed -= WHOLE
        if self._running >= AT_ONCE:
            return
        lease = self._fleet.lease_at(self._label, request.hint, request.tokens)
        if lease is not None:
            self._running += 1
            self._tasks.start("copy", self._send(lease, request))

    async def close(self) -> None:
        self.aim(None, 0.0)
        await self._tasks.close()

    async def _send(self, lease: Lease, request: Request) -> None:
        member, began = lease.member, time.monotonic()
        counts = self._versions.of(member.version)
        headers = [(b"content-type", b"application/json"), *member.authorization]
        try:
            answer = await fetch(
                member.pool,
                "POST",
                request.path.decode("latin-1"),
                timeout_s=TIMEOUT_S,
                headers=headers,
                body=request.body,
            )
        except (TimeoutError, Unreachable) as error:
            logger.info("a copy of a request failed on %s: %s", member.name, error)
            counts.book([_record(request, began, Outcome.BACKEND_ERROR)])
            return
        finally:
            self._running -= 1
            lease.release()
        if answer.status == 200 and answer.header(b"x-model-version") in ("", member.version):
            counts.book([_record(request, began, Outcome.OK)])
        elif answer.status >= 500:
            counts.book([_record(request, began, Outcome.BACKEND_ERROR)])


def _record(request: Request, began: float, outcome: Outcome) -> Record:
    """What is counted of a copy."""
    record = Record(request.route, request.model, began)
    record.outcome = outcome
    record.first = record.ended = time.monotonic()
    return record
