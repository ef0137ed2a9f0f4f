"""What a reload is said to change, and what needs a restart."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.settings.diff import Diff, diff
from gateway.settings.effects import EFFECTS, Effect, effect_of
from gateway.settings.options import options
from gateway.settings.tree import Settings


def changes(old: Mapping[str, object], new: Mapping[str, object]) -> Diff:
    return diff(Settings.model_validate(old), Settings.model_validate(new))


def model(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "endpoints": [f"http://{name}:1"], **more}


def test_every_option_is_classified() -> None:
    for option in options():
        assert effect_of(option.key) in Effect


def test_every_classification_names_an_option() -> None:
    keys = [option.key for option in options()]
    for entry in EFFECTS:
        assert any(key == entry or key.startswith(f"{entry}.") for key in keys), entry


def test_an_option_that_nobody_classified_is_an_error() -> None:
    with pytest.raises(KeyError):
        effect_of("server.new_option")


def test_equal_settings_differ_in_nothing() -> None:
    assert not changes({"server": {"port": 8000}}, {})


def test_changes_are_sorted_by_what_they_need() -> None:
    change = changes({}, {"server": {"port": 1, "drain_s": 2}, "limits": {"max_queued": 3}})
    assert [str(each) for each in change.needs_restart] == ["server.port: 8000 -> 1 (needs a restart)"]
    assert [str(each) for each in change.takes_effect] == [
        "server.drain_s: 60 -> 2.0",
        "limits.max_queued: 4096 -> 3",
    ]


def test_taking_out_the_first_model_is_one_change() -> None:
    change = changes({"models": [model("a"), model("b"), model("c")]}, {"models": [model("b"), model("c")]})
    assert [(each.key, each.new, each.effect) for each in change.changes] == [
        ("models[a]", None, Effect.RESTART)
    ]


def test_a_model_that_comes_needs_a_restart() -> None:
    [change] = changes({"models": [model("a")]}, {"models": [model("a"), model("b")]}).changes
    assert (change.key, change.effect) == ("models[b]", Effect.RESTART)


def test_what_a_model_is_served_by_and_how_takes_effect_at_once() -> None:
    new = model("a", limits={"max_queued": 1}, routing={"policy": "prefix"})
    change = changes({"models": [model("a")]}, {"models": [new | {"endpoints": ["http://b:1"]}]})
    assert [each.key for each in change.takes_effect] == [
        "models[a].endpoints[http://a:1]",
        "models[a].endpoints[http://b:1]",
        "models[a].routing",
        "models[a].limits",
    ]
    assert not change.needs_restart


def test_models_are_compared_by_name() -> None:
    old = {"models": [model("a"), model("b")]}
    new = {"models": [model("a", limits={"max_queued": 1}), model("b", routing={"policy": "prefix"})]}
    assert [each.key for each in changes(old, new).changes] == ["models[a].limits", "models[b].routing"]


def test_a_new_order_is_a_change_since_the_first_model_is_the_default() -> None:
    [change] = changes({"models": [model("a"), model("b")]}, {"models": [model("b"), model("a")]}).changes
    assert (change.key, change.old, change.new) == ("models (order)", ["a", "b"], ["b", "a"])


def test_an_endpoint_that_is_added_is_named_by_its_url() -> None:
    [change] = changes({"endpoints": ["http://a:1"]}, {"endpoints": ["http://b:1", "http://a:1"]}).changes
    assert (change.key, change.old, change.effect) == ("endpoints[http://b:1]", None, Effect.RELOAD)
