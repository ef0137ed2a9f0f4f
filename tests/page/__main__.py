"""`python -m tests.page`: the operator's page in a real browser, in front of real engines, during rollouts.

Signs in, watches figures and a canary, pauses, promotes by the keyboard, rolls the next version back, is
refused without the token; leaves pictures in docs/images. `--fakes` plays the engines: seconds, not minutes.
Ends with 1 at the first thing that is not as it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from loadtests.processes import ServerFailed, end_on_sigterm
from loadtests.swap.scene import SceneFailed
from tests.page import checks as page
from tests.page.browser import NoBrowser, Noticed, browser, opened
from tests.page.stage import Stage, load, played, real

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAUSE_S = 0.15


async def drive(stage: Stage, checks: page.Checks, images: Path) -> None:
    """Everything. Raises CheckFailed, NoBrowser."""
    noticed = Noticed()
    async with browser() as started, load(stage.url, pause_s=PAUSE_S):
        await page.nothing_without_the_token(started, stage, checks, noticed)
        async with opened(started, stage.url, noticed) as wide:
            operator = page.Operator(wide, stage, checks)
            await page.signs_in_by_keyboard(operator)
            await page.figures_move(operator)
            checks.tell("publishing a version")
            first = await stage.publishes.publish(100)
            await page.canary_is_seen(operator, first)
            await page.asks_before_it_acts(operator)
            await page.promotes_by_keyboard(operator, first)
            checks.tell("publishing another, with the trainer's numbers")
            second = await stage.publishes.publish(150)
            await page.canary_is_seen(operator, second)
            await page.readable(operator, "wide")
            await page.looked_at(started, stage, checks, noticed, images)
            await operator.picture(images / "page-wide.png")
            await page.rolls_back(operator, second, first)
            await page.leaves(operator)
    checks.that("the page asks nothing of any other place", not noticed.elsewhere, noticed.elsewhere)
    checks.that("no script fails, nothing breaks the page's policy", not noticed.errors, noticed.errors)


async def run(given: argparse.Namespace, checks: page.Checks) -> None:
    if given.fakes:
        async with played() as stage:
            await drive(stage, checks, given.images)
    else:
        async with real(given.environment.absolute() / "bin" / "python", checks.tell) as stage:
            await drive(stage, checks, given.images)


def leaves(group: ExceptionGroup[Exception]) -> list[Exception]:
    """What groups of groups hold."""
    inside = group.exceptions
    return [
        leaf for each in inside for leaf in (leaves(each) if isinstance(each, ExceptionGroup) else [each])
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.page", description="The page in a real browser.")
    parser.add_argument("--environment", type=Path, default=Path(".venv-engine"), help="with vLLM and torch")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the pictures go")
    parser.add_argument("--fakes", action="store_true", help="fake engines: to see that the checks work")
    given = parser.parse_args(arguments)
    end_on_sigterm()
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    checks = page.Checks(tell)
    failed: list[Exception] = []
    try:
        asyncio.run(run(given, checks))
    except* (page.CheckFailed, NoBrowser, ServerFailed, SceneFailed) as failures:
        failed += leaves(failures)
    if failed:
        print(f"failed: {failed[0]}", file=sys.stderr)
        return 1
    print(f"page: ok checks={checks.passed} screenshots={len(checks.pictures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
