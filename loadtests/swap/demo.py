"""`python -m loadtests.swap.demo`: weights change under load, and everything that can go wrong goes wrong.

Two real engines behind `changeover serve`. Told as it happens: a changed checkpoint is published and swapped
in; broken ones are refused; one that passes the static check but not its probe is rolled back; an engine is
killed in mid-swap; a long stream goes on while its engine changes. Every answer of the load is judged. Ends
with 1 if a request failed, or was answered by other weights than it says.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from loadtests.environment import REPORTS, environment
from loadtests.processes import ServerFailed, end_on_sigterm
from loadtests.swap.page import swaps_page
from loadtests.swap.scene import JSON, Scene, SceneFailed, qualify, scene
from loadtests.swap.traffic import Answer, Judged, Traffic, judge
from loadtests.wire import Target
from reports.page import write

RATE = 15.0
CONTINUED = ("changeover_continuations_total", 'outcome="continued"')
BACKENDS = ("backend-0", "backend-1")
LIMIT_S = 420.0
"""For one rollout; a restart of each engine fits in."""


@dataclass
class Story:
    """What has happened so far."""

    began: float = field(default_factory=time.monotonic)
    swaps: int = 0
    refused: int = 0
    rolled_back: int = 0
    continued: int = 0
    out_s: list[float] = field(default_factory=list)
    served: list[tuple[float, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    quickest_s: float = 0.0

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def chapter(self, text: str) -> None:
        print(f"\n== {text}", flush=True)

    def swapped(self, shown: JSON) -> None:
        """A version serves everywhere."""
        for member in shown["members"]:
            self.swaps += 1
            self.out_s.append(member["out_of_rotation_s"])
            self.tell(
                f"{member['name']} serves {member['version']}, {member['way']}, "
                f"out of rotation for {member['out_of_rotation_s']:.2f} s"
            )
        self.served.append((time.monotonic(), shown["serving"]))

    def last_line(self, judged: Judged) -> str:
        p50 = median(self.out_s) if self.out_s else 0.0
        return (
            f"swaps={self.swaps} failed={judged.failed} stale={judged.stale} mixed={judged.mixed} "
            f"refused={self.refused} rolled_back={self.rolled_back} continued={self.continued} "
            f"out_of_rotation_p50={p50:.2f}"
        )


def begin(play: Scene, version: int) -> None:
    """By hand, where the moment matters."""
    play.ask("POST", "/admin/rollouts", {"version": str(version)})


def roll_out(play: Scene, story: Story, version: int) -> None:
    """Watch a version come to serve. Raises SceneFailed if it does not."""
    began = time.monotonic()
    shown = play.ended(version, LIMIT_S, story.tell)
    if shown["rollout"]["stage"] != "promoted":
        raise SceneFailed(f"version {version} was {shown['rollout']['stage']}: {shown['rollout']['reason']}")
    shown = play.settled(version)
    story.tell(f"version {version} serves everywhere, {time.monotonic() - began:.1f} s after its publication")
    story.swapped(shown)


def good_one(play: Scene, story: Story, source: Path, step: int) -> Path:
    """A changed checkpoint is published and swapped in; returns it."""
    changed = play.perturbed(source, f"step-{step}", seed=step)
    version = play.publish(changed, step)
    story.tell(f"published version {version}")
    roll_out(play, story, version)
    return changed


def broken_ones(play: Scene, story: Story, source: Path) -> None:
    """A checkpoint without a tensor is no version; one whose bytes change in the store never serves."""
    broken = play.root / "broken"
    shutil.copytree(source, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    try:
        play.publish(broken, 50)
    except SceneFailed as refusal:
        story.refused += 1
        story.tell(f"refused at publication: {str(refusal).splitlines()[1].strip()}")
    else:
        raise SceneFailed("a truncated checkpoint was published")
    damaged = play.perturbed(source, "damaged", seed=51)
    version = play.publish(damaged, 51)
    file = play.version_folder(version) / "model.safetensors"
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    begin(play, version)
    shown = play.ended(version, LIMIT_S, story.tell)
    record = shown["rollout"]
    if record["stage"] not in ("refused", "rolled_back"):
        raise SceneFailed(f"a damaged checkpoint was {record['stage']}")
    story.refused += 1
    story.tell(f"version {version} {record['stage']}: {record['reason']}")


def failing_probe(play: Scene, story: Story, source: Path, other: int) -> None:
    """It is whole, and not what the trainer had: its probe is another version's."""
    wrong = play.perturbed(source, "wrong", seed=52, scale=0.4)
    probe = play.version_folder(other) / "changeover" / "probe.json"
    version = play.publish(wrong, 52, "--probe", probe)
    story.tell(f"published version {version}, with a probe that it cannot pass")
    begin(play, version)
    shown = play.ended(version, LIMIT_S, story.tell)
    record = shown["rollout"]
    if record["stage"] != "rolled_back":
        raise SceneFailed(f"a version that fails its probe was {record['stage']}: {record['reason']}")
    story.rolled_back += 1
    story.tell(f"version {version} rolled back: {record['reason']}")


def killed_in_mid_swap(play: Scene, story: Story, source: Path, step: int) -> Path:
    """The engine dies while its weights change: it comes back on what should be served, and is swapped."""
    changed = play.perturbed(source, f"step-{step}", seed=step)
    version = play.publish(changed, step)
    begin(play, version)
    victim = _swapping(play)
    pid = play.kill_engine(victim)
    story.tell(f"{victim} was swapping: killed its engine (process {pid})")
    roll_out(play, story, version)
    return changed


def _swapping(play: Scene) -> str:
    """The first engine that is on its way to other weights."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for name in BACKENDS:
            swap = play.agent(name)["swap"]
            if (
                swap is not None
                and swap["outcome"] is None
                and swap["phase"] not in ("preparing", "draining")
            ):
                return name
        time.sleep(0.005)
    raise SceneFailed("no engine began to swap")


class Stream:
    """One long answer, read on a thread of its own."""

    def __init__(self, play: Scene, tokens: int) -> None:
        self.events: list[bytes] = []
        self.fault = ""
        self._play = play
        self._tokens = tokens
        self._thread = threading.Thread(target=self._read, name="stream")

    def start(self) -> None:
        self._thread.start()

    def wait_begun(self) -> None:
        """Until its first event. Raises SceneFailed."""
        deadline = time.monotonic() + LIMIT_S
        while not self.events:
            if self.fault or time.monotonic() > deadline:
                raise SceneFailed(f"a stream did not begin: {self.fault}")
            time.sleep(0.01)

    def wait(self, within_s: float) -> None:
        self._thread.join(within_s)

    @property
    def whole(self) -> bool:
        return bool(self.events) and self.events[-1] == b"data: [DONE]" and not self.fault

    @property
    def tokens(self) -> int:
        return sum(event.startswith(b"data: {") and b'"text"' in event for event in self.events)

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._play.port, timeout=120)
        body = {
            "prompt": "A long story:",
            "max_tokens": self._tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        try:
            connection.request(
                "POST", "/v1/completions", msgspec.json.encode(body), {"content-type": "application/json"}
            )
            for line in connection.getresponse():
                if line.strip().startswith(b"data:"):
                    self.events.append(line.strip())
                    if b'"error"' in line:
                        self.fault = line.decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            self.fault = repr(error)
        finally:
            connection.close()


def stream_goes_on(play: Scene, story: Story, source: Path, step: int) -> Path:
    """An engine that does not wait for its streams: they go on on the other, which is held back meanwhile."""
    before = play.counted(*CONTINUED)
    play.configure(wait_s=0)
    streams = [Stream(play, 900) for _ in range(4)]
    changed = play.perturbed(source, f"step-{step}", seed=step)
    version = play.publish(changed, step, "--probe", "none")
    for stream in streams:
        stream.start()
        stream.wait_begun()
    begin(play, version)
    while not any(play.agent(name)["swap"]["version"].startswith(f"v{version}-") for name in BACKENDS):
        time.sleep(0.01)
    play.ask("POST", "/admin/rollouts/current/pause")
    for stream in streams:
        stream.wait(LIMIT_S)
        story.tell(f"a stream ended {'whole' if stream.whole else 'broken'} after {stream.tokens} events")
        if not stream.whole:
            raise SceneFailed(f"a stream broke: {stream.fault or 'no end'}")
    story.continued += int(play.counted(*CONTINUED) - before)
    story.tell(f"{story.continued} of them went on on another engine of the same version")
    play.ask("POST", "/admin/rollouts/current/resume")
    roll_out(play, story, version)
    return changed


def perform(play: Scene, story: Story) -> Judged:
    """All chapters, under load."""
    traffic = Traffic(Target.of(play.url), RATE)
    traffic.start()
    try:
        story.chapter("A changed checkpoint is published")
        first = good_one(play, story, play.base(), 1)
        play.configure(auto=False)
        story.chapter("Broken checkpoints")
        broken_ones(play, story, first)
        story.chapter("A checkpoint that does not compute what its trainer computed")
        failing_probe(play, story, first, 1)
        story.chapter("An engine is killed in mid-swap")
        second = killed_in_mid_swap(play, story, first, 60)
        story.chapter("Streams run when the next version comes")
        stream_goes_on(play, story, second, 61)
    finally:
        traffic.stop()
    story.answers = traffic.answers
    return judge(traffic.answers, story.served)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.swap.demo", description="Weights change under load."
    )
    parser.add_argument("--environment", type=Path, default=Path(".venv-engine"), help="with vLLM and torch")
    parser.add_argument("--restart", action="store_true", help="do not qualify: every swap is a restart")
    given = parser.parse_args(arguments)
    end_on_sigterm()
    story = Story()
    python = given.environment.absolute() / "bin" / "python"
    try:
        with tempfile.TemporaryDirectory(prefix="swap-", ignore_cleanup_errors=True) as folder:
            root = Path(folder)
            if not given.restart:
                story.chapter("May these engines be reloaded in place?")
                qualify(root, story.tell)
            story.chapter("Two engines and a gateway start")
            with scene(root, python, wait_s=2, then="continue", member_deadline_s=300) as play:
                judged = perform(play, story)
    except (SceneFailed, ServerFailed) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    print()
    for line in judged.told:
        print(line)
    print(f"{judged.answers} answers: {judged.versions}; rate {RATE:g}/s")
    verdict = story.last_line(judged)
    page = swaps_page(
        "Weights change under load",
        story.answers,
        story.served,
        story.out_s,
        verdict=verdict,
        facts=environment(),
    )
    print(write(page, REPORTS / "demo-swap.html"))
    print(verdict)
    return 1 if judged.failed or judged.stale or judged.mixed else 0


if __name__ == "__main__":
    sys.exit(main())
