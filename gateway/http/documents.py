"""The hot routes' part of the OpenAPI document, made from their wire models.

The routes are declared in the FastAPI app so that `/docs` shows them; they are answered before FastAPI
sees them. A request that gets here all the same spelt the path in an odd way, and is told so.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from gateway.errors import NotFound
from gateway.http.predict import PredictRequest, PredictResponse
from gateway.http.routes import ROUTES, HotRoute
from gateway.observe.labels import Route

SCHEMAS = "#/components/schemas/{name}"

_PREDICT_EXAMPLES = {
    "text": {"summary": "One prompt", "value": {"prompt": "Hello, world!"}},
    "list": {"summary": "Several prompts", "value": {"prompt": ["One", "Two"], "max_tokens": 16}},
    "messages": {
        "summary": "A conversation",
        "value": {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
    },
    "stream": {"summary": "Piece by piece", "value": {"prompt": "Once upon a time", "stream": True}},
    "parameters": {
        "summary": "With the engine's own parameters",
        "value": {"prompt": "1, 2, 3,", "temperature": 0, "parameters": {"repetition_penalty": 1.1}},
    },
}

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}

_WISHES = [
    {
        "name": name,
        "in": "header",
        "required": False,
        "description": text,
        "schema": {"type": "string"},
    }
    for name, text in (
        ("x-model-version", "Which weights are to answer: `7`, `v7`, a label, `serving` or `candidate`."),
        ("x-model-version-min", "At least this version, as `7`; waits for it, until the request's deadline."),
    )
]

_ERRORS = {
    400: "The request is wrong; the message says where",
    401: "An API key is needed",
    404: "No such model or version",
    413: "The body is too large",
    429: "Your quota is used up; see Retry-After",
    502: "The backend failed and no other could take over",
    503: "No capacity; see Retry-After",
    504: "A time limit ran out",
}


def declare(app: FastAPI) -> None:
    """Add the hot routes to the app, for its documentation."""
    for route in ROUTES:
        app.post(
            route.path.decode(),
            summary=route.summary,
            tags=["inference"],
            openapi_extra=_extra(route),
            responses={code: {"description": text, "content": _error()} for code, text in _ERRORS.items()},
            name=route.name.value,
        )(_misspelt)


async def _misspelt() -> None:
    raise NotFound("Nothing is at this path; spell it exactly as the documentation does.")


def _components() -> dict[str, Any]:
    """The schemas that the hot routes refer to."""
    _, schemas = msgspec.json.schema_components((PredictRequest, PredictResponse), ref_template=SCHEMAS)
    return schemas


def complete(schema: dict[str, Any]) -> None:
    """Add to FastAPI's document what it does not know: the hot routes' schemas, errors in our shape."""
    schema.setdefault("components", {}).setdefault("schemas", {}).update(_components())
    for operations in schema["paths"].values():
        for operation in operations.values():
            error = {"description": "An error, in OpenAI's shape", "content": _error()}
            operation["responses"].setdefault("default", error)


def _extra(route: HotRoute) -> dict[str, Any]:
    if route.name is not Route.PREDICT:
        text = "As the engine's own; forwarded byte for byte, fields that are unknown here included."
        schema: dict[str, Any] = {"type": "object", "description": text, "additionalProperties": True}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        return {"parameters": _WISHES, "requestBody": body}
    asked, answered = (SCHEMAS.format(name=kind.__name__) for kind in (PredictRequest, PredictResponse))
    return {
        "parameters": _WISHES,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": asked}, "examples": _PREDICT_EXAMPLES}},
        },
        "responses": {
            "200": {
                "description": "The answer; with `stream`, events of the same form, the last with `usage`",
                "content": {
                    "application/json": {"schema": {"$ref": answered}},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            }
        },
    }


def _error() -> dict[str, Any]:
    return {"application/json": {"schema": _ERROR}}
