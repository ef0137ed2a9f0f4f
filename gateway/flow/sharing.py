"""Cache, join, batch: how a request gets an answer that it need not have alone.

One for each worker. A request comes here only if something of this may be true of it; a plain one has a
`Call` of its own and knows nothing of all this. From memory it is answered at once; from Redis when that
answers; else it joins those who asked the same a moment ago, or leads those who will.

Answers are looked for under the version that the request is for, kept under the one that computed them. Where
members serve several versions, and neither a split nor a wish says which, equal questions go to the same one.
While all members change at once nothing is looked for and nobody joins.
"""

from __future__ import annotations

import logging
from time import monotonic

from gateway.errors import Internal
from gateway.flow.aim import Aim
from gateway.flow.cache import key
from gateway.flow.cache.cache import Cache, now_ms
from gateway.flow.cache.entry import Entry
from gateway.flow.cache.key import Form
from gateway.flow.crowd import Crowd, Place
from gateway.flow.guest import Guest
from gateway.flow.hit import Found, answer_from, serve
from gateway.flow.quota import Grant
from gateway.flow.request import Request
from gateway.flow.service import Service
from gateway.http import forms
from gateway.http.exchange import Exchange
from gateway.observe.labels import CacheEvent
from gateway.upstream.headers import Told

logger = logging.getLogger(__name__)

_CHAT = b"/v1/chat/completions"


class Sharing:
    """Satisfies `gateway.flow.crowd.Keeper`."""

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        self._crowds: dict[bytes, Crowd] = {}
        """Those that take in others, by what they ask and of which version."""

    def __repr__(self) -> str:
        return f"<Sharing {len(self._crowds)} crowds>"

    def take(
        self, service: Service, exchange: Exchange, request: Request, grant: Grant | None, now: float
    ) -> None:
        """Answer this request, now or later. Whatever it raises, it has not begun to."""
        place = self._place(service, request) if request.reuse is not None else None
        if place is not None and request.reuse is not None and request.reuse.look_up:
            found = self._find(request, place)
            if found is not None:
                serve(service, exchange, request, grant, found, now)
                return
        guest = Guest(service, exchange, request, grant, now)
        try:
            self._go_on(service, guest, place, now)
        except Exception:
            _fail(guest)

    def _place(self, service: Service, request: Request) -> Place | None:
        fleet = service.fleet
        if not fleet.width or (fleet.split is not None and fleet.split.atomic):
            return None
        if request.aim is not None and not request.aim.label:
            return None  # it waits for a version
        asked = key.question(request.tenant, service.name, request.path, request.body, request.stream)
        if asked is None:
            return None
        if request.aim is None:
            if fleet.sole_version:
                return Place(asked, fleet.sole_version)
            request.aim = Aim(label=fleet.parts.home_of(asked.digest), soft=True)
        return Place(asked, request.aim.mark, request.aim.name)

    def _find(self, request: Request, place: Place) -> Found | None:
        """In memory."""
        if self._cache is None:
            return None
        return _fit(request, place, self._cache.find(key.at_version(place.question.digest, place.version)))

    def _go_on(self, service: Service, guest: Guest, place: Place | None, now: float) -> None:
        """It was not in memory."""
        request, cache = guest.request, self._cache
        if request.reuse is None:
            self._compute(service, guest, None, now)
        elif place is None or not request.reuse.look_up:
            service.series.cache.add(CacheEvent.BYPASS)
            self._compute(service, guest, place, now)
        elif cache is None or cache.remote is None or place.name in self._crowds:
            self._join(service, guest, place, now)
        else:
            self._ask(cache, service, guest, place)

    def _ask(self, cache: Cache, service: Service, guest: Guest, place: Place) -> None:
        """See whether Redis has it."""

        def told(entry: Entry | None) -> None:
            if guest.ended:
                return
            try:
                if not _still_served(service, place):
                    service.series.cache.add(CacheEvent.BYPASS)
                    self._compute(service, guest, None, monotonic())
                    return
                found = _fit(guest.request, place, entry)
                if found is not None:
                    service.series.cache.add(CacheEvent.HIT)
                    guest.finish(answer_from(found, guest.request, guest.record))
                else:
                    self._join(service, guest, place, monotonic())
            except Exception:
                _fail(guest)

        cache.look_up(key.at_version(place.question.digest, place.version), told)

    def _join(self, service: Service, guest: Guest, place: Place, now: float) -> None:
        crowd = self._crowds.get(place.name)
        if crowd is not None:
            guest.record.cache = CacheEvent.JOIN
            guest.record.computed = False
            service.series.cache.add(CacheEvent.JOIN)
            crowd.add(guest)
            return
        guest.record.cache = CacheEvent.MISS
        service.series.cache.add(CacheEvent.MISS)
        crowd = self._compute(service, guest, place, now)
        # One that was refused at once is over: whoever joined it would wait for ever.
        if crowd.joinable:
            self._crowds[place.name] = crowd

    def _compute(self, service: Service, guest: Guest, place: Place | None, now: float) -> Crowd:
        crowd = Crowd(service, guest, self, place)
        if guest.request.batch is not None and service.batcher.takes(guest.request.batch):
            service.batcher.add(crowd, guest.request.batch)
        else:
            crowd.send(now)
        return crowd

    # What becomes of a crowd

    def closed(self, crowd: Crowd) -> None:
        place = crowd.place
        if place is not None and self._crowds.get(place.name) is crowd:
            del self._crowds[place.name]

    def keep(self, crowd: Crowd, told: Told, body: bytes) -> None:
        place, cache = crowd.place, self._cache
        if place is None or cache is None or told.content_encoding not in (b"", b"identity"):
            return
        form = place.question.form
        if not told.version or not forms.is_whole(body, form):
            return
        chat = crowd.request.path == _CHAT
        entry = Entry(told.version, now_ms(), int(form), chat, body, *crowd.usage())
        if cache.put(key.at_version(place.question.digest, told.version), entry):
            crowd.service.series.cache.add(CacheEvent.STORE)


def _still_served(service: Service, place: Place) -> bool:
    """Whether the version that was looked for may still answer: others may have taken its place meanwhile."""
    fleet = service.fleet
    atomic = fleet.split is not None and fleet.split.atomic
    return not atomic and any(
        label.encode("latin-1", "replace") == place.version for label in fleet.parts.labels
    )


def _fit(request: Request, place: Place, entry: Entry | None) -> Found | None:
    """What was found, in the form that is wanted; None if it will not do."""
    if entry is None or request.reuse is None:
        return None
    age_s = entry.age_s(now_ms())
    if age_s > request.reuse.max_age_s:
        return None
    wanted = place.question.form
    if entry.form == wanted:
        return Found(entry, wanted, entry.body, age_s)
    body = forms.translate(entry.body, Form(entry.form), wanted, chat=entry.chat)
    return Found(entry, wanted, body, age_s) if body is not None else None


def _fail(guest: Guest) -> None:
    logger.exception("A request failed inside the gateway")
    guest.fail(Internal("The gateway failed; its log says how."))
