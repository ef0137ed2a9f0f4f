"""The base of every mapping in the training configuration. Needs pydantic only."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One mapping of the configuration: unknown keys are errors, values never change."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


def lower(value: object) -> object:
    """For options whose names people write in any case."""
    return value.lower() if isinstance(value, str) else value
