"""Whether a reload in place is trusted here: what the record of this very combination says. Blocking."""

from __future__ import annotations

from backends.agent.assignment import Recipe
from backends.agent.weights import Weights
from backends.qualify.combination import Combination
from backends.qualify.oracle import combination_with
from backends.qualify.records import find, why_none
from checkpoints.store.store import Store


class Qualified:
    def __init__(self, store: Store, recipe: Recipe) -> None:
        self._store = store
        self._recipe = recipe

    def why_not(self, weights: Weights) -> str | None:
        """Why not, for people; None where it was shown to be right. Raises CheckpointError, OSError."""
        combination = self.combination(weights)
        if combination is None:
            return "the model does not lie on this machine"
        record = find(self._store.files, combination)
        if record is None:
            return f"{why_none(self._store.files, combination)}; run `changeover qualify`"
        return None if record.qualified else record.reason

    def combination(self, weights: Weights) -> Combination | None:
        """What the record must be of; None for a model in a hub's cache. Raises OSError."""
        if weights.folder is None:
            return None
        recipe = self._recipe
        return combination_with(weights.folder, recipe.settings, recipe.engine, recipe.inherited)
