"""Makes checkpoints out of checkpoints, in the engine's environment: perturbed, half old, tied.

python loadtests/publish/weights.py perturb OLD NEW --seed 3 --scale 0.05
python loadtests/publish/weights.py chain OLD FOLDER --count 20     FOLDER/1 and so on, step by step
python loadtests/publish/weights.py mix NEW OLD OUT NAME…      NEW, but these tensors of OLD
python loadtests/publish/weights.py tie OLD NEW                    the head is the embedding too
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

FILE = "model.safetensors"
STEPS = (0.05, 0.01, 0.02, 0.1)
"""Of training, in standard deviations of each tensor; the smaller ones leave a bfloat16 norm as it is."""
Tensors = dict[str, torch.Tensor]


def perturb(tensors: Tensors, seed: int, scale: float) -> Tensors:
    """A step of `scale` standard deviations of each tensor, of at least 0.02 for constant ones (norms)."""
    torch.manual_seed(seed)
    return {name: _step(value, scale) for name, value in tensors.items()}


def _step(value: torch.Tensor, scale: float) -> torch.Tensor:
    wide = value.float()
    return (wide + scale * wide.std().clamp_min(0.02) * torch.randn_like(wide)).to(value.dtype)


def write(tensors: Tensors, like: Path, folder: Path, **config: object) -> None:
    """Write a checkpoint with everything but the weights from `like`; `config` replaces keys."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in like.iterdir():
        if path.suffix != ".safetensors" and path.is_file():
            shutil.copy(path, folder)
    save_file(tensors, folder / FILE, metadata={"format": "pt"})
    if config:
        found = json.loads((folder / "config.json").read_text())  # noqa: TID251 - the engine's environment
        (folder / "config.json").write_text(json.dumps({**found, **config}))  # noqa: TID251


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("perturb", "chain", "mix", "tie"))
    parser.add_argument("arguments", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--scale", type=float, default=0.05)
    given = parser.parse_args()
    first, second, *rest = given.arguments
    tensors = load_file(Path(first) / FILE)
    if given.what == "perturb":
        write(perturb(tensors, given.seed, given.scale), Path(first), Path(second))
    elif given.what == "chain":
        for step in range(1, given.count + 1):
            tensors = perturb(tensors, step, STEPS[step % len(STEPS)])
            write(tensors, Path(first), Path(second) / str(step))
    elif given.what == "tie":
        # the head's numbers are of the size that logits need; the embedding's would make them too wide
        tensors["model.embed_tokens.weight"] = tensors.pop("lm_head.weight")
        write(tensors, Path(first), Path(second), tie_word_embeddings=True)
    else:
        old = load_file(Path(second) / FILE)
        out, *names = rest
        write({**tensors, **{name: old[name] for name in names}}, Path(first), Path(out))


if __name__ == "__main__":
    main()
