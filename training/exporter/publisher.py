"""The thread that publishes: writes one snapshot to disk, makes it a version, and tries again where it must.

At most one checkpoint lies in the staging folder, at most two sets of weights are in memory. A store that is
down is told once and asked again, ever more seldom, until it answers or something newer waits. What can
never succeed (the static check refused it, another run has taken over) is told and dropped. Nothing here
ends a training.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from checkpoints.draft import Request
from checkpoints.errors import CheckpointError, SourceChangedError, StoreError
from checkpoints.manifest import Manifest
from training.exporter.settings import ExportSettings
from training.exporter.snapshot import Snapshot, Waiting

log = logging.getLogger("training.exporter")
FIRST_RETRY_S = 1.0

Publish = Callable[[Path, Request], Manifest]
"""Makes the folder a version, or returns the one that it is already. Raises CheckpointError, OSError."""


class Sink(Protocol):
    """Where metrics go (`training.run.exposition.Metrics`)."""

    def set(self, name: str, value: float) -> None:
        """Set a gauge of `training.metrics`."""

    def add(self, name: str) -> None:
        """Add one to a counter."""


class Nowhere:
    """A sink for runs that show no metrics."""

    def set(self, name: str, value: float) -> None:
        """Forget it."""

    def add(self, name: str) -> None:
        """Forget it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step: a version, or the reason why there is none."""

    step: int
    manifest: Manifest | None = None
    reason: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds: `write`, `publish` (with the probe)."""


class Publisher:
    """Made, started and closed by one callback or loop."""

    def __init__(
        self, settings: ExportSettings, run: str, staging: Path, publish: Publish, sink: Sink | None = None
    ) -> None:
        self._settings = settings
        self._run = run
        self._staging = staging
        self._publish = publish
        self._sink = sink or Nowhere()
        self._waiting = Waiting()
        self._done = threading.Condition()
        self._last: Outcome | None = None
        self._busy: int | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._work, name="exporter", daemon=True)

    def start(self) -> None:
        """Begin to publish what is put."""
        shutil.rmtree(self._staging, ignore_errors=True)  # of a run that was killed
        self._thread.start()

    def make_room(self) -> None:
        """Call before weights are copied: what still waits is not published any more."""
        self._told_dropped(self._waiting.drop())

    def put(self, snapshot: Snapshot) -> None:
        """Publish it when the one before is done, if nothing newer comes meanwhile. Returns at once."""
        self._told_dropped(self._waiting.put(snapshot))
        self._show()

    def wait(self, step: int, timeout_s: float) -> Outcome:
        """What became of the snapshot of this step or a later one. Raises TimeoutError."""
        with self._done:
            ready = self._done.wait_for(
                lambda: self._last is not None and self._last.step >= step, max(0.0, timeout_s)
            )
            if not ready or self._last is None:
                raise TimeoutError(f"step {step} was not published within {timeout_s:.0f} s")
            return self._last

    def close(self, timeout_s: float) -> bool:
        """Publish what waits, for at most that long. False: something was left unpublished, and told."""
        self._waiting.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._given_up = True
        if not self._thread.is_alive() and not len(self._waiting):
            return True
        log.error(
            "step %s could not be published before the run ended: publish its folder with "
            "`changeover publish` when the store %s answers",
            self._busy,
            self._settings.store,
        )
        return False

    def _work(self) -> None:
        while not self._given_up:
            snapshot = self._waiting.take()
            if snapshot is None:
                return
            self._busy = snapshot.step
            self._show()
            try:
                outcome = self._bring(snapshot)
            except Exception as error:
                log.exception("step %d cannot be published", snapshot.step)
                self._sink.add("exporter_failures_total")
                outcome = Outcome(snapshot.step, reason=str(error))
            self._busy = None
            with self._done:
                self._last = outcome
                self._done.notify_all()
            self._show()

    def _bring(self, snapshot: Snapshot) -> Outcome:
        """One snapshot to its end, whatever that is."""
        pause, told, written = FIRST_RETRY_S, False, 0.0
        folder = self._staging / f"checkpoint-{snapshot.step}"
        try:
            while True:
                try:
                    if not folder.exists():
                        written = self._write(snapshot, folder)
                    return self._published(snapshot, folder, written)
                except (StoreError, SourceChangedError, OSError) as error:
                    self._sink.add("exporter_failures_total")
                    if not told:
                        log.warning("step %d is not published yet: %s; trying again", snapshot.step, error)
                        told = True
                    if self._waiting.newer(pause) or self._given_up:
                        return Outcome(snapshot.step, reason=f"something newer waits, and {error}")
                    if self._waiting.closed:
                        time.sleep(min(pause, FIRST_RETRY_S))
                    pause = min(2 * pause, self._settings.retry_max_s)
                except CheckpointError as error:
                    self._sink.add("exporter_failures_total")
                    log.error("step %d is not published: %s", snapshot.step, error)  # noqa: TRY400
                    return Outcome(snapshot.step, reason=str(error))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, snapshot: Snapshot, folder: Path) -> float:
        """Whole or not at all, so that another attempt need not write again; returns the seconds."""
        start = time.monotonic()
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            snapshot.write(partial)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return time.monotonic() - start

    def _published(self, snapshot: Snapshot, folder: Path, written: float) -> Outcome:
        start = time.monotonic()
        settings = self._settings
        request = Request(
            run=self._run,
            step=snapshot.step,
            kind=snapshot.kind,
            untie=settings.untie,
            base=settings.base_version,
            metrics=dict(snapshot.metrics),
            take_over=settings.take_over,
            restart_allowed=settings.restart_allowed,
        )
        manifest = self._publish(folder, request)
        seconds = time.monotonic() - start
        self._sink.add("exporter_published_total")
        self._sink.set("exporter_last_version", manifest.version)
        log.info("step %d is version %d of %s", snapshot.step, manifest.version, manifest.model)
        return Outcome(snapshot.step, manifest, timings={"write": written, "publish": seconds})

    def _told_dropped(self, dropped: Snapshot | None) -> None:
        if dropped is not None:
            log.warning("step %d is not published: something newer takes its place", dropped.step)

    def _show(self) -> None:
        self._sink.set("exporter_pending", len(self._waiting) + (self._busy is not None))
