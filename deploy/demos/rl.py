"""`make demo-rl`: a policy learns from samples of the engines that serve it; each update is swapped in.

    python -m deploy.demos.rl [--model tiny-llama] [--updates 24] [--plot logs/demo-rl.png]

From nothing, on CPU: reloads in place are qualified for the model, two engines and a gateway start, and GRPO
trains on rollouts from `/v1/completions`. After each step the policy is published, verified, swapped into
both engines at once and proved; the next samples must come from it. A user asks throughout. The reward is
the share of letters that are lower-case: it shows whether the loop learns, and nothing more.
Ends with `updates=<n> reward_first=<x> reward_last=<y> failed=0 stale_samples=0 k3_max=<x>`, where the
rewards are means of the first and last three updates; exit code 1 if not every update came to serve, a
request failed, an old sample was used, or the reward did not rise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx2
import msgspec

from checkpoints.errors import CheckpointError
from checkpoints.store.open import open_store
from deploy.demos.serving import ROOT, DemoFailed, Serving, serving, write_settings
from training.rl.record import LINES, TOTALS, Totals, Update

PYTHON = ROOT / ".venv-engine" / "bin" / "python"
LEAST_UPDATES = 20
LEAST_RISE = 0.05
"""Of the mean reward, which lies between 0 and 1."""
PROMPTS = (
    "Once upon a time", "The weather today is", "My favourite food is", "In the morning I",
    "A good friend will", "The train was late because", "She opened the door and", "Science tells us that",
)  # fmt: skip
LEARNING: Mapping[str, float] = {"tiny-llama": 1.2e-4}
"""Learning rates: a few MB of random weights bear more than a model that can speak."""
DEFAULT_LR = 3e-5


class User:
    """Somebody who asks again and again while weights change; counts what fails."""

    def __init__(self, url: str, model: str) -> None:
        self._url, self._model = url, model
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="user")
        self.answered = 0
        self.versions: set[str] = set()
        self.failures: list[str] = []

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End with the present question."""
        self._enough.set()
        self._thread.join()

    def _ask(self) -> None:
        body = {"model": self._model, "prompt": "Hello", "max_tokens": 4, "temperature": 0}
        while not self._enough.wait(0.25):
            try:
                answer = httpx2.post(f"{self._url}/v1/completions", json=body, timeout=300, trust_env=False)
            except httpx2.HTTPError as error:
                self.failures.append(str(error) or type(error).__name__)
                continue
            if answer.status_code == 200:
                self.answered += 1
                self.versions.add(answer.headers.get("x-model-version", ""))
            else:
                self.failures.append(f"{answer.status_code} {answer.text[:200]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.demos.rl", description=__doc__)
    parser.add_argument(
        "--model", default="tiny-llama", help="a built-in model (smollm2-135m-instruct: slower)"
    )
    parser.add_argument("--updates", type=int, default=24, help="optimizer steps, each swapped in")
    parser.add_argument("--replicas", type=int, default=2, help="engines")
    parser.add_argument("--plot", type=Path, default=Path("logs/demo-rl.png"), help="where the picture goes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="co-rl-", ignore_cleanup_errors=True) as name:
        try:
            return _show(
                Path(name), arguments.model, arguments.updates, arguments.replicas, arguments.plot.resolve()
            )
        except DemoFailed as failure:
            sys.stderr.write(f"demo-rl: {failure}\n")
            return 1


def _show(folder: Path, model: str, updates: int, replicas: int, picture: Path) -> int:
    store = folder / "store"
    store.mkdir()
    picture.parent.mkdir(parents=True, exist_ok=True)
    atomic = {"mode": "atomic", "poll_s": 0.2, "warm_up": 1, "probe": "required"}
    config = write_settings(folder, model, replicas, store, {"rollout": atomic})
    _qualify(config)
    print(f"starting {replicas} engines of {model} and a gateway", flush=True)
    with serving(config) as gateway:
        user = User(gateway.url, model)
        user.start()
        try:
            _train(folder, model, updates, store, gateway)
        finally:
            user.stop()
    lines = (folder / "output" / LINES).read_bytes().splitlines()
    done = [msgspec.json.decode(line, type=Update) for line in lines]
    totals = msgspec.json.decode((folder / "output" / TOTALS).read_bytes(), type=Totals)
    _plot(folder / "output", picture)
    print(f"picture: {picture}", flush=True)
    _tell(store, model, done, user)
    return _judge(done, totals, user, updates)


def _qualify(config: Path) -> None:
    """In-place reloads are used only where they were shown to be right here; else each swap is a restart."""
    print("qualifying reloads in place (two engine starts)", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "qualify", "--config", config], cwd=ROOT, check=False
    )
    if done.returncode != 0:
        print(
            "not qualified: each swap will restart the engines, which takes long", file=sys.stderr, flush=True
        )


def _train(folder: Path, model: str, updates: int, store: Path, gateway: Serving) -> None:
    """A run as a user starts it; its log and progress bar are shown."""
    prompts = folder / "prompts.jsonl"
    prompts.write_bytes(b"\n".join(msgspec.json.encode({"prompt": text}) for text in PROMPTS))
    config = {
        "model": {"name": model},
        "training": {
            "method": "grpo",
            "batch_size": 32,
            "max_steps": updates,
            "save_every": 10 * updates,
            "lr": LEARNING.get(model, DEFAULT_LR),
            "schedule": "constant",
            "log_every": 1,
            "output_dir": str(folder / "output"),
        },
        "data": {"path": str(prompts)},
        "grpo": {"rewards": ["lower_case"], "generations": 8, "max_completion_length": 16},
        "logs": {"folder": str(folder / "logs")},
        "metrics": {"port": 0},
        "export": {"store": str(store), "model": model},
        "rl": {"gateway": gateway.url},
    }
    path = folder / "train_config.yaml"
    path.write_bytes(msgspec.json.encode(config))
    done = subprocess.run([PYTHON, ROOT / "train.py", "--config", path], cwd=ROOT, check=False)
    if done.returncode != 0:
        errors = (folder / "logs" / "error.log").read_text()
        served = gateway.log.read_text()
        raise DemoFailed(f"the training ended with {done.returncode}:\n{errors[-3000:]}\n{served[-2000:]}")


def _plot(output: Path, picture: Path) -> None:
    command: list[str | Path] = [PYTHON, "-m", "training.rl.plot", output, "--out", picture]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise DemoFailed("the picture could not be drawn")


def _tell(store: Path, model: str, done: list[Update], user: User) -> None:
    """What the last line has no room for."""
    swaps = sorted(one.swap_s for one in done)
    print(f"swap of all engines: median {swaps[len(swaps) // 2]:.2f} s, slowest {swaps[-1]:.2f} s")
    print(f"a user had {user.answered} answers of {len(user.versions)} versions meanwhile")
    try:
        events = [entry.event for entry in open_store(str(store), model).journal.last(10_000)]
    except CheckpointError as error:
        raise DemoFailed(f"the store cannot be read: {error}") from error
    counts = {event: events.count(event) for event in dict.fromkeys(events)}
    print("journal: " + ", ".join(f"{count} {event}" for event, count in counts.items()), flush=True)


def _judge(done: list[Update], totals: Totals, user: User, wanted: int) -> int:
    for failure in user.failures[:5]:
        print(f"a user's request failed: {failure}", file=sys.stderr)
    rewards = [one.reward for one in done if one.reward is not None]
    first, last = (sum(some) / len(some) for some in (rewards[:3], rewards[-3:]))
    failed = len(user.failures) + totals.retried
    stale = totals.stale_samples + totals.stale_used
    print(
        f"updates={totals.updates} reward_first={first:.3f} reward_last={last:.3f} failed={failed} "
        f"stale_samples={stale} k3_max={totals.k3_max:.5f}",
        flush=True,
    )
    enough = totals.updates >= min(wanted, LEAST_UPDATES)
    return 0 if enough and failed == 0 and stale == 0 and last - first >= LEAST_RISE else 1


if __name__ == "__main__":
    sys.exit(main())
