"""The HTTP client of a control surface: an engine's guard, or the agent beside it, by socket or by URL.

Every request carries the token, is bounded in time and never goes through a proxy. Short calls of agents,
gateways and commands; requests of clients never pass here.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from backends.contract import TOKEN_HEADER

TIMEOUT_S = 5.0
"""Of a call that names no limit of its own."""

Address = Path | str
"""A Unix socket's path, or `http://host:port`."""


class ControlClient:
    """Use as an async context manager; what a call raises is said by the class that inherits."""

    def __init__(self, address: Address, token: str, headers: dict[str, str] | None = None) -> None:
        url = "http://control" if isinstance(address, Path) else address
        self._http = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                uds=str(address) if isinstance(address, Path) else None,
                verify=url.startswith("https:"),  # reading the certificates takes longer than a call
            ),
            base_url=url,
            headers={TOKEN_HEADER: token, **(headers or {})},
            timeout=TIMEOUT_S,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
