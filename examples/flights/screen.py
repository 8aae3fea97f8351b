"""How the demo talks: headings, tables and the progress bar."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["Screen"]


class Screen:
    """Prints to stdout; as wide as 100 columns where that is no terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
        self._step = 0

    def step(self, title: str) -> None:
        """Begin a numbered part."""
        self._step += 1
        self.console.print(f"\n[bold cyan]{self._step}. {title}[/]")

    def say(self, text: str) -> None:
        """A line of text, indented."""
        self.console.print(f"   {text}", soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
        """A table; numbers are set to the right with thousands apart, other cells are shown as they are."""
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=title or None, title_justify="left")
        for at, name in enumerate(columns):
            is_number = bool(rows) and isinstance(rows[0][at], int | float)
            grid.add_column(name, justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            grid.add_row(*map(_cell, row))
        self.console.print()
        self.console.print(Padding.indent(grid, 3))

    def frame(self, frame: pl.DataFrame, title: str = "") -> None:
        """A frame as a table, its column names in words."""
        self.table([name.replace("_", " ") for name in frame.columns], frame.rows(), title)

    @contextmanager
    def progress(self, text: str, total: int) -> Iterator[Any]:
        """A bar over `total` micro-batches; yields `advance(note)`. Without a terminal, a line for every tenth."""
        bar = Progress(
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        with bar:
            task = bar.add_task(text, total=total, note="")
            done = 0

            def advance(note: str) -> None:
                nonlocal done
                done += 1
                bar.update(task, advance=1, note=note)
                if bar.disable and (done == total or done * 10 // total > (done - 1) * 10 // total):
                    self.say(f"{text} {done}/{total}  {note}")

            yield advance


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
