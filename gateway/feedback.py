"""What users say of answers, on its way into the store: gathered for a moment, then written as one file.

A request is answered once its word is stored. What waits is bounded; a store that does not answer makes the
callers wait no longer than one write. One for each worker, owned by the composition root.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from checkpoints.errors import CheckpointError
from checkpoints.feedback import Feedback, FeedbackFiles
from checkpoints.store.open import open_files
from gateway.errors import BackendFailed, OverCapacity
from gateway.settings.tree import Settings
from gateway.tasks import TaskOwner

logger = logging.getLogger(__name__)

MAX_WAITING = 1000
"""Entries that may wait for the store, of all models."""
GATHER_S = 0.2
"""How long entries are gathered for one file."""
PRUNE_EVERY = 100
"""Files between two looks at how many there are."""

Write = Callable[[str, list[Feedback]], None]
"""Stores entries of a model; blocks; raises CheckpointError or OSError."""
Find = Callable[[str], str]
"""From what clients call a model to its name here; empty: the default. Raises ModelNotFound."""


class FeedbackBox:
    """Takes entries and writes them."""

    def __init__(self, find: Find, write: Write) -> None:
        self._find = find
        self._write = write
        self._waiting: list[tuple[str, Feedback, asyncio.Future[None]]] = []
        self._some = asyncio.Event()
        self._tasks = TaskOwner("feedback")

    async def start(self) -> None:
        """Begin to write. On the loop that serves."""
        self._tasks.start("write", self._run())

    async def close(self) -> None:
        """What still waits is refused; its callers may say it again."""
        await self._tasks.close()
        for _, _, told in self._waiting:
            if not told.done():
                told.set_exception(OverCapacity("The gateway is going down.", retry_after_s=1))
        self._waiting.clear()

    async def add(self, model: str | None, entry: Feedback, by: str) -> None:
        """Return when it is stored.

        Cancelled, it is stored all the same. Raises ModelNotFound, OverCapacity, BackendFailed.
        """
        name = self._find(model or "")
        if len(self._waiting) >= MAX_WAITING:
            raise OverCapacity("Too much feedback waits to be stored.", retry_after_s=1)
        marked = msgspec.structs.replace(entry, by=by, at=datetime.now(UTC).isoformat(timespec="seconds"))
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, marked, told))
        self._some.set()
        await asyncio.shield(told)

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_S)
            self._some.clear()
            taken, self._waiting = self._waiting, []
            for model in dict.fromkeys(model for model, _, _ in taken):
                own = [(entry, told) for name, entry, told in taken if name == model]
                await self._store(model, own)

    async def _store(self, model: str, own: list[tuple[Feedback, asyncio.Future[None]]]) -> None:
        error: BackendFailed | None = None
        try:
            await asyncio.to_thread(self._write, model, [entry for entry, _ in own])
        except (CheckpointError, OSError) as failure:
            logger.warning("%s: feedback cannot be stored: %s", model, failure)
            error = BackendFailed("The store does not take feedback now; say it again later.")
        for _, told in own:
            if told.done():
                continue
            if error is None:
                told.set_result(None)
            else:
                told.set_exception(error)
                told.exception()  # heard here, should its caller be gone


class StoreWriter:
    """Writes into the models' stores, and keeps the number of files within bounds."""

    def __init__(self, url: str, folders: Mapping[str, str]) -> None:
        """`folders`: a model's name in the store where it is not the one that clients use."""
        self._url = url
        self._folders = folders
        self._written = 0

    def __call__(self, model: str, entries: list[Feedback]) -> None:
        files = FeedbackFiles(open_files(self._url, self._folders.get(model, model)))
        files.add(entries)
        self._written += 1
        if self._written % PRUNE_EVERY == 0:
            files.prune()


def build_feedback(settings: Settings, find: Find) -> FeedbackBox | None:
    """None: no store is configured, so there is nowhere to keep it."""
    if settings.checkpoints.store is None:
        return None
    served = settings.served_models()
    folders = {}
    if settings.checkpoints.model is not None and len(served) == 1:
        folders[served[0].name] = settings.checkpoints.model
    return FeedbackBox(find, StoreWriter(settings.checkpoints.store, folders))
