"""Cache, join, batch: how a request gets an answer that it need not have alone.

One for each worker. A request comes here only if something of this may be true of it; a plain one has a
`Call` of its own and knows nothing of all this. From memory it is answered at once; from Redis when that
answers; else it joins those who asked the same a moment ago, or leads those who will.

Answers are looked for under the version that the members serve, kept under the one that computed them. While
members serve several versions nothing is looked for and nobody joins.
"""

from __future__ import annotations

import logging
from time import monotonic

from gateway.errors import Internal
from gateway.flow.cache import key
from gateway.flow.cache.cache import Cache, now_ms
from gateway.flow.cache.entry import Entry
from gateway.flow.cache.key import Form
from gateway.flow.cache.policy import Reuse
from gateway.flow.crowd import Crowd, Place
from gateway.flow.guest import Guest
from gateway.flow.service import Service
from gateway.http import forms
from gateway.observe.labels import CacheEvent
from gateway.upstream.headers import Kept, Told

logger = logging.getLogger(__name__)

_CHAT = b"/v1/chat/completions"
_TYPES = {True: b"text/event-stream; charset=utf-8", False: b"application/json"}


class Sharing:
    """Satisfies `gateway.flow.crowd.Keeper`."""

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        self._crowds: dict[bytes, Crowd] = {}
        """Those that take in others, by what they ask and of which version."""

    def __repr__(self) -> str:
        return f"<Sharing {len(self._crowds)} crowds>"

    def take(self, service: Service, guest: Guest, now: float) -> None:
        """Answer this request, some time. Never raises."""
        try:
            self._take(service, guest, now)
        except Exception:
            _fail(guest)

    def _take(self, service: Service, guest: Guest, now: float) -> None:
        reuse = guest.request.reuse
        if reuse is None:
            self._compute(service, guest, None, now)
            return
        place = self._place(service, guest)
        if place is None or not reuse.look_up:
            service.series.cache.add(CacheEvent.BYPASS)
            self._compute(service, guest, place, now)
        elif not self._answer(service, guest, place, reuse, self._find(place)):
            self._ask_or_join(service, guest, place, reuse, now)

    def _place(self, service: Service, guest: Guest) -> Place | None:
        version = service.fleet.sole_version
        if not version:
            return None
        request = guest.request
        asked = key.question(request.tenant, service.name, request.path, request.body, request.stream)
        if asked is None:
            return None
        return Place(asked, version, key.at_version(asked.same_bytes, version))

    def _find(self, place: Place) -> Entry | None:
        return self._cache.find(key.at_version(place.question.digest, place.version)) if self._cache else None

    def _answer(
        self, service: Service, guest: Guest, place: Place, reuse: Reuse, entry: Entry | None
    ) -> bool:
        """Answer from what was found, if it will do."""
        if entry is None:
            return False
        age_s = entry.age_s(now_ms())
        if age_s > reuse.max_age_s:
            return False
        wanted = place.question.form
        body = forms.translate(entry.body, Form(entry.form), wanted, chat=entry.chat)
        if body is None:
            return False
        kind = _TYPES[wanted is not Form.WHOLE]
        length = len(body) if wanted is Form.WHOLE else None
        service.series.cache.add(CacheEvent.HIT)
        block = b"content-type: %b\r\n" % kind
        guest.answer(Kept(block, length, entry.version, b"", kind), body, age_s)
        return True

    def _ask_or_join(self, service: Service, guest: Guest, place: Place, reuse: Reuse, now: float) -> None:
        cache = self._cache
        if place.name in self._crowds or cache is None or cache.remote is None:
            self._join(service, guest, place, now)
            return

        def found(entry: Entry | None) -> None:
            if guest.ended:
                return
            try:
                if not self._answer(service, guest, place, reuse, entry):
                    self._join(service, guest, place, monotonic())
            except Exception:
                _fail(guest)

        cache.look_up(key.at_version(place.question.digest, place.version), found)

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
        self._crowds[place.name] = self._compute(service, guest, place, now)

    def _compute(self, service: Service, guest: Guest, place: Place | None, now: float) -> Crowd:
        crowd = Crowd(service, guest, self, place)
        if guest.request.batch is not None and service.batcher.takes(guest.request.batch):
            service.batcher.add(crowd, guest.request.batch, now)
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
        entry = Entry(told.version, now_ms(), int(form), crowd.request.path == _CHAT, body)
        if cache.put(key.at_version(place.question.digest, told.version), entry):
            crowd.service.series.cache.add(CacheEvent.STORE)


def _fail(guest: Guest) -> None:
    logger.exception("A request failed inside the gateway")
    guest.fail(Internal("The gateway failed; its log says how."))
