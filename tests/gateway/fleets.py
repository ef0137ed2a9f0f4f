"""Fleets, services and calls without a network: connections that a test answers itself.

`Engines` stands for the network of one fleet: every connection that a call opens or uses is there, until it
has ended. A test says what becomes of it. Metrics are real, in a folder of their own.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from gateway.fleet.fleet import Fleet, FleetOptions
from gateway.fleet.member import Member, Spec
from gateway.flow.batcher import BatchOptions
from gateway.flow.record import Record
from gateway.observe import table
from gateway.observe.cells import Cells, prepare
from gateway.observe.metrics import Metrics
from gateway.settings.tree import Health, PolicyName, Routing
from gateway.upstream.address import Address
from gateway.upstream.connection import Receiver
from gateway.upstream.faults import Fault, Unreachable
from gateway.upstream.headers import Told

MODEL = "small"
HEALTH = Health()
NO_BATCHES = BatchOptions(on=False, window_s=0, size=1, max_tokens=1)


@contextmanager
def metrics() -> Iterator[Metrics]:
    with TemporaryDirectory() as folder:
        prepare(Path(folder) / "metrics")
        cells = Cells(Path(folder) / "metrics", 0, table.FAMILIES, now=0.0)
        yield Metrics(cells, [MODEL], version="1.2.3")
        cells.release()


def spec(name: str, *, port: int = 8000, weight: float = 1.0) -> Spec:
    return Spec(name, Address(host="127.0.0.1", port=port), weight)


def fleet_of(
    counted: Metrics,
    *names: str,
    limit: int = 4,
    policy: PolicyName = PolicyName.LEAST_LOAD,
    now: float = 0.0,
    health: Health = HEALTH,
) -> Fleet:
    """A fleet whose members have just been seen well."""
    options = FleetOptions(Routing(policy=policy), health, limit, connect_s=1.0)
    fleet = Fleet(MODEL, options, counted, Random(1))
    fleet.apply([spec(name) for name in names], now)
    see_well(fleet, now)
    return fleet


def see_well(fleet: Fleet, now: float) -> None:
    for member in fleet.members:
        fleet.note(member, member.health.probe_ok(now))


@dataclass(eq=False)
class Wire:
    """Stands for an `upstream.connection.Connection` in use."""

    member: Member
    reused: bool = False
    receiver: Receiver | None = None
    answered: bool = False
    """The test has sent the head of an answer."""
    abandoned: bool = False

    def send(self, head: bytes, body: bytes, receiver: Receiver) -> None:
        assert self.receiver is None
        self.receiver = receiver

    def abandon(self) -> None:
        self.abandoned = True
        self.receiver = None

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(eq=False)
class Opening:
    """A connection that is being opened; stands for the task that does it."""

    coroutine: Coroutine[Any, Any, None]
    answer: Wire | Unreachable | None = None
    closed: bool = False

    def cancel(self) -> None:
        if not self.closed:
            self.closed = True
            self.coroutine.close()

    def settle(self, answer: Wire | Unreachable) -> None:
        """It is open, or cannot be."""
        self.closed = True
        try:
            if isinstance(answer, Wire):
                self.coroutine.send(answer)
            else:
                self.coroutine.throw(answer)
        except StopIteration:
            return
        raise AssertionError("opening a connection waits for nothing else")


class _Opened:
    """What `open` waits for: the test's word."""

    def __await__(self) -> Generator[None, Wire, Wire]:
        return (yield)


@dataclass
class Line:
    """Stands for a member's `upstream.pool.Pool`."""

    engines: Engines
    member: Member | None = None
    idle: int = 0
    closed: bool = False
    connect_s: float = 1.0

    def take(self) -> Wire | None:
        if not self.idle:
            return None
        self.idle -= 1
        return self.engines.wire(self.member, reused=True)

    async def open(self) -> Wire:
        return await _Opened()

    def close(self) -> None:
        self.closed = True


@dataclass
class Engines:
    """The wires of one fleet, and the tasks that open them: stands for a `TaskOwner` as well."""

    wires: list[Wire] = field(default_factory=list)
    openings: list[Opening] = field(default_factory=list)

    def connect(self, member: Member) -> None:
        """Give the member a line of ours in place of its pool."""
        member.pool = Line(self, member)  # type: ignore[assignment]

    def wire(self, member: Member | None, *, reused: bool = False) -> Wire:
        assert member is not None
        made = Wire(member, reused)
        self.wires.append(made)
        return made

    def start(self, name: str, coroutine: Coroutine[Any, Any, None]) -> Opening:
        coroutine.send(None)
        opening = Opening(coroutine)
        self.openings.append(opening)
        return opening

    @property
    def busy(self) -> list[Wire]:
        return [wire for wire in self.wires if wire.receiver is not None and not wire.abandoned]

    @property
    def opening(self) -> list[Opening]:
        return [opening for opening in self.openings if not opening.closed]


@dataclass(eq=False)
class Client:
    """Stands for an exchange and its answer; what a call tells it is checked for order."""

    told: list[str] = field(default_factory=list)
    gone: bool = False
    records: list[Record] = field(default_factory=list)
    complete: bool = True
    """Whether what it gets is to be a whole answer."""
    call: Any = None
    congested: bool = False
    on_gone: Any = None
    on_drained: Any = None

    @property
    def open(self) -> bool:
        return not self.gone and not self.records

    @property
    def started(self) -> bool:
        return "head" in self.told

    def head(self, status: int, told: Told, marks: bytes) -> None:
        assert not self.told
        self.told.append("head")

    def data(self, data: bytes) -> None:
        assert self.told[-1] in ("head", "data")
        self.told.append("data")

    def done(self) -> bool:
        assert self.told[-1] in ("head", "data")
        if self.complete:
            self.told.append("done")
        return self.complete

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        self.head(200, told, marks)
        self.data(body)
        return self.done()

    def broken(self, error: Exception, marks: bytes) -> None:
        assert self.told[-1:] not in (["done"], ["broken"])
        self.told.append("broken")

    def heartbeat(self, marks: bytes) -> bool:
        return False

    def usage(self) -> tuple[int, int]:
        return 0, 0

    def cut(self) -> None:
        self.told.append("cut")

    def ended(self, record: Record) -> None:
        assert not self.records, "a call ends once"
        self.records.append(record)


def refused() -> Unreachable:
    return Unreachable(Fault.REFUSED, "nobody listens")
