"""What random abuse found, each as the short script that was left of it (`make abuse`, `tests.abuse`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.abuse.play import play
from tests.abuse.steps import Replace, Step
from tests.abuse.world import Ground, ground


@pytest.fixture(scope="module")
def shared() -> Iterator[Ground]:
    with ground() as found:
        yield found


FOUND: dict[str, list[Step]] = {
    # A client of Redis lost the cancellation of a rollout's rounds: they went on, beside a closed gateway.
    "gateways end while they renew the lease": [Replace(0), Replace(1)] * 4,
}


@pytest.mark.parametrize("name", FOUND)
async def test_what_abuse_found_does_not_come_again(name: str, shared: Ground) -> None:
    assert await play(shared, FOUND[name]) == []
