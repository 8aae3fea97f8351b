"""The ledger: which batches of each writer are committed, so that a repeated commit is known as one.

Batch ids of a writer ascend and may leave gaps. The newest sixteen are kept one by one with their epochs, all before
them as ranges of ids, which for batches numbered 0, 1, 2, ... is a single pair. A writer with more gaps than there is
room for forgets its oldest ranges, and what lies below is refused from then on: to call a batch committed that never
was would lose its rows.

A batch is known by more than its id. Its source says whose it is (a streaming query, say), and the tables of the
newest batches are kept: rows that another job, or a second commit of the same job, brings under an id that is taken
were never stored, and are refused with `Fenced` rather than passed over.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping

import msgspec

from tussock.statestore.base.arguments import WRITER_LENGTH_MAX
from tussock.statestore.errors import Fenced, InvalidOption

__all__ = [
    "BATCHES_REMEMBERED",
    "RANGES_MAX",
    "Batches",
    "WriterRecord",
    "check_source",
    "find_batch",
    "record",
]

BATCHES_REMEMBERED = 16
"""Batches of each writer that the ledger holds with their epochs."""
RANGES_MAX = 32
"""Ranges of consecutive batch ids that are kept of each writer."""

Batches = tuple[tuple[int, int], ...]
"""(batch id, epoch), both ascending."""


class WriterRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the ledger knows of a writer beside its newest batches."""

    source: str | None = None
    """Whose batches they are; `None` if nobody has said so."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Ids of all committed batches, as (first, last), ascending and apart from each other."""
    known_from: int = 0
    """Below this it is not known which batches were committed."""
    tables: tuple[tuple[int, ...] | None, ...] = ()
    """For each of the newest batches the ids of the tables that it has rows in; `None` where it was not noted."""
    all_tables: tuple[int, ...] | None = ()
    """Ids of the tables that any of the batches has rows in, ascending; `None` if not all were noted."""


def find_batch(
    writer: str,
    batch_id: int,
    batches: Batches,
    known: WriterRecord | None,
    source: str | None = None,
    tables: Mapping[int, str] | None = None,
) -> int | None:
    """An epoch that holds this batch of the writer, or `None` if it is still to come.

    It is the batch's own epoch if that is among the newest, and the oldest one remembered for those before.
    `source` and `tables` (those that the caller has rows for, names by id) are compared with what was committed.

    Raises:
        Fenced: the batch was passed over; it is too old to know; the writer's batches are another source's, or nobody's
            that was named; or no source says that it is the same, and it was committed without rows in one of these
            tables (of batches before the newest: if none of the writer's was committed with rows there).
    """
    if not batches:
        return None
    known = known or _of_older_release(batches)
    if source is not None and known.source is not None and source != known.source:
        raise Fenced(
            f"writer {writer!r} belongs to {known.source}, whose newest batch is {batches[-1][0]}; batch {batch_id} "
            f"comes from {source}, and taken for a repeat its rows would be lost; nothing was stored, use another "
            "writer name for it",
            writer,
            batch_id,
        )
    if batch_id > batches[-1][0]:
        return None
    index = bisect_left(batches, batch_id, key=lambda batch: batch[0])
    held, epoch = batches[index]
    if held == batch_id or _is_in(known.ranges, batch_id):
        noted = known.tables[index] if held == batch_id else known.all_tables
        if noted is not None and (source is None or known.source is None):
            _check_same(writer, batch_id, noted, source, tables or {})
        return epoch
    if batch_id < known.known_from:
        raise Fenced(
            f"writer {writer!r} has committed batch {batches[-1][0]}, and batch {batch_id} is too old to know whether "
            f"it was committed: what is known begins with batch {known.known_from}; nothing was stored. If it was not "
            "committed, write it under another writer name",
            writer,
            batch_id,
        )
    raise Fenced(
        f"writer {writer!r} has committed batch {batches[-1][0]}, and batch {batch_id} was never committed: its "
        "batches come in order, so another job uses this name, or a checkpoint was reset; nothing was stored, "
        "use another writer name",
        writer,
        batch_id,
    )


def record(
    batches: Batches, known: WriterRecord | None, batch_id: int, source: str | None, tables: Collection[int]
) -> WriterRecord:
    """The record of a writer after it has committed a batch above all of `batches`, with rows in these tables."""
    known = known or _of_older_release(batches)
    ranges = _extend(known.ranges, batch_id)
    forgotten = ranges[:-RANGES_MAX]
    noted = (*known.tables, tuple(sorted(tables)))
    return WriterRecord(
        source=known.source if source is None else source,
        ranges=ranges[-RANGES_MAX:],
        known_from=forgotten[-1][1] + 1 if forgotten else known.known_from,
        tables=noted[-BATCHES_REMEMBERED:],
        all_tables=None if known.all_tables is None else tuple(sorted({*known.all_tables, *tables})),
    )


def check_source(source: str | None, writer: str | None) -> None:
    """`InvalidOption` unless the source of a commit is a text of bounded length, and a writer is named with it."""
    if source is None:
        return
    if writer is None:
        raise InvalidOption(f"source is {source!r}, but no writer is named; it says whose batches a writer's are")
    if not 0 < len(source) <= WRITER_LENGTH_MAX:
        raise InvalidOption(f"source has {len(source)} characters; expected 1 to {WRITER_LENGTH_MAX}")


def _of_older_release(batches: Batches) -> WriterRecord:
    """What can be known of a writer whose batches were committed before records were kept."""
    ranges: tuple[tuple[int, int], ...] = ()
    for batch_id, _ in batches:
        ranges = _extend(ranges, batch_id)
    return WriterRecord(
        ranges=ranges,
        known_from=batches[0][0] if len(batches) == BATCHES_REMEMBERED else 0,
        tables=(None,) * len(batches),
        all_tables=None if batches else (),
    )


def _extend(ranges: tuple[tuple[int, int], ...], batch_id: int) -> tuple[tuple[int, int], ...]:
    if ranges and ranges[-1][1] + 1 == batch_id:
        return (*ranges[:-1], (ranges[-1][0], batch_id))
    return (*ranges, (batch_id, batch_id))


def _is_in(ranges: tuple[tuple[int, int], ...], batch_id: int) -> bool:
    index = bisect_right(ranges, batch_id, key=lambda one: one[0]) - 1
    return index >= 0 and batch_id <= ranges[index][1]


def _check_same(
    writer: str, batch_id: int, noted: Collection[int], source: str | None, tables: Mapping[int, str]
) -> None:
    if source is not None:
        raise Fenced(
            f"batch {batch_id} of writer {writer!r} is committed and says of no source, and comes from {source} now: "
            "taken for a repeat its rows would be lost; nothing was stored, use another writer name for it",
            writer,
            batch_id,
        )
    missing = [name for table_id, name in tables.items() if table_id not in noted]
    if missing:
        raise Fenced(
            f"batch {batch_id} of writer {writer!r} is committed without rows in {missing}, where it comes with some "
            "now: something else uses the name, and they would be lost; nothing was stored, use another writer name "
            "for them",
            writer,
            batch_id,
        )
