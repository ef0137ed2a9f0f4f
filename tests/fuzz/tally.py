"""What a campaign counts, and how a bad input is kept: by seed, so that it can be made again."""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN = 20


@dataclass(slots=True)
class Tally:
    """Counts of one run; `found` names each fault with what makes it again."""

    inputs: int = 0
    crashes: int = 0
    hangs: int = 0
    leaks: int = 0
    http_500: int = 0
    found: list[str] = field(default_factory=list)

    def crash(self, what: str) -> None:
        """An exception that no reader should raise, or one that was logged."""
        self.crashes += 1
        self.found.append(f"crash: {what}")

    def hang(self, what: str) -> None:
        """No end within the time it has."""
        self.hangs += 1
        self.found.append(f"hang: {what}")

    def leak(self, what: str) -> None:
        """A count that does not come back to zero."""
        self.leaks += 1
        self.found.append(f"leak: {what}")

    def answered(self, status: int, what: str) -> None:
        """A client got this status. 502, 503 and 504 say whose fault it was; 500 says that it was ours."""
        if status == 500:
            self.http_500 += 1
            self.found.append(f"500: {what}")

    def add(self, other: Tally) -> None:
        """Take over another's counts."""
        self.inputs += other.inputs
        self.crashes += other.crashes
        self.hangs += other.hangs
        self.leaks += other.leaks
        self.http_500 += other.http_500
        self.found += other.found

    @property
    def clean(self) -> bool:
        return not self.found

    def line(self) -> str:
        """The last line of `make fuzz`."""
        return (
            f"inputs={self.inputs} crashes={self.crashes} hangs={self.hangs} leaks={self.leaks} "
            f"http_500={self.http_500}"
        )
