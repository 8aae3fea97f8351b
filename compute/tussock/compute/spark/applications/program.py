"""What tasks need of an application: a graph of procedures, or a flow of streams, that runs on some of the keys."""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tussock.statestore.errors import TussockError
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["TaskProgram", "TaskRun"]


class TaskRun(Protocol):
    """The run of one batch, or of some keys of it."""

    def run(self, rows: pa.Table) -> tuple[bytes, str, str] | None:
        """Run on all rows of some keys; the first key that fails, which part of the application, and why."""

    def close(self) -> None:
        """Nothing more runs."""


class TaskProgram(Protocol):
    """An application without its process; it is pickled to the tasks."""

    @property
    def name(self) -> str:
        """The application's."""

    @property
    def border(self) -> str:
        """The procedure, or the stream, that gets the rows."""

    @property
    def tables(self) -> list[str]:
        """All that are written."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that the rows must have."""

    @property
    def partition_by(self) -> pa.Schema:
        """The columns whose values decide which task gets a row."""

    def columns_of(self, names: Sequence[str]) -> list[str]:
        """Which of the columns that rows have are used."""

    def begin(self, tx: Transaction, batch_id: int, now: dt.datetime) -> TaskRun:
        """A run that writes to a transaction."""

    def failure(self, who: str, batch_id: int, cause: str) -> TussockError:
        """The error of a batch that failed."""
