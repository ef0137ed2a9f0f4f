"""What the flow knows of a request: no wire model, only what it takes to admit, place and send it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.flow.cache.policy import Reuse
from gateway.observe.labels import Route
from gateway.routing.contract import Hint
from gateway.settings.tree import Key
from gateway.upstream.headers import Told

if TYPE_CHECKING:
    from gateway.fleet.split import Wish
    from gateway.flow.aim import Aim
    from gateway.http.batches import Batchable


class Answer(Protocol):
    """Turns an engine's answer into the client's, piece by piece.

    Calls come in this order: `head` once, `data` any number of times, then `done` or `broken` once.
    `broken` may also come first, or alone. An answer never raises for what an engine sends.
    """

    def head(self, status: int, told: Told, marks: bytes) -> None:
        """The engine's status and headers. `marks` are the gateway's own header lines."""

    def data(self, data: bytes) -> None: ...

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        """A good answer (200) that came at once: instead of `head`, `data` and `done`."""

    def done(self) -> bool:
        """The engine has ended in order. False if what it sent is not a whole answer."""

    def broken(self, error: GatewayError, marks: bytes) -> None:
        """The answer cannot be finished: say so in the form that is still possible."""

    def heartbeat(self, marks: bytes) -> bool:
        """Keep a silent stream's connection busy. False where nothing can be said."""

    def usage(self) -> tuple[int, int]:
        """Prompt and completion tokens as the engine reported them; zeros where it did not."""


def piece_by_piece(answer: Answer, told: Told, marks: bytes, body: bytes) -> bool:
    """`whole` for answers that gain nothing from having it all."""
    answer.head(200, told, marks)
    if body:
        answer.data(body)
    return answer.done()


class ClientAnswer(Answer, Protocol):
    """The answer to one client, which may also come from the cache."""

    def kept(self, told: Told, marks: bytes, body: bytes) -> bool:
        """Instead of all calls: an engine's good answer as a whole. False if it cannot be read."""


class Request(msgspec.Struct, eq=False):
    """One request below the edge."""

    route: Route
    path: bytes
    """At the engine."""
    body: bytes
    answer: Answer
    block: bytes = b""
    """Header lines that go on to the engine."""
    model: str = ""
    """As the client named it; empty: the default model."""
    stream: bool = False
    tokens: int = 1
    """Estimate of prompt plus answer."""
    hint: Hint = msgspec.field(default_factory=Hint)
    resumable: bool = False
    """A stream that another engine may go on with if the one that began it has gone."""
    timeout_s: float | None = None
    """The client's own limit."""
    reuse: Reuse | None = None
    """Whether it may get an answer computed for another request; None: it may not, nor give one."""
    batch: Batchable | None = None
    """How it may travel together with others; None: it may not."""
    wish: Wish | None = None
    """What its client asks of the weights that answer."""
    aim: Aim | None = None
    """The version that it goes to; None: any member will do."""
    key: Key | None = None
    """Who asks, where keys are configured."""
    request_id: bytes = b""
    traceparent: bytes = b""
    span: bytes = b""
    """The gateway's own position in the trace, as the engine was told; empty without telemetry."""

    @property
    def tenant(self) -> str:
        return self.key.name if self.key is not None else ""
