"""Which swap an agent performs: one at a time, the same id is the same swap, the last few are remembered.

Plain data of one event loop. Used by the agent and by the fake one, so both refuse the same.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from backends.contract import Outcome, Phase, SwapOrder, SwapStatus

REMEMBERED = 16
"""Swaps whose end can still be asked for."""


class SwapRuns(RuntimeError):
    """Another swap runs; nothing was begun."""


class NoSuchSwap(LookupError):
    """No swap of this id is remembered."""


class NotHeld(RuntimeError):
    """The swap is not one that waits for its release."""


class Orders:
    def __init__(self) -> None:
        self._known: OrderedDict[str, SwapStatus] = OrderedDict()

    @property
    def last(self) -> SwapStatus | None:
        """The swap that runs, or the last one."""
        return next(reversed(self._known.values()), None)

    def find(self, swap_id: str) -> SwapStatus:
        """Raises NoSuchSwap."""
        try:
            return self._known[swap_id]
        except KeyError:
            raise NoSuchSwap(f"no swap {swap_id!r} is known here") from None

    def take(self, order: SwapOrder, label: str) -> SwapStatus | None:
        """Begin this order; returns the swap's status if it was begun before, None if it begins now.

        A swap that is held is superseded: it has never served. Raises SwapRuns.
        """
        if order.id in self._known:
            return self._known[order.id]
        last = self.last
        if last is not None and last.phase is Phase.HELD:
            self.note(
                replace(
                    last,
                    phase=Phase.ENDED,
                    outcome=Outcome.SERVING_OLD,
                    reason=f"superseded by {order.id} before it was released",
                )
            )
        elif last is not None and last.phase is not Phase.ENDED:
            raise SwapRuns(f"swap {last.id} to {last.version} runs ({last.phase}): wait for its end")
        self._known[order.id] = SwapStatus(order.id, label, order.way, Phase.PREPARING)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return None

    def note(self, status: SwapStatus) -> None:
        """A swap has come further. One that has ended stays as it ended."""
        before = self._known.get(status.id)
        if before is not None and before.phase is not Phase.ENDED:
            self._known[status.id] = status

    def held(self, swap_id: str) -> SwapStatus:
        """Raises NoSuchSwap, NotHeld."""
        status = self.find(swap_id)
        if status.phase is not Phase.HELD:
            raise NotHeld(f"swap {swap_id} is {status.phase}, not held")
        return status
