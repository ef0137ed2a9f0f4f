"""docs/configuration.md is what the settings tree says."""

from __future__ import annotations

from pathlib import Path

from gateway.settings.document import document
from gateway.settings.options import options

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), (
        "run python -m gateway.settings.document > docs/configuration.md"
    )


def test_every_option_has_a_meaning() -> None:
    silent = [option.key for option in options() if not (option.field.description or "").strip()]
    assert not silent
