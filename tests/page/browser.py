"""A headless Chromium on the page, and what it notices by itself: requests to elsewhere, errors of scripts.

The browser is Debian's, driven by Playwright's Python package; nothing is downloaded.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, FloatRect, Page, async_playwright

WIDE = (1280, 900)
NARROW = (390, 844)
"""A phone, in CSS pixels."""
LONGEST = 2000
"""Pixels of a picture; what is below is the journal."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


class NoBrowser(Exception):
    """None is installed; the message says how to get one."""


@dataclass
class Noticed:
    """What no check asked about."""

    elsewhere: list[str] = field(default_factory=list)
    """Addresses outside the gateway that were asked for."""
    errors: list[str] = field(default_factory=list)
    """Of scripts, and of the page's own policy."""


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start it. Raises NoBrowser."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise NoBrowser("no Chromium on this machine: `apt-get install chromium`, and then this again")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield started
        finally:
            await started.close()


@asynccontextmanager
async def opened(
    started: Browser,
    url: str,
    noticed: Noticed,
    *,
    size: tuple[int, int] = WIDE,
    scheme: Literal["light", "dark"] = "light",
) -> AsyncIterator[Page]:
    """The page at `/admin` in a window of its own, which remembers nothing of others."""
    context = await started.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, device_scale_factor=1
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(20_000)
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(url) else noticed.elsewhere.append(asked.url),
        )
        page.on("pageerror", lambda error: noticed.errors.append(str(error)))
        page.on(
            "console",
            lambda line: noticed.errors.append(line.text) if "Content Security Policy" in line.text else None,
        )
        await page.goto(f"{url}/admin")
        yield page
    finally:
        await context.close()


async def picture(page: Page, path: Path) -> None:
    """The page from its top, longer than the window where it is longer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    height: int = await page.evaluate("scrollTo(0, 0), document.documentElement.scrollHeight")
    width = await page.evaluate("document.documentElement.clientWidth")
    clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": min(height, LONGEST)}
    await page.screenshot(path=path, full_page=True, clip=clip)
