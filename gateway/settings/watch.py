"""Notices that the configuration changed, and hands over the new settings or what is wrong with them.

A thin shell around `load` and `diff`. Looks once a second at what the file's path leads to (through symlinks,
as Kubernetes swaps them), and at once on `poke()` (SIGHUP). All or nothing: a broken file changes nothing. A
file that is still being written is left until two looks agree. Reading happens in a thread, not on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from gateway.settings.diff import Diff, diff
from gateway.settings.load import Loaded
from gateway.settings.problems import SettingsError

_log = logging.getLogger(__name__)

Stamp = tuple[str, int, int, int] | None
"""Real path, inode, size and modification time in ns; None: there is no file."""


class Watcher:
    """`run()` belongs into a task with an owner; it ends only by cancellation, and raises nothing else."""

    def __init__(
        self,
        current: Loaded,
        *,
        load: Callable[[], Loaded],
        on_change: Callable[[Loaded, Diff], None],
        on_error: Callable[[SettingsError], None],
        interval_s: float = 1.0,
    ) -> None:
        """`load` reads everything again; called in a thread.

        on_change: called with valid settings that differ from the last valid ones; also, with an empty Diff,
        when a broken file is as it was before. on_error: called once for each broken content and each poke.
        Both are called on the event loop.
        """
        self._current = current
        self._load = load
        self._on_change = on_change
        self._on_error = on_error
        self._interval_s = interval_s
        self._poked = asyncio.Event()
        self._broken = False

    def poke(self) -> None:
        """Look now, whatever the file's times say. Call it on the event loop (`loop.add_signal_handler`)."""
        self._poked.set()

    async def run(self) -> None:
        """Watch until cancelled. The first look reads: the file may have changed since it was loaded."""
        path = self._current.path
        read: list[Stamp] = []
        seen = await asyncio.to_thread(stamp, path)
        while True:
            poked = await self._wait()
            now = await asyncio.to_thread(stamp, path)
            settled, seen = now == seen, now
            if poked or (settled and read != [now] and path is not None):
                read = [now]
                await self._reload()

    async def _wait(self) -> bool:
        """Until the next look; True if someone asked for it."""
        try:
            async with asyncio.timeout(self._interval_s):
                await self._poked.wait()
        except TimeoutError:
            return False
        self._poked.clear()
        return True

    async def _reload(self) -> None:
        try:
            loaded = await asyncio.to_thread(self._load)
        except SettingsError as error:
            self._broken = True
            self._tell(self._on_error, error)
            return
        except Exception:
            _log.exception("the configuration could not be read again; the one before stays in force")
            return
        change = diff(self._current.settings, loaded.settings)
        if change or self._broken:
            self._current, self._broken = loaded, False
            self._tell(self._on_change, loaded, change)

    @staticmethod
    def _tell(callback: Callable[..., None], *what: object) -> None:
        try:
            callback(*what)
        except Exception:
            _log.exception("taking over a changed configuration failed")


def stamp(path: Path | None) -> Stamp:
    """What tells one content from the next without reading it. Blocks."""
    if path is None:
        return None
    try:
        real = path.resolve()
        status = real.stat()
    except (OSError, RuntimeError):
        return None
    return str(real), status.st_ino, status.st_size, status.st_mtime_ns
