"""`python -m backends.fake`: a fake vLLM engine on a real socket.

    python -m backends.fake --port 9001 --behaviour '{"delay_first_chunk_s": 0.2, "tokens_per_s": 50}'

Says `fake a: listening on URL` on standard output once it does. SIGTERM and SIGINT end it in order (0);
`POST /fake/die` ends it as a crash would (1).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import uvloop

from backends.fake.behaviour import Behaviour, decode_behaviour
from backends.fake.server import Fake


def main() -> int:
    arguments = _parser().parse_args()
    try:
        behaviour = decode_behaviour(arguments.behaviour)
    except msgspec.DecodeError as error:
        sys.stderr.write(f"--behaviour: {error}\n")
        return 2
    return uvloop.run(_serve(arguments, behaviour))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m backends.fake", description="A fake vLLM engine.")
    parser.add_argument(
        "--port", type=int, default=None, help="TCP port; 0 takes a free one (default without --uds)"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--uds", type=Path, default=None, help="serve on this Unix socket")
    parser.add_argument("--name", default="a", help="shown in the x-fake-name header, in stats and log")
    parser.add_argument("--behaviour", default="{}", help="JSON, see backends/fake/behaviour.py")
    parser.add_argument(
        "--control-port", type=int, default=None, help="second port that is never deaf or frozen"
    )
    parser.add_argument(
        "--log", type=Path, default=None, help="append events to this file, a line of JSON each"
    )
    return parser


async def _serve(arguments: argparse.Namespace, behaviour: Behaviour) -> int:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    with ExitStack() as files:
        log = files.enter_context(arguments.log.open("a")) if arguments.log else None
        port = 0 if arguments.port is None and arguments.uds is None else arguments.port
        async with Fake.start(
            behaviour,
            name=arguments.name,
            host=arguments.host,
            port=port,
            uds=arguments.uds,
            control_port=arguments.control_port,
            log=log,
        ) as fake:
            control = f", driven on port {fake.control_port}" if fake.control_port else ""
            sys.stdout.write(f"fake {fake.name}: listening on {fake.url}{control}\n")
            sys.stdout.flush()
            waits = [loop.create_task(event.wait(), name="fake end") for event in (ended, fake.dead)]
            _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in pending:
                wait.cancel()
            return 1 if fake.dead.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
