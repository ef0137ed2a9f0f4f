"""The table of routes in docs/api.md, from the OpenAPI document; `python -m tests.docs.routes` renews it."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import msgspec

from tests.docs.site import DOCS
from tests.drivers.raw import ask
from tests.gateways import fakes, gateway_to

PAGE = DOCS / "api.md"
_BETWEEN = re.compile(r"(<!-- routes:[^\n]*-->\n)(.*?)(<!-- /routes -->)", re.S)


async def renewed() -> str:
    """The page with the table as the gateway's document has it."""
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": "secret"}) as gateway:
        document = msgspec.json.decode((await ask(gateway.url, "/openapi.json", method="GET")).body)
    text = PAGE.read_text(encoding="utf-8")
    return _BETWEEN.sub(lambda found: f"{found[1]}{table(document)}{found[3]}", text)


def table(document: dict[str, Any]) -> str:
    """Routes in the order of the document, with the first sentence of what they do."""
    rows = ["", "| route | what it does |", "|---|---|"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            told = operation.get("description") or operation.get("summary", "")
            first = " ".join(told.partition("\n\n")[0].split()).replace("|", "\\|")
            rows.append(f"| `{method.upper()} {path}` | {first} |")
    return "\n".join([*rows, "", ""])


def main() -> int:
    PAGE.write_text(asyncio.run(renewed()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
