"""Whether the clocks of a run's processes agree: those who compare their logs must be able to. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def skew(readings: Sequence[float]) -> float:
    """Seconds between the earliest and the latest of clocks that were read at the same moment."""
    return max(readings) - min(readings)


def skew_report(readings: Sequence[float], limit: float) -> str | None:
    """What to tell people, or None if the clocks agree within `limit` seconds.

    readings: the clock of each process, by rank, in seconds, read at the same moment.
    """
    found = skew(readings)
    if found <= limit:
        return None
    middle = sorted(readings)[len(readings) // 2]
    rank = max(range(len(readings)), key=lambda each: abs(readings[each] - middle))
    return (
        f"clocks differ by {found:.1f} s, most at rank {rank} ({readings[rank] - middle:+.1f} s): "
        "logs and metrics of the machines cannot be compared; set them by NTP (timedatectl set-ntp true)"
    )
