"""The fake's inside: which answer each request gets, and what it does to engine and counts.

Exchanges and connections ask it; `Fake` owns it and tells it how to behave. It knows no socket.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from backends.contract import ELSEWHERE_HEADER, VERSION_HEADER
from backends.fake import surface
from backends.fake.asks import Kind, Refusal, read_ask
from backends.fake.behaviour import DEFAULT_ANSWER, WORK_PATHS, Answer, Behaviour, Choice
from backends.fake.control import METHODS as CONTROL_METHODS
from backends.fake.control import Control
from backends.fake.cutting import head
from backends.fake.driver import PREFIX
from backends.fake.engine import Engine
from backends.fake.metrics import Counters
from backends.fake.performance import Performance
from backends.fake.record import Record, Request
from backends.fake.reply import JSON, Reply, error_reply
from backends.fake.responses import ResponseStory, read_response_ask

NAME_HEADER = "x-fake-name"
"""On every answer: which fake gave it."""
_KV_REQUESTS = 1_000
"""Running requests that fill the pretended KV cache."""
_QUIET_FIELDS = frozenset(
    {"text", "say", "tokens", "tokens_step", "multibyte", "event_bytes", "finish_reason", "empty_choices"}
)
"""Fields of an answer that take no time and touch no framing."""
_FIXED_BODY = b'{"prompt": "Hello!", "max_tokens": 16}'
_FIXED_TOKENS = (6, 16)


class Stage:
    def __init__(
        self,
        name: str,
        stats: Record,
        abort_running: Callable[[], None],
        drive: Callable[[Request], Reply],
        die: Callable[[], None],
    ) -> None:
        self.name = name
        self.stats = stats
        self.engine = Engine()
        self.behaviour = Behaviour()
        self.answers_early = False
        """Whether any request may be answered before its body is there."""
        self.die = die
        self._control = Control(self.engine, stats, abort_running)
        self._drive = drive
        self._choice = Choice(self.behaviour)
        self._created = time.time_ns() // 1_000_000_000
        self._named = 0
        self._finished = 0
        self._shown_tokens = (0, 0)
        self._instant: frozenset[int] = frozenset()
        """Identities of the answers that take no time."""
        self._fixed: bytes | None = None

    def behave(self, behaviour: Behaviour) -> None:
        """Behave so from the next request on."""
        if behaviour.version != self.behaviour.version:
            self.engine.serve(behaviour.version)
        if behaviour.frozen_counters and not self.behaviour.frozen_counters:
            self._shown_tokens = (self.stats.prompt_tokens, self.stats.generation_tokens)
        self.behaviour = behaviour
        self._choice = Choice(behaviour)
        self.engine.limit(behaviour.slots)
        self._control.token = behaviour.control_token
        self._control.cache_resets = behaviour.reset_prefix_cache_succeeds
        self.answers_early = behaviour.early or any(rule.early for rule in behaviour.rules)
        answers = (behaviour, *behaviour.rules)
        self._instant = frozenset(id(answer) for answer in answers if _takes_no_time(answer))
        self._fixed = self._fixed_answer() if behaviour.fixed else None

    # -- which answer

    def note_request(self, request: Request) -> None:
        if not request.path.startswith(PREFIX):
            self.stats.saw(request, request.path in surface.METHODS)

    def choose(self, request: Request) -> Answer:
        """How a request that is there as a whole is answered."""
        if request.path.startswith(PREFIX):
            return DEFAULT_ANSWER
        return self._choice.answer_for(request.path, request.body)

    def choose_early(self, path: str) -> Answer | None:
        """How a request is answered of which only the head is there; None: not yet."""
        return None if path.startswith(PREFIX) else self._choice.early_answer_for(path)

    def at_once(self, request: Request, answer: Answer) -> bytes | None:
        """The whole answer where it takes no time: plain generations, and our own paths."""
        if request.path.startswith(PREFIX):
            return self._whole(self._drive(request))
        if (
            id(answer) not in self._instant
            or request.path not in surface.GENERATE
            or b'"stream"' in request.body
        ):
            return None
        engine = self.engine
        if engine.paused or engine.draining or engine.slots or engine.stands_still:
            return None
        if self._fixed is not None and answer is self.behaviour and request.path == "/v1/completions":
            self._count_at_once(*_FIXED_TOKENS)
            return self._fixed
        if surface.refused(request) is not None:
            return None
        try:
            work = self._perform(request, answer)
        except Refusal:
            return None
        if not isinstance(work, Performance):
            return None
        self._count_at_once(work.prompt_tokens, work.completion_tokens)
        return self._whole(Reply(200, work.plain(), JSON))

    # -- what exchanges ask

    async def in_motion(self) -> None:
        """Return when time does not stand still."""
        if self.engine.stands_still:
            await self.engine.in_motion()

    def work(self, request: Request, answer: Answer) -> Performance | ResponseStory | None:
        """What a generation request gets; None for other paths. Raises Refusal."""
        if (
            request.path not in surface.GENERATE
            or self.engine.draining
            or surface.refused(request) is not None
        ):
            return None
        return self._perform(request, answer)

    async def reply(self, request: Request) -> Reply:
        """The answer to what is no work. Raises Refusal."""
        refusal = surface.refused(request)
        if refusal is not None:
            return refusal
        if self.engine.draining and (request.path in WORK_PATHS or request.path == "/health"):
            drained = error_reply(503, "This engine takes nothing new.", "ServiceUnavailableError")
            return Reply(
                drained.status,
                drained.body,
                drained.content_type,
                ((ELSEWHERE_HEADER, self.engine.elsewhere),),
            )
        if request.path in CONTROL_METHODS:
            return await self._control.reply(request)
        models = [self.behaviour.model]
        return surface.surface_reply(
            request, self.behaviour, models, self._counters(), self._created, self.engine.weights
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Those that every answer carries."""
        named = ((NAME_HEADER, self.name),)
        if self.behaviour.announce_version and self.engine.label:
            return ((VERSION_HEADER, self.engine.label), *named)
        return named

    def count(self, prompt_tokens: int, generation_tokens: int) -> None:
        self.stats.prompt_tokens += prompt_tokens
        self.stats.generation_tokens += generation_tokens

    def answered(self, status: int) -> None:
        self.stats.statuses[status] += 1

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        async with self.engine.slot():
            yield
        self._finished += 1

    # -- inside

    def _perform(self, request: Request, answer: Answer) -> Performance | ResponseStory:
        self._named += 1
        name = request.name or f"{self.name}-{self._named}"
        created = time.time_ns() // 1_000_000_000
        weights = self.engine.weights
        if request.path == "/v1/responses":
            ask = read_response_ask(request.body)
            chat = Performance(Kind.CHAT, ask, answer, self.behaviour, weights, name, created)
            return ResponseStory(chat, name, created, ask.model or self.behaviour.model)
        ask = read_ask(request.body)
        if request.path == "/v1/chat/completions":
            return Performance(Kind.CHAT, ask, answer, self.behaviour, weights, f"chatcmpl-{name}", created)
        return Performance(Kind.COMPLETION, ask, answer, self.behaviour, weights, f"cmpl-{name}", created)

    def _count_at_once(self, prompt_tokens: int, generation_tokens: int) -> None:
        self.count(prompt_tokens, generation_tokens)
        self.answered(200)
        self._finished += 1
        self.stats.max_in_flight = max(self.stats.max_in_flight, self.stats.in_flight + 1)

    def _counters(self) -> Counters:
        engine, stats = self.engine, self.stats
        prompt, generation = stats.prompt_tokens, stats.generation_tokens
        if self.behaviour.frozen_counters:
            prompt, generation = self._shown_tokens
        usage = min(1.0, engine.running / _KV_REQUESTS)
        return Counters(engine.running, engine.waiting, usage, prompt, generation, self._finished)

    def _fixed_answer(self) -> bytes:
        ask, weights = read_ask(_FIXED_BODY), self.engine.weights
        performance = Performance(
            Kind.COMPLETION, ask, self.behaviour, self.behaviour, weights, "cmpl-fixed", 0
        )
        return self._whole(Reply(200, performance.plain(), JSON))

    def _whole(self, reply: Reply) -> bytes:
        more = (("content-length", str(len(reply.body))), ("content-type", reply.content_type))
        return head(reply.status, (("server", "uvicorn"), *self.headers(), *more)) + reply.body


def _takes_no_time(answer: Answer) -> bool:
    """Whether nothing but the content of the answer differs from the default."""
    fields = [name for name in Answer.__struct_fields__ if name not in _QUIET_FIELDS]
    return all(getattr(answer, f) == getattr(DEFAULT_ANSWER, f) for f in fields)
