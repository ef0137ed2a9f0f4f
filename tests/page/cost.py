"""`python -m tests.page.cost`: the processor time that an open page costs the gateway, as a share of a core.

A gateway of its own with nothing else to do is asked what the page asks, as fast as it answers; its processor
time for each look, less what it needs without them, times the looks of a second. Ends with 1 above 1 %.
"""

from __future__ import annotations

import http.client
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests import changeover

TOKEN = "cost"
EVERY_S, SLOW_EVERY_S = 2.0, 10.0
"""As page.js does."""
OFTEN = ("figures", "rollouts?past=0")
SELDOM = ("checkpoints?limit=20", "journal?limit=30")
LOOKS = 200
MOST = 0.01


def ask(port: int, paths: tuple[str, ...], looks: int) -> None:
    """Over one connection, as a browser does. Raises RuntimeError where an answer is not whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(looks):
        for path in paths:
            connection.request("GET", f"/admin/{path}", headers={"authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"/admin/{path} answered {answer.status}")
    connection.close()


def main() -> int:
    with TemporaryDirectory(prefix="cost-") as folder, changeover.fakes([{}, {}]) as ports:
        settings = {
            "models": [{"name": "small", "endpoints": changeover.urls(ports)}],
            "checkpoints": {"store": str(Path(folder) / "store")},
            "admin": {"token": TOKEN},
        }
        with changeover.gateway(settings) as (server, port):
            ask(port, (*OFTEN, *SELDOM), 5)

            def spent(paths: tuple[str, ...]) -> float:
                """Seconds of processor time for one look."""
                idle_from, idle_since = server.cpu_s(), time.monotonic()
                time.sleep(5)
                idle = (server.cpu_s() - idle_from) / (time.monotonic() - idle_since)
                busy_from, busy_since = server.cpu_s(), time.monotonic()
                ask(port, paths, LOOKS)
                return (server.cpu_s() - busy_from - idle * (time.monotonic() - busy_since)) / LOOKS

            often, seldom = spent(OFTEN), spent(SELDOM)
    share = often / EVERY_S + seldom / SLOW_EVERY_S
    print(f"a look {often * 1e3:.2f} ms, checkpoints and journal {seldom * 1e3:.2f} ms of processor time")
    print(f"page_cost={share:.2%} of a core")
    return 0 if share < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
