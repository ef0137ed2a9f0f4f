"""What may happen, as data: a script is a list of steps, and the repr of a step is the code that makes it.

Pure. `scripts()` draws them; `tests.abuse.play` performs them. Gateways, engines and versions are named by
number, so that a script that was made smaller still means something. There are two gateways (0, 1) on one
store, three engines (0 to 2), and versions 1 to 4: of these 1 to 3 are good, 4 passes no probe.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum, StrEnum

import hypothesis.strategies as st

from backends.contract import Phase
from backends.fake import Cut, Ending, Point, Rule
from backends.fake.trouble import How

GATEWAYS, ENGINES = 2, 3
GOOD, BAD = (1, 2, 3), 4
TENANTS = ("ann", "ben")
PROMPTS = ("Hello", "Once", "语 ü 🙂")
FORMS = (
    "predict",
    "predict many",
    "predict stream",
    "completions",
    "completions stream",
    "chat",
    "chat stream",
)

STREAMED = '"stream":true'
TROUBLES: dict[str, tuple[Rule, ...]] = {
    "well": (),
    "slow": (Rule(tokens_per_s=40, first=6),),
    "late": (Rule(delay_headers_s=0.4, first=6),),
    "400": (Rule(status=400, first=3),),
    "429": (Rule(status=429, headers={"retry-after": "1"}, first=3),),
    "500": (Rule(status=500, first=3),),
    "503": (Rule(status=503, first=3),),
    "reset at once": (Rule(cut=Cut(how=Ending.RESET, after=Point.NOTHING), first=3),),
    "reset after the head": (Rule(cut=Cut(how=Ending.RESET, after=Point.HEAD), first=3),),
    "reset late": (Rule(cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=2), tokens_per_s=200, first=3),),
    "closes in the middle": (Rule(cut=Cut(how=Ending.CLOSE, after=Point.BYTES, count=40), first=3),),
    "ends too early": (
        Rule(contains=STREAMED, cut=Cut(how=Ending.END, after=Point.CHUNKS, count=2), first=3),
    ),
    "error event": (
        Rule(contains=STREAMED, cut=Cut(how=Ending.ERROR_EVENT, after=Point.CHUNKS, count=2), first=3),
    ),
    "falls silent": (
        Rule(contains=STREAMED, cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=2), first=2),
    ),
    "byte by byte": (Rule(contains=STREAMED, write_size=7, write_gap_s=0, first=3),),
    "gzip": (Rule(gzip=True, first=3),),
    "garbage": (Rule(raw="HTTP/1.1 2x0 ?\r\n\r\n", first=3),),
    "more than it announced": (Rule(trailing="HTTP/1.1 200 OK\r\n\r\n", first=3),),
    "answers early": (Rule(early=True, status=500, first=2),),
    "closes each time": (Rule(close=True, first=5),),
    "informs first": (Rule(interim=103, first=5),),
    "says nothing": (Rule(empty_choices=True, first=2),),
}
"""By name. Each wears off after a few requests."""


class Client(StrEnum):
    READS = "reads"
    SLOWLY = "slowly"
    LEAVES_AT_ONCE = "leaves at once"
    LEAVES = "leaves"
    """After some hundredths of a second, or at the first bytes."""
    RESETS = "resets"


@dataclass(frozen=True, slots=True)
class Ask:
    """So many equal requests at once. They run on beside the next steps, unless `wait`."""

    gateway: int = 0
    form: str = "completions"
    prompt: int = 0
    tokens: int = 4
    temperature: float | None = 0
    seed: int | None = None
    tenant: int = 0
    wish: str = ""
    """`x-model-version`."""
    least: int | None = None
    """`x-model-version-min`."""
    control: str = ""
    """`Cache-Control`."""
    client: Client = Client.READS
    count: int = 1
    limit_s: float = 4.0
    """`x-request-timeout`."""
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Behave:
    """An engine answers so from now on."""

    engine: int
    trouble: str


@dataclass(frozen=True, slots=True)
class Crash:
    """An engine dies, or its agent with it; it comes back with what should be served."""

    engine: int
    agent: bool = False


@dataclass(frozen=True, slots=True)
class Freeze:
    engine: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OldVersion:
    """An engine dies and comes back with this version (0: the base), past its agent."""

    engine: int
    version: int


@dataclass(frozen=True, slots=True)
class Stranger:
    """Another engine takes the address; it says what it serves, or not. Until `Back`, or the end."""

    engine: int
    says: bool = True


@dataclass(frozen=True, slots=True)
class Back:
    """The engine has its address again."""

    engine: int


class RedisFault(StrEnum):
    KILL = "kill"
    START = "start"
    FREEZE = "freeze"
    THAW = "thaw"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Redis:
    fault: RedisFault


@dataclass(frozen=True, slots=True)
class RollOut:
    gateway: int
    version: int
    mode: str = "rolling"


@dataclass(frozen=True, slots=True)
class Order:
    """`promote`, `rollback`, `pause`, `resume`."""

    gateway: int
    what: str


@dataclass(frozen=True, slots=True)
class AgentTrouble:
    """The next swap of this engine fails so."""

    engine: int
    phase: Phase
    how: How


RELOADS = ("as before", "fewer places", "no retries", "one engine less", "prefix", "batches off", "broken")


@dataclass(frozen=True, slots=True)
class Reload:
    gateway: int
    what: str


@dataclass(frozen=True, slots=True)
class Replace:
    """A gateway ends and another comes; if it led, the other follows."""

    gateway: int


Step = (
    Ask
    | Pause
    | Behave
    | Crash
    | Freeze
    | OldVersion
    | Stranger
    | Back
    | Redis
    | RollOut
    | Order
    | AgentTrouble
    | Reload
    | Replace
)
ENGINE_FAULTS = (Behave, Crash, Freeze, OldVersion, Stranger, AgentTrouble)
"""After one of these a request may fail."""

_gateway = st.integers(0, GATEWAYS - 1)
_engine = st.integers(0, ENGINES - 1)
_phases = st.sampled_from([Phase.DRAINING, Phase.LOADING, Phase.PROBING, Phase.UNDOING])
_hows = st.sampled_from([How.FAILS, How.HANGS, How.DIES, How.AGENT_DIES])
_asks = st.builds(
    Ask,
    gateway=_gateway,
    form=st.sampled_from(FORMS),
    prompt=st.integers(0, len(PROMPTS) - 1),
    tokens=st.sampled_from([4, 1, 12]),
    temperature=st.sampled_from([0, None, 0.5]),
    seed=st.sampled_from([None, None, 7]),
    tenant=st.integers(0, len(TENANTS) - 1),
    wish=st.sampled_from(["", "", "", "1", "v2", "3", "serving", "candidate"]),
    least=st.sampled_from([None, None, None, 1, 2]),
    control=st.sampled_from(["", "", "", "no-store", "no-cache", "max-age=60"]),
    client=st.sampled_from([Client.READS, Client.READS, Client.READS, *Client]),
    count=st.sampled_from([1, 1, 3, 8]),
    limit_s=st.sampled_from([4.0, 4.0, 0.3]),
    wait=st.booleans(),
)
_plain_asks = st.builds(
    Ask,
    gateway=_gateway,
    form=st.sampled_from(FORMS),
    prompt=st.integers(0, 1),
    tenant=st.integers(0, 1),
    count=st.sampled_from([1, 4]),
    wait=st.booleans(),
)
_versions = st.sampled_from([*GOOD, *GOOD, BAD])
_roll_outs = st.builds(
    RollOut, _gateway, _versions, st.sampled_from(["rolling", "rolling", "canary", "atomic"])
)
_quiet = (
    _asks,
    _plain_asks,
    _plain_asks,
    st.builds(Pause, st.sampled_from([0.0, 0.02, 0.1, 0.3])),
    _roll_outs,
    st.builds(Order, _gateway, st.sampled_from(["promote", "rollback", "pause", "resume"])),
    st.builds(Redis, st.sampled_from(list(RedisFault))),
    st.builds(Reload, _gateway, st.sampled_from(RELOADS)),
    st.builds(Replace, _gateway),
)
_faulty = (
    st.builds(Behave, _engine, st.sampled_from(list(TROUBLES))),
    st.builds(Behave, _engine, st.sampled_from(list(TROUBLES))),
    st.builds(Crash, _engine, st.booleans()),
    st.builds(Freeze, _engine, st.sampled_from([0.1, 0.5, 1.0])),
    st.builds(OldVersion, _engine, st.sampled_from([0, *GOOD])),
    st.builds(Stranger, _engine, st.booleans()),
    st.builds(Back, _engine),
    st.builds(AgentTrouble, _engine, _phases, _hows),
)


def scripts(most: int = 24) -> st.SearchStrategy[list[Step]]:
    """A third of them harm no engine: in these no request may fail."""
    quiet = st.lists(st.one_of(*_quiet), min_size=2, max_size=most)
    faulty = st.lists(st.one_of(*_quiet, *_faulty), min_size=2, max_size=most)
    long = st.lists(st.one_of(*_quiet, *_faulty), min_size=most // 2, max_size=most)
    return st.one_of(faulty, long, quiet)


def shown(script: list[Step]) -> str:
    """As code that makes it again."""
    return "[\n" + "".join(f"    {as_code(step)},\n" for step in script) + "]"


def as_code(step: Step) -> str:
    """One step, without what is as usual."""
    given = {each.name: getattr(step, each.name) for each in fields(step)}
    told = [
        f"{each.name}={_literal(given[each.name])}"
        for each in fields(step)
        if given[each.name] != each.default
    ]
    return f"{type(step).__name__}({', '.join(told)})"


def _literal(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
