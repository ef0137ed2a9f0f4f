"""One run's loop around TRL's step: the policy's way out, the samples' way in, and what is remembered.

`bring` is collective; the rest concerns the own process. Leaves `rl.jsonl` in the output folder, one line for
each version that served, with its reward, mismatch and times, and `rl.json` with the totals.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
from accelerate.utils import broadcast_object_list

from checkpoints.errors import CheckpointError
from checkpoints.probe.parity import Numbers
from checkpoints.store.store import Store
from training.exporter.publisher import Publisher
from training.exporter.snapshot import Snapshot
from training.rl.gateway import Gateway
from training.rl.mismatch import Drift
from training.rl.policy import PolicyRefused, Swapped, await_rollout
from training.rl.record import LINES, TOTALS, Totals, Update
from training.rl.rollouts import Rollouts
from training.rl.settings import OnDrift, RlSettings
from training.rl.trajectories import Batch, keep

log = logging.getLogger("training.rl")


class Drifting(Exception):
    """Trainer and engines have come apart, and `rl.on_drift` is stop."""


class Takes(Protocol):
    """Copies of weights (`training.exporter.weights.Source`)."""

    def take(self, model: Any, step: int, metrics: dict[str, float], *, first: bool) -> Snapshot | None:
        """Collective; a snapshot on the first process."""


class Loop:
    """Made by `training.rl.build` for one process of one run."""

    def __init__(
        self,
        settings: RlSettings,
        run: str,
        output: Path,
        gateway: Gateway,
        rollouts: Rollouts,
        store: Store,
        publisher: Publisher | None,
        drift: Drift,
    ) -> None:
        """`publisher`: on the first process."""
        self._settings = settings
        self._run = run
        self._output = output
        self._gateway = gateway
        self._store = store
        self._publisher = publisher
        self._drift = drift
        self._update: Update | None = None
        self._first_step: int | None = None
        self._stale_used = 0
        self._k3_max = 0.0
        self.rollouts = rollouts
        self.source: Takes | None = None
        """Given once the trainer has prepared the model."""
        self.swapped: Swapped | None = None

    def bring(self, model: Any, step: int, *, first: bool) -> None:
        """Publish the weights of this step, if it is their turn, and wait until they serve.

        Raises:
            PolicyRefused: they do not come to serve. On every process.
        """
        if self.swapped is not None and step - self.swapped.step < self._settings.publish_every:
            return
        assert self.source is not None
        snapshot = self.source.take(model, step, {}, first=first)
        told: list[Swapped | str | None] = [None]
        if first and snapshot is not None:
            try:
                told = [self._serve(snapshot)]
            except (PolicyRefused, TimeoutError) as error:
                told = [str(error)]
        told = broadcast_object_list(told)
        found = told[0]
        if not isinstance(found, Swapped):
            raise PolicyRefused(str(found))
        self._begin(found, first=first)

    def _serve(self, snapshot: Snapshot) -> Swapped:
        assert self._publisher is not None
        self._publisher.put(snapshot)
        limit = self._settings.swap_limit_s
        outcome = self._publisher.wait(snapshot.step, limit)
        return await_rollout(outcome, self._gateway, self._store.rollouts.read, limit)

    def _begin(self, swapped: Swapped, *, first: bool) -> None:
        self.swapped = swapped
        self.rollouts.least = max(0, swapped.version - self._settings.max_staleness)
        if self._first_step is None:
            self._first_step = swapped.step
        if not first:
            return
        self._write_line()
        self._update = Update(
            swapped.version, swapped.step, swapped.write_s, swapped.publish_s, swapped.swap_s, _now()
        )
        log.info(
            "step %d is served as version %d: written %.2f s, published %.2f s, swapped %.2f s",
            swapped.step, swapped.version, swapped.write_s, swapped.publish_s, swapped.swap_s,
        )  # fmt: skip

    def judge(self, found: Numbers) -> None:
        """Compare what trainer and engines say of the last samples. Raises Drifting."""
        self._k3_max = max(self._k3_max, found.k3)
        if self._update is not None:
            self._update.k3, self._update.mean, self._update.max = found.k3, found.mean, found.max
        told = self._drift.judge(found, self.swapped.version if self.swapped is not None else 0)
        if told is None:
            return
        log.warning("%s", told)
        if self._drift.drifts and self._settings.on_drift is OnDrift.STOP:
            raise Drifting(told)

    def keep(
        self,
        step: int,
        rank: int,
        prompts: Sequence[str],
        completions: Sequence[str],
        rewards: Sequence[Sequence[float | None]],
        names: Sequence[str],
    ) -> None:
        """Remember the last samples and their rewards; a store that fails is told, and costs nothing else."""
        samples = self.rollouts.taken
        online = [one.version for one in samples if not one.offline]
        self._stale_used += sum(version < self.rollouts.least for version in online)
        if self._update is not None:
            sums = [sum(one for one in row if one is not None) for row in rewards]
            self._update.reward = sum(sums) / len(sums) if sums else None
            self._update.samples += len(samples)
            self._update.oldest = min(online, default=None)
        if not self._settings.trajectories:
            return
        batch = Batch(self._run, step, samples, prompts, completions, rewards, names, _now())
        try:
            keep(self._store.files, batch, rank, self._settings.trajectories_kept)
        except CheckpointError as error:
            log.warning("the samples of step %d are not kept: %s", step, error)

    def totals(self) -> Totals:
        """So far."""
        last = self.swapped.step if self.swapped is not None else 0
        return Totals(
            updates=last - (self._first_step or 0),
            retried=len(self._gateway.counted.retried),
            stale_samples=sum(self._gateway.counted.stale),
            stale_used=self._stale_used,
            alarms=self._drift.alarms,
            k3_max=self._k3_max,
            run=self._run,
        )

    def close(self, *, first: bool) -> None:
        """End the threads, write the last line and the totals."""
        self.rollouts.close()
        self._gateway.close()
        if self._publisher is not None:
            self._publisher.close(1.0)
        if first:
            self._write_line()
            self._update = None
            (self._output / TOTALS).write_bytes(msgspec.json.encode(self.totals()) + b"\n")

    def _write_line(self) -> None:
        if self._update is not None:
            with (self._output / LINES).open("ab") as file:
                file.write(msgspec.json.encode(self._update) + b"\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
