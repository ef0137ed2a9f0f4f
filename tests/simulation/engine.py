"""One engine as continuous batching makes it: every sequence that runs gets a token at each step.

A step takes `step_s + sequence_s * running`; reading a prompt stops everybody for `prompt_token_s` a token
that is not in the prefix cache. `Costs` are fitted to a real engine by `tests.simulation.fit`. Time is
advanced in steps, not tokens: a sequence of n tokens ends when the engine's step counter has grown by n,
so an event costs a heap operation however many sequences run.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf


@dataclass(frozen=True, slots=True)
class Costs:
    """What an engine takes, in seconds."""

    step_s: float
    sequence_s: float
    prompt_token_s: float
    max_sequences: int
    cached_prefixes: int
    """Prefixes that its KV cache holds; the least recently used goes."""


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way."""

    arrived: float
    prompt_tokens: int
    answer_tokens: int
    prefix: int = -1
    """Which shared beginning the prompt has; -1: none."""
    prefix_tokens: int = 0
    gateway: int = 0
    first: float = inf
    """When its first token came."""
    ended: float = inf
    tries: int = 0
    hit: bool = False


class Engine:
    """Satisfies `gateway.routing.contract.Candidate` for a gateway that sees all of its load."""

    def __init__(self, name: str, costs: Costs, limit: int) -> None:
        self.name = name
        self.version = "v1"
        self.weight = 1.0
        self.limit = limit
        self.in_flight = 0
        self.tokens = 0
        self.epoch = 0
        """Grows with each change: an event of another epoch is void."""
        self.alive = True
        self._costs = costs
        self._steps = 0.0
        self._at = 0.0
        self._reading_until = 0.0
        self._running: list[tuple[float, int, Job]] = []
        self._waiting: deque[Job] = deque()
        self._order = 0
        self._prefixes: OrderedDict[int, None] = OrderedDict()

    def take(self, job: Job, now: float) -> None:
        """A request has come."""
        self._advance(now)
        self.epoch += 1
        if len(self._running) < self._costs.max_sequences:
            self._begin(job, now)
        else:
            self._waiting.append(job)

    def next_end(self) -> float:
        """When the next sequence ends if nothing else happens; infinity: none runs."""
        if not self._running:
            return inf
        left = self._running[0][0] - self._steps
        return max(self._at, self._reading_until) + left * self._step_s

    def end_one(self, now: float) -> Job:
        """The sequence that ends now; the next in line begins."""
        self._advance(now)
        self.epoch += 1
        job = heappop(self._running)[2]
        job.ended = now
        if self._waiting:
            self._begin(self._waiting.popleft(), now)
        return job

    def die(self, now: float) -> list[Job]:
        """The engine is gone, with everything on it."""
        self._advance(now)
        self.epoch += 1
        self.alive = False
        lost = [job for _, _, job in self._running] + list(self._waiting)
        self._running.clear()
        self._waiting.clear()
        self._prefixes.clear()
        return lost

    def forget_prefixes(self) -> None:
        """Its weights have changed."""
        self._prefixes.clear()

    @property
    def _step_s(self) -> float:
        return self._costs.step_s + self._costs.sequence_s * len(self._running)

    def _advance(self, now: float) -> None:
        since = max(self._at, self._reading_until)
        if now > since and self._running:
            self._steps += (now - since) / self._step_s
        self._at = now

    def _begin(self, job: Job, now: float) -> None:
        unread = job.prompt_tokens
        if job.prefix >= 0:
            job.hit = job.prefix in self._prefixes
            if job.hit:
                unread -= job.prefix_tokens
            self._prefixes[job.prefix] = None
            self._prefixes.move_to_end(job.prefix)
            if len(self._prefixes) > self._costs.cached_prefixes:
                self._prefixes.popitem(last=False)
        self._reading_until = max(self._reading_until, now) + unread * self._costs.prompt_token_s
        self._order += 1
        heappush(self._running, (self._steps + job.answer_tokens, self._order, job))
        job.first = self._reading_until + self._step_s
