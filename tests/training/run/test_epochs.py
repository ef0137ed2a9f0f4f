"""How the mean loss moves from epoch to epoch."""

from __future__ import annotations

import pytest

from training.run.epochs import Epoch, Epochs


def ends(losses: list[float]) -> list[Epoch]:
    epochs = Epochs()
    found = []
    for loss in losses:
        epochs.add(loss, 10)
        epoch = epochs.end()
        assert epoch is not None
        found.append(epoch)
    return found


def test_losses_are_weighed_by_their_steps() -> None:
    epochs = Epochs()
    epochs.add(4.0, 1)
    epochs.add(1.0, 2)
    assert epochs.end() == Epoch(mean_loss=2.0, change_ratio=None, moving=0)
    assert epochs.end() is None


def test_epochs_that_move_more_than_five_percent_either_way_are_counted_in_a_row() -> None:
    found = ends([2.0, 1.8, 1.9, 1.8, 1.79, 2.0])
    assert [each.moving for each in found] == [0, 1, 2, 3, 0, 1]
    assert found[1].change_ratio == pytest.approx(0.1)


def test_less_than_five_percent_does_not_move_and_zero_has_no_ratio() -> None:
    assert ends([1.0, 1.049])[1].moving == 0
    assert ends([0.0, 1.0])[1].change_ratio is None
