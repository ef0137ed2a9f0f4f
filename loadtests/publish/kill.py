"""Kills the publisher at random points under a reader that polls, and counts what is half there.

    python -m loadtests.publish.kill [--kills 200] [--rate 1.0] [--parallel 1]

The reader knows nothing but the layout that every reader sees: `versions/*/manifest.json` and the
files that it names, each with its size and sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from loadtests.publish.command import COMMAND, publish
from loadtests.publish.models import write_llama

_POLL_S = 0.1
_FULL_LOOKS = 5
"""A version is read whole this often from when it is first seen; it never changes after that."""


class Reader:
    """Looks at all versions every 100 ms, in a thread of its own."""

    def __init__(self, store: Path) -> None:
        self._versions = store / "toy" / "versions"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self.partial: list[str] = []
        self.looks = 0
        self._seen: dict[str, int] = {}

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        """Check every version that was not seen before, or only a few times."""
        self.looks += 1
        for folder in sorted(self._versions.glob("*")):
            self._seen[folder.name] = self._seen.get(folder.name, 0) + 1
            if self._seen[folder.name] > _FULL_LOOKS:
                continue
            problem = half_there(folder)
            if problem:
                self.partial.append(f"{folder.name}: {problem}")


def half_there(folder: Path) -> str | None:
    """What is missing or wrong in a version that can be seen, if anything is."""
    try:
        manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
        for entry in manifest["files"]:
            data = (folder / entry["path"]).read_bytes()
            if len(data) != entry["size"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
                return f"{entry['path']} differs"
    except (OSError, ValueError, KeyError) as error:
        return repr(error)
    return None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1.0, help="MB/s of the publisher")
    arguments = parser.parse_args()
    source = random.Random(20261130)
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        store = root / "store"
        write_llama(root / "model", hidden=64, inner=128, layers=4, shards=3, seed=1)
        start = time.monotonic()
        publish(root / "model", store, *_options(1), "--probe", "none", "--max-rate", arguments.rate)
        whole_s = time.monotonic() - start
        done, step = 0, 1
        with Reader(store) as reader:
            while done < arguments.kills:
                step += 1
                done += _kill_one(
                    root / "model", store, step, arguments.rate, source.uniform(0, 1.1 * whole_s)
                )
                if step > 5 * arguments.kills:
                    raise SystemExit("the publisher mostly ends before it is killed: lower --rate")
            reader.look()
        versions = sorted(path.name for path in (store / "toy" / "versions").glob("*"))
        publish(root / "model", store, *_options(step + 1), "--probe", "none")
        left = list((store / "toy" / ".staging").iterdir())
        print(
            f"{reader.looks} looks, {len(versions)} versions were published whole of {step} begun, "
            f"{len(left)} staging areas left after the next publication"
        )
        for problem in reader.partial[:10]:
            print(problem)
    print(f"kills={done} partial_seen={len(reader.partial)}")
    if reader.partial or left:
        raise SystemExit(1)


def _options(step: int) -> list[object]:
    return ["--model", "toy", "--run", "kill", "--step", step]


def _kill_one(folder: Path, store: Path, step: int, rate: float, after_s: float) -> int:
    """Start a publisher and kill it; 1 if it was still alive then."""
    arguments = ["publish", folder, "--store", store, "--probe", "none", "--max-rate", rate, *_options(step)]
    writer = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(after_s)
    alive = writer.poll() is None
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    return int(alive)


if __name__ == "__main__":
    main()
