"""Everything that is no hot route, as an ordinary FastAPI app: health, readiness, metrics, status, models.

Errors have OpenAI's shape here too; this is their one mapper. The app asks the gateway through
`Operated`, the few questions it needs answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from gateway.errors import BadRequest, GatewayError, Internal, MethodNotAllowed, ModelNotFound, NotFound
from gateway.http import documents
from gateway.observe.status import GatewayStatus, ModelStatus
from gateway.settings.tree import Cors

logger = logging.getLogger(__name__)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Operated(Protocol):
    """What the routes ask of the gateway."""

    version: str

    @property
    def leaving(self) -> bool:
        """Whether it is going down."""

    def models(self) -> list[ModelStatus]:
        """The models and their members, as this worker sees them."""

    def names(self) -> list[str]:
        """Every model name that clients may use."""

    def versions_of(self, name: str) -> list[str]:
        """The weights that answer to one of them now."""

    async def status(self) -> GatewayStatus: ...

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The metrics page and its content type."""

    def check_key(self, authorization: str) -> None:
        """Raises Unauthorized where keys are configured and this is none of them."""


def build(gateway: Operated, cors: Cors, lifespan: Lifespan) -> FastAPI:
    """The app of one worker."""
    app: FastAPI = FastAPIOffline(
        title="Changeover",
        version=gateway.version,
        summary="A gateway for vLLM engines that changes their weights while they serve.",
        lifespan=lifespan,
        redoc_url=None,
        # A redirect would hide that a path is spelt in another way than the documentation says.
        redirect_slashes=False,
    )
    _add_health(app, gateway)
    _add_views(app, gateway)
    documents.declare(app)
    _complete_document(app)
    _add_error_shapes(app)
    if cors.origins:
        app.add_middleware(
            _Cors,
            allow_origins=list(cors.origins),
            allow_methods=["GET", "POST", "OPTIONS"],
            allow_headers=["*"],
            max_age=cors.max_age_s,
        )
    return app


class _Cors(CORSMiddleware):
    """Starlette's, with the error shape of every other route."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        error = BadRequest("This origin, or what it wants to send, is not among the configured ones.")
        return Response(error.body(), error.status, {"vary": "Origin"}, "application/json")


_EXPOSITIONS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The form that was asked for.", "content": {"application/openmetrics-text": {}}}
}


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _add_health(app: FastAPI, gateway: Operated) -> None:
    async def healthz() -> Response:
        """Whether this process lives. Says nothing about engines."""
        return _json({"status": "ok"})

    async def readyz() -> Response:
        """Whether requests can be answered, for each model: 200 if for any, else 503."""
        models = gateway.models()
        ready = not gateway.leaving and any(model.ready for model in models)
        page = {
            "ready": ready,
            "leaving": gateway.leaving,
            "models": {model.name: {"ready": model.ready, "versions": model.versions} for model in models},
        }
        return _json(page, 200 if ready else 503, None if ready else {"retry-after": "1"})

    for path, answer in (("/healthz", healthz), ("/health", healthz), ("/readyz", readyz)):
        for method, name in (("GET", path[1:]), ("HEAD", f"head_{path[1:]}")):
            app.add_api_route(path, answer, methods=[method], tags=["operation"], operation_id=name)


def _add_views(app: FastAPI, gateway: Operated) -> None:
    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse, responses=_EXPOSITIONS)
    async def metrics(request: Request) -> Response:
        """Prometheus metrics of all workers."""
        body, kind = await gateway.scrape(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    @app.get("/version", tags=["operation"])
    async def version() -> Response:
        """The gateway's version."""
        return _json({"version": gateway.version})

    @app.get("/status", tags=["operation"])
    async def status() -> Response:
        """Members, versions, load, QPS and latency: what `changeover status` shows."""
        return _json(await gateway.status())

    def card(name: str) -> dict[str, object]:
        versions = gateway.versions_of(name)
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "changeover",
            "versions": versions,
        }

    @app.get("/v1/models", tags=["inference"])
    async def models(request: Request) -> Response:
        """OpenAI: the models that can be asked."""
        gateway.check_key(request.headers.get("authorization", ""))
        return _json({"object": "list", "data": [card(name) for name in gateway.names()]})

    @app.get("/v1/models/{name:path}", tags=["inference"])
    async def model(request: Request, name: str) -> Response:
        """OpenAI: one of them."""
        gateway.check_key(request.headers.get("authorization", ""))
        if name not in gateway.names():
            raise ModelNotFound(f"There is no model {name[:200]!r} here.", param="model")
        return _json(card(name))


def _complete_document(app: FastAPI) -> None:
    """FastAPI knows nothing of the hot routes' schemas: add them when the document is first asked for."""
    generate = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            documents.complete(schema)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _add_error_shapes(app: FastAPI) -> None:
    def answer(error: GatewayError, headers: Mapping[str, str] | None = None) -> Response:
        own = {name.decode(): value.decode() for name, value in error.headers()}
        return Response(error.body(), error.status, {**(headers or {}), **own}, "application/json")

    @app.exception_handler(GatewayError)
    async def known(request: Request, error: GatewayError) -> Response:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return answer(BadRequest(f"{where}: {first['msg']}.", param=where))

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            return answer(
                MethodNotAllowed(f"{request.method} is not answered here; use {allowed}."), error.headers
            )
        if error.status_code == 404:
            return answer(NotFound("Nothing is at this path."))
        return answer(BadRequest(str(error.detail)))

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        logger.error("A request for %s failed", request.url.path, exc_info=error)
        return answer(Internal("The gateway failed; its log says how."))
