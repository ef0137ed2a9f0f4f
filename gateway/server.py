"""One worker's server: uvicorn with our protocol, our signals and our way of going down.

SIGTERM: readiness turns 503 while requests are still answered (`settle_s`, so that balancers forget us),
then nothing new is accepted and what runs may end (`drain_s`), then the rest is ended with an error, exit
0. SIGINT leaves out the settling, a second signal ends at once. SIGHUP reads the configuration again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Generator

import uvicorn

from gateway.app import Gateway
from gateway.http.protocol import bound_to

logger = logging.getLogger(__name__)

BACKLOG = 4096


class Server(uvicorn.Server):
    """Serves one gateway worker."""

    def __init__(self, gateway: Gateway) -> None:
        server = gateway.settings.server
        super().__init__(
            uvicorn.Config(
                gateway.app,
                host=server.host,
                port=server.port,
                http=bound_to(gateway.edge),
                ws="none",
                loop="uvloop",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=int(server.keep_alive_s),
            )
        )
        self._gateway = gateway
        self._signals = 0

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn's hook: our handlers, on the loop, and no signal raised again at the end."""
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: lambda: self.leave(settle=True),
            signal.SIGINT: lambda: self.leave(settle=False),
            signal.SIGHUP: self._gateway.reload_now,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def leave(self, *, settle: bool) -> None:
        """Begin to go down; called again, go on to the next step at once."""
        self._signals += 1
        if self._signals > 1:
            logger.warning("Told to end again: ending now")
            self.should_exit = True
            self._gateway.abort()
            self.force_exit = self._signals > 2
            return
        settle_s = self._gateway.settings.server.settle_s if settle else 0.0
        self._gateway.begin_leaving()
        logger.info("Going down: not ready any more, answering for another %g s", settle_s)
        asyncio.get_running_loop().call_later(settle_s, self._stop_accepting)

    def _stop_accepting(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's hook: nothing new is accepted from here on."""
        drain_s = self._gateway.settings.server.drain_s
        self._gateway.edge.leaving = True
        running = self._gateway.running
        if running:
            logger.info("Waiting up to %g s for %d requests", drain_s, running)
        timer = asyncio.get_running_loop().call_later(drain_s, self._gateway.abort)
        self.config.timeout_graceful_shutdown = int(drain_s) + 2
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def listen(host: str, port: int, *, shared: bool) -> socket.socket:
    """A listening TCP socket. `shared`: other processes listen on the same port (SO_REUSEPORT).

    OSError with a sentence if the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    sock.setblocking(False)
    return sock


def run(gateway: Gateway, sock: socket.socket) -> None:
    """Serve until told to end. Blocks."""
    # What is built by now stays for good: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    server = Server(gateway)
    server.run(sockets=[sock])
