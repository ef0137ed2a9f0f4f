"""The examples of the documentation, run: curl and Python against a gateway with fake engines and a store.

What an example asks of `localhost:8000` (or of nginx's port 80) is asked of that gateway. Raises DocsFailed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.docs.blocks import Block, blocks, commands
from tests.docs.site import ROOT, DocsFailed
from tests.gateway.rollout.rolled import ADMIN, Rolled, rolled

PLACES = ("http://localhost:8000", "http://localhost:80", "http://localhost")
LIMIT_S = 60.0


async def run_all(pages: Iterable[Path]) -> int:
    """How many were run."""
    found = list(pages)
    curls = sorted({line for page in found for line in commands(page) if _is_curl(line)})
    programs = [block for page in found for block in blocks(page) if block.kind == "python"]
    ran = 0
    async with rolled(2, auto=False) as fleet:
        await asyncio.to_thread(fleet.publish, 1)
        for line in curls:
            await _run(
                fleet,
                line.split(" ", 1)[0],
                "bash",
                "-c",
                _here(fleet, f"curl -sS --fail-with-body {line[5:]}"),
            )
            ran += 1
        for block in programs:
            compile(block.text, str(block.page), "exec")
            if _asks(block):
                await _run(fleet, block.page.name, sys.executable, "-c", _here(fleet, block.text))
                ran += 1
    return ran


def _is_curl(line: str) -> bool:
    return line.startswith("curl ") and any(f"{place}/" in line for place in PLACES)


def _asks(block: Block) -> bool:
    return PLACES[0] in block.text


def _here(fleet: Rolled, text: str) -> str:
    for place in PLACES:
        text = text.replace(f"{place}/", f"{fleet.gateway.url}/")
    return text.replace("$TOKEN", ADMIN)


async def _run(fleet: Rolled, where: str, *command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(LIMIT_S):
        output, _ = await process.communicate()
    if process.returncode != 0:
        raise DocsFailed(f"an example of {where} fails:\n{command[-1]}\n{output.decode()[-2000:]}")
