"""Whether a URL answers 200, as the exit code: for health checks of images without curl.

    python health.py http://127.0.0.1:8000/healthz

Standard library only; no proxy is asked. Exit codes: 0 it does, 1 it does not (said on standard error).
"""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

LIMIT_S = 3.0
"""Shorter than the time that the check itself is given."""


def problem(url: str) -> str:
    """What is wrong; empty if nothing is."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=LIMIT_S)
    try:
        connection.request("GET", parts.path or "/")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {error or type(error).__name__}"
    finally:
        connection.close()
    return "" if status == 200 else f"{url}: status {status}"


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write(__doc__ or "")
        return 2
    found = problem(sys.argv[1])
    if found:
        sys.stderr.write(f"{found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
