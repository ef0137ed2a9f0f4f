"""Every campaign, so long as is wanted; the last line counts what was found.

    python -m tests.fuzz [--inputs 20000] [--seed 1]

Each fault is printed with what makes it again: its campaign, number and seed. Ends with 1 if there is any.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from tests.fuzz.clients import fuzz_clients
from tests.fuzz.engines import fuzz_engines
from tests.fuzz.readers import fuzz_readers
from tests.fuzz.schema import fuzz_schema
from tests.fuzz.tally import SHOWN, Tally

EXAMPLES = 60


async def _run(inputs: int, seed: int) -> Tally:
    whole = Tally()
    campaigns = (
        ("checkpoint readers", lambda: asyncio.to_thread(fuzz_readers, inputs // 4, seed)),
        ("answers of engines", lambda: fuzz_engines(inputs // 2, seed)),
        ("requests of clients", lambda: fuzz_clients(inputs // 4, seed)),
        ("the OpenAPI document", lambda: fuzz_schema(EXAMPLES, seed)),
    )
    for name, campaign in campaigns:
        began = time.monotonic()
        tally = await campaign()
        whole.add(tally)
        print(f"{name:22} {tally.line()} ({time.monotonic() - began:.0f} s)", flush=True)
        for found in tally.found[:SHOWN]:
            print(f"  {found}")
    return whole


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Feed broken bytes to every reader of bytes.")
    parser.add_argument("--inputs", type=int, default=20_000, help="in all (default: 20,000)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    whole = asyncio.run(_run(arguments.inputs, arguments.seed))
    print(whole.line())
    return 0 if whole.clean else 1


if __name__ == "__main__":
    sys.exit(main())
