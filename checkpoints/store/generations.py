"""A small document that changes by compare-and-swap: each state is a file of the next number.

Creation is exclusive, so of two movers that saw the same state one wins and the other is told. Old
numbers are pruned, always keeping the newest `kept`; a mover so slow that its number may have been
pruned and reused notices it afterwards and counts as the loser. Used for aliases and for rollouts.
"""

from __future__ import annotations

from checkpoints.store.contract import Files

KEPT = 64


class Generations:
    """One document in one folder."""

    def __init__(self, files: Files, folder: str, kept: int = KEPT) -> None:
        self._files = files
        self._folder = folder
        self._kept = kept

    def newest(self) -> bytes | None:
        """The present state; None: there was never one."""
        return next(iter(self.last(1)), None)

    def last(self, count: int) -> list[bytes]:
        """The newest states, the present one first."""
        found: list[bytes] = []
        for number in reversed(self._numbers()):
            if len(found) == count:
                break
            raw = self._files.read(self._path(number))
            if raw is not None:
                found.append(raw)
        return found

    def add(self, number: int, data: bytes) -> bool:
        """Become state `number` if the present one is the one before. False: somebody else was first."""
        before = number - 1
        if self._numbers()[-1:] not in ([], [before]) or not self._files.create(self._path(number), data):
            return False
        numbers = self._numbers()
        if numbers[-1] - number >= self._kept:
            self._files.remove(self._path(number))
            return False
        for old in numbers[: -self._kept]:
            self._files.remove(self._path(old))
        return True

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:010d}.json"

    def _numbers(self) -> list[int]:
        return [int(name[:10]) for name in self._files.names(self._folder) if name[:10].isdigit()]
