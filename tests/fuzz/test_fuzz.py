"""A little of each campaign in every test run; `make fuzz` runs the rest."""

from __future__ import annotations

from random import Random

from tests.fuzz.clients import fuzz_clients
from tests.fuzz.engines import fuzz_engines
from tests.fuzz.mutate import mutated, pieces
from tests.fuzz.readers import fuzz_readers

SEED = 2026


def test_the_same_seed_breaks_the_same_bytes_in_the_same_places() -> None:
    first, second = Random(3), Random(3)
    data = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    assert [mutated(data, first) for _ in range(50)] == [mutated(data, second) for _ in range(50)]


def test_pieces_are_the_whole() -> None:
    random = Random(4)
    for _ in range(200):
        assert b"".join(pieces(b"0123456789", random)) == b"0123456789"


def test_broken_checkpoint_files_are_refused_in_words() -> None:
    tally = fuzz_readers(400, SEED)
    assert tally.inputs == 400
    assert tally.clean, tally.found


async def test_broken_answers_of_engines_harm_no_client() -> None:
    tally = await fuzz_engines(300, SEED)
    assert tally.inputs == 300
    assert tally.clean, tally.found


async def test_broken_requests_of_clients_harm_nobody() -> None:
    tally = await fuzz_clients(300, SEED)
    assert tally.inputs == 300
    assert tally.clean, tally.found
