"""The fake's own paths, `/fake/*`, by which a test in another process drives it.

POST /fake/behaviour    replace the behaviour (JSON of `Behaviour`)
GET  /fake/behaviour    the present one
GET  /fake/stats        what was seen (`Record.as_json`)
POST /fake/reset-stats  forget it
GET  /fake/log          the last events
POST /fake/die          reset every connection and end
POST /fake/freeze       {"seconds": x}: neither read nor write for so long; null: until /fake/thaw
POST /fake/thaw
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from backends.fake.behaviour import Behaviour, decode_behaviour
from backends.fake.record import Record, Request
from backends.fake.reply import Reply, error_reply, json_reply

PREFIX = "/fake/"


class _Freeze(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float | None = None


class Driven(Protocol):
    @property
    def stats(self) -> Record: ...
    @property
    def behaviour(self) -> Behaviour: ...
    def behave(self, behaviour: Behaviour) -> None: ...
    def die(self) -> None: ...
    def freeze(self, seconds: float | None) -> None: ...
    def thaw(self) -> None: ...


def drive(fake: Driven, request: Request) -> Reply:
    """Do what the request says and answer it."""
    order = (request.method, request.path.removeprefix(PREFIX))
    try:
        if order == ("POST", "behaviour"):
            fake.behave(decode_behaviour(request.body))
        elif order == ("GET", "behaviour"):
            return json_reply(fake.behaviour)
        elif order == ("GET", "stats"):
            return json_reply(fake.stats.as_json())
        elif order == ("GET", "log"):
            return json_reply({"events": list(fake.stats.events)})
        elif order == ("POST", "reset-stats"):
            fake.stats.reset()
        elif order == ("POST", "die"):
            fake.die()
        elif order == ("POST", "freeze"):
            fake.freeze(msgspec.json.decode(request.body or b"{}", type=_Freeze).seconds)
        elif order == ("POST", "thaw"):
            fake.thaw()
        else:
            return error_reply(404, f"The fake has no {request.method} {request.path}.")
    except msgspec.DecodeError as error:
        return error_reply(400, str(error))
    return json_reply({"ok": True})
