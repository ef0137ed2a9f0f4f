"""Samples for a batch of prompts: TRL's `rollout_func`, with the gateway behind it.

Equal prompts that follow each other are one request with `n`: the group shares its prefix on one engine.
Groups are asked for side by side. Where `data.mix` wants it, a group comes from kept trajectories instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from training.rl.sampling import Sample, Sampling, Share, groups

Encode = Callable[[Any], tuple[int, ...]]
"""A prompt (text or messages) to its ids, as the engines would see it."""


class Samples(Protocol):
    """Where new samples come from (`training.rl.gateway.Gateway`)."""

    def sample(self, prompt: Sequence[int], count: int, sampling: Sampling, least: int) -> list[Sample]:
        """`count` of them, of version `least` or newer."""


class Kept(Protocol):
    """Where earlier samples come from (`training.rl.pool.Pool`)."""

    def group(self, prompt: Sequence[int], count: int) -> list[Sample] | None:
        """As many earlier samples of this prompt; None: there are none."""


class Rollouts:
    """Made for one run. `taken` holds the samples of the last batch, in the order of its prompts."""

    def __init__(
        self, source: Samples, encode: Encode, sampling: Sampling, *, parallel: int, group_size: int
    ) -> None:
        self._source = source
        self._encode = encode
        self._sampling = sampling
        self._group_size = group_size
        self._pool = ThreadPoolExecutor(parallel, "rollout")
        self._kept: Kept | None = None
        self._share = Share(0.0)
        self.least = 0
        """Samples of older versions are not used."""
        self.taken: list[Sample] = []

    def mix(self, kept: Kept, offline: float) -> None:
        """Take that share of the groups from there, as far as it has them."""
        self._kept, self._share = kept, Share(offline)

    def close(self) -> None:
        """End the threads; requests under way are finished."""
        self._pool.shutdown(cancel_futures=True)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """TRL's protocol. Raises GatewayFailed."""
        keys: list[Hashable] = [msgspec.json.encode(prompt, order="deterministic") for prompt in prompts]
        plain = dict(zip(keys, prompts, strict=True))
        waiting = []
        for key, count in groups(keys, self._group_size):
            ids = self._encode(plain[key])
            earlier = self._earlier(ids, count)
            waiting.append(
                earlier
                if earlier is not None
                else self._pool.submit(self._source.sample, ids, count, self._sampling, self.least)
            )
        self.taken = [
            sample for each in waiting for sample in (each if isinstance(each, list) else each.result())
        ]
        return as_trl(self.taken)

    def _earlier(self, ids: tuple[int, ...], count: int) -> list[Sample] | None:
        if self._kept is None or not self._share.due():
            return None
        found = self._kept.group(ids, count)
        if found is not None:
            self._share.took()
        return found


def as_trl(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """The fields that TRL wants; those after the first three reach the reward functions."""
    return {
        "prompt_ids": [list(one.prompt_ids) for one in samples],
        "completion_ids": [list(one.ids) for one in samples],
        "logprobs": [list(one.logprobs) for one in samples],
        "model_version": [one.version for one in samples],
        "user_rating": [one.rating for one in samples],
    }
