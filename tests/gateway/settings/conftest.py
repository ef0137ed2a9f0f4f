"""Loads configurations that are given as text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from gateway.settings.load import Loaded, load
from gateway.settings.problems import Problem, SettingsError


class LoadText(Protocol):
    def __call__(
        self,
        text: str | bytes,
        environment: Mapping[str, str] = ...,
        overrides: Mapping[str, str] = ...,
    ) -> Loaded: ...


class Refused(Protocol):
    def __call__(
        self,
        text: str | bytes,
        environment: Mapping[str, str] = ...,
        overrides: Mapping[str, str] = ...,
    ) -> tuple[Problem, ...]: ...


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the working folder, so that messages name it `infer.yaml`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "infer.yaml"


@pytest.fixture
def load_text(config_file: Path) -> LoadText:
    def load_it(
        text: str | bytes, environment: Mapping[str, str] = {}, overrides: Mapping[str, str] = {}
    ) -> Loaded:
        config_file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(config_file, environment=environment, overrides=overrides)

    return load_it


@pytest.fixture
def refused(load_text: LoadText) -> Refused:
    """The problems of a configuration that must not load."""

    def problems(
        text: str | bytes, environment: Mapping[str, str] = {}, overrides: Mapping[str, str] = {}
    ) -> tuple[Problem, ...]:
        with pytest.raises(SettingsError) as caught:
            load_text(text, environment, overrides)
        return caught.value.problems

    return problems
