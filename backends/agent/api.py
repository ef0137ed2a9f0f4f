"""The control API of one backend: a small ASGI application on a Unix socket, closed without the token.

GET  /status                     BackendStatus
POST /drain  {"draining": bool}  GuardStatus, once the guard has confirmed it
POST /stop                       202; the engine finishes what runs, then the agent ends
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backends.agent.keeper import Keeper
from backends.agent.states import IllegalTransition
from backends.contract import TOKEN_HEADER
from backends.vllm.control import EngineRefused

Handler = Callable[[Request], Awaitable[Response]]


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True):
    draining: bool = True


def control_api(keeper: Keeper, token: str) -> Starlette:
    """The application; every path answers 404 without the token."""

    def guarded(handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            given = request.headers.get(TOKEN_HEADER, "")
            if not hmac.compare_digest(given.encode(), token.encode()):
                return _error(404, "Not Found")
            return await handler(request)

        return handle

    async def status(request: Request) -> Response:
        return _json(keeper.status())

    async def drain(request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await request.body() or b"{}", type=DrainRequest)
            return _json(await keeper.set_draining(wanted.draining))
        except msgspec.DecodeError as error:
            return _error(400, str(error))
        except IllegalTransition as error:
            return _error(409, str(error))
        except (EngineRefused, httpx2.TransportError) as error:
            return _error(502, f"the engine did not confirm: {error}")

    async def stop(request: Request) -> Response:
        keeper.stop()
        return _json({"stopping": True}, 202)

    return Starlette(
        routes=[
            Route("/status", guarded(status), methods=["GET"]),
            Route("/drain", guarded(drain), methods=["POST"]),
            Route("/stop", guarded(stop), methods=["POST"]),
        ]
    )


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return _json({"error": {"message": message, "type": "backend", "param": None, "code": status}}, status)
