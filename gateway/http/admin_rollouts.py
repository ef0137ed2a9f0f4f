"""`/admin/rollouts`, `/admin/checkpoints`, `/admin/journal`: how versions come to serve, seen and changed.

Behind the token of `admin.token`, like all of `/admin/*`; 404 where no store is configured. Any gateway may
be asked: a wish is written into the store, and whoever leads carries it out. `current` stands for the
rollout that is under way, or the last one; `?model=` names a model where there are several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Request, Response

from gateway.errors import BadRequest, NotFound
from gateway.http.admin import guard
from gateway.rollout.desk import HISTORY, Desk, Start

T = TypeVar("T")

MAX_BODY = 65_536
MAX_LISTED = 500


class RollBack(msgspec.Struct, forbid_unknown_fields=True):
    to: str | None = None
    """A version to go back to. None: the one before."""
    reason: str = ""


def declare(app: FastAPI, token: str | None, desk: Desk | None) -> None:
    """Add the routes. `desk` None: no store is configured, and they answer 404."""
    guarded = [Depends(guard(token))]
    tags: list[str | Enum] = ["rollouts"]

    def asked() -> Desk:
        if desk is None:
            raise NotFound("Weights are not changed here: no `checkpoints.store` is configured.")
        return desk

    @app.get("/admin/rollouts", tags=tags, dependencies=guarded)
    async def rollouts(model: str | None = None, past: int = HISTORY) -> Response:
        """What serves, what rolls out, what comes next, where each member stands, and what was before.

        `past`: of how many rollouts; 0 spares the store.
        """
        if not 0 <= past <= MAX_LISTED:
            raise BadRequest(f"`past` is from 0 to {MAX_LISTED}.", param="past")
        return _json(await asked().show(model, past))

    @app.get("/admin/rollouts/{rollout}", tags=tags, dependencies=guarded)
    async def rollout_states(rollout: str, model: str | None = None) -> Response:
        """Every state of one rollout, with its reasons and its evidence."""
        return _json(await asked().states(model, rollout))

    @app.post("/admin/rollouts", tags=tags, dependencies=guarded)
    async def start(request: Request, model: str | None = None) -> Response:
        """Begin a rollout: `{"version": "7", "mode": "canary", "force": false}`, all optional."""
        wish = await _body(request, Start)
        return _json(await asked().start(model, wish, by=_by(request)), 201)

    def add(name: str, act: Callable[[Desk, str | None, str, str], Awaitable[object]], text: str) -> None:
        async def route(request: Request, rollout: str, model: str | None = None) -> Response:
            return _json(await act(asked(), model, rollout, _by(request)))

        route.__doc__ = text
        app.add_api_route(
            f"/admin/rollouts/{{rollout}}/{name}",
            route,
            methods=["POST"],
            tags=list(tags),
            dependencies=guarded,
            operation_id=f"rollout_{name}",
        )

    add(
        "promote",
        lambda desk, model, rollout, by: desk.promote(model, rollout, by=by),
        "Go on to all members without waiting for evidence.",
    )
    add(
        "pause",
        lambda desk, model, rollout, by: desk.pause(model, rollout, by=by),
        "Send no further member on its way.",
    )
    add("resume", lambda desk, model, rollout, by: desk.resume(model, rollout, by=by), "Go on.")

    @app.post("/admin/rollouts/{rollout}/rollback", tags=tags, dependencies=guarded)
    async def roll_back(request: Request, rollout: str, model: str | None = None) -> Response:
        """Take it back everywhere; `{"to": "5"}` goes to any version that is kept."""
        wish = await _body(request, RollBack)
        return _json(await asked().roll_back(model, rollout, by=_by(request), to=wish.to, reason=wish.reason))

    _declare_views(app, guarded, asked)


def _declare_views(app: FastAPI, guarded: list[Any], asked: Callable[[], Desk]) -> None:
    @app.get("/admin/checkpoints", tags=["rollouts"], dependencies=guarded)
    async def checkpoints(model: str | None = None, limit: int = 50) -> Response:
        """The newest versions: lineage, metrics, what points at them, what became of them."""
        shown, aliases = await asked().checkpoints(model, _limit(limit))
        return _json({"checkpoints": shown, "aliases": aliases})

    @app.get("/admin/journal", tags=["rollouts"], dependencies=guarded)
    async def journal(model: str | None = None, limit: int = 50) -> Response:
        """What happened to the model: published, promoted, taken back, and on what evidence."""
        return _json({"journal": await asked().journal(model, _limit(limit))})


def _limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LISTED:
        raise BadRequest(f"`limit` is from 1 to {MAX_LISTED}.", param="limit")
    return limit


def _by(request: Request) -> str:
    """Who asks, for the records."""
    host = request.client.host if request.client is not None else "somebody"
    return request.headers.get("x-changeover-by", "")[:100] or f"operator at {host}"


async def _body(request: Request, kind: type[T]) -> T:
    raw = await request.body()
    if len(raw) > MAX_BODY:
        raise BadRequest("The body is too long.")
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"The body is not as it should be: {error}.") from error


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
