"""Request bodies: decompression within a limit, and JSON as lenient as the engine's own reader."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec

from gateway.errors import BadRequest, PayloadTooLarge, UnsupportedEncoding

_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 47}


def decompress(body: bytes, encoding: bytes, limit: int) -> bytes:
    """The plain body. Raises PayloadTooLarge before it grows past `limit` bytes, or BadRequest."""
    if encoding in (b"", b"identity"):
        return body
    wbits = _WBITS.get(encoding)
    if wbits is None:
        name = encoding.decode("latin-1")[:40]
        raise UnsupportedEncoding(
            f"Content-Encoding {name!r} is not read here; send gzip, deflate or plain bytes."
        )
    inflater = zlib.decompressobj(wbits)
    try:
        plain = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"The request body is not valid {encoding.decode('latin-1')}: {error}.") from error
    if len(plain) > limit:
        raise PayloadTooLarge(
            f"The request body is larger than the limit of {limit} bytes once decompressed."
        )
    if not inflater.eof:
        raise BadRequest("The compressed request body ends too early.")
    if inflater.unused_data:
        raise BadRequest("Something follows the compressed request body; send it in one piece.")
    return plain


def read_object(body: bytes) -> dict[str, Any]:
    """A JSON object, read as the engine reads it: NaN and Infinity are numbers there. Raises BadRequest."""
    if not body:
        raise BadRequest("The request body is empty; send a JSON object.")
    try:
        value: object = json.loads(body)  # noqa: TID251 - takes what strict JSON does not, as the engine does
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The request body is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    return value


def explain(error: msgspec.ValidationError) -> BadRequest:
    """msgspec's finding as an error that names the field."""
    text = str(error)
    _, _, path = text.partition(" - at `$.")
    return BadRequest(f"{text}.", param=path.rstrip("`").split("[")[0] or None)
