"""Which prompts of /predict travel together, and when they leave.

Requests of equal parameters form a group. When nothing of it is under way, what has come in the present
turn of the event loop leaves at once: an idle engine is never waited for. While some is, prompts are
collected: for a moment (`window_s`) when a batch may leave, until one lands when enough of them are under way
already, and never longer than `HOLD_S`, so that a batch that hangs holds up nobody. A full batch leaves as
soon as it may.

Two batches a member are under way at a time: while the engine computes one, its server reads the next. Long
answers are asked for as a stream, and each prompt that ends makes room for another. One for each service.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gateway.flow.batch import Batch, Order, Part
from gateway.flow.crowd import Crowd
from gateway.flow.shared import SharedCall
from gateway.http import batches
from gateway.http.batches import Batchable
from gateway.routing.contract import Hint

if TYPE_CHECKING:
    from gateway.flow.service import Service

logger = logging.getLogger(__name__)

PER_MEMBER: Final = 2

HOLD_S: Final = 0.1

PLAIN_TOKENS: Final = 16
"""Up to so many tokens a batch is asked for as a whole: its prompts end within a few steps of each other, and
an event for each token of each prompt would cost the engine's server more than that."""

COUNTLESS_S: Final = 60.0
"""How long no batches are made after an engine turned out not to tell token ids."""


Together = tuple[bytes, Hint, int, str, bytes]
"""What prompts have in common that may travel together: parameters and headers, affinity, priority, version
and wish."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    on: bool
    window_s: float
    size: int
    """Most prompts in one batch."""
    max_tokens: int
    """Who asks for more travels alone."""


class Group:
    """Prompts that may travel together, and what of them is under way."""

    def __init__(self, batcher: Batcher, key: Together) -> None:
        self._batcher = batcher
        self.key = key
        self.waiting: deque[Part] = deque()
        self.queued = 0
        """Prompts that wait."""
        self.batches = 0
        """Under way."""
        self.prompts = 0
        """Under way and not answered."""
        self.timer: asyncio.Handle | None = None

    def __repr__(self) -> str:
        return f"<Group queued={self.queued} batches={self.batches} prompts={self.prompts}>"

    def landed(self, batch: Batch) -> None:
        """A batch is over."""
        self.batches -= 1
        self.prompts -= batch.left
        batch.left = 0
        self._batcher.plan(self)

    def lighter(self) -> None:
        """A prompt of a batch was answered before the batch is over."""
        self.prompts -= 1
        if self.waiting:
            self._batcher.plan(self)

    def cannot_count(self) -> None:
        """An engine did not tell token ids."""
        self._batcher.cannot_count()

    def left(self, order: Order) -> None:
        """Nobody wants an order any more: it is not sent, and batches that carry nothing else end."""
        order.closed = True
        kept = [part for part in self.waiting if part.order is not order]
        if len(kept) != len(self.waiting):
            self.waiting = deque(kept)
            self.queued = sum(part.count for part in kept)
            self._batcher.plan(self)
        for batch in order.carriers:
            batch.leave()


class Batcher:
    def __init__(self, service: Service, options: BatchOptions) -> None:
        self._service = service
        self.options = options
        self._groups: dict[Together, Group] = {}
        self._countless_until = 0.0

    def __repr__(self) -> str:
        return f"<Batcher {list(self._groups.values())}>"

    def takes(self, wanted: Batchable) -> bool:
        """Whether batching would help this request."""
        options = self.options
        short = wanted.max_tokens <= options.max_tokens
        return options.on and short and options.size > 1 and monotonic() >= self._countless_until

    def add(self, crowd: Crowd, wanted: Batchable) -> None:
        """Let it wait for the next batch of its group."""
        request = crowd.request
        priority = request.key.priority if request.key is not None else 0
        aim = request.aim
        label, wish = (aim.label, aim.name) if aim is not None else ("", b"")
        key = (wanted.group, request.hint, priority, label, wish)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self, key)
        order = Order(crowd, wanted)
        size = self.options.size
        for first in range(0, len(wanted.prompts), size):
            group.waiting.append(Part(order, first, min(size, len(wanted.prompts) - first)))
        group.queued += len(wanted.prompts)
        crowd.on_gone = lambda: group.left(order)
        self.plan(group)

    def cannot_count(self) -> None:
        if monotonic() >= self._countless_until:
            logger.warning("%s: an engine tells no token ids, so /predict is not batched", self._service.name)
        self._countless_until = monotonic() + COUNTLESS_S

    # When

    def plan(self, group: Group) -> None:
        """Decide when the next batch of the group leaves."""
        if not group.waiting:
            self._cancel(group)
            if group.batches == 0:
                self._groups.pop(group.key, None)
            return
        room = self._has_room(group)
        if room and group.queued >= self.options.size:
            self._cancel(group)
            self._leave(group)
        elif group.timer is None or (room and group.batches == 0):
            self._cancel(group)
            loop = asyncio.get_running_loop()
            if group.batches == 0:
                group.timer = loop.call_soon(self._leave, group)
            else:
                group.timer = loop.call_later(self.options.window_s if room else HOLD_S, self._leave, group)

    def _cancel(self, group: Group) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None

    def _has_room(self, group: Group) -> bool:
        fleet = self._service.fleet
        part = fleet.parts.find(group.key[3]) if group.key[3] else None
        width = max(1, len(part.members) if part is not None else fleet.width)
        if _streamed(group.waiting[0].order.wanted):
            return group.prompts < PER_MEMBER * self.options.size * width
        return group.batches < PER_MEMBER * width

    def _leave(self, group: Group) -> None:
        group.timer = None
        parts: list[Part] = []
        count = 0
        while group.waiting and (not parts or count + group.waiting[0].count <= self.options.size):
            part = group.waiting.popleft()
            group.queued -= part.count
            parts.append(part)
            count += part.count
        if parts:
            self._send(group, parts, count)
        self.plan(group)

    # What

    def _send(self, group: Group, parts: list[Part], count: int) -> None:
        group.batches += 1
        group.prompts += count
        self._service.series.batch_size.observe(count)
        order = parts[0].order
        if len(parts) == 1 and count == len(order.wanted.prompts):
            self._send_alone(group, order, count)
            return
        now = monotonic()
        stream = _streamed(order.wanted)
        batch = Batch(group, parts, stream=stream)
        for part in parts:
            part.order.carriers.append(batch)
        leader = order.crowd.request
        prompts = [prompt for part in parts for prompt in part.prompts]
        request = replace(
            leader,
            path=batches.PATH,
            body=batches.request_body(order.wanted.parameters, prompts, stream),
            answer=batch,
            block=order.wanted.block + b"x-request-id: %b\r\n" % leader.request_id,
            stream=stream,
            tokens=sum(part.order.crowd.request.tokens for part in parts),
        )
        self._service.submit(SharedCall(self._service, batch, request, now), now)

    def _send_alone(self, group: Group, order: Order, count: int) -> None:
        """Nobody shares the way: then as the request came, and no ids need counting."""
        order.closed = True
        crowd = order.crowd

        def landed() -> None:
            group.batches -= 1
            group.prompts -= count
            self.plan(group)

        crowd.on_ended = landed
        crowd.send(monotonic())


def _streamed(wanted: Batchable) -> bool:
    return wanted.max_tokens > PLAIN_TOKENS
