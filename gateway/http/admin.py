"""`/admin/*`: what only operators may do, with the token of `admin.token`.

Without a configured token these paths do not exist: 404, as for any other path. Every route asks the guard
of this module first, whether the request names a token or not.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Protocol

import msgspec
from fastapi import Depends, FastAPI, Request, Response

from gateway.errors import NotFound, Unauthorized
from gateway.flow.cache.cache import Cache


class Administered(Protocol):
    """What the routes ask of the gateway."""

    cache: Cache | None


def declare(app: FastAPI, token: str | None, gateway: Administered) -> None:
    """Add the routes. `token` None: they answer 404."""
    guarded = [Depends(guard(token))]

    def cache() -> Cache:
        if gateway.cache is None:
            raise NotFound("No cache is configured (`cache.type: off`).")
        return gateway.cache

    @app.get("/admin/cache", tags=["administration"], dependencies=guarded)
    async def cache_stats() -> Response:
        """What the cache holds: the memory of the worker that answers, and Redis."""
        return _json((await cache().stats()).as_dict())

    @app.post("/admin/cache/clear", tags=["administration"], dependencies=guarded)
    async def cache_clear() -> Response:
        """Forget all kept answers, in Redis and in every worker on this machine; says what there was."""
        return _json((await cache().clear()).as_dict())


def guard(token: str | None) -> Callable[[Request], None]:
    """A dependency that lets nobody through but those who know the token. Raises NotFound, Unauthorized."""
    expected = token.encode() if token is not None else None

    def check(request: Request) -> None:
        if expected is None:
            raise NotFound("Nothing is at this path.")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        said = given.strip().encode("utf-8", "replace")
        if scheme.lower() != "bearer" or not hmac.compare_digest(said, expected):
            raise Unauthorized("This needs the admin token, as `Authorization: Bearer <token>`.")

    return check


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
