"""What can go wrong between the gateway and an engine, as one small enum."""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """The value is a metric label; `sentence` is for people."""

    REFUSED = "refused"
    CONNECT_TIMEOUT = "connect_timeout"
    LOST = "lost"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Fault.REFUSED: "the backend refused the connection",
    Fault.CONNECT_TIMEOUT: "the backend did not accept the connection in time",
    Fault.LOST: "the backend closed the connection before it answered",
    Fault.TRUNCATED: "the backend broke off in the middle of its answer",
    Fault.MALFORMED: "the backend's answer is not valid HTTP",
}


class Unreachable(OSError):
    """A connection could not be opened."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault.sentence}: {detail}")
        self.fault = fault
