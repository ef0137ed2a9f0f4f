"""Every way in which a request can fail, and what the client is told.

    GatewayError
    ├── BadRequest            400  invalid_request_error
    ├── Unauthorized          401  authentication_error
    ├── NotFound              404  not_found_error
    │   ├── ModelNotFound     404  model_not_found
    │   └── VersionNotFound   404  version_not_found
    ├── MethodNotAllowed      405
    ├── Conflict              409  an operator asks for what does not fit
    ├── PayloadTooLarge       413
    ├── UnsupportedEncoding   415
    ├── HeadTooLarge          431
    ├── ClientGone            499  for the books only
    ├── OverQuota             429  the caller's own limit; Retry-After
    ├── Internal              500  a fault of the gateway
    ├── BackendFailed         502  refused, reset, malformed or cut off
    ├── OverCapacity          503  our limit; Retry-After
    │   ├── NoBackend         503  no engine is ready; Retry-After
    │   ├── VersionNotServed  503  no engine serves the version that is asked for now; Retry-After
    │   └── ShuttingDown      503  this gateway is leaving; Retry-After
    └── DeadlineExceeded      504  a time limit ran out

`body()` is the error in OpenAI's shape, the one shape on every route. Raised by the gateway's code,
turned into an answer by `gateway.http.exchange` on hot routes and `gateway.http.ops` on the others.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gateway.observe.outcome import Outcome


class GatewayError(Exception):
    """A failure with a status, a machine-readable code and a sentence for people."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal_error"
    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = Outcome.INTERNAL_ERROR

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = _sayable(message)
        self.param = _sayable(param) if param is not None else None
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """The error as JSON: `{"error": {"message", "type", "param", "code"}}`."""
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to this error: Retry-After in whole seconds, rounded up, from 1 to 60."""
        if self.retry_after_s is None:
            return []
        seconds = min(60, max(1, int(-(-self.retry_after_s // 1))))
        return [(b"retry-after", str(seconds).encode())]


class ClientGone(GatewayError):
    """Never sent: there is nobody to read it. The status is the one that nginx made usual."""

    status = 499
    kind = code = "client_gone"
    outcome = Outcome.CLIENT_GONE


class BadRequest(GatewayError):
    status = 400
    kind = code = "invalid_request_error"
    outcome = Outcome.CLIENT_ERROR


class Unauthorized(GatewayError):
    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"
    outcome = Outcome.UNAUTHORIZED

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"www-authenticate", b"Bearer")]


class NotFound(GatewayError):
    status = 404
    kind = "not_found_error"
    code = "not_found"
    outcome = Outcome.CLIENT_ERROR


class ModelNotFound(NotFound):
    code = "model_not_found"


class VersionNotFound(NotFound):
    code = "version_not_found"


class MethodNotAllowed(GatewayError):
    status = 405
    kind = "invalid_request_error"
    code = "method_not_allowed"
    outcome = Outcome.CLIENT_ERROR


class Conflict(GatewayError):
    status = 409
    kind = "invalid_request_error"
    code = "conflict"
    outcome = Outcome.CLIENT_ERROR


class PayloadTooLarge(GatewayError):
    status = 413
    kind = "invalid_request_error"
    code = "payload_too_large"
    outcome = Outcome.CLIENT_ERROR


class UnsupportedEncoding(GatewayError):
    status = 415
    kind = "invalid_request_error"
    code = "unsupported_encoding"
    outcome = Outcome.CLIENT_ERROR


class HeadTooLarge(GatewayError):
    status = 431
    kind = "invalid_request_error"
    code = "request_header_fields_too_large"
    outcome = Outcome.CLIENT_ERROR


class OverQuota(GatewayError):
    status = 429
    kind = "rate_limit_error"
    code = "rate_limit_exceeded"
    retryable = True
    outcome = Outcome.OVER_QUOTA


class Internal(GatewayError):
    pass


class BackendFailed(GatewayError):
    status = 502
    kind = "backend_error"
    code = "backend_failed"
    retryable = True
    outcome = Outcome.BACKEND_ERROR


class OverCapacity(GatewayError):
    status = 503
    kind = "overloaded_error"
    code = "over_capacity"
    retryable = True
    outcome = Outcome.OVER_CAPACITY


class NoBackend(OverCapacity):
    code = "no_backend"
    outcome = Outcome.NO_BACKEND


class VersionNotServed(OverCapacity):
    code = "version_not_served"
    outcome = Outcome.NO_BACKEND


class ShuttingDown(OverCapacity):
    code = "shutting_down"


class DeadlineExceeded(GatewayError):
    status = 504
    kind = "timeout_error"
    code = "deadline_exceeded"
    retryable = True
    outcome = Outcome.TIMEOUT


def _sayable(text: str) -> str:
    """Text that may quote a client: JSON can hold halves of characters, which UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
