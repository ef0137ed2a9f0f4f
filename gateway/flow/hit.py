"""A request that is answered from the cache: begun and ended in one go, without a call."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, cast

from gateway.flow.cache.entry import Entry
from gateway.flow.cache.key import Form
from gateway.flow.guest import close_grant
from gateway.flow.marks import marks
from gateway.flow.quota import Grant
from gateway.flow.record import Record
from gateway.flow.request import ClientAnswer, Request
from gateway.http.exchange import Exchange
from gateway.observe.labels import CacheEvent
from gateway.observe.outcome import Outcome
from gateway.upstream.headers import Told

if TYPE_CHECKING:
    from gateway.flow.service import Service

_JSON = b"application/json"
_EVENTS = b"text/event-stream; charset=utf-8"
_JSON_LINE = b"content-type: application/json\r\n"


class Found(NamedTuple):
    """What the cache has for a request."""

    entry: Entry
    form: Form
    body: bytes
    """In this form."""
    age_s: float


def serve(
    service: Service, exchange: Exchange, request: Request, grant: Grant | None, found: Found, now: float
) -> None:
    """Answer at once, and close the books."""
    series = service.series_of[request.route]
    series.begin()
    service.series.cache.add(CacheEvent.HIT)
    record = Record(request.route, service.name, now)
    record.outcome = answer_from(found, request, record)
    record.ended = monotonic()
    if grant is not None:
        close_grant(grant, record)
    service.account.close(series, record, exchange, request)


def answer_from(found: Found, request: Request, record: Record) -> Outcome:
    """Send what was found, and note it."""
    entry = found.entry
    record.cache = CacheEvent.HIT
    record.computed = False
    record.status = 200
    record.version = entry.version.decode("latin-1")
    record.prompt_tokens = entry.prompt_tokens
    record.completion_tokens = entry.completion_tokens
    if found.form is Form.WHOLE:
        told = Told(_JSON_LINE, len(found.body), entry.version, b"", _JSON)
    else:
        told = Told(b"", None, entry.version, b"", _EVENTS)
    lines = marks(record, request.request_id, entry.version, found.age_s)
    # Calls are what have other answers than those to one client, and no call gets here.
    answer = cast("ClientAnswer", request.answer)
    return Outcome.OK if answer.kept(told, lines, found.body) else Outcome.INTERNAL_ERROR
