"""Qualifies beside a running engine, where a backend found no record and was told to (`checkpoints.qualify`).

One trial at a time on a machine, held by a file lock: of several backends one tries, the others find its
record at their next swap. Where no scratch engine would start, the same process does not try again: a machine
without memory for one more engine must not find that out at each swap.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from backends.models.resolve import ModelUnusable
from backends.qualify.oracle import combination_with, qualify
from backends.qualify.records import find
from backends.qualify.scratch import ScratchFailed
from backends.settings import EngineSettings
from backends.vllm.install import EngineMissing, find_engine
from checkpoints.errors import CheckpointError
from checkpoints.store.contract import Files

logger = logging.getLogger(__name__)

CANNOT_TRY = (CheckpointError, EngineMissing, ModelUnusable, ScratchFailed, OSError)


class Background:
    """For the engines of one backend; its owner runs `qualify` as a task."""

    def __init__(
        self, files: Files, settings: EngineSettings, environment: Mapping[str, str], lock: Path
    ) -> None:
        """`environment`: what engines inherit. `lock`: a file that all backends of this machine name."""
        self._files = files
        self._settings = settings
        self._environment = environment
        self._lock = lock
        self._hopeless: set[str] = set()

    async def qualify(self, folder: Path) -> None:
        """Try the weights in `folder` if nobody has, or does so now. Takes minutes; logs, and raises nothing.

        Cancelling ends the scratch engine.
        """
        try:
            with _held(self._lock) as alone:
                if alone:
                    await self._try(folder)
        except CANNOT_TRY as error:
            logger.warning("could not qualify reloads in place: %s", error)
        except Exception:  # it serves nobody: the backend beside it must go on
            logger.exception("qualifying reloads in place failed")

    async def _try(self, folder: Path) -> None:
        engine = find_engine(self._environment, self._settings.device)
        combination = await asyncio.to_thread(
            combination_with, folder, self._settings, engine, self._environment
        )
        known = await asyncio.to_thread(find, self._files, combination)
        if known is not None or combination.key in self._hopeless:
            return
        logger.info("qualifying reloads in place of %s on a scratch engine", combination.architecture)
        try:
            record = await qualify(
                folder, self._settings, environment=self._environment, files=self._files, report=logger.debug
            )
        except ScratchFailed:
            self._hopeless.add(combination.key)
            raise
        logger.info("reloads in place: %s: %s", record.verdict, record.reason)


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Whether this process alone holds the lock; it ends with the process, whatever becomes of that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
