"""By which texts a batch function aborted requests, as the record of their epoch has it.

A text may be another one in each run, such as one with the address of an object. So a replay takes those of the record,
and is held to which requests were aborted, not to the words.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tussock.compute.functions.errors import FunctionFault

__all__ = ["TEXTS_BYTES_MAX", "by_row", "texts_of", "worded"]

TEXTS_BYTES_MAX = 256 << 20
"""Of the texts that differ, of one batch: they are a part of one record."""


def texts_of(errors: Sequence[str | None]) -> list[Any]:
    """For the record: arrays of a text and the places of the rows that it ended; `FunctionFault` if they are too large.

    `errors`: of each row why it was aborted, or `None`.
    """
    rows: dict[str, list[int]] = {}
    for row, error in enumerate(errors):
        if error is not None:
            rows.setdefault(error, []).append(row)
    nbytes = sum([len(text.encode()) for text in rows])
    if nbytes > TEXTS_BYTES_MAX:
        raise FunctionFault(
            f"batch.abort() was given {len(rows):,} texts of {nbytes:,} bytes for {len(errors):,} requests; at most "
            f"{TEXTS_BYTES_MAX >> 20} MiB of different ones fit"
        )
    return [[text, places] for text, places in rows.items()]


def by_row(texts: Iterable[Sequence[Any]]) -> dict[int, str]:
    """What `texts_of` gave, as the text of each row that was aborted."""
    return {row: text for text, rows in texts for row in rows}


def worded(errors: list[str | None], recorded: Mapping[int, str]) -> list[str | None]:
    """The same rows aborted, by the recorded texts."""
    return [None if error is None else recorded.get(row, error) for row, error in enumerate(errors)]
