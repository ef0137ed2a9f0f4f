"""A configuration file that changes while the run goes on."""

from __future__ import annotations

import os
from pathlib import Path

from training.run.config_watch import LOOK_EVERY_S, ConfigWatch


def test_a_change_is_news_once_and_a_touch_is_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    watch = ConfigWatch([one, two])
    assert watch.look(0.0) == []

    os.utime(two, (1, 1))
    one.write_text("x")
    assert watch.look(LOOK_EVERY_S / 2) == []
    assert watch.look(LOOK_EVERY_S) == [one]
    assert watch.look(LOOK_EVERY_S * 2) == []
    two.unlink()
    assert watch.look(LOOK_EVERY_S * 3) == [two]
    assert watch.changed == [one, two]
