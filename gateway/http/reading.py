"""From an exchange to a request: who asks, what is asked, and in which form the answer goes back.

One function for each kind of body; everything that is wrong raises a GatewayError. Below this module
nobody sees wire models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.errors import BadRequest
from gateway.fleet.split import read_wish
from gateway.flow.cache.policy import deterministic, reuse
from gateway.flow.request import Request
from gateway.http import openai, predict
from gateway.http.auth import Keys
from gateway.http.batches import batchable
from gateway.http.bodies import decompress
from gateway.http.exchange import Exchange
from gateway.http.predictions import Prediction, PredictionStream
from gateway.http.relay import Relay
from gateway.observe.labels import Route
from gateway.observe.trace import Identifiers, begin_span, sane_request_id
from gateway.routing.contract import Hint
from gateway.settings.tree import PolicyName, Routing
from gateway.upstream.headers import Asked, read_request


@dataclass(frozen=True, slots=True)
class Affinity:
    """What the models' policies want to know of a request."""

    prefix_chars: int = 0
    session_headers: frozenset[bytes] = frozenset()
    session_keys: tuple[str, ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether any policy wants to know anything."""
        return self.prefix_chars > 0 or self.session_keys != ()

    @classmethod
    def of(cls, routings: Iterable[Routing]) -> Affinity:
        """Enough for each of them."""
        prefix = [routing for routing in routings if routing.policy is PolicyName.PREFIX]
        session = [routing for routing in routings if routing.policy is PolicyName.SESSION]
        return cls(
            max((routing.prefix_chars for routing in prefix), default=0),
            frozenset(routing.session_header.lower().encode() for routing in session),
            tuple(dict.fromkeys(routing.session_key for routing in session)),
        )

    def hint(self, prefix: bytes | memoryview, session: bytes, body: bytes, user: object) -> Hint:
        """The hint for a request: the session is named by a header, else by a key of the body."""
        name = session.decode("latin-1")
        if not name and self.session_keys:
            name = openai.session_of(body, self.session_keys, user)
        return Hint(bytes(prefix[: self.prefix_chars]), name)


NO_HINT = Hint()
_PREDICT, _COMPLETIONS, _CHAT = Route.PREDICT, Route.COMPLETIONS, Route.CHAT


@dataclass(slots=True)
class Reader:
    """Reads requests by the settings of this gateway."""

    keys: Keys
    max_body_bytes: int
    identifiers: Identifiers
    affinity: Affinity
    batching: bool = False
    """Whether prompts of /predict may travel together."""
    tracing: bool = False
    """Whether spans are kept: then the engine's are children of ours."""

    def name(self, exchange: Exchange) -> None:
        """Give a request its id: the client's own, if it is sane. For requests that are refused unread."""
        offered = next((value for name, value in exchange.headers if name == b"x-request-id"), None)
        exchange.request_id = sane_request_id(offered) or self.identifiers.request_id()

    def read(self, exchange: Exchange) -> Request:
        """The request, checked. Sets the exchange's request id first, so that errors carry it too."""
        predicting = exchange.route.name is _PREDICT
        asked = exchange.asked
        if asked is None:
            session_headers = self.affinity.session_headers
            asked = read_request(exchange.headers, session_headers=session_headers, own_body=predicting)
            exchange.asked = asked
        offered = sane_request_id(asked.request_id) if asked.request_id else None
        exchange.request_id = offered or self.identifiers.request_id()
        key = self.keys.identify(asked.authorization) if self.keys else None
        body = exchange.body
        if asked.content_encoding:
            body = decompress(body, asked.content_encoding, self.max_body_bytes)
        request = self._predict(exchange, body, asked) if predicting else self._relay(exchange, body, asked)
        if key is not None:
            request.key = key
        request.block = asked.block + b"x-request-id: " + request.request_id + b"\r\n"
        if asked.traceparent:
            request.traceparent = asked.traceparent
        if self.tracing:
            self._begin_span(request)
        if asked.version or asked.least:
            request.wish = read_wish(asked.version, asked.least)
        if asked.timeout:
            request.timeout_s = _timeout(asked.timeout)
        return request

    def _begin_span(self, request: Request) -> None:
        request.span = begin_span(request.traceparent, self.identifiers).header()
        line = b"traceparent: %b\r\n"
        request.block = request.block.replace(line % request.traceparent, b"") + line % request.span

    def _relay(self, exchange: Exchange, body: bytes, asked: Asked) -> Request:
        seen = openai.glance(body)
        stream = seen.stream is not None and seen.streams
        route = exchange.route
        model = seen.model if type(seen.model) is str else openai.check_model(seen.model, route)
        affinity = self.affinity
        hint = NO_HINT
        if affinity.wanted:
            hint = affinity.hint(memoryview(seen.text), asked.session, body, seen.user)
        answer = Relay(exchange, stream, route.ending)
        tokens = seen.tokens(route.generates)
        request = Request(route.name, route.path, body, answer, b"", model, stream, tokens, hint)
        request.request_id = exchange.request_id
        if stream:
            request.resumable = route.name is _COMPLETIONS or route.name is _CHAT
        if (seen.temperature == 0 or seen.seed is not None or asked.cache_control) and route.reusable:
            certain = deterministic(seen.temperature, seen.seed, seen.n)
            request.reuse = reuse(certain, asked.cache_control)
        return request

    def _predict(self, exchange: Exchange, body: bytes, asked: Asked) -> Request:
        wanted = predict.read(body)
        path, upstream_body = predict.upstream(wanted)
        answer = PredictionStream if wanted.stream else Prediction
        text = predict.prompt_bytes(wanted)
        fixed = {"temperature": wanted.temperature, "seed": wanted.seed, "n": None, **wanted.parameters}
        certain = deterministic(fixed["temperature"], fixed["seed"], fixed["n"])
        return Request(
            route=Route.PREDICT,
            path=path,
            body=upstream_body,
            answer=answer(exchange, many=predict.is_many(wanted)),
            request_id=exchange.request_id,
            model=wanted.model or "",
            stream=wanted.stream,
            resumable=wanted.stream,
            tokens=len(text) // openai.BYTES_PER_TOKEN + 1 + wanted.max_tokens * predict.copies(wanted),
            hint=self.affinity.hint(text, asked.session, body, None) if self.affinity.wanted else NO_HINT,
            timeout_s=wanted.timeout,
            reuse=reuse(certain, asked.cache_control, wanted.cache),
            batch=batchable(wanted, asked.block) if self.batching else None,
        )


def _timeout(value: bytes) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise BadRequest(
            "`x-request-timeout` must be a number of seconds above 0.", param="x-request-timeout"
        )
    return seconds
