"""By which way an engine takes other weights: the cheapest that is surely right. Pure.

In place only where a record says that it was shown to be right; without one the engine is restarted.
"""

from __future__ import annotations

from dataclasses import dataclass

from backends.contract import Way
from checkpoints.verdict import Finding, Swap


class Refused(ValueError):
    """The way that was ordered is not open; the message says why, and which is."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is different about the new weights."""

    swap: Swap
    """The cheapest way that what changed allows."""
    remarks: tuple[Finding, ...] = ()
    same_base: bool = True
    """The full weights below stay: only an adapter is put on, exchanged or taken off."""


@dataclass(frozen=True, slots=True)
class Choice:
    way: Way
    why: str = ""
    """Where it is not the cheapest one."""


def choose(ordered: Way, change: Change, *, unqualified: str | None, adapters: bool) -> Choice:
    """The way to take. `unqualified`: why in place is not trusted here, None if it is.

    `adapters`: whether the engine takes them while it runs. Raises Refused.
    """
    if ordered is Way.RESTART:
        return Choice(Way.RESTART, "as ordered")
    open_ways = _open(change, unqualified, adapters)
    if ordered is Way.AUTO:
        return open_ways[0]
    found = next((choice for choice in open_ways if choice.way is ordered), None)
    if found is None:
        best = open_ways[0]
        raise Refused(f"{ordered} is not possible: {best.why or f'{best.way} is right here'}; order `auto`")
    return found


def _open(change: Change, unqualified: str | None, adapters: bool) -> list[Choice]:
    """Ways that are right, the cheapest first."""
    restart = Choice(Way.RESTART)
    if change.swap is Swap.ADAPTER and not adapters:
        raise Refused("it is an adapter, and the engine takes none: set engine.enable_lora")
    if change.swap is Swap.ADAPTER and change.same_base:
        return [Choice(Way.ADAPTER), restart]
    if change.swap is Swap.ADAPTER:
        return [Choice(Way.RESTART, "the adapter rests on other weights than those that are served")]
    if change.swap is Swap.RESTART:
        names = ", ".join(sorted({finding.code.value for finding in change.remarks}))
        return [Choice(Way.RESTART, f"engines read it only when they start: {names}")]
    if unqualified is not None:
        return [Choice(Way.RESTART, f"a reload in place is not qualified here: {unqualified}")]
    return [Choice(Way.IN_PLACE), restart]
