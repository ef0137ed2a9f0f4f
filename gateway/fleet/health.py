"""The verdict on one member, from evidence: probes, what traffic shows, the engine's own counters.

`MemberHealth` weighs the evidence and steps through `gateway.fleet.states`. It is pure: the shell calls
it with the time and performs what the returned transitions mean (log, count, `in_rotation` again).

Three rules decide what counts:
- Only the member's own faults count (`Kind.counts`): never what a client did or asked for.
- Success in traffic outweighs failing probes; a good probe never outweighs failures in traffic that
  earlier probes failed to notice.
- Whatever was ejected comes back by itself: by probes, by a trial request, or by counters that move.
"""

from __future__ import annotations

from math import inf
from random import Random

from gateway.fleet.breaker import Breaker
from gateway.fleet.evidence import OWN_FAULTS, Cause, Kind, Transition
from gateway.fleet.states import LEASABLE, Event, State, step
from gateway.fleet.warmth import Warmth
from gateway.settings.tree import Health

TRIALS = 1
"""Requests at a time that try a half-open member: one is enough to learn, and little to lose."""

NOT_UP_YET = frozenset({Kind.REFUSED, Kind.BAD_STATUS})
"""How a probe fails while an engine loads: such a member starts, it is not broken."""


class MemberHealth:
    """One member's state and the evidence for it. Times are seconds of one monotonic clock.

    Every method that takes evidence returns the transition it caused, or None. After a transition,
    and only then, `gateway.fleet.rotation.in_rotation` may answer differently.
    """

    __slots__ = (
        *("_alert", "_announced_at", "_breaker", "_doubted", "_fault", "_fresh", "_good_probes"),
        *("_last_ok", "_leaves", "_moved_at", "_options", "_probe_fault", "_probe_said_leaving"),
        *("_probes_agreed", "_random", "_read_at", "_stalled", "_streak", "_streak_since"),
        *("_tokens", "_warmth", "cause", "counters_missing", "reason", "refused", "since", "state"),
    )

    def __init__(self, options: Health, now: float, random: Random) -> None:
        self._options = options
        self.state = State.STARTING
        self.since = now
        """When it came into this state."""
        self.reason = "not seen yet"
        """Why it is in this state, for people."""
        self.cause: Cause | None = None
        """What ejected it; None unless it is ejected or on trial."""
        self.refused = False
        """Nobody listens there, by the latest evidence."""
        self.counters_missing = False
        """The engine shows no counters, so a stall cannot be seen: worth a metric (B12)."""
        self._random = random
        self._breaker = Breaker(options.traffic_failures, options.breaker_open_s, options.breaker_max_s)
        self._alert = True
        """Whether a success in traffic means more than a time to note: false in the ordinary case."""
        self._last_ok = -inf
        self._fault: Kind | None = None
        """The last fault of its own in traffic."""
        self._probe_fault: Kind | None = None
        """What the last probe failed with; None if it was good."""
        self._streak = 0
        """Failed probes in a row; `_streak_since`: when the first of them failed."""
        self._streak_since = now
        self._good_probes = 0
        self._probes_agreed = False
        """Whether probes noticed what traffic ejected it for: only then do good ones prove anything."""
        self._announced_at = now
        """When it last said that it leaves."""
        self._leaves = False
        """An operator drains it: it does not come back by probing."""
        self._doubted = False
        """Its weights are unknown, whatever else happens to it, until `proved`."""
        self._probe_said_leaving = False
        self._fresh = False
        """It was seen out of service: what comes back may be another process, or other weights."""
        self._warmth = Warmth()
        self._tokens: float | None = None
        self._read_at = now
        self._moved_at = now
        self._stalled = False
        """Its counters stood still, and nothing has moved since."""

    # -- what the shell reads

    @property
    def options(self) -> Health:
        """Thresholds; may be replaced at any time, evidence is kept."""
        return self._options

    @options.setter
    def options(self, options: Health) -> None:
        self._options = options
        self._breaker.after = options.traffic_failures
        self._breaker.open_s = options.breaker_open_s
        self._breaker.max_s = options.breaker_max_s

    @property
    def leasable(self) -> bool:
        """Whether it may get a new request."""
        return self.state in LEASABLE

    @property
    def wake_at(self) -> float:
        """When `tick` will have something to do; infinite if never. To be asked after each probe and tick."""
        if self.state is State.READY:
            return self._warmth.until
        if self.state is not State.EJECTED or self._probe_fault is Kind.REFUSED:
            return inf
        return self._breaker.until

    @property
    def warm(self) -> bool:
        """Whether it has its full share: false for a while after it came back, or took other weights."""
        return not self._warmth.allowed

    @property
    def away(self) -> bool:
        """Whether it leaves, or has just said that it does not: soon it may be back."""
        return self.state is State.DRAINING or (self.state is State.STARTING and self._good_probes > 0)

    def silent_s(self, now: float) -> float:
        """Since traffic last showed it well; infinite if it never did."""
        return now - self._last_ok

    def allowance(self, limit: int, in_flight: int) -> int:
        """How many requests it may have from now on, given its ordinary limit and those it has.

        To be asked once at each transition and kept (asked again and again, it would grow along with
        `in_flight`). A member used as a last resort has its ordinary limit instead.
        """
        if self.state is State.SUSPECT:
            return min(limit, in_flight + TRIALS)
        return min(limit, self._warmth.allowed or limit)

    # -- evidence from traffic

    def traffic_ok(self, now: float) -> Transition | None:
        """A request on it was answered well, to the end. Two attributes touched in the ordinary case.

        Not at the first byte: a member that always breaks off later would look healthy.
        """
        self._last_ok = now
        return self._vindicated(now) if self._alert else None

    def flowing(self, now: float) -> None:
        """A byte of an answer came: outweighs slow probes and standing counters, closes no breaker."""
        self._last_ok = now

    def traffic_failed(self, now: float, kind: Kind) -> Transition | None:
        """A request on it ended badly. Kinds that are not its own fault change nothing."""
        if kind is Kind.ELSEWHERE:
            return self._announce(now)
        if kind not in OWN_FAULTS:
            return None
        self._alert = True
        self._fault = kind
        if self.state not in LEASABLE:
            return self._contact(now, kind is Kind.REFUSED)
        self.refused = kind is Kind.REFUSED
        self._fresh = self._fresh or self.refused
        if not self._breaker.failed(now, self._random.random()):
            return None
        return self._eject(
            now, Cause.TRAFFIC, f"{self._breaker.failures} requests failed in a row: {kind.value}"
        )

    # -- evidence from probes

    def probe_ok(self, now: float) -> Transition | None:
        """A probe was answered well and in time."""
        self._streak = 0
        self._probe_fault = None
        self._good_probes += 1
        said_leaving, self._probe_said_leaving = self._probe_said_leaving, False
        if self.state is State.STARTING:
            return self._ready(now, "first good probe")
        if self.state is State.DRAINING and said_leaving and not self._leaves:
            # The same question was answered "elsewhere" a moment ago: it has made up its mind.
            return self._return(now, "it no longer leaves")
        if self._good_probes >= self._options.healthy_after:
            if self.state is State.DRAINING and self._stays(now):
                return self._return(now, "it announced to leave, and stayed")
            if self.cause is not None and self._probes_prove():
                return self._ready(now, f"{self._good_probes} good probes in a row")
        return self._contact(now, refused=False)

    def probe_failed(self, now: float, kind: Kind, detail: str = "") -> Transition | None:
        """A probe failed. `detail` is for people: a status, an error's text."""
        self._probe_said_leaving = kind is Kind.ELSEWHERE
        if kind is Kind.ELSEWHERE:
            return self._announce(now)
        self._good_probes = 0
        self._probe_fault = kind
        self._probes_agreed = True
        if self._streak == 0 or self._last_ok >= self._streak_since:  # it works, if slowly: count anew (B3)
            self._streak = 0
            self._streak_since = now
        self._streak += 1
        what = detail or kind.value
        if self.state is State.STARTING:
            self._fresh = True
            self.reason = f"not seen well yet: {what}"
        if self._streak >= self._options.unhealthy_after and self._ejectable(kind):
            self.refused = kind is Kind.REFUSED
            self._fresh = self._fresh or self.refused
            return self._eject(now, Cause.PROBES, f"{self._streak} probes failed in a row: {what}")
        return self._contact(now, kind is Kind.REFUSED)

    # -- evidence from the engine's counters

    def counters(self, now: float, tokens: float | None, running: int | None) -> Transition | None:
        """The engine's counters, read now; None where it shows no such counter.

        `tokens` only grows, as long as the engine works: prompt plus generated tokens, so that a long
        prompt is no stall. `running`: requests on it, the larger of what it says and of our own leases
        (a frozen engine's own number stands still as well). Readings far apart say nothing of the time
        between them: nobody may have asked anything of it.
        """
        self.counters_missing = tokens is None or running is None
        if tokens is None or running is None:
            return None
        moved = tokens != self._tokens
        self._tokens = tokens
        known_s = now - self._read_at
        self._read_at = now
        if moved or running <= 0 or known_s > 2 * (self._options.interval_s + self._options.timeout_s):
            self._moved_at = now
            if not moved or not self._stalled:
                return None
            self._stalled = False
            return self._ready(now, "its counters move again") if self.cause is Cause.STALL else None
        still_s = now - max(self._moved_at, self._last_ok)
        if still_s < self._options.stall_s or self.state not in LEASABLE:
            return None
        self._stalled = True
        self._breaker.trip(now, self._random.random())
        return self._eject(now, Cause.STALL, f"no token for {still_s:.0f} s while {running} requests run")

    # -- time and orders

    def tick(self, now: float) -> Transition | None:
        """Let time pass: from `wake_at` on an open breaker is half open.

        Not while probes are refused: a trial would only lose a request. A ready one grows warmer.
        """
        if self.state is State.READY:
            return self._warmer(now) if self._warmth.tick(now) else None
        if now < self.wake_at or not self._breaker.cool(now):
            return None
        self._good_probes = 0
        return self._move(now, Event.COOLED, f"on trial after: {self.reason}")

    def drain(self, now: float, reason: str = "drained") -> Transition | None:
        """It gets nothing new until `resume`. Without effect if it drains or is gone already."""
        if self.state is State.GONE:
            return None
        self._leaves = True
        return None if self.state is State.DRAINING else self._move(now, Event.DRAIN, reason)

    def resume(self, now: float) -> Transition | None:
        """Take a `drain` back: it is used again as soon as it is seen well (proved, if it was doubted)."""
        self._leaves = False
        return self._return(now, "drain taken back") if self.state is State.DRAINING else None

    def doubt(self, now: float, reason: str) -> Transition | None:
        """What it computes is unknown from now on, until `proved`. Takes a `drain` back."""
        if self.state in (State.UNCERTAIN, State.GONE):
            return None
        self._doubted = True
        self._leaves = False
        return self._move(now, Event.DOUBT, reason)

    def proved(self, now: float) -> Transition | None:
        """It was shown to serve what it names: in rotation at once, unless it was drained meanwhile."""
        self._doubted = False
        if self.state is not State.UNCERTAIN:
            return None
        proof = self._move(now, Event.PROVED, "proved")
        self._absolve()
        return proof

    def changed(self) -> None:
        """It serves other weights than before: if it is ready, its allowance is that of a fresh one."""
        if self.state is State.READY:
            self._warm_up(-inf)
        else:
            self._fresh = True

    def spare_no_more(self) -> None:
        """There is nobody warm who could work in its place: its allowance is the ordinary one."""
        self._warmth.stop()

    def remove(self, now: float) -> Transition | None:
        """It is gone for good. Evidence that still comes in changes nothing."""
        return None if self.state is State.GONE else self._move(now, Event.REMOVE, "removed")

    # -- inside

    def _vindicated(self, now: float) -> Transition | None:
        """A success where it means something: failures were counted, or the member is not ready.

        An open breaker stays open: the request may be older than the failures that opened it.
        """
        self._breaker.ok()
        self._stalled = False
        if self.state in (State.STARTING, State.SUSPECT) or self.cause in (Cause.PROBES, Cause.STALL):
            return self._ready(now, "a request succeeded")
        warmer = self.state is State.READY and self._warmth.answered(now)
        self._alert = self.state is not State.READY or not self.warm
        return self._warmer(now) if warmer else self._contact(now, refused=False)

    def _warmer(self, now: float) -> Transition:
        """More may be asked of it. It stays in its state, and has been there as long as before."""
        reason = f"up to {self._warmth.allowed} requests at a time" if not self.warm else "warm"
        return Transition(now, self.state, Event.WARMED, step(self.state, Event.WARMED), reason)

    def _warm_up(self, now: float) -> None:
        self._warmth.start(now)
        self._alert = True

    def _ejectable(self, kind: Kind) -> bool:
        return self.state in LEASABLE or (self.state is State.STARTING and kind not in NOT_UP_YET)

    def _probes_prove(self) -> bool:
        """Whether good probes are evidence against what ejected it."""
        if self.cause is Cause.PROBES:
            return True
        if self._stalled:
            return False
        return self.state is State.SUSPECT or self._probes_agreed or self._fault is Kind.REFUSED

    def _stays(self, now: float) -> bool:
        """Whether it is long since it said that it leaves, and no operator wants it to."""
        return not self._leaves and now - self._announced_at >= self._options.breaker_open_s

    def _announce(self, now: float) -> Transition | None:
        """It said itself that it leaves."""
        self._good_probes = 0
        self._announced_at = now
        if self.state in (State.DRAINING, State.UNCERTAIN, State.GONE):
            return None
        return self._move(now, Event.DRAIN, "it announced to leave")

    def _return(self, now: float, reason: str) -> Transition:
        """It no longer leaves."""
        return self._move(now, Event.DOUBT if self._doubted else Event.RESUME, reason)

    def _contact(self, now: float, refused: bool) -> Transition | None:
        """Note whether somebody listens there; of an ejected member that is a change to be told."""
        if refused is self.refused:
            return None
        self.refused = refused
        self._fresh = self._fresh or refused
        if self.state is not State.EJECTED:
            return None
        return self._move(now, Event.CONTACT, f"{self.reason}; now {'refused' if refused else 'reached'}")

    def _eject(self, now: float, cause: Cause, reason: str) -> Transition:
        self.cause = cause
        self._good_probes = 0
        self._probes_agreed = self._probe_fault is not None
        return self._move(now, Event.FAILED, reason)

    def _ready(self, now: float, reason: str) -> Transition:
        ready = self._move(now, Event.RECOVERED, reason)
        self._absolve()
        return ready

    def _absolve(self) -> None:
        if self._fresh:
            self._fresh = False
            self._warm_up(self.since)
        self.refused = False
        self._streak = 0
        self._stalled = False
        self._moved_at = self.since
        self._breaker.close()

    def _move(self, now: float, event: Event, reason: str) -> Transition:
        before = self.state
        self.state = step(before, event)
        self.since = now
        self.reason = reason
        self._alert = True
        if self.state not in (State.EJECTED, State.SUSPECT):
            self.cause = None
        if self.state is not State.READY:
            self._warmth.stop()
        if self.state in (State.DRAINING, State.UNCERTAIN):
            self._fresh = True
        return Transition(now, before, event, self.state, reason)

    def __repr__(self) -> str:
        return f"<MemberHealth {self.state.value} since={self.since:.3f} ({self.reason}) {self._breaker!r}>"
