"""File, environment and flags in any combination: the strongest wins, and its name is on the value."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.settings.environment import variable
from gateway.settings.load import load
from gateway.settings.origin import Source

OPTIONS = ["server.port", "limits.max_queued", "retries.attempts", "cache.port", "engine.replicas"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("precedence")


layer = st.dictionaries(st.sampled_from(OPTIONS), st.integers(1, 5))


@settings(max_examples=30, deadline=None)
@given(file=layer, environment=layer, flags=layer)
def test_the_strongest_layer_wins_and_is_named(
    folder: Path, file: dict[str, int], environment: dict[str, int], flags: dict[str, int]
) -> None:
    nested: dict[str, dict[str, int]] = {}
    for key, value in file.items():
        section, name = key.split(".")
        nested.setdefault(section, {})[name] = value
    path = folder / "infer.yaml"
    path.write_bytes(msgspec.json.encode(nested))
    loaded = load(
        path,
        environment={variable(key): str(value) for key, value in environment.items()},
        overrides={key: str(value) for key, value in flags.items()},
    )
    layers = [(Source.FLAG, flags), (Source.ENVIRONMENT, environment), (Source.FILE, file)]
    for key in OPTIONS:
        section, name = key.split(".")
        source = next((source for source, values in layers if key in values), Source.DEFAULT)
        assert loaded.origins[key].source is source
        if source is not Source.DEFAULT:
            assert getattr(getattr(loaded.settings, section), name) == dict(layers)[source][key]
