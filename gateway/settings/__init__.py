"""One frozen, validated tree, and the only reader of configuration files and environment."""

from gateway.settings.tree import Settings

__all__ = ["Settings"]
