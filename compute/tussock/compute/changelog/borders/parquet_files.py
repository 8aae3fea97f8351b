"""A folder of Parquet files as output of a stream: what a program declares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.changelog.borders.file_sender import FileSender
from tussock.statestore.base.system import System
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.errors import InvalidOption

__all__ = ["ParquetFiles"]

TRANSACTIONS_MAX = 1_000_000
LAG_ROWS_MAX = 10_000_000


@dataclass(frozen=True)
class ParquetFiles:
    """A folder of any bucket, in which what a stream publishes is in files, each transaction in one, once.

    A file is written once `transactions` are there, or `seconds` have passed since one is; its name is the number of
    its first transaction, in 20 digits. Its columns are `_sequence`, `_position`, `_op`, `_time` and those of the
    stream; with `blocks=True` of the output also `_old`, and an update is two rows. At most `lag_rows` rows wait to be
    written before feeds and pushes wait, too.
    """

    url: str
    transactions: int = 1000
    seconds: float = 10.0
    lag_rows: int = 1_000_000

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        if not isinstance(self.url, str) or not self.url:
            raise InvalidOption(f"an output of files at {self.url!r:.200}; expected the URL of a folder")
        what = "an output of files"
        for name, count, most in (
            ("transactions", self.transactions, TRANSACTIONS_MAX),
            ("lag_rows", self.lag_rows, LAG_ROWS_MAX),
        ):
            if type(count) is not int or not 1 <= count <= most:
                raise InvalidOption(f"{what}: {name}={count!r:.100}; expected 1 to {most:,}")
        check_seconds(self.seconds, f"{what}: seconds", none=False)

    def of(self, flow: str, stream: str, schema: pa.Schema, key: Sequence[str]) -> "ParquetFiles":  # noqa: ARG002 - others'
        """It has no need to know of which stream it is."""
        return self

    def check(self, stream: str, schema: Any) -> None:
        """Nothing: Parquet has all columns that tables have."""

    def sender(self, system: System, owner: str, name: str, sent: int, begun: int) -> FileSender:
        """The thread that writes, for one run; `InvalidOption` for a URL that is none."""
        bucket = open_bucket(self.url, system=system)
        return FileSender(system, bucket, owner, name, sent, begun, self.transactions, self.seconds)
