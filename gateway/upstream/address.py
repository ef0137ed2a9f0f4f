"""Where an engine listens: TCP or a Unix socket, and how that is written."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """`host` and `port`, or a Unix socket's `path`."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def authority(self) -> str:
        """What stands in the Host header."""
        if self.path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"http://{self.authority}"


def parse_address(url: str) -> Address:
    """Read `http://host:port` or `unix:/path`. ValueError tells what is wrong with anything else."""
    if url.startswith("unix:"):
        path = "/" + url.removeprefix("unix:").lstrip("/")
        if len(path.encode()) > 107:
            raise ValueError(f"the socket path {path!r} is longer than the 107 bytes that Unix allows")
        return Address(path=path)
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "dns", "kubernetes"):
        raise ValueError(f"{url!r}: only http://, dns://, kubernetes:// and unix: are spoken to engines")
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host")
    if parts.path not in ("", "/"):
        raise ValueError(f"{url!r}: leave out the path {parts.path!r}; the gateway adds it")
    return Address(host=parts.hostname, port=parts.port or 8000)
