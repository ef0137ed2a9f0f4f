from __future__ import annotations

from random import Random

import pytest

from gateway.routing.contract import Hint
from gateway.routing.prefix import prefix
from gateway.settings.tree import PolicyName, Routing
from tests.gateway.routing.fleets import NO_HINT, chooser, chosen_names, fleet, run

PREFIX = PolicyName.PREFIX
PROMPTS = [Hint(prefix=b"prompt number %d" % index) for index in range(2000)]


def test_one_prompt_goes_to_one_member() -> None:
    choose = chooser(PREFIX, fleet(8))
    assert len(set(chosen_names(choose, [PROMPTS[0]] * 50))) == 1


def test_every_gateway_chooses_the_same_member() -> None:
    one, other = chooser(PREFIX, fleet(8), seed=1), chooser(PREFIX, fleet(8)[::-1], seed=2)
    assert chosen_names(one, PROMPTS) == chosen_names(other, PROMPTS)


def test_only_the_beginning_decides() -> None:
    choose = prefix(fleet(8), Routing(prefix_chars=16), Random(1))
    hints = [Hint(prefix=b"the same prefix!" + b"%d" % index) for index in range(100)]
    assert len(set(chosen_names(choose, hints))) == 1
    hints = [Hint(prefix=b"%d: another beginning" % index) for index in range(100)]
    assert len(set(chosen_names(choose, hints))) == 8


def test_affinity_to_a_member_is_void_when_its_weights_change() -> None:
    members = fleet(8)
    before = chosen_names(chooser(PREFIX, members), PROMPTS)
    members[0].version = "v2"
    after = chosen_names(chooser(PREFIX, members), PROMPTS)
    were_there = [new for old, new in zip(before, after, strict=True) if old == "m0"]
    assert were_there.count("m0") < 0.3 * len(were_there)
    elsewhere = [(old, new) for old, new in zip(before, after, strict=True) if "m0" not in (old, new)]
    assert all(old == new for old, new in elsewhere)


@pytest.mark.parametrize("at_a_time", [1, 3, 8, 40, 200])
@pytest.mark.parametrize("share", [0.6, 0.95, 1.0])
def test_e5_a_prefix_that_most_requests_share_overloads_nobody(at_a_time: int, share: float) -> None:
    members = fleet(4)
    random = Random(3)
    hot = Hint(prefix=b"You are a helpful assistant. " * 20)
    hints = [hot if random.random() < share else random.choice(PROMPTS) for _ in range(4000)]
    outcome = run(members, chooser(PREFIX, members), hints, at_a_time)
    assert outcome.fullest <= 1.0


def test_requests_without_a_prompt_go_where_the_load_is_least() -> None:
    members = fleet(4)
    for member, load in zip(members, (3, 1, 2, 5), strict=True):
        member.in_flight = load
    assert set(chosen_names(chooser(PREFIX, members), [NO_HINT] * 10)) == {"m1"}


def test_when_the_home_is_excluded_the_retry_goes_to_a_usable_member() -> None:
    choose = chooser(PREFIX, fleet(2))
    home = choose(PROMPTS[0])
    assert home is not None
    other = choose(PROMPTS[0], {home.name})
    assert other is not None
    assert other is not home
    assert choose(PROMPTS[0], {home.name, other.name}) is None
