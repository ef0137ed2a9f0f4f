"""What `changeover check` prints: golden, since people and scripts read it."""

from __future__ import annotations

import msgspec

from gateway.settings.explain import explain_json, explain_text
from gateway.settings.load import Loaded
from gateway.settings.options import options
from tests.gateway.settings.conftest import LoadText

TEXT = """\
server: {port: "${PORT:81}"}
models:
  - name: a
    endpoints: [http://a:1, {url: http://b:2, api_key: sesame}]
    limits:
      max_queued: 7
  - {name: b, engine: {replicas: 1, env: {HF_TOKEN: sesame}}}
cache: {type: Redis}
"""

CHANGED = """\
server:
  port: 81                                    # infer.yaml:1 ${PORT}
models:
  - name: "a"                                 # infer.yaml:3
    endpoints:
      - url: "http://a:1"                     # infer.yaml:4
      - url: "http://b:2"                     # infer.yaml:4
        api_key: "********"                   # infer.yaml:4
    limits:
      max_queued: 7                           # infer.yaml:6
  - name: "b"                                 # infer.yaml:7
    engine:
      replicas: 1                             # infer.yaml:7
      env: {"HF_TOKEN":"********"}            # infer.yaml:7
retries:
  attempts: 0                                 # flag --set retries.attempts
cache:
  type: "redis"                               # infer.yaml:8
  port: 6380                                  # environment CHANGEOVER_CACHE__PORT"""


def example(load_text: LoadText) -> Loaded:
    return load_text(TEXT, {"CHANGEOVER_CACHE__PORT": "6380"}, {"retries.attempts": "0"})


def test_what_was_changed_is_shown_with_its_origin(load_text: LoadText) -> None:
    assert explain_text(example(load_text), changed_only=True) == CHANGED


def test_defaults_are_marked(load_text: LoadText) -> None:
    lines = explain_text(example(load_text)).splitlines()
    assert '  host: "0.0.0.0"                             # default' in lines
    assert "        api_key: null                         # default" in lines


def test_every_option_that_has_a_value_is_shown(load_text: LoadText) -> None:
    shown = explain_text(load_text(""))
    for option in options():
        if "*" not in option.key:
            assert f"{option.key.rsplit('.', 1)[-1]}: " in shown


def test_the_text_loads_as_a_file_again(load_text: LoadText) -> None:
    loaded = load_text("server: {port: 81}\nendpoints: [http://a:1]\nengine: {env: {A: b}}\n")
    assert load_text(explain_text(loaded)).settings == loaded.settings


def test_nothing_changed_is_said_so(load_text: LoadText) -> None:
    assert explain_text(load_text(""), changed_only=True) == "# everything is at its default"


def test_json_has_value_and_origin_of_each_option(load_text: LoadText) -> None:
    tree = msgspec.json.decode(explain_json(example(load_text)))
    assert tree["server"]["port"] == {
        "value": 81,
        "origin": "infer.yaml:1 ${PORT}",
        "source": "file",
        "file": "infer.yaml",
        "line": 1,
    }
    assert tree["models"][0]["endpoints"][1]["api_key"]["value"] == "********"
    assert tree["server"]["host"] == {"value": "0.0.0.0", "origin": "default", "source": "default"}
