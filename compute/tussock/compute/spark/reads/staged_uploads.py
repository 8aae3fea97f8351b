"""What a transaction has uploaded of a table, in a file on the driver's machine: for the process that plans its reads.

The file goes with the transaction, so that nothing is planned on rows that were committed or given up meanwhile.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tussock.statestore.contract.records import UploadedRun
from tussock.statestore.errors import StoreClosed

__all__ = ["StagedUploads", "leave_uploads", "staged_uploads"]


class StagedUploads(msgspec.Struct, frozen=True):
    """What one DataFrame of a transaction shows."""

    epoch: int
    """The transaction's snapshot; 0: nothing was committed yet."""
    runs: list[UploadedRun] = []
    """Sorted runs over it, newest first."""


def leave_uploads(path: Path, epoch: int, runs: Sequence[UploadedRun]) -> None:
    """Write the file."""
    path.write_bytes(msgspec.msgpack.encode(StagedUploads(epoch, list(runs))))


def staged_uploads(path: str, table: str) -> StagedUploads:
    """What the file says; `StoreClosed` if the transaction is over."""
    try:
        return msgspec.msgpack.decode(Path(path).read_bytes(), type=StagedUploads)
    except FileNotFoundError as error:
        raise StoreClosed(
            f"table {table!r}: this DataFrame is of a transaction that is over; read the table again, by another "
            "transaction or by read_table"
        ) from error
