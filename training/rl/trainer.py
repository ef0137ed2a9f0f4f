"""TRL's GRPOTrainer with the gateway as its engine. Tested with TRL 1.16; overrides three of its methods.

TRL knows engines of its own (`use_vllm`): for these it brings the weights there before it samples, compares
log-probabilities, and corrects the loss by the importance ratio. Here `vllm_generation` is `PolicySync`,
which publishes and awaits the rollout; so all of that applies, under TRL's own names in the log:
`sampling/sampling_logp_difference/*` and `sampling/importance_sampling_ratio/*`. Added to these are
`sampling/k3`, `sampling/exp_difference`, `sampling/ess`, `policy/version`, `policy/swap_s`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from trl import GRPOTrainer

from checkpoints.probe.parity import Numbers
from training.rl.loop import Loop
from training.rl.mismatch import compare

log = logging.getLogger("training.rl")


class PolicySync:
    """What TRL calls before it samples with new weights."""

    def __init__(self, bring: Callable[[], None]) -> None:
        self._bring = bring

    def sync_weights(self) -> None:
        """Publish the policy and wait until it serves. Raises PolicyRefused."""
        self._bring()


class GatewayTrainer(GRPOTrainer):
    """Samples by `loop.rollouts`, publishes by `loop`."""

    def __init__(self, *, loop: Loop, **arguments: Any) -> None:
        """`arguments`: those of GRPOTrainer, `rollout_func` and `use_vllm` excepted."""
        super().__init__(rollout_func=loop.rollouts, **arguments)
        self._loop = loop
        self.use_vllm = True
        self.vllm_mode = "gateway"
        self.vllm_generation = PolicySync(self.bring_policy)
        self._last_loaded_step = -1

    def bring_policy(self) -> None:
        """Collective: every process waits until the weights of this step serve."""
        self._loop.bring(self.model, self.state.global_step, first=self.accelerator.is_main_process)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        online = [not sample.offline for sample in self._loop.rollouts.taken]
        found = compare(
            _rows(output["old_per_token_logps"], output["completion_mask"], online),
            _rows(output["sampling_per_token_logps"], output["completion_mask"], online),
        )
        if found is not None:
            self._show(found)
            self._loop.judge(found)
        return output

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        start = self.accelerator.process_index * len(prompts)
        own = rewards[start : start + len(prompts)].tolist()
        clean = [[None if math.isnan(one) else one for one in row] for row in own]
        self._loop.keep(
            self.state.global_step,
            self.accelerator.process_index,
            [_text(prompt) for prompt in prompts],
            [_text(completion) for completion in completions],
            clean,
            list(self.reward_func_names),
        )
        return rewards

    def _show(self, found: Numbers) -> None:
        """Means over all processes, as TRL does with its own."""
        shown = [found.k3, found.ratio, found.ess]
        local = torch.tensor(shown, device=self.accelerator.device)
        means = self.accelerator.gather(local).view(-1, len(shown)).mean(dim=0).tolist()
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in zip(("k3", "exp_difference", "ess"), means, strict=True):
            metrics[f"sampling/{name}"].append(value)
        swapped = self._loop.swapped
        if swapped is not None:
            metrics["policy/version"].append(float(swapped.version))
            metrics["policy/swap_s"].append(swapped.swap_s)
            metrics["policy/publish_s"].append(swapped.publish_s)


def _rows(values: Any, mask: Any, wanted: Sequence[bool]) -> list[list[float | None]]:
    """The numbers under the mask, row by row; NaN becomes None."""
    rows = []
    for row, kept, take in zip(values.tolist(), mask.tolist(), wanted, strict=True):
        some = [value for value, flag in zip(row, kept, strict=True) if flag] if take else []
        rows.append([None if math.isnan(value) else value for value in some])
    return rows


def _text(said: Any) -> str:
    """A prompt or completion as text; messages one after the other."""
    if isinstance(said, str):
        return said
    return "\n".join(f"{message['role']}: {message['content']}" for message in said)
