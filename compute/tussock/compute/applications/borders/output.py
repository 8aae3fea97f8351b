"""Where the tuples of a stream go beside its consumers: what a program declares, and the table that it is."""

from dataclasses import dataclass

import pyarrow as pa

from tussock.compute.applications.borders.sender import OutputTarget
from tussock.statestore.errors import InvalidOption, SchemaMismatch

__all__ = ["POSITION", "SEQUENCE", "Output"]

SEQUENCE, POSITION = "_sequence", "_position"
KEEP_ROWS_MAX = 100_000_000


@dataclass(frozen=True, eq=False)
class Output:
    """A table of rows in the order in which they were emitted; its key is (sequence, position)."""

    table: str
    keep_rows: int | None
    """How many of the newest rows stay at least; `None`: all."""
    topic: OutputTarget | None = None
    """Then the table holds what is not sent yet."""

    def check(self, stream: str, schema: pa.Schema) -> None:
        """`InvalidOption` and `SchemaMismatch` for what cannot be."""
        keep = self.keep_rows
        if keep is not None and (type(keep) is not int or not 1 <= keep <= KEEP_ROWS_MAX):
            raise InvalidOption(
                f"output of stream {stream!r}: keep_rows={keep!r:.100}; expected 1 to {KEEP_ROWS_MAX:,}"
            )
        taken = [name for name in (SEQUENCE, POSITION) if name in schema.names]
        if taken:
            raise SchemaMismatch(f"output of stream {stream!r}: its columns {taken} are what the output adds")
        if self.topic is not None:
            self.topic.check(stream, schema)

    def schema_of(self, rows: pa.Schema) -> pa.Schema:
        """The columns of the table."""
        own = [pa.field(SEQUENCE, pa.int64(), nullable=False), pa.field(POSITION, pa.int64(), nullable=False)]
        return pa.schema([*own, *rows])
