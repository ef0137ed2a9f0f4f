"""A chaos run: what happens when, drawn from a seed, and what was told of it.

Only one engine is harmed by hand at a time (both may restart in a rollout meanwhile): what happens while no
engine is there is another question. Everything is healed before the load ends.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from loadtests.chaos import means
from loadtests.chaos.means import Clock, Disk, Valkey
from loadtests.swap.scene import Scene, SceneFailed

BACKENDS = ("backend-0", "backend-1")
FROZEN_S = 12.0
REDIS_AWAY_S = 6.0
RECOVERS_S = 240.0
"""For both engines to be ready again; a start takes most of a minute where two cores do everything."""
SETTLES_S = 420.0
JUMPS = (3600, -1800, 86_400)


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the timeline."""

    at_s: float
    what: str
    detail: str


@dataclass
class Story:
    """What has happened so far."""

    play: Scene
    valkey: Valkey
    disk: Disk
    clock: Clock
    random: Random
    began: float = field(default_factory=time.monotonic)
    moments: list[Moment] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    served: list[tuple[float, str]] = field(default_factory=list)
    """From when on which version was served everywhere."""
    best: Path | None = None
    """The last good weights."""
    step: int = 0
    wrong: list[str] = field(default_factory=list)
    """What should never have happened."""

    def tell(self, what: str, detail: str = "") -> None:
        moment = Moment(time.monotonic() - self.began, what, detail)
        self.moments.append(moment)
        print(f"{moment.at_s:6.1f} s  {what}{': ' if detail else ''}{detail}", flush=True)

    def perform(self, end: float) -> None:
        """Until then, one thing after the other."""
        order = list(EVENTS)
        while time.monotonic() < end:
            self.random.shuffle(order)
            for name in order:
                if time.monotonic() >= end:
                    return
                self.attempt(name)
                time.sleep(self.random.uniform(1, 5))

    def attempt(self, name: str) -> None:
        """One of `EVENTS`; what cannot be done now, or here, is told."""
        try:
            EVENTS[name](self)
        except SceneFailed as error:
            self.tell(f"{name}: left out", str(error)[:200])

    def heal(self) -> None:
        """Undo everything, and wait until all is well."""
        self.disk.empty()
        self.clock.jump(0)
        self.tell("everything is healed")
        self.both_ready()
        deadline = time.monotonic() + SETTLES_S
        while time.monotonic() < deadline:
            record = self.play.rollouts()["rollout"]
            if record is None or record["stage"] in ("promoted", "rolled_back", "refused", "superseded"):
                return
            time.sleep(0.5)
        self.wrong.append("a rollout did not end")

    def both_ready(self) -> None:
        """Return when every engine is. Raises SceneFailed after a while."""
        deadline = time.monotonic() + RECOVERS_S
        while time.monotonic() < deadline:
            if all(self._ready(name) for name in BACKENDS):
                return
            time.sleep(0.5)
        raise SceneFailed(f"not every engine came back within {RECOVERS_S:g} s")

    def _ready(self, name: str) -> bool:
        try:
            return bool(self.play.agent(name)["state"] == "ready")
        except SceneFailed:
            return False

    # -- what can happen

    def kill_engine(self) -> None:
        self.both_ready()
        name = self.random.choice(BACKENDS)
        pid = self.play.kill_engine(name)
        self.counts["engine_kills"] += 1
        self.tell("engine killed", f"{name}, process {pid}")

    def freeze_engine(self) -> None:
        self.both_ready()
        name = self.random.choice(BACKENDS)
        pid = self.play.agent(name)["pid"]
        if pid is None:
            raise SceneFailed(f"{name} has no engine")
        means.freeze(pid)
        self.tell("engine frozen", name)
        try:
            time.sleep(FROZEN_S)
        finally:
            means.thaw(pid)
        self.counts["engine_freezes"] += 1
        self.tell("engine thawed", name)

    def kill_valkey(self) -> None:
        self.valkey.kill()
        self.counts["redis_faults"] += 1
        self.tell("Valkey killed")
        time.sleep(REDIS_AWAY_S)
        self.valkey.again()
        self.tell("Valkey is back")

    def freeze_valkey(self) -> None:
        self.valkey.freeze()
        self.counts["redis_faults"] += 1
        self.tell("Valkey frozen")
        time.sleep(REDIS_AWAY_S)
        self.valkey.thaw()
        self.tell("Valkey thawed")

    def kill_worker(self) -> None:
        pid = means.kill_worker(self.play, self.random.randrange(8))
        self.counts["worker_kills"] += 1
        self.tell("gateway worker killed", f"process {pid}")

    def publish_good(self) -> None:
        self.publish_next()

    def publish_next(self) -> int:
        """Good weights; their version."""
        weights = self._changed()
        version = self.play.publish(weights, self._next_step())
        self.best = weights
        self.counts["published"] += 1
        self.tell("published", f"version {version}")
        return version

    def publish_truncated(self) -> None:
        broken = self._changed()
        file = broken / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1000])
        self._refused(broken, "a truncated checkpoint")

    def publish_damaged(self) -> None:
        version = self.play.publish(self._changed(), self._next_step())
        file = self.play.version_folder(version) / "model.safetensors"
        file.chmod(0o644)
        data = bytearray(file.read_bytes())
        data[-100] ^= 1
        file.write_bytes(data)
        self.counts["bad"] += 1
        self.tell("published, then a bit flipped in the store", f"version {version}")

    def publish_wrong(self) -> None:
        """Whole, with the probe of other weights."""
        probe = self.play.version_folder(1) / "changeover" / "probe.json"
        version = self.play.publish(self._changed(0.4), self._next_step(), "--probe", probe)
        self.counts["bad"] += 1
        self.tell("published with a probe that it cannot pass", f"version {version}")

    def fill_disk(self) -> None:
        if not self.disk.own:
            raise SceneFailed("the store has no file system of its own here (root may mount one)")
        weights = self._changed()
        self.disk.fill()
        self.counts["disk_full"] += 1
        self.tell("the store's disk is full")
        try:
            self._refused(weights, "a checkpoint on a full disk")
        finally:
            self.disk.empty()
        self.tell("the store's disk has room again")

    def jump_clock(self) -> None:
        if self.clock.library is None:
            raise SceneFailed("libfaketime is not installed, the clock stays right")
        seconds = self.random.choice(JUMPS)
        self.clock.jump(seconds)
        self.counts["clock_jumps"] += 1
        self.tell("the clock jumps", f"{seconds:+d} s")

    def _refused(self, weights: Path, what: str) -> None:
        try:
            version = self.play.publish(weights, self._next_step())
        except SceneFailed as refusal:
            self.counts["refused"] += 1
            last = str(refusal).splitlines()[-1].strip()
            self.tell(f"{what} was refused", last[:160])
        else:
            self.wrong.append(f"{what} was published as version {version}")

    def _next_step(self) -> int:
        self.step += 1
        return self.step

    def _changed(self, scale: float = 0.05) -> Path:
        source = self.best or self.play.base()
        name = f"made-{self.step}-{self.random.randrange(10**6)}"
        for old in self.play.root.glob("made-*"):
            if old != self.best:
                shutil.rmtree(old)
        return self.play.perturbed(source, name, seed=self.random.randrange(10**6), scale=scale)


EVENTS: dict[str, Callable[[Story], None]] = {
    "an engine is killed": Story.kill_engine,
    "a version is published": Story.publish_good,
    "Valkey is killed": Story.kill_valkey,
    "an engine is frozen": Story.freeze_engine,
    "a worker is killed": Story.kill_worker,
    "a truncated checkpoint is published": Story.publish_truncated,
    "Valkey is frozen": Story.freeze_valkey,
    "another version is published": Story.publish_good,
    "the disk is full": Story.fill_disk,
    "the clock jumps": Story.jump_clock,
    "a damaged checkpoint is published": Story.publish_damaged,
    "a wrong checkpoint is published": Story.publish_wrong,
}
"""By name. Each happens once before any happens again."""


class Watcher:
    """Notes from when on which version was served everywhere."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher")

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(0.5):
            try:
                shown = self._story.play.rollouts()
            except SceneFailed:
                continue
            seen = time.monotonic()
            serving, members = shown["serving"], shown["members"]
            everywhere = members and all(m["version"] == serving and m["place"] == "at" for m in members)
            known = self._story.served[-1][1] if self._story.served else ""
            if everywhere and serving and serving != known:
                self._story.served.append((seen, serving))
                self._story.tell("serves everywhere", serving)
