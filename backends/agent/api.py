"""The control API of one backend: a small ASGI application, closed without the token.

GET  /status                     BackendStatus
POST /prepare {"version": 7}     202 BackendStatus; fetches and verifies ahead of time
POST /swap    SwapOrder          202 SwapStatus; the same id again: that swap's status; 409 while another runs
GET  /swap/{id}                  SwapStatus of one of the last swaps
POST /release {"id": ...}        200 SwapStatus; 409 unless held, and if something else should be served now
POST /drain   {"draining": bool} GuardStatus, once the guard has confirmed it
POST /stop                       202; the engine finishes what runs, then the agent ends

Every call may be repeated. The agent and the fake one stand behind the same application.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backends.agent.orders import NoSuchSwap, NotHeld, SwapRuns
from backends.agent.states import IllegalTransition
from backends.contract import TOKEN_HEADER, BackendStatus, GuardStatus, SwapOrder, SwapStatus
from backends.vllm.control import EngineRefused

MAX_BODY_BYTES = 64 * 1024

Handler = Callable[[Request], Awaitable[Response]]


class CannotSwap(RuntimeError):
    """Weights are not changed here; the message says what to set."""


class Superseded(RuntimeError):
    """By now something else should be served than what the swap brought."""


class Agent(Protocol):
    """What the API asks of whoever keeps an engine."""

    def status(self) -> BackendStatus: ...
    async def set_draining(self, draining: bool) -> GuardStatus:
        """Raises IllegalTransition, EngineRefused, httpx2.TransportError."""

    async def prepare(self, version: int) -> BackendStatus:
        """Raises CannotSwap."""

    async def swap(self, order: SwapOrder) -> SwapStatus:
        """Raises CannotSwap, SwapRuns."""

    def swap_status(self, swap_id: str) -> SwapStatus:
        """Raises NoSuchSwap."""

    async def release(self, swap_id: str) -> SwapStatus:
        """Raises NoSuchSwap, NotHeld, Superseded."""

    def stop(self) -> None: ...


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True):
    draining: bool = True


class PrepareRequest(msgspec.Struct, forbid_unknown_fields=True):
    version: int


class ReleaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    id: str


def control_api(agent: Agent, token: str) -> Starlette:
    """The application; every path answers 404 without the token."""

    async def status(_: Request) -> Response:
        return _json(agent.status())

    async def drain(request: Request) -> Response:
        wanted = msgspec.json.decode(await _body(request) or b"{}", type=DrainRequest)
        return _json(await agent.set_draining(wanted.draining))

    async def prepare(request: Request) -> Response:
        wanted = msgspec.json.decode(await _body(request), type=PrepareRequest)
        return _json(await agent.prepare(wanted.version), 202)

    async def swap(request: Request) -> Response:
        order = msgspec.json.decode(await _body(request), type=SwapOrder)
        return _json(await agent.swap(order), 202)

    async def swap_status(request: Request) -> Response:
        return _json(agent.swap_status(request.path_params["id"]))

    async def release(request: Request) -> Response:
        wanted = msgspec.json.decode(await _body(request), type=ReleaseRequest)
        return _json(await agent.release(wanted.id))

    async def stop(_: Request) -> Response:
        agent.stop()
        return _json({"stopping": True}, 202)

    routes: tuple[tuple[str, str, Handler], ...] = (
        ("GET", "/status", status),
        ("POST", "/drain", drain),
        ("POST", "/prepare", prepare),
        ("POST", "/swap", swap),
        ("GET", "/swap/{id}", swap_status),
        ("POST", "/release", release),
        ("POST", "/stop", stop),
    )
    return Starlette(
        routes=[Route(path, _guarded(handler, token), methods=[method]) for method, path, handler in routes]
    )


def _guarded(handler: Handler, token: str) -> Handler:
    async def handle(request: Request) -> Response:
        given = request.headers.get(TOKEN_HEADER, "")
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            return _error(404, "Not Found")
        try:
            return await handler(request)
        except (msgspec.DecodeError, _TooLong) as error:
            return _error(400, str(error))
        except NoSuchSwap as error:
            return _error(404, str(error))
        except (IllegalTransition, SwapRuns, NotHeld, Superseded, CannotSwap) as error:
            return _error(409, str(error))
        except (EngineRefused, httpx2.TransportError) as error:
            return _error(502, f"the engine did not confirm: {error}")

    return handle


class _TooLong(ValueError):
    pass


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for chunk in request.stream():
        parts += chunk
        if len(parts) > MAX_BODY_BYTES:
            raise _TooLong(f"the body is longer than {MAX_BODY_BYTES} bytes")
    return bytes(parts)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return _json({"error": {"message": message, "type": "backend", "param": None, "code": status}}, status)
