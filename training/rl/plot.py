"""A loop's course as a picture: reward, version, k3 and times of each update. Needs matplotlib.

    python -m training.rl.plot OUTPUT_DIR --out rl.png

OUTPUT_DIR is the run's, with its `rl.jsonl`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from training.rl.record import LINES, Update


def read_updates(output: Path) -> list[Update]:
    """The lines of rl.jsonl, in order. Raises OSError, msgspec.DecodeError."""
    lines = (output / LINES).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Update) for line in lines if line]


def plot(updates: list[Update], path: Path) -> None:
    """Write the PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(8, 10), sharex=True, layout="constrained")
    sampled = [one for one in updates if one.reward is not None]
    steps = [one.step for one in sampled]
    axes[0].plot(steps, [one.reward for one in sampled], marker="o", markersize=3)
    axes[0].set_ylabel("mean reward")
    axes[1].step([one.step for one in updates], [one.version for one in updates], where="post")
    axes[1].set_ylabel("version that serves")
    axes[2].plot(steps, [one.k3 for one in sampled], marker="o", markersize=3, label="k3")
    axes[2].plot(steps, [one.mean for one in sampled], marker="o", markersize=3, label="mean |Δlogp|")
    axes[2].set_yscale("log")
    axes[2].set_ylabel("trainer – engine")
    axes[2].legend()
    every = [one.step for one in updates]
    axes[3].plot(
        every, [one.swap_s for one in updates], marker="o", markersize=3, label="swap of all engines"
    )
    axes[3].plot(every, [one.write_s + one.publish_s for one in updates], label="write, probe, publish")
    axes[3].set_ylabel("seconds")
    axes[3].set_ylim(bottom=0)
    axes[3].legend()
    axes[3].set_xlabel("optimizer step")
    for one in axes:
        one.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.rl.plot", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--out", type=Path, default=Path("rl.png"))
    arguments = parser.parse_args()
    try:
        updates = read_updates(arguments.output)
    except (OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"{arguments.output / LINES}: {error}\n")
        return 1
    plot(updates, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
