from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.errors import CheckpointError
from checkpoints.untie import write_untied
from checkpoints.verify import verify_folder
from tests.checkpoints.models import CONFIG, write_model

TIED = {**CONFIG, "tie_word_embeddings": True}


@pytest.mark.parametrize("shards", [1, 3])
def test_the_untied_copy_is_a_whole_checkpoint(shards: int, tmp_path: Path) -> None:
    write_untied(write_model(tmp_path / "tied", config=TIED, shards=shards), tmp_path / "untied")
    assert verify_folder(tmp_path / "untied").findings == ()


def test_what_is_not_tied_or_would_be_written_over_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tied output head"):
        write_untied(write_model(tmp_path / "plain"), tmp_path / "out")
    with pytest.raises(CheckpointError, match="exists already"):
        write_untied(write_model(tmp_path / "tied", config=TIED), tmp_path)
