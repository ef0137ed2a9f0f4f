"""Stands in for the executable `vllm`: the real guard, under uvicorn, on the socket that it is told.

Starts in half a second instead of half a minute, so that keepers and `changeover serve` can be tested
as whole processes. What it does besides is told by its environment:

    STAND_IN_EXIT=text   prints the text and ends with 1 instead of starting
    STAND_IN_DEAF=1      starts, but /health never answers 200

`/v1/completions` streams a piece at once and the rest when the file named by its body exists.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvicorn

from backends.vllm.guard import Guard


async def engine(scope: Any, receive: Any, send: Any) -> None:
    status = 503 if scope["path"] == "/health" and os.getenv("STAND_IN_DEAF") else 200  # noqa: TID251
    body = b""
    if scope["path"] == "/v1/completions":
        body = (await receive()).get("body", b"")
    await send({"type": "http.response.start", "status": status, "headers": []})
    if body:
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        while not Path(body.decode()).exists():  # noqa: ASYNC110 (another process makes it)
            await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"done"})


def install(venv: Path) -> Path:
    """Make a folder that looks like an environment with vLLM in it, and return it."""
    (venv / "bin").mkdir(parents=True)
    script = venv / "bin" / "vllm"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    script.chmod(0o755)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "changeover-setup.json").write_text('{"device": "cpu"}')
    return venv


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds", required=True)
    arguments, _ = parser.parse_known_args()
    if text := os.getenv("STAND_IN_EXIT"):  # noqa: TID251
        print(text, flush=True)
        sys.exit(1)
    print("Starting to load model", flush=True)
    uvicorn.run(Guard(engine), uds=arguments.uds, lifespan="off", log_level="warning")


if __name__ == "__main__":
    main()
