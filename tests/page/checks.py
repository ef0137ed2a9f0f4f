"""What must be true of the operator's page, in the order in which an operator does it. Raises CheckFailed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect

from tests.page.browser import NARROW, Noticed, opened, picture
from tests.page.stage import Stage

POLL_S = 0.3
LIGHT_AND_DARK = ("light", "dark")
TABS = 60
"""More stops than the page has."""
CONTRAST = """() => {
  const lum = (rgb) => rgb.map((c) => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const probe = document.body.appendChild(document.createElement("i"));
  const rgb = (name) => { probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number); };
  const found = {};
  for (const ink of ["--ink", "--soft", "--good", "--warn", "--bad", "--link"])
    for (const paper of ["--paper", "--card"]) {
      const [a, b] = [lum(rgb(ink)), lum(rgb(paper))].sort((x, y) => y - x);
      found[`${ink} on ${paper}`] = (a + .05) / (b + .05);
    }
  for (const colour of ["--c0", "--c1", "--c2", "--c3", "--c4"]) {
    const [a, b] = [lum(rgb("--card")), lum(rgb(colour))].sort((x, y) => y - x);
    found[`--card on ${colour}`] = (a + .05) / (b + .05);
  }
  probe.remove();
  return found;
}"""
"""Contrast ratios as WCAG 2 defines them; 4.5 is its level AA for text."""


class CheckFailed(Exception):
    """The message says what is not as it must be."""


@dataclass
class Checks:
    """What has been found true so far."""

    tell: Callable[[str], None]
    passed: int = 0
    pictures: list[Path] = field(default_factory=list)

    def that(self, what: str, true: bool, found: object = "") -> None:
        if not true:
            raise CheckFailed(f"not so: {what} {found}")
        self.passed += 1
        self.tell(f"ok: {what}")

    async def soon(self, what: str, look: Callable[[], Awaitable[bool]], within_s: float) -> None:
        """It becomes true in time."""
        deadline = time.monotonic() + within_s
        while not await look():
            if time.monotonic() > deadline:
                raise CheckFailed(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(POLL_S)
        self.that(what, True)


class Operator:
    """Somebody with the page open."""

    def __init__(self, page: Page, stage: Stage, checks: Checks) -> None:
        self.page = page
        self.stage = stage
        self.checks = checks

    async def text(self, name: str) -> str:
        """What an element says; `name` is its id."""
        return await self.page.locator(f"#{name}").inner_text()

    async def says(self, name: str, part: str, within_s: float | None = None) -> None:
        async def look() -> bool:
            return part in await self.text(name)

        await self.checks.soon(f"{name} says {part!r}", look, within_s or self.stage.within_s)

    async def decide(self, act: str, answer: str) -> None:
        """Press a button and answer its question with the mouse."""
        await self.page.click(f"#{act}")
        await expect(self.page.locator("#ask")).to_be_visible()
        await self.page.click(f"#ask button[value={answer}]")

    async def tab_to(self, name: str) -> None:
        """By the keyboard alone."""
        for _ in range(TABS):
            if await self.page.evaluate("document.activeElement?.id") == name:
                return
            await self.page.keyboard.press("Tab")
        raise CheckFailed(f"the keyboard does not come to #{name}")

    async def picture(self, path: Path) -> None:
        await picture(self.page, path)
        self.checks.pictures.append(path)


async def nothing_without_the_token(started: Browser, stage: Stage, checks: Checks, noticed: Noticed) -> None:
    """Neither seen nor done."""
    async with opened(started, stage.url, noticed) as page:
        operator = Operator(page, stage, checks)
        for method, path in (("GET", "figures"), ("GET", "rollouts"), ("POST", "rollouts/current/promote")):
            for headers in ({}, {"authorization": "Bearer wrong"}):
                answer = await page.request.fetch(f"{stage.url}/admin/{path}", method=method, headers=headers)
                checks.that(f"{method} {path} with {headers or 'no token'} is refused", answer.status == 401)
        checks.that("the page shows nothing before one has signed in", not await page.is_visible("#room"))
        await page.fill("#token", "wrong")
        await page.press("#token", "Enter")
        await operator.says("refused", "admin token", 20)
        checks.that("a wrong token shows nothing", not await page.is_visible("#room"))
        kept = await page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})")
        checks.that("a wrong token is not kept", "wrong" not in kept)


async def signs_in_by_keyboard(operator: Operator) -> None:
    page = operator.page
    await operator.tab_to("token")
    await page.keyboard.type(operator.stage.token)
    await page.keyboard.press("Enter")
    await expect(page.locator("#room")).to_be_visible()
    operator.checks.that("one signs in by the keyboard", True)
    operator.checks.that("the token is in no address", operator.stage.token not in page.url)
    cookies = await page.context.cookies()
    operator.checks.that("there is no cookie that another site could use", cookies == [])


async def figures_move(operator: Operator) -> None:
    """By themselves."""
    await operator.says("live", "live", 20)

    async def busy() -> bool:
        return (await operator.text("qps")) not in ("–", "0")

    await operator.checks.soon("requests are counted", busy, 60)
    seen: set[str] = set()

    async def moves() -> bool:
        seen.add(await operator.text("flow"))
        return len(seen) >= 3

    await operator.checks.soon("a request's way shows new figures by itself", moves, 30)
    drawn = await operator.page.locator(".chart canvas").count()
    operator.checks.that("both charts are drawn", drawn == 2, drawn)
    rows = await operator.page.locator("#engines tbody tr").count()
    operator.checks.that("both engines are shown", rows == 2, rows)


async def canary_is_seen(operator: Operator, version: int) -> None:
    """With its evidence."""
    await operator.says("rollout-line", f"v{version}-")
    await operator.says("stages", "canary")
    evidence = operator.page.locator("#evidence tbody tr", has_text="requests").locator("td").nth(2)

    async def counted() -> float:
        text = await evidence.inner_text() if await evidence.count() else "0"
        return float(text.replace("–", "0").replace(" k", "e3") or 0)

    async def answers() -> bool:
        return await counted() > 0

    await operator.checks.soon("the candidate answers requests", answers, operator.stage.within_s)
    before = await counted()

    async def more() -> bool:
        return await counted() > before

    await operator.checks.soon("evidence of the canary grows", more, 60)
    await operator.says("rollout-next", "Next:", 20)
    await operator.says("checkpoints", "reward", 30)


async def asks_before_it_acts(operator: Operator) -> None:
    """A question first; `Leave it` leaves it."""
    page = operator.page
    await operator.decide("pause", "no")
    operator.checks.that("`Leave it` does nothing", await page.is_enabled("#pause"))
    await operator.decide("pause", "yes")
    await operator.says("rollout-line", "paused", 20)
    await operator.decide("resume", "yes")
    await expect(page.locator("#pause")).to_be_enabled()
    operator.checks.that("it is resumed", "paused" not in await operator.text("rollout-line"))


async def promotes_by_keyboard(operator: Operator, version: int) -> None:
    page = operator.page
    await operator.tab_to("promote")
    await page.keyboard.press("Enter")
    await expect(page.locator("#ask")).to_be_visible()
    focused = await page.evaluate("document.activeElement?.value")
    operator.checks.that("the harmless answer has the focus", focused == "no", focused)
    await page.keyboard.press("Escape")
    operator.checks.that("Escape does nothing", await page.is_enabled("#promote"))
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await operator.says("rollout-line", "promoted")
    await operator.says("rollout-line", f"Serving v{version}-", 20)
    engines = operator.page.locator("#engines tbody tr", has_text=f"v{version}-")

    async def both() -> bool:
        return await engines.count() == 2

    await operator.checks.soon("both engines serve it", both, operator.stage.within_s)


async def rolls_back(operator: Operator, version: int, before: int) -> None:
    await operator.decide("rollback", "yes")
    await operator.says("rollout-line", "rolled back")
    await operator.says("rollout-line", f"Serving v{before}-", 20)
    await operator.says("checkpoints", "quarantined", 30)
    await operator.says("journal", "rollout rolled back", 30)
    engines = operator.page.locator("#engines tbody tr", has_text=f"v{before}-")

    async def both() -> bool:
        return await engines.count() == 2

    await operator.checks.soon("both engines serve the version before", both, operator.stage.within_s)


async def readable(operator: Operator, what: str) -> None:
    """Nothing sticks out, and colours can be told from what they stand on."""
    wide: list[int] = await operator.page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    operator.checks.that(f"the {what} page is no wider than its window", wide[0] <= wide[1], wide)
    ratios: dict[str, Any] = await operator.page.evaluate(CONTRAST)
    poor = {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < 4.5}
    operator.checks.that(f"all texts of the {what} page have contrast", not poor, poor)
    unnamed: list[str] = await operator.page.evaluate(
        "[...document.querySelectorAll('button, input, select')]"
        ".filter((one) => one.checkVisibility() && !one.innerText.trim() && !one.labels?.length)"
        ".map((one) => one.id)"
    )
    operator.checks.that(f"every control of the {what} page has a name", not unnamed, unnamed)


async def looked_at(started: Browser, stage: Stage, checks: Checks, noticed: Noticed, images: Path) -> None:
    """Dark and narrow, as others see it at the same moment."""
    async with (
        opened(started, stage.url, noticed, scheme="dark") as dark,
        opened(started, stage.url, noticed, size=NARROW) as narrow,
    ):
        for page in (dark, narrow):
            await page.fill("#token", stage.token)
            await page.press("#token", "Enter")
        seen = [(Operator(dark, stage, checks), "dark"), (Operator(narrow, stage, checks), "narrow")]
        for operator, _ in seen:
            await operator.says("checkpoints", "reward", 30)
        await asyncio.sleep(12)  # so that the charts have something to show
        for operator, name in seen:
            await readable(operator, name)
            await operator.picture(images / f"page-{name}.png")


async def leaves(operator: Operator) -> None:
    await operator.page.click("#sign-out")
    kept = await operator.page.evaluate("sessionStorage.length + localStorage.length")
    operator.checks.that("after signing out nothing is kept", kept == 0)
    operator.checks.that("nor shown", not await operator.page.is_visible("#room"))
