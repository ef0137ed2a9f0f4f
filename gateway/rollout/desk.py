"""Where operators' wishes are taken: each becomes a change of the record, which any gateway then carries out.

Called by the admin routes of every worker; needs no lease. Raises `GatewayError`s that say what is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from checkpoints.errors import CheckpointError, ConflictError, NotFoundError
from checkpoints.rollouts import Quarantined, Rollout
from checkpoints.store.journal import Entry
from gateway import errors
from gateway.rollout import commands
from gateway.rollout.build import Rollouts
from gateway.rollout.commands import NotPossible
from gateway.rollout.past import ShownCheckpoint, show_checkpoint
from gateway.rollout.plan import begin
from gateway.rollout.run import ModelRollouts
from gateway.rollout.shown import ShownRollouts, show
from gateway.settings.rollout import RolloutMode

T = TypeVar("T")

LOOK_S = 1.0
"""What members said this long ago is told again without asking."""
HISTORY = 20


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rollout that somebody wants."""

    version: str = "latest"
    """A number, an alias, `latest`, or 0 for the base model."""
    mode: RolloutMode | None = None
    """None: as configured."""
    force: bool = False
    """Whatever the quarantine says, in place of what rolls out now, and without waiting for evidence."""


class Desk:
    """One for each worker."""

    def __init__(self, rollouts: Rollouts) -> None:
        self._rollouts = rollouts

    def model(self, name: str | None) -> ModelRollouts:
        """The named model's rollouts, or those of the only one."""
        models = self._rollouts.models
        found = self._rollouts.find(name) if name else (models[0] if len(models) == 1 else None)
        if found is None:
            known = ", ".join(model.model for model in models) or "none yet"
            raise errors.NotFound(f"Name a model with checkpoints by `model`: {known}.")
        return found

    async def show(self, name: str | None, past: int = HISTORY) -> ShownRollouts:
        """Everything that is known of a model's rollouts, of ended ones the newest `past`.

        Asks agents where that is due. The past costs a read of every state that is kept; 0 reads none.
        """
        model = self.model(name)
        with _translated():
            view = await model.look(LOOK_S)
        book = model.around.book
        history = await self._in_thread(lambda: book.store.rollouts.history(past)) if past else []
        quarantined = list(model.recorded.quarantined.values())
        return show(view, leads=model.leads, quarantined=quarantined, history=history)

    async def states(self, name: str | None, rollout_id: str) -> list[Rollout]:
        """Every state of one rollout. NotFound if none is kept."""
        book = self.model(name).around.book
        found = await self._in_thread(lambda: book.store.rollouts.states(rollout_id))
        if not found:
            raise errors.NotFound(f"There is no rollout {rollout_id[:100]!r}.")
        return found

    async def checkpoints(
        self, name: str | None, limit: int
    ) -> tuple[list[ShownCheckpoint], dict[str, int | None]]:
        """The newest versions, oldest of them first, and the version each alias points at."""
        store = self.model(name).around.book.store

        def read() -> tuple[list[ShownCheckpoint], dict[str, int | None]]:
            manifests = [store.manifest(version) for version in store.versions()[-limit:]]
            aliases, quarantined = store.aliases.all(), store.rollouts.quarantined()
            history = store.rollouts.history()
            shown = [show_checkpoint(manifest, aliases, quarantined, history) for manifest in manifests]
            return shown, {name: alias.version for name, alias in aliases.items()}

        return await self._in_thread(read)

    async def journal(self, name: str | None, limit: int) -> Sequence[Entry]:
        """The newest entries, oldest of them first."""
        book = self.model(name).around.book
        return await self._in_thread(lambda: book.store.journal.last(limit))

    async def start(self, name: str | None, wish: Start, *, by: str) -> Rollout:
        """Begin a rollout by hand."""
        model = self.model(name)
        book = model.around.book
        with _translated():
            view = await model.look(LOOK_S)
        number = await self._in_thread(
            lambda: 0 if wish.version in ("0", "v0", "base") else book.store.resolve(wish.version)
        )
        weights = await self._in_thread(lambda: book.weights(number))
        running = view.record
        if running is not None and running.active and not wish.force:
            raise errors.Conflict(
                f"{running.id} is {running.stage.value}: wait for its end, roll it back, or use force."
            )
        held = view.quarantined.get(weights.digest)
        if held is not None and not wish.force:
            raise errors.Conflict(f"{weights.label} is in quarantine: {held}. Use force to try it.")
        mode = (wish.mode or model.options.mode).value
        record = begin(view, weights, mode=mode, forced=wish.force, reason=f"started by {by}")
        written = await self._in_thread(lambda: book.save(record))
        if held is not None:
            await self._in_thread(lambda: book.store.rollouts.lift(weights.digest))
        self._rollouts.poke()
        return written

    async def promote(self, name: str | None, rollout_id: str, *, by: str) -> Rollout:
        return await self._change(name, rollout_id, lambda now: commands.promote(now, by=by, now=_now()))

    async def pause(self, name: str | None, rollout_id: str, *, by: str) -> Rollout:
        return await self._change(name, rollout_id, lambda now: commands.pause(now, by=by))

    async def resume(self, name: str | None, rollout_id: str, *, by: str) -> Rollout:
        return await self._change(name, rollout_id, lambda now: commands.resume(now, by=by))

    async def roll_back(
        self, name: str | None, rollout_id: str, *, by: str, to: str | None = None, reason: str = ""
    ) -> Rollout:
        """Take back what rolls out; or, where it has ended, go back to the version before it, or to `to`."""
        model = self.model(name)
        with _translated():
            view = await model.look(LOOK_S)
        record = _the(view.record, rollout_id)
        if record.active and to is None:
            return await self._change(
                name,
                rollout_id,
                lambda now: commands.take_back(now, by=by, now=_now(), reason=reason),
            )
        target = to if to is not None else str(record.from_version)
        leaving = view.serving
        written = await self.start(name, Start(target, RolloutMode.ROLLING, force=True), by=by)
        if leaving.number != written.version and leaving.digest:
            why = reason or f"rolled back by {by}"
            entry = Quarantined(leaving.digest, leaving.number, why, by, _now())
            await self._in_thread(lambda: model.around.book.store.rollouts.quarantine(entry))
        return written

    async def _change(
        self, name: str | None, rollout_id: str, change: Callable[[Rollout], Rollout]
    ) -> Rollout:
        model = self.model(name)
        with _translated():
            view = await model.look(LOOK_S)
        try:
            changed = change(_the(view.record, rollout_id))
        except NotPossible as error:
            raise errors.Conflict(f"{error}.") from error
        written = await self._in_thread(lambda: model.around.book.save(changed))
        self._rollouts.poke()
        return written

    async def _in_thread(self, work: Callable[[], T]) -> T:
        with _translated():
            return await self._rollouts.in_thread(work)


@contextmanager
def _translated() -> Iterator[None]:
    """What a store raises, as an answer."""
    try:
        yield
    except NotFoundError as error:
        raise errors.NotFound(f"{error}.") from error
    except ConflictError as error:
        raise errors.Conflict(f"{error}.") from error
    except (CheckpointError, OSError) as error:
        raise errors.BackendFailed(f"The checkpoint store does not do it: {error}.") from error


def _now() -> float:
    return time.time_ns() / 1e9


def _the(record: Rollout | None, rollout_id: str) -> Rollout:
    if record is None or rollout_id not in (record.id, "current"):
        now = f"the present one is {record.id}" if record is not None else "there was none yet"
        raise errors.NotFound(f"No rollout {rollout_id[:100]!r} can be changed: {now}.")
    return record
