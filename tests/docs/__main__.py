"""`python -m tests.docs`: builds the documentation as a site and holds it against what it describes.

Links and anchors, options and metrics that pages name, commands with their options, configurations, examples
(run against a gateway with fake engines), tables that are made. Ends with 1 and all that is wrong.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.docs import examples, said, site
from tests.docs.routes import PAGE, renewed
from tests.docs.site import DocsFailed


def check(pages: list[Path], folder: Path) -> int:
    """Everything but the site; how many commands were run. Raises DocsFailed."""
    said.configuration_is_current()
    options, metrics = said.options_are_known(pages), said.metrics_are_known(pages)
    configurations = said.yaml_is_accepted(pages, folder) + said.training_yaml_is_known(pages)
    print(
        f"{options} options, {metrics} metrics and {configurations} configurations are as the pages say",
        flush=True,
    )
    ran = said.commands_exist(pages)
    print(f"every command that is named exists ({ran} asked for their help)", flush=True)
    if asyncio.run(renewed()) != PAGE.read_text(encoding="utf-8"):
        raise DocsFailed("the routes of docs/api.md are out of date: `python -m tests.docs.routes`")
    shown = asyncio.run(examples.run_all(pages))
    print(f"{shown} examples ran", flush=True)
    return ran + shown


def main() -> int:
    failures: list[str] = []
    built, links, ran = 0, 0, 0
    try:
        made = site.build()
        built, links = len(made), site.follow(made)
        print(f"the site is at {site.SITE / 'index.html'}", flush=True)
    except DocsFailed as failure:
        failures.append(str(failure))
    try:
        with tempfile.TemporaryDirectory() as folder:
            ran = check(site.pages(), Path(folder))
    except DocsFailed as failure:
        failures.append(str(failure))
    if failures:
        print("\n\n".join(failures), file=sys.stderr)
        return 1
    print(f"docs: ok pages={built} links={links} commands_run={ran}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
