"""A plain answer: status, body and type, before anything is done to its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from backends.fake import shapes
from backends.fake.asks import Refusal

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b""
    content_type: str = ""
    """Empty: no such header."""
    headers: tuple[tuple[str, str], ...] = ()


def json_reply(content: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    return Reply(status, msgspec.json.encode(content), JSON, headers)


def error_reply(status: int, message: str, kind: str | None = None, param: str | None = None) -> Reply:
    """An error as vLLM words it; without a `kind` that of FastAPI's own errors, the status' phrase."""
    return json_reply(shapes.error(status, message, kind or _phrase(status), param), status)


def refusal_reply(refusal: Refusal) -> Reply:
    return error_reply(refusal.status, refusal.message, refusal.kind, refusal.param)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
