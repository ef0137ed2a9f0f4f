"""Makes TRL's trainer from the parts. Needs torch, transformers, trl, datasets.

TRL's modules are imported by method: the one of GRPO imports vLLM, which takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback

from training.config.kinds import Method
from training.config.tree import TrainingConfig
from training.launch.arguments import Arguments
from training.rewards import reward_function


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What is trained, and on what."""

    model: Any
    dtype: Any
    """The number type that the model came in; torch's."""
    tokenizer: Any
    adapter: Any
    """peft's configuration, or None."""
    corpus: Path
    """An Arrow stream file."""
    loop: Any = None
    """`training.rl.loop.Loop`, where samples come from the gateway."""


def trainer_arguments(config: TrainingConfig, arguments: Arguments) -> Any:
    """TRL's configuration object. Joins the processes of the run, so every process must make it."""
    if config.training.method is Method.SFT:
        from trl import SFTConfig

        return SFTConfig(**arguments)
    from trl import GRPOConfig

    return GRPOConfig(**arguments)


def make_trainer(
    config: TrainingConfig, arguments: Any, ingredients: Ingredients, callbacks: list[TrainerCallback]
) -> Any:
    """SFTTrainer or GRPOTrainer. Raises RewardError."""
    corpus = datasets.Dataset.from_file(str(ingredients.corpus))
    kept = None
    if config.data.validation_share:
        parts = corpus.train_test_split(config.data.validation_share, seed=config.training.seed)
        corpus, kept = parts["train"], parts["test"]
    parts_of_all = {
        "model": ingredients.model,
        "args": arguments,
        "train_dataset": corpus,
        "eval_dataset": kept,
        "processing_class": ingredients.tokenizer,
        "peft_config": ingredients.adapter,
        "callbacks": [*callbacks, *_tensorboard(config)],
    }
    if config.training.method is Method.SFT:
        from trl import SFTTrainer

        return SFTTrainer(**parts_of_all)
    rewards = [reward_function(name) for name in config.grpo.rewards]
    if ingredients.loop is not None:
        from training.rl.trainer import GatewayTrainer

        return GatewayTrainer(loop=ingredients.loop, reward_funcs=rewards, **parts_of_all)
    from trl import GRPOTrainer

    return GRPOTrainer(reward_funcs=rewards, **parts_of_all)


def _tensorboard(config: TrainingConfig) -> list[TrainerCallback]:
    if not config.logs.tensorboard:
        return []
    callback = TensorBoardCallback()
    callback.logging_dir = str(Path(config.training.output_dir) / "tensorboard")
    return [callback]
