"""An address where connections are never made: neither refused nor accepted.

A listening socket whose queue is full: the kernel drops further attempts (Linux; loopback only).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def blackhole() -> Iterator[str]:
    """The URL of such an address."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(2):  # a backlog of 0 still takes one; the second fills the queue of half-open ones
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
