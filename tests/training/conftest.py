"""What training tests share."""

from __future__ import annotations

import pytest

from tests.training.runs import require_trainer


@pytest.fixture(autouse=True)
def _trainer(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("training") is not None:
        require_trainer()
