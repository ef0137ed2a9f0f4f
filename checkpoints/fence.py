"""May this run publish this step? A pure decision over the newest version.

Steps of one run only rise. A run that another has taken over from is retired and stays so, however
often it is restarted, until somebody says `take_over`. So a stale or restarted trainer can neither
take the fleet backwards nor write over what is there.
"""

from __future__ import annotations

import msgspec

from checkpoints.errors import FencedError
from checkpoints.manifest import Manifest


class Claim(msgspec.Struct, frozen=True):
    """What a publisher wants: `digest` names the contents."""

    run: str
    step: int
    digest: str
    take_over: bool = False


class Grant(msgspec.Struct, frozen=True):
    """What it gets: a new number, or the version that is already there; `retires` is the run it ends."""

    version: int
    existing: bool = False
    retires: str | None = None


def decide(claim: Claim, newest: Manifest | None, same_step: Manifest | None, *, retired: bool) -> Grant:
    """Grant a version number, or the existing version if these contents are published already.

    Args:
        newest: the highest version.
        same_step: the version with this run and step, if there is one.
        retired: another run has taken over from this one.

    Raises:
        FencedError: the step has other contents, is behind, or the run is retired.
    """
    if same_step is not None:
        if same_step.digest == claim.digest:
            return Grant(same_step.version, existing=True)
        raise FencedError(
            f"run {claim.run} step {claim.step} is version {same_step.version} with other contents: "
            "publish a restarted training under a new --run"
        )
    if newest is None:
        return Grant(1)
    if newest.run == claim.run:
        if claim.step < newest.step:
            raise FencedError(
                f"step {claim.step} is behind step {newest.step}, which run {claim.run} published as version "
                f"{newest.version}: publish a training restarted from an older step under a new --run"
            )
        return Grant(newest.version + 1)
    if retired and not claim.take_over:
        raise FencedError(
            f"run {claim.run} was superseded by run {newest.run} (version {newest.version}): "
            "stop this trainer, or publish with --take-over if it is the right one"
        )
    return Grant(newest.version + 1, retires=newest.run)
