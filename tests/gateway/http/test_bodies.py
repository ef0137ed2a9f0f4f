"""Request bodies: compressed ones within their limit, and JSON as leniently read as the engine reads it."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from gateway.errors import BadRequest, GatewayError, PayloadTooLarge, UnsupportedEncoding
from gateway.http.bodies import decompress, read_object

LIMIT = 1000
PLAIN = b"x" * LIMIT


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (PLAIN, b""),
        (PLAIN, b"identity"),
        (gzip.compress(PLAIN, mtime=0), b"gzip"),
        (gzip.compress(PLAIN, mtime=0), b"x-gzip"),
        (zlib.compress(PLAIN), b"deflate"),
    ],
)
def test_a_body_as_large_as_the_limit_is_read(body: bytes, encoding: bytes) -> None:
    assert decompress(body, encoding, LIMIT) == PLAIN


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(gzip.compress(PLAIN + b"x", mtime=0), b"gzip"), (zlib.compress(PLAIN + b"x"), b"deflate")],
)
def test_a_byte_more_is_too_large(body: bytes, encoding: bytes) -> None:
    with pytest.raises(PayloadTooLarge):
        decompress(body, encoding, LIMIT)


def test_a_bomb_is_refused_before_it_grows() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            decompress(bomb, b"gzip", LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("body", "encoding", "error"),
    [
        (b"", b"gzip", BadRequest),
        (b"plain", b"gzip", BadRequest),
        (gzip.compress(PLAIN, mtime=0)[:-1], b"gzip", BadRequest),
        (gzip.compress(PLAIN, mtime=0)[:20], b"gzip", BadRequest),
        (gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0), b"gzip", BadRequest),
        (gzip.compress(b"a", mtime=0) + b"trailing", b"gzip", BadRequest),
        (b"plain", b"deflate", BadRequest),
        (b"plain", b"br", UnsupportedEncoding),
        (gzip.compress(gzip.compress(b"a", mtime=0), mtime=0), b"gzip, gzip", UnsupportedEncoding),
        (b"plain", b"\xff\xfe", UnsupportedEncoding),
    ],
)
def test_what_is_not_so_compressed_is_refused(
    body: bytes, encoding: bytes, error: type[GatewayError]
) -> None:
    with pytest.raises(error):
        decompress(body, encoding, LIMIT)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":123456789012345678901234567890}',
        b'{"a":1,"a":2}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":"é"}'.encode("utf-16"),
        b' \n{"a" : 1}\n ',
        b'{"a":"\\ud800"}',
    ],
)
def test_what_the_engine_reads_is_read(body: bytes) -> None:
    assert "a" in read_object(body)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"null", b"[]", b"1", b'"text"', b"true", b"{", b'{"a":1', b'{"a":1}}', b"{'a':1}"),
        *(b'{"a":"\xff"}', b"\xff\xfe", b"a=1", b"[" * 200_000, b'{"a":' * 200_000, b"9" * 5000, b"\x00"),
    ],
)
def test_what_is_no_json_object_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        read_object(body)
    assert refused.value.message.startswith("The request body ")
