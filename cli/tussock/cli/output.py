"""What the commands print: tables for people, one JSON document or JSON lines for programs.

Results go to stdout; progress, notes and errors to stderr, so that a pipe gets results alone. Where stdout is no
terminal, a table is as wide as its rows need: nothing is cut off or folded for a file or for `grep`.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tussock.cli.values import as_json, safe
from tussock.statestore.epochs import epoch_ms

__all__ = [
    "agree",
    "bytes_text",
    "emit_json",
    "emit_lines",
    "epoch_text",
    "epoch_time",
    "grid",
    "iso_ms",
    "note",
    "number",
    "plural",
    "progress",
    "seconds_text",
    "show",
    "spinner",
]

PLAIN_WIDTH = 100_000
"""Columns of a console that is no terminal: beyond any row."""

EARLIEST_MS = 946_684_800_000
"""2000-01-01. Epochs that a user chose as small numbers carry no time; this keeps them from being shown as 1970."""


def _console(*, errors: bool = False) -> Console:
    # Made when it is used, because tests and shells replace the streams.
    stream = sys.stderr if errors else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False)


def show(*parts: Any) -> None:
    """Print text and tables to stdout, an empty line between two of them; markup in text is not interpreted."""
    console = _console()
    for at, part in enumerate(parts):
        if at:
            console.print()
        console.print(Text(safe(part, keep="\n")) if isinstance(part, str) else part)


def note(text: str) -> None:
    """Say something about the result on stderr."""
    _console(errors=True).print(Text(safe(text), style="dim"))


def agree(question: str, *, yes: bool) -> None:
    """Ask whether to go on, and end the command with exit code 1 unless somebody types `yes`; not asked with `yes`."""
    if yes:
        return
    console = _console(errors=True)
    console.print(Text(safe(f"{question} Type yes to go on: ")), end="")
    answer = sys.stdin.readline()
    if answer.strip() == "yes":
        return
    hint = "" if answer else " Nobody answered; --yes goes on without asking."
    console.print(Text(f"Nothing was changed.{hint}"))
    raise typer.Exit(1)


def grid(*columns: str, right: Iterable[str] = (), whole: Iterable[str] = (), rows: Iterable[Sequence[str]]) -> Table:
    """A table with these column heads, those in `right` aligned to the right.

    In a terminal that is too narrow long cells fold, except numbers and the columns in `whole`: ids, to be copied.
    """
    aligned, unfolded = set(right), {*right, *whole}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in aligned else "left"
        table.add_column(Text(safe(name)), justify=justify, overflow="fold", no_wrap=name in unfolded)
    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row))
    return table


def emit_json(document: Any) -> None:
    """Print one JSON document: indented in a terminal, else on one line."""
    if sys.stdout.isatty():
        _console().print(JSONHighlighter()(Text(_json(document, indent=2))), soft_wrap=True)
    else:
        emit_lines([document])


def emit_lines(documents: Iterable[Any]) -> None:
    """Print JSON documents, one on each line."""
    for document in documents:
        sys.stdout.write(_json(document) + "\n")


def _json(document: Any, indent: int | None = None) -> str:
    """The document with what a terminal would obey or cannot show as JSON's own escapes, which lose nothing."""
    text = json.dumps(as_json(document), ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(as_json(document), indent=indent)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else json.dumps(letter).strip('"') for letter in text
    )


def number(value: int) -> str:
    """An integer with thousands set apart."""
    return f"{value:,}"


def plural(count: int, noun: str) -> str:
    """`1 row`, `2,000 rows`, `3 entries`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} " + (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s")


def bytes_text(size: int) -> str:
    """Bytes with a binary unit, three digits or so: `12.3 KiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds_text(ms: int) -> str:
    """Milliseconds as seconds, for people."""
    return f"{ms / 1000:,.10g} s"


def iso_ms(ms: int) -> str:
    """Milliseconds since the Unix epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def epoch_time(epoch: int) -> str | None:
    """The time that an epoch carries; `None` for one that carries none."""
    ms = epoch_ms(epoch)
    return iso_ms(ms) if EARLIEST_MS <= ms < EARLIEST_MS * 5 else None


def epoch_text(epoch: int) -> str:
    """An epoch with its time, for people."""
    carried = epoch_time(epoch)
    return f"{epoch} ({carried})" if carried else str(epoch)


def spinner(text: str) -> AbstractContextManager[Any]:
    """A sign of life on stderr while something runs whose end is not known; nothing unless that is a terminal."""
    console = _console(errors=True)
    console.quiet = not console.is_terminal
    return Status(text, console=console)


def progress() -> Progress:
    """A bar over bytes on stderr; nothing unless that is a terminal."""
    console = _console(errors=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
