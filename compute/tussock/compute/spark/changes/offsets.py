"""The position of a stream of changes: the offsets that Spark keeps in its checkpoint, and the choice of the next one.

Pure. An offset has the epoch up to which the stream has read, and the start of the batch that ends there. So a batch
that Spark runs again after a crash is the same one, although Spark notes no start for the first batch and asks for it
again: a start at the newest epoch would have moved on meanwhile, and the commits in between would be lost.
It also has the table: an epoch of one table means nothing for another, even of the same name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch

__all__ = ["Offset", "Sight", "next_offset"]


@dataclass(frozen=True)
class Offset:
    """All changes up to `epoch` are read; the batch that read them began after `start`."""

    epoch: int
    start: int
    snapshot: bool = False
    """The batch begins with the table's rows as they were at `start`, as inserts."""
    initial: bool = False
    """Nothing was read yet: `snapshot` is still to do."""
    table_id: int = 0
    """The table whose changes are read; 0: not noted, as in checkpoints of earlier versions."""
    table: str = ""
    """Its name, for people."""

    def record(self) -> dict[str, Any]:
        """The record that Spark keeps; always in the same order, because Spark compares texts."""
        noted = {"epoch": self.epoch, "start": self.start, "snapshot": self.snapshot, "initial": self.initial}
        return noted | ({"table_id": self.table_id, "table": self.table} if self.table_id else {})

    def of_table(self, spec: TableSpec) -> "Offset":
        """The offset with a note of that table."""
        return replace(self, table_id=spec.id, table=spec.name)

    def check(self, spec: TableSpec, url: str) -> "Offset":
        """The offset; raises if it belongs to another table than that in the store at `url`.

        `InvalidOption` if the table has another name, `SchemaMismatch` if it is a new table under the old name.
        """
        if not self.table_id or (self.table_id, self.table) == (spec.id, spec.name):
            return self
        again = "give the query its own checkpoint location"
        if self.table != spec.name:
            raise InvalidOption(
                f"the checkpoint is of a stream of changes of table {self.table!r}, and the query now reads table "
                f"{spec.name!r} of the store at {url}: {again}, or name {self.table!r} as before"
            )
        raise SchemaMismatch(
            f"table {spec.name!r} of the store at {url} is not the one whose changes the checkpoint has read (id "
            f"{self.table_id} then, {spec.id} now): it was dropped and created anew, or it is another store; {again}, "
            "whose first batches read the table as it is now",
            spec.name,
        )

    @staticmethod
    def of(record: Any) -> "Offset":
        """The offset in such a record; `InvalidOption` if it is not one."""
        try:
            offset = Offset(**record)
        except TypeError:
            offset = None
        numbers = () if offset is None else (offset.epoch, offset.start, offset.table_id)
        if offset is None or not all(type(number) is int and number >= 0 for number in numbers):
            raise InvalidOption(
                f"the checkpoint's offset {record!r:.200} is not one of a stream of changes; the query changed its "
                "source, so give it its own checkpoint location"
            )
        return offset


@dataclass(frozen=True)
class Sight:
    """What is known of the store when the next batch is chosen."""

    begin: int
    """The batch begins after this epoch: the end of the last one, or later if what lies between is lost."""
    newest: int
    """The newest epoch that the stream may read."""
    table_epoch: int
    """The newest epoch that wrote to the table."""


def next_offset(begun: Offset, sight: Sight, epochs: Sequence[int], epochs_max: int | None, *, move_on: bool) -> Offset:
    """The end of the next batch; `begun` itself if there is nothing to read.

    `epochs` are those in (begin, newest] that wrote to the table, ascending; they matter only if `epochs_max` limits a
    batch. `move_on`: go to the newest epoch with an empty batch although the table has not changed.
    """
    if begun.initial and begun.snapshot:
        return Offset(sight.begin, sight.begin, snapshot=True)
    if sight.newest <= sight.begin:
        return begun
    if epochs_max is not None and len(epochs) > epochs_max:
        return Offset(epochs[epochs_max - 1], sight.begin)
    if sight.table_epoch > sight.begin or move_on:
        return Offset(sight.newest, sight.begin)
    return begun
