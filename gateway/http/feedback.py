"""`POST /feedback`: what a user says of an answer, by the `x-request-id` that the answer carried.

Behind the same API keys as the models. Kept in the store for trainers (docs/rl.md); 404 where none is
configured. Bounded in each text and as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from checkpoints.feedback import Feedback
from gateway.errors import BadRequest, NotFound, PayloadTooLarge
from gateway.feedback import FeedbackBox

MAX_BODY = 262_144
Identify = Callable[[str], str]
"""The name of an `Authorization` header's key; empty where no keys are configured. Raises Unauthorized."""


def declare(app: FastAPI, box: FeedbackBox | None, identify: Identify) -> None:
    """Add the route. `box` None: it answers 404."""

    @app.post(
        "/feedback",
        tags=["feedback"],
        status_code=201,
        openapi_extra={"requestBody": {"required": True, "content": _content()}},
    )
    async def feedback(request: Request, model: str | None = None) -> Response:
        """Rate an answer: `{"request_id": "…", "rating": 1, "comment": "…"}`. 201 once it is stored."""
        by = identify(request.headers.get("authorization", ""))
        if box is None:
            raise NotFound("Feedback is not kept here: no `checkpoints.store` is configured.")
        raw = await request.body()
        if len(raw) > MAX_BODY:
            raise PayloadTooLarge(f"Feedback is at most {MAX_BODY} bytes.")
        try:
            entry = msgspec.json.decode(raw, type=Feedback)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"The body is not as it should be: {error}.") from error
        await box.add(model, entry, by)
        return Response(b'{"stored":true}', 201, media_type="application/json")


def _content() -> dict[str, Any]:
    """The body, without what the gateway sets itself."""
    _, parts = msgspec.json.schema_components([Feedback], ref_template="#/components/schemas/{name}")
    schema = dict(parts["Feedback"])
    schema["properties"] = {k: v for k, v in schema["properties"].items() if k not in ("by", "at")}
    return {"application/json": {"schema": schema}}
