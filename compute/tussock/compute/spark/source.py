"""The data source `tussock` and its registration.

Spark makes an instance per DataFrame or write. The result of `schema` stays in the instance, so reader and tasks use
the epoch and the table that the DataFrame was made with.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tussock.compute.spark.batches.notes import keep_notes
from tussock.compute.spark.changes.reader import ChangeReader, Span, change_schema, resolve_span
from tussock.compute.spark.changes.stream import ChangeStreamReader
from tussock.compute.spark.options.options import (
    ChangeOptions,
    ReadOptions,
    parse_changes,
    parse_read,
    parse_write,
    wants_changes,
)
from tussock.compute.spark.options.schemas import check_columns, spark_schema
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.reads.reader import FilteringReader, TableReader, resolve_epoch
from tussock.compute.spark.reads.staged_uploads import staged_uploads
from tussock.compute.spark.writes.writer import BatchWriter, StreamWriter, plan_upload
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch, SnapshotExpired, StoreClosed, TableNotFound

__all__ = ["FILTER_SWITCH", "TussockDataSource", "register"]

FILTER_SWITCH = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting that decides whether it asks sources in Python about filters; off by default."""


F = TypeVar("F", bound=Callable[..., Any])


def _short_traceback(method: F) -> F:
    """The method, raising errors about the user's input from here: Spark shows all frames above the message."""

    @functools.wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except (InvalidOption, SchemaMismatch, SnapshotExpired, StoreClosed, TableNotFound) as error:
            raise error.with_traceback(None) from None

    return called  # type: ignore[return-value]


class TussockDataSource(DataSource):  # type: ignore[misc]
    """The format `tussock`: batch reads and writes of a table or its changes, a source and a sink for streams.

    Options: `docs/spark.md` and `docs/spark/changes.md`.
    """

    _resolved: tuple[ReadOptions, TableSpec, int] | None = None
    _span: tuple[TableSpec, Span] | None = None

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)` and, in SQL, after `USING`."""
        return "tussock"

    @_short_traceback
    def schema(self) -> StructType:
        """The table's columns, or those of option `columns`; resolves the epoch of the DataFrame."""
        if wants_changes(self.options):
            changes = parse_changes(self.options)
            # Spark has not said yet whether this is a stream, which has no epoch to resolve; a batch will raise it
            # again.
            with contextlib.suppress(InvalidOption, SnapshotExpired):
                self._resolve_span(changes)
            return change_schema(changes, working_store(changes.address).table(changes.table).spec)
        options, spec, _ = self._resolve()
        schema = spec.arrow_schema()
        check_columns(options.columns or (), schema, spec.name)
        names = options.columns or schema.names
        picked = schema.empty_table().select(list(names)).schema
        return spark_schema(picked, spec.primary_key, spec.name)

    @_short_traceback
    def reader(self, schema: StructType) -> TableReader | ChangeReader:
        """A reader of the columns of `schema` at the DataFrame's epoch, or of changes."""
        if wants_changes(self.options):
            changes = parse_changes(self.options, is_stream=False)
            spec, span = self._resolve_span(changes)
            return ChangeReader(changes, spec, schema, span)
        options, spec, epoch = self._resolve()
        # A reader that has `pushFilters` fails if Spark's setting is off, so only a read that asks for it gets one.
        kind = FilteringReader if options.pushdown else TableReader
        runs = staged_uploads(options.uploads, options.table).runs if options.uploads is not None else ()
        return kind(options, spec, epoch, schema, runs)

    @_short_traceback
    def streamReader(self, schema: StructType) -> ChangeStreamReader:  # noqa: N802 - Spark's name
        """A source of the table's changes."""
        if not wants_changes(self.options):
            raise InvalidOption(
                "a stream of format 'tussock' reads changes: set option readChangeFeed to true; a table is read by "
                "spark.read"
            )
        changes = parse_changes(self.options, is_stream=True)
        return ChangeStreamReader(changes, working_store(changes.address).table(changes.table).spec, schema)

    @_short_traceback
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A writer of rows of `schema`; with `overwrite` they become the whole table."""
        return BatchWriter(plan_upload(parse_write(self.options), schema, overwrite=overwrite), overwrite)

    @_short_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """A sink for rows of `schema`; with `overwrite` (complete mode) each batch becomes the whole table."""
        return StreamWriter(plan_upload(parse_write(self.options), schema, overwrite=overwrite), overwrite)

    def _resolve_span(self, options: ChangeOptions) -> tuple[TableSpec, Span]:
        if self._span is None:
            store = working_store(options.address)
            table = store.table(options.table)
            self._span = table.spec, resolve_span(store, table, options)
        return self._span

    def _resolve(self) -> tuple[ReadOptions, TableSpec, int]:
        if self._resolved is None:
            options = parse_read(self.options)
            store = working_store(options.address)
            table = store.table(options.table)
            if options.uploads is not None:
                # In an empty store all uploads can be seen at the first epoch, and nothing else is there.
                epoch = max(staged_uploads(options.uploads, options.table).epoch, 1)
            else:
                epoch = resolve_epoch(store, table, options)
            self._resolved = options, table.spec, epoch
        return self._resolved


def register(spark: SparkSession) -> None:
    """Make the format `tussock` known to a session, and let Spark push filters down to sources in Python.

    Spark finds the format without this, too; the option `pushdown` and `read_table` need the setting. Creates the
    folder through which sinks report to a `TussockListener`.
    """
    context = getattr(spark, "sparkContext", None)
    if context is not None:  # A client of Spark Connect has none, and its workers run elsewhere.
        keep_notes(context)
    spark.dataSource.register(TussockDataSource)
    spark.conf.set(FILTER_SWITCH, "true")
