"""Who asks: which headers open the door, and which do not."""

from __future__ import annotations

import hashlib

import pytest

from gateway.errors import Unauthorized
from gateway.http.auth import Keys
from gateway.settings.tree import Key


def _key(name: str, secret: bytes) -> Key:
    return Key(name=name, sha256=hashlib.sha256(secret).hexdigest())


ALICE, BOB = _key("alice", b"alice-key"), _key("bob", b"bob-key")


def test_without_keys_everyone_may_ask() -> None:
    assert Keys([]).identify(b"") is None
    assert Keys([]).identify(b"Bearer whatever") is None


@pytest.mark.parametrize("header", [b"Bearer alice-key", b"bearer alice-key", b"BEARER   alice-key  "])
def test_a_known_key_is_recognised(header: bytes) -> None:
    assert Keys([ALICE, BOB]).identify(header) is ALICE


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"Bearer", b"Bearer ", b"alice-key", b"Basic alice-key", b"Bearer alice-key2"),
        *(b"Bearer ALICE-KEY", b"Bearer alice-key bob-key", b"Bearer " + b"x" * 10_000, b"Bearer \xff\xfe"),
        b"Bearer " + ALICE.sha256.encode(),
    ],
)
def test_nothing_else_is(header: bytes) -> None:
    with pytest.raises(Unauthorized) as refused:
        Keys([ALICE, BOB]).identify(header)
    assert "alice" not in refused.value.message
    assert refused.value.headers() == [(b"www-authenticate", b"Bearer")]


def test_keys_that_are_taken_away_are_forgotten() -> None:
    keys = Keys([ALICE])
    keys.replace([BOB])
    with pytest.raises(Unauthorized):
        keys.identify(b"Bearer alice-key")
    assert keys.identify(b"Bearer bob-key") is BOB
