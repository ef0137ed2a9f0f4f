"""`changeover publish --watch OUTPUT_DIR`: publishes what a training that knows nothing of us leaves.

Only finished checkpoints, each once, the newest first where several wait. The store says what is published
already, so a watcher that was killed goes on where it was. What rotation takes away in the middle is passed
over. A store that is down is waited for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from checkpoints.errors import CheckpointError, NotFoundError, SourceChangedError, StoreError
from checkpoints.finished import Settling, checkpoints_in, look, step_of
from checkpoints.publish import Published
from checkpoints.store.store import Store

LOOK_S = 1.0
_MAX_PAUSE_S = 60.0

PublishOne = Callable[[Path, int], Published]
"""Publishes a folder as that step. Raises CheckpointError, OSError."""


def watch(
    output: Path,
    store: Store,
    run: str,
    publish: PublishOne,
    told: Callable[[Published, float], None],
    *,
    settle_s: float,
    idle_s: float | None,
) -> int:
    """Look until nothing new came for `idle_s` (None: for ever); returns how many versions were made.

    `told` hears of each, with the seconds that it took.

    Raises OSError if the output folder goes away.
    """
    settling, passed_over = Settling(settle_s), set[int]()
    last, made, pause, quiet_since = -1, 0, LOOK_S, time.monotonic()
    while True:
        candidate = None
        try:
            last = max(last, _last_step(store, run))
            candidate = _newest_done(output, settling, last, passed_over)
            if candidate is not None:
                step = step_of(candidate) or 0
                began = time.monotonic()
                published = publish(candidate, step)
                told(published, time.monotonic() - began)
                last, made, quiet_since = step, made + (not published.existing), time.monotonic()
            pause = LOOK_S
        except SourceChangedError as error:
            _say(f"{error}; looking at the next one")
        except StoreError as error:
            if pause == LOOK_S:
                _say(f"waiting for the store: {error}")
            pause = min(2 * pause, _MAX_PAUSE_S)
        except CheckpointError as error:
            _say(str(error))
            if candidate is not None:
                passed_over.add(step_of(candidate) or 0)
        if idle_s is not None and time.monotonic() - quiet_since >= idle_s:
            return made
        time.sleep(pause)


def _newest_done(output: Path, settling: Settling, last: int, passed_over: set[int]) -> Path | None:
    found = None
    names = set()
    for folder in checkpoints_in(output):
        names.add(folder.name)
        step = step_of(folder) or 0
        if step <= last or step in passed_over:
            continue
        signs = look(folder)
        if signs is not None and settling.done(folder.name, step, signs, time.monotonic()):
            found = folder
    settling.forget(names)
    return found


def _last_step(store: Store, run: str) -> int:
    """The last step of this run that is in the store; -1: none is."""
    for version in reversed(store.versions()):
        try:
            manifest = store.manifest(version)
        except NotFoundError:
            continue
        if manifest.run == run:
            return manifest.step
    return -1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
