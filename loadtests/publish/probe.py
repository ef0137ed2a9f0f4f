"""Honest and wrong engines, all of them real vLLM: does the probe pass the one and name what ails the other?

    python -m loadtests.publish.probe [--model DIR] [--environment .venv-engine] [--honest 20]

Every checkpoint is published with its probe by `changeover publish`, every engine judged by
`changeover verify --against`. Wrong engines get wrong in the way that happens: a reload without a
reset of the prefix cache, a tied model reloaded in place, a tensor that stayed old, another
tokenizer or template, a temperature from the generation configuration.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from loadtests.publish.command import changeover, publish
from loadtests.publish.engine import Engine

_TENSORS = (
    "model.layers.1.self_attn.q_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.norm.weight",
)
_SECONDS, _FEW_SECONDS = 60.0, 5.0
"""For the counterfactuals of versions that wrong engines are tried with, and of the others."""


class Tally:
    """What was found, line by line."""

    def __init__(self) -> None:
        self.honest = self.passed = self.wrong = self.found = self.named = 0

    def honest_one(self, what: str, report: dict[str, Any]) -> None:
        """It should have passed."""
        self.honest += 1
        self.passed += report["passed"]
        self._line(what, report)

    def wrong_one(self, what: str, report: dict[str, Any], cause: str, name: str | None = None) -> None:
        """It should have failed, for this cause and with this tensor."""
        self.wrong += 1
        self.found += not report["passed"]
        right = report["diagnosis"]["cause"] == cause and (
            name is None or name in report["diagnosis"]["names"]
        )
        self.named += right
        self._line(what, report, "" if right else f"  EXPECTED {cause}")

    def _line(self, what: str, report: dict[str, Any], more: str = "") -> None:
        numbers = report["numbers"]
        print(
            f"{what:44} {'passed' if report['passed'] else report['diagnosis']['cause']:20} "
            f"mean {numbers['mean']:.4f} p99 {numbers['p99']:.3f} k3 {numbers['k3']:.5f} "
            f"prefix {report['prefix']['max']:.3f}{more}",
            flush=True,
        )

    def last_line(self) -> str:
        """What the caller greps for."""
        return (
            f"honest_passed={self.passed}/{self.honest} wrong_found={self.found}/{self.wrong} "
            f"cause_named={self.named}/{self.wrong}"
        )


class Scene:
    """A folder with a store, and the ways to make checkpoints in it."""

    def __init__(self, root: Path, environment: Path) -> None:
        self.root, self.environment = root, environment
        self.store = root / "store"

    def tiny_llama(self) -> Path:
        """The built-in model of 3 MB."""
        folder = self.root / "tiny-llama"
        folder.mkdir()
        code = "import sys, pathlib, backends.models.tiny as t; t.write_tiny_llama(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=120)
        return folder

    def weights(self, *arguments: object) -> None:
        """Run `weights.py` in the engine's environment."""
        script = Path(__file__).with_name("weights.py")
        python = self.environment / "bin" / "python"
        subprocess.run([python, script, *map(str, arguments)], check=True, timeout=300)

    def publish(
        self, folder: Path, model: str, step: int, *options: object, seconds: float = _SECONDS
    ) -> Path:
        """Publish with a probe; returns the version's folder."""
        python = self.environment / "bin" / "python"
        made = publish(
            folder, self.store, "--model", model, "--run", "probe", "--step", step,
            "--probe-python", python, "--probe-seconds", seconds, *options,
        )  # fmt: skip
        return self.store / model / "versions" / f"{made['version']:010d}"

    def judge(self, version: Path, engine: Engine) -> dict[str, Any]:
        """The report of `changeover verify`."""
        done = changeover("verify", version, "--against", engine.url, "--json", "-", check=False)
        try:
            found: dict[str, Any] = msgspec.json.decode(done.stdout)
        except msgspec.DecodeError:
            raise SystemExit(f"changeover verify failed:\n{done.stdout}{done.stderr}") from None
        return found

    def engine(self, model: Path, *options: str) -> Engine:
        """An engine of its own for a model."""
        return Engine(self.environment, model, self.root / f"engine-{time.monotonic_ns()}.log", *options)


def swapped_in_place(scene: Scene, model: Path, honest: int, tally: Tally) -> Path:
    """Honest swaps one after the other, then the wrong ones, on one engine; returns the last version."""
    before, current = Path(), scene.publish(model, "policy", 0)
    scene.weights("chain", model, scene.root / "steps", "--count", honest)
    with scene.engine(model) as engine:
        for step in range(1, honest + 1):
            seconds = _SECONDS if step == honest else _FEW_SECONDS
            made = scene.publish(scene.root / "steps" / str(step), "policy", step, seconds=seconds)
            before, current = current, made
            engine.swap(current)
            tally.honest_one(f"step {step}, swapped in place", scene.judge(current, engine))
        engine.swap(before)
        scene.judge(before, engine)  # leaves its long prompts in the prefix cache
        engine.swap(current, right=False)
        tally.wrong_one("prefix cache not reset", scene.judge(current, engine), "stale_prefix_cache")
        engine.swap(before)
        tally.wrong_one("still the version before", scene.judge(current, engine), "not_moved")
        for name in ("lm_head.weight", *_TENSORS):
            mixed = scene.root / f"mixed-{name}"
            scene.weights("mix", current, before, mixed, name)
            engine.swap(mixed)
            cause = "stale_head" if name.startswith("lm_head") else "stale_tensor"
            tally.wrong_one(f"old {name}", scene.judge(current, engine), cause, name)
    return current


def tied_in_place(scene: Scene, model: Path, tally: Tally) -> None:
    """A tied model reloaded in place, whose head stays old; its untied form, which is right."""
    scene.weights("tie", model, scene.root / "tied-1")
    scene.weights("perturb", scene.root / "tied-1", scene.root / "tied-2", "--seed", 99, "--scale", 0.05)
    for form in ("as-is", "untie"):
        first, second = (
            scene.publish(scene.root / f"tied-{number}", f"tied-{form}", number, f"--{form}")
            for number in (1, 2)
        )
        with scene.engine(first) as engine:
            engine.swap(second)
            report = scene.judge(second, engine)
        if form == "as-is":
            tally.wrong_one("tied model reloaded in place", report, "stale_head")
        else:
            tally.honest_one("the same in its untied form", report)


def started_wrong(scene: Scene, version: Path, tally: Tally) -> None:
    """Engines that were started with something else than the trainer had."""
    tokenizer = scene.root / "tokenizer"
    swap_two_tokens(version, tokenizer)
    template = scene.root / "other.jinja"
    template.write_text("{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}")
    generation = (
        "--override-generation-config",
        '{"temperature": 0.6}',
        "--logprobs-mode",
        "processed_logprobs",
    )
    cases: list[tuple[str, str, tuple[str, ...]]] = [
        ("another tokenizer", "tokenizer", ("--tokenizer", str(tokenizer))),
        ("another chat template", "chat_template", ("--chat-template", str(template))),
        ("another temperature", "temperature", generation),
        ("logits for log-probabilities", "logprobs_mode", ("--logprobs-mode", "raw_logits")),
    ]
    for what, cause, options in cases:
        with scene.engine(version, *options) as engine:
            tally.wrong_one(what, scene.judge(version, engine), cause)


def swap_two_tokens(version: Path, folder: Path) -> None:
    """The version's tokenizer with the ids of `a` and `e` exchanged."""
    folder.mkdir()
    for path in version.glob("*token*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "config.json").write_bytes((version / "config.json").read_bytes())
    found = msgspec.json.decode((folder / "tokenizer.json").read_bytes())
    vocabulary = found["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    (folder / "tokenizer.json").write_bytes(msgspec.json.encode(found))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="an untied checkpoint to begin with; default: tiny-llama, made here"
    )
    parser.add_argument("--environment", type=Path, default=Path(".venv-engine"))
    parser.add_argument("--honest", type=int, default=20)
    given = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as made:
        scene = Scene(Path(made), given.environment.absolute())
        model = given.model or scene.tiny_llama()
        current = swapped_in_place(scene, model, given.honest, tally)
        tied_in_place(scene, model, tally)
        started_wrong(scene, current, tally)
    print(tally.last_line())
    sys.exit(0 if (tally.passed, tally.found, tally.named) == (tally.honest, tally.wrong, tally.wrong) else 1)


if __name__ == "__main__":
    main()
