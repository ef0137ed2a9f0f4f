"""The training configuration: one frozen, validated tree, read from files, environment and command line."""

from training.config.tree import TrainingConfig

__all__ = ["TrainingConfig"]
