"""One request and its answer, played step by step as the answer's behaviour says.

The connection starts an exchange as a task and cancels it when the client goes away; everything an
exchange holds (its slot, its place in the counts) it gives back on every way out.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from backends.fake import shapes
from backends.fake.asks import Refusal
from backends.fake.behaviour import Answer, Ending, Framing, Point
from backends.fake.cutting import Compressor, EventWriter, Shortener, Slicer, blocks, chunk, head
from backends.fake.performance import Performance
from backends.fake.record import Request
from backends.fake.reply import Reply, error_reply, refusal_reply
from backends.fake.responses import ResponseStory
from backends.fake.stage import Stage

EVENT_STREAM = "text/event-stream; charset=utf-8"
_TIMER_SLACK_S = 0.002
_BLOCKS_TYPE = "application/octet-stream"


class Wire(Protocol):
    """What an exchange needs of its connection."""

    @property
    def congested(self) -> bool:
        """Whether `drained` would wait."""

    def write(self, data: bytes) -> None: ...
    async def drained(self) -> None:
        """Return when the transport takes more."""

    async def reset(self) -> None:
        """Let the peer have what was written, then reset the connection."""

    def close(self) -> None: ...


class Exchange:
    def __init__(self, request: Request, answer: Answer, wire: Wire, stage: Stage, keep_alive: bool) -> None:
        self.request = request
        self.answered = False
        """Whether a byte of the answer was written."""
        self._answer = answer
        self._wire = wire
        self._stage = stage
        self._closes = answer.close or answer.framing is Framing.CLOSE or not keep_alive
        self._shortener = Shortener(answer.cut)
        self._compressor = Compressor() if answer.gzip else None
        self._events = EventWriter(answer)
        self._slicer = Slicer(answer, chunked=False)
        self._chunked = False
        self._whole_writes = not (
            answer.cut or answer.gzip or answer.write_size or answer.split_at is not None
        )
        """Whether a part of the body is one write, as it is."""
        self._due_s = 0.0
        """When the last token was due."""
        self._performance: Performance | None = None
        self._nap: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._written_s = 0.0
        self._beat_timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """End the generation as `/pause?mode=abort` does: at once, as a whole answer, with that reason."""
        if self._performance is not None:
            self._performance.aborted = True
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    async def play(self) -> None:
        """Answer. Cancelled when the client leaves."""
        try:
            await self._play()
        finally:
            if self._beat_timer is not None:
                self._beat_timer.cancel()

    async def _play(self) -> None:
        answer = self._answer
        await self._wait(answer.delay_headers_s)
        if answer.cut is not None and answer.cut.after is Point.NOTHING:
            await self._cut_short()
            return
        if answer.raw is not None:
            self._write(answer.raw.encode("latin-1"))
        else:
            await self._answer_in_full()
        if answer.trailing is not None:
            self._write(answer.trailing.encode("latin-1"))
        if self._closes:
            self._wire.close()

    async def _answer_in_full(self) -> None:
        answer = self._answer
        if answer.interim is not None:
            self._write(head(answer.interim, ()))
        if answer.body_bytes:
            await self._send_blocks()
        elif answer.body is not None:
            content_type = (
                "application/json" if answer.body[:1] in ("{", "[") else "text/plain; charset=utf-8"
            )
            await self._send_reply(Reply(answer.status, answer.body.encode(), content_type))
        elif answer.status != 200:
            await self._send_reply(
                error_reply(answer.status, "The fake was told to fail.", _error_kind(answer.status))
            )
        else:
            await self._serve()

    async def _serve(self) -> None:
        try:
            work = self._stage.work(self.request, self._answer)
            if work is None:
                await self._send_reply(await self._stage.reply(self.request))
                return
        except Refusal as refusal:
            await self._send_reply(refusal_reply(refusal))
            return
        self._performance = work if isinstance(work, Performance) else work.performance
        if self._performance.streams:
            await self._send_stream(work)
            return
        async with self._stage.slot():
            await self._compute(self._performance)
            await self._send_reply(Reply(200, work.plain(), "application/json"))

    async def _compute(self, performance: Performance) -> None:
        """Let the time pass that a plain answer takes, counting its tokens."""
        self._due_s = self._loop.time()
        self._stage.count(performance.prompt_tokens, 0)
        for wait_s, tokens in performance.pace():
            await self._wait_for_token(wait_s)
            self._stage.count(0, tokens)
            if performance.aborted:
                return

    async def _send_stream(self, work: Performance | ResponseStory) -> None:
        self._send_head(200, EVENT_STREAM, None)
        self._beat()
        async with self._stage.slot():
            self._due_s = self._loop.time()
            self._stage.count(self._performance.prompt_tokens if self._performance else 0, 0)
            for step in work.steps():
                if not self._shortener.reached:
                    await self._wait_for_token(step.wait_s)
                self._stage.count(0, step.tokens)
                for at, event in enumerate(step.events):
                    if self._shortener.reached:
                        await self._cut_short(stream=True)
                        return
                    name = step.names[at] if step.names else b""
                    await self._send_part(
                        self._events.named_event(name, event) if name else self._events.event(event)
                    )
        if self._shortener.reached:
            await self._cut_short(stream=True)
            return
        if isinstance(work, Performance):
            await self._send_part(self._events.event(b"[DONE]"))
        await self._finish()

    async def _send_reply(self, reply: Reply) -> None:
        body = reply.body
        if self._compressor is not None:
            body = self._compressor.part(body) + self._compressor.rest()
            self._compressor = None
        self._send_head(reply.status, reply.content_type, len(body), reply.headers, gzipped=self._answer.gzip)
        if self.request.method == "HEAD":
            return
        if body and not self._shortener.reached:
            await self._send_part(body)
        if self._shortener.reached:
            await self._cut_short()
            return
        await self._finish()

    async def _send_blocks(self) -> None:
        self._send_head(self._answer.status, _BLOCKS_TYPE, self._answer.body_bytes)
        for block in blocks(self._answer.body_bytes):
            if self._shortener.reached:
                await self._cut_short()
                return
            await self._send_part(block)
        await self._finish()

    def _send_head(
        self,
        status: int,
        content_type: str,
        length: int | None,
        more: tuple[tuple[str, str], ...] = (),
        gzipped: bool | None = None,
    ) -> None:
        """`length` is that of the body as it is sent; None where it is not known."""
        answer = self._answer
        if gzipped is None:
            gzipped = answer.gzip
            length = None if gzipped else length
        headers: list[tuple[str, str]] = [("server", "uvicorn"), *self._stage.headers(), *more]
        if length is None or answer.framing is Framing.CHUNKED:
            chunked = answer.framing is not Framing.CLOSE
        else:
            chunked = False
        if chunked:
            headers.append(("transfer-encoding", "chunked"))
        elif length is not None and answer.framing is not Framing.CLOSE:
            headers.append(("content-length", str(length + answer.length_error)))
        content_type = content_type if answer.content_type is None else answer.content_type
        if content_type:
            headers.append(("content-type", content_type))
        if gzipped:
            headers.append(("content-encoding", "gzip"))
        headers += answer.headers.items()
        if self._closes:
            headers.append(("connection", "close"))
        self._slicer, self._chunked = Slicer(answer, chunked), chunked
        self._stage.answered(status)
        self._write(head(status, headers))

    async def _send_part(self, part: bytes) -> None:
        """Send a part of the body, as far as the cut lets it pass."""
        if self._whole_writes and not self._stage.engine.stands_still:
            self._write(chunk(part) if self._chunked else part)
            if self._wire.congested:
                await self._wire.drained()
            return
        part = self._shortener.passed(part)
        if not part:
            return
        if self._compressor is not None:
            part = self._compressor.part(part)
        await self._write_all(list(self._slicer.writes(part)))

    async def _write_all(self, writes: list[bytes]) -> None:
        for at, data in enumerate(writes):
            if at:
                await self._wait(self._answer.write_gap_s)
            await self._stage.in_motion()
            self._write(data)
            await self._wire.drained()

    async def _finish(self) -> None:
        """End the HTTP message as it should end."""
        if self._compressor is not None:
            await self._write_all(list(self._slicer.writes(self._compressor.rest())))
        await self._write_all(list(self._slicer.last()))

    async def _cut_short(self, stream: bool = False) -> None:
        cut = self._answer.cut
        assert cut is not None
        if cut.how is Ending.SILENCE:
            await self._loop.create_future()
        elif cut.how is Ending.RESET:
            await self._wire.reset()
        elif cut.how is Ending.DIE:
            self._stage.die()
        elif cut.how is Ending.ERROR_EVENT and stream:
            error = shapes.error(500, cut.message, "InternalServerError")
            self._shortener = Shortener(None)
            for data in (msgspec.json.encode(error), b"[DONE]"):
                await self._send_part(self._events.event(data))
            await self._finish()
        elif cut.how is Ending.END and stream:
            await self._finish()
        else:
            self._wire.close()

    async def _wait_for_token(self, seconds: float) -> None:
        """Wait so long after the last token was due: late timers do not add up, one is made up for."""
        if seconds <= 0:
            return
        now = self._loop.time()
        self._due_s = max(self._due_s, now - seconds) + seconds
        await self._wait(self._due_s - now)

    async def _wait(self, seconds: float) -> None:
        """Let time pass, in which the engine may stand still or the request be aborted."""
        await self._stage.in_motion()
        if seconds <= 0:
            return
        nap: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(seconds, _wake, nap)
        self._nap = nap
        try:
            await nap
        finally:
            timer.cancel()
            self._nap = None
        await self._stage.in_motion()

    def _beat(self) -> None:
        """Write the keep-alive comment when it is due, and see to the next."""
        interval = self._answer.keep_alive_s
        if not interval:
            return
        due = self._written_s + interval
        if self._loop.time() >= due - _TIMER_SLACK_S and not self._stage.engine.stands_still:
            comment = self._events.keep_alive()
            comment = self._compressor.part(comment) if self._compressor is not None else comment
            for data in self._slicer.writes(comment):
                self._write(data)
            due = self._loop.time() + interval
        self._beat_timer = self._loop.call_at(max(due, self._loop.time() + _TIMER_SLACK_S), self._beat)

    def _write(self, data: bytes) -> None:
        self.answered = True
        self._written_s = self._loop.time()
        self._wire.write(data)


def _wake(nap: asyncio.Future[None]) -> None:
    if not nap.done():
        nap.set_result(None)


def _error_kind(status: int) -> str | None:
    return {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}.get(status)
