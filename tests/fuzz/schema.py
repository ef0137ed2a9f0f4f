"""The OpenAPI document against the routes that it describes: schemathesis, every route, admin too."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.fuzz.clients import TOKEN
from tests.fuzz.tally import Tally
from tests.gateways import fakes, gateway_to

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance"
_CASES = re.compile(r"(\d+) generated")
SERVER_ERROR = "Server error"


async def fuzz_schema(examples: int, seed: int) -> Tally:
    """So many requests for each operation and phase, by the rules of the document and against them."""
    tally = Tally()
    async with (
        fakes(2) as (a, b),
        gateway_to(a, b, admin={"token": TOKEN}, logging={"level": "error"}) as gateway,
    ):
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "schemathesis"), "run", f"{gateway.url}/openapi.json",
            "--checks", CHECKS, "--max-examples", str(examples), "--seed", str(seed), "--no-color",
            "--header", f"Authorization: Bearer {TOKEN}", "--request-timeout", "10", "--continue-on-failure",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output = (await process.communicate())[0].decode()
    cases = _CASES.search(output)
    tally.inputs = int(cases[1]) if cases else 0
    if process.returncode and SERVER_ERROR in output:
        tally.answered(500, f"schemathesis, seed {seed}:\n{output[-4000:]}")
    elif process.returncode or not cases:
        tally.crash(f"schemathesis, seed {seed}:\n{output[-4000:]}")
    return tally
