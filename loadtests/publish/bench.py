"""How fast publishing is, beside copying and sha256-summing the same files on all cores.

    python -m loadtests.publish.bench [--gib 1.5] [--rounds 5] [--folder DIR]

Both sides end with every copied file synced; rounds alternate, and the medians are compared. The
time of a publication is the one that the command reports, so starting Python is not in it. The
header check is that of 1,000 tensors in 10 shards.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from loadtests.publish.command import COMMAND, changeover, publish
from loadtests.publish.models import write_llama


def copy_and_hash(source: Path, target: Path) -> float:
    """Seconds to copy, sync and sum all files, as many at a time as there are cores."""
    target.mkdir()

    def one(path: Path) -> str:
        copied = target / path.name
        shutil.copyfile(path, copied)
        with copied.open("rb+") as file:
            os.fsync(file.fileno())
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, sorted(source.iterdir())))
    return time.perf_counter() - start


def verify_headers(folder: Path) -> float:
    """Seconds to check the headers of a folder, as the command reports them."""
    done = changeover("checkpoints", "verify", folder, "--scan", "none", "--json")
    seconds: float = msgspec.json.decode(done.stdout)["seconds"]
    return seconds


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to work; default: the temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        root = Path(made)
        layers = max(1, round(arguments.gib * 1024**3 / (2 * 1024 * (4 * 1024 + 3 * 4096))))
        size = write_llama(root / "model", hidden=1024, inner=4096, layers=layers, shards=8)
        print(f"{size / 1e9:.2f} GB in 8 shards, {os.cpu_count()} cores, {' '.join(COMMAND[:1])}")
        copied, published = [], []
        for number in range(arguments.rounds):
            os.sync()
            copied.append(copy_and_hash(root / "model", root / "copy"))
            os.sync()
            made_version = publish(
                root / "model", root / "store", "--run", "bench", "--step", 1, "--probe", "none"
            )
            published.append(made_version["seconds"])
            print(f"round {number + 1}: copy and hash {copied[-1]:.2f} s, publish {published[-1]:.2f} s")
            shutil.rmtree(root / "copy")
            shutil.rmtree(root / "store")
        write_llama(root / "many", hidden=64, inner=128, layers=111, shards=10)
        seconds = statistics.median(verify_headers(root / "many") for _ in range(arguments.rounds))
    ratio = statistics.median(copied) / statistics.median(published)
    print(f"publish_vs_copy_and_hash={ratio:.2f} verify_1000_tensors_s={seconds:.3f}")


if __name__ == "__main__":
    main()
