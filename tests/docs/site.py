"""The site: built strictly, then each of its links followed. Raises DocsFailed.

mkdocs knows the links of the Markdown; here the pages that it made are read, so that those of the theme and
of the navigation are followed too, and whatever a page would ask of another site is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
DOCS = ROOT / "docs"
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements that a browser fetches by itself."""


class DocsFailed(Exception):
    """The message says what is not as it should be, and where."""


@dataclass
class _Page(HTMLParser):
    """Ids, links and what is fetched."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        fetched = LOADS.get(tag)
        if fetched is not None and given.get(fetched) and given.get("rel") not in ("canonical", "alternate"):
            self.loads.append(given[fetched])


def build() -> list[Path]:
    """Build it; its pages."""
    shutil.rmtree(SITE, ignore_errors=True)
    # The theme's makers warn of a later mkdocs, which is not the one that is pinned here.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # noqa: TID251 (passed on to mkdocs)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--config-file",
            str(ROOT / "mkdocs.yml"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        raise DocsFailed(f"the site cannot be built:\n{done.stdout}{done.stderr}")
    return sorted(SITE.rglob("*.html"))


def follow(pages: list[Path]) -> int:
    """Follow every link that stays inside; how many there are."""
    read = {page: _read(page) for page in pages}
    links = 0
    wrong: list[str] = []
    for page, seen in read.items():
        wrong += [f"{_name(page)} asks another site for {url}" for url in seen.loads if urlsplit(url).netloc]
        inside = [
            url for url in seen.links + seen.loads if not urlsplit(url).scheme and not urlsplit(url).netloc
        ]
        links += len(inside)
        wrong += [f"{_name(page)}: {url}" for url in inside if not _there(page, url, read)]
    if wrong:
        raise DocsFailed("links that lead nowhere:\n" + "\n".join(wrong))
    return links


def _read(page: Path) -> _Page:
    found = _Page()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def _there(page: Path, url: str, read: dict[Path, _Page]) -> bool:
    path, anchor = urldefrag(unquote(url))
    if page.name == "404.html" and path.startswith("/"):
        path = path.lstrip("/")
    target = (page.parent / path).resolve() if path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return False
    return not anchor or target not in read or anchor in read[target].ids or anchor == "__skip"


def _name(page: Path) -> str:
    return str(page.relative_to(SITE))


def pages() -> list[Path]:
    """The Markdown that is checked: the documentation, and what greets people."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
