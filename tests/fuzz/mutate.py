"""Changes bytes as corruption, attackers and bad proxies do. Pure: the same seed gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

MOST_CHANGES = 4
LONGEST_RUN = 4096

TOKENS: Sequence[bytes] = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\0", b":", b" ", b"\t", b",", b";", b'"', b"\\", b"{",
    b"}", b"[", b"]", b"0", b"-1", b"1e999", b"18446744073709551616", b"ffffffffffffffff\r\n", b"NaN",
    b"null", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9", b"\xef\xbb\xbf", b"../", b"%00", b"%0d%0a",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\n", b"Content-Length: 5, 5\r\n",
    b"content-length: +5\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding : chunked\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive, upgrade\r\n", b"Upgrade: h2c\r\n",
    b"Expect: 100-continue\r\n", b" folded: header\r\n", b"X-" + b"a" * 300 + b": b\r\n",
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 ", b"HTTP/2.0 ", b"0\r\n\r\n",
    b"5;a=b\r\nhello\r\n", b"data: [DONE]\n\n", b"event: error\n", b"data:", b"id: 1\n", b": comment\n\n",
)  # fmt: skip
"""What has a meaning to some reader here."""


def mutated(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """`data` with one to a few changes; some take a piece of one of the `others`."""
    for _ in range(random.randint(1, MOST_CHANGES)):
        data = _once(data, random, others)
    return data


def _once(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 2, 4, 16, 64)))
    match random.randrange(8):
        case 0:
            return data[:at] + random.choice(TOKENS) + data[at:]
        case 1:
            return data[:at] + random.choice(TOKENS) + data[end:]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:end] + data[at:]
        case 4:
            return data[:at]
        case 5:
            return data[:at] + random.randbytes(random.randint(1, 8)) + data[end:]
        case 6:
            return data[:at] + bytes([random.randrange(256)]) * random.randint(1, LONGEST_RUN) + data[at:]
        case _:
            other = random.choice(others) if others else data
            cut = random.randrange(len(other) + 1)
            return data[:at] + other[cut:]


def pieces(data: bytes, random: Random) -> list[bytes]:
    """`data` cut as a network may cut it: whole, in two, or in many."""
    count = random.choice((0, 0, 1, 1, 3, 10))
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(count))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
