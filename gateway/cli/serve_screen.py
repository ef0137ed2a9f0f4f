"""What `changeover serve` shows: a table of what starts, live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

_STYLES = {"ready": "green", "starting": "yellow", "restarting": "red", "failed": "bold red"}


@dataclass(frozen=True, slots=True)
class Row:
    """One process that starts."""

    name: str
    what: str
    state: str
    detail: str
    seconds: float
    """Since it was started, or that it took to become ready."""


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._shown: dict[str, tuple[str, str]] = {}

    def show(self, rows: Sequence[Row]) -> None:
        """The present state of everything that starts."""
        if not self._console.is_terminal:
            self._show_changes(rows)
        elif self._live is None:
            self._live = Live(table(rows), console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            self._live.update(table(rows))

    def line(self, text: str) -> None:
        """A line that stays, above what is live."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def close(self) -> None:
        """Leave the last state standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show_changes(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if self._shown.get(row.name) != (row.state, row.detail):
                self._shown[row.name] = (row.state, row.detail)
                detail = f": {row.detail}" if row.detail else ""
                self.line(f"{row.name} ({row.what}) {row.state}{detail} after {row.seconds:.0f} s")


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table without lines."""
    grid = Table.grid(padding=(0, 2))
    for row in rows:
        state = Text(row.state, style=_STYLES.get(row.state, ""))
        grid.add_row(row.name, row.what, state, f"{row.seconds:4.0f} s", row.detail)
    return grid


def ready_text(url: str, model: str, seconds: float) -> str:
    """The last lines of a start: that it is done, and what to try."""
    return (
        f"\nready after {seconds:.0f} s: {url}  (docs: {url}/docs, end: Ctrl-C)\n\n"
        f"  curl -X POST {url}/predict -H 'Content-Type: application/json' "
        """-d '{"prompt": "Hello, world!"}'\n"""
        f"\nmodel: {model}\n"
    )
