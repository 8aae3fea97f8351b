"""The identity of a micro-batch: the writer under which the ledger has it, so that a repeat, and only that, is known.

A function of `foreachBatch` may commit several times. Each commit needs its own name in the ledger: otherwise the
second one would be taken for a repeat of the first, and its rows would be lost silently. So the default name of a
commit consists of the query and the tables; if a user gives one name to two commits, the second is refused.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import DataFrame

from tussock.statestore.base.arguments import WRITER_LENGTH_MAX
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Fenced, InvalidOption

__all__ = [
    "MicroBatch",
    "check_tables_kept",
    "claim",
    "default_writer",
    "micro_batch",
    "release",
    "sink_batch",
    "transaction_batch",
]

_CLAIMS_MAX = 1024
_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_claims: dict[tuple[str, str], tuple[int, str]] = {}
"""By store and writer: the newest batch that this process committed, or found committed, and its run of the query."""
_lock = threading.Lock()


class MicroBatch(NamedTuple):
    """A batch to be committed."""

    writer: str
    batch_id: int
    """Spark's id of the batch, or what the option `writerVersion` gives."""
    query: str | None
    """The streaming query that it belongs to, whose listeners can hear of it."""
    source: str | None = None
    """The source of the writer's batches, in words; the ledger keeps it, and refuses batches of another source."""
    earlier: str | None = None
    """The writer's default name in earlier versions, which did not include the tables."""
    run: str | None = None
    """The run of the query: each start of it makes a new one, and a run has each batch once."""
    tables: tuple[str, ...] = ()
    """Distinguishes this commit from others of the same query if its writer is named after the query."""


def micro_batch(rows: DataFrame, batch_id: int, writer: str | None, tables: Iterable[str]) -> MicroBatch:
    """The batch that a function of `foreachBatch` received, for a commit to these tables.

    `tables` are those that identify the commit when it is repeated: for `stateful`, those of the state. Raises
    `InvalidOption` if there is neither a writer nor a query, and for an invalid batch id.
    """
    _check_batch_id(batch_id)
    context = rows.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId") or None
    names = tuple(sorted(tables))
    if writer is not None:
        return MicroBatch(str(writer), batch_id, query, source_of(query, names), run=_run(context, query))
    if query is None:
        raise InvalidOption(
            "writer is missing, and this is not a streaming query's batch, whose id would do; give a writer, so that "
            "a repeated batch is recognised"
        )
    return MicroBatch(
        default_writer(query, names), batch_id, query, source_of(query, names), query, _run(context, query), names
    )


def sink_batch(writer: str | None, batch_id: int, query: str | None, table: str) -> MicroBatch:
    """The batch of a sink or of a batch write; a query has one of these, so its id is name enough."""
    name = writer or query
    assert name is not None
    return MicroBatch(name, batch_id, query, source_of(query, (table,)))


def transaction_batch(context: SparkContext, batch_id: int, writer: str) -> MicroBatch:
    """The batch of a transaction, whose tables are not known when it begins; maybe within a query's function."""
    _check_batch_id(batch_id)
    query = context.getLocalProperty("sql.streaming.queryId") or None
    source = f"query {query}" if query is not None else "a transaction"
    return MicroBatch(writer, batch_id, query, source, run=_run(context, query))


def default_writer(query: str, tables: Iterable[str]) -> str:
    """The name under which a helper commits a query's batches if the user gave none."""
    return _shorten(f"{query} {json.dumps(sorted(tables))}")


def source_of(query: str | None, tables: Iterable[str]) -> str:
    """The source of a writer's batches. A query's tables may change from batch to batch; `claim` tells calls apart."""
    return f"query {query}" if query is not None else _shorten(f"a write of {json.dumps(sorted(tables))}")


def _shorten(name: str) -> str:
    """A name as short as the ledger requires, and still a different one for different tables."""
    if len(name) <= WRITER_LENGTH_MAX:
        return name
    return f"{name[: WRITER_LENGTH_MAX - 65]} {hashlib.sha256(name.encode()).hexdigest()}"


def claim(url: str, batch: MicroBatch) -> None:
    """Note that this run of the query has the batch under that name; `Fenced` if another call in it has it already."""
    if batch.run is None:
        return
    with _lock:
        if _claims.get((url, batch.writer)) == (batch.batch_id, batch.run):
            raise Fenced(
                f"batch {batch.batch_id} was committed as writer {batch.writer!r} before, by another call within the "
                "same batch: the store would take this one for a repeat, and its rows would be lost; give each of the "
                "helpers in your function its own writer=, or write their tables by one write_epoch",
                batch.writer,
                batch.batch_id,
            )
        _claims.pop((url, batch.writer), None)
        _claims[url, batch.writer] = batch.batch_id, batch.run
        if len(_claims) > _CLAIMS_MAX:
            del _claims[next(iter(_claims))]


def release(url: str, batch: MicroBatch) -> None:
    """Forget the claim of a commit that failed: the same call may come again."""
    with _lock:
        if _claims.get((url, batch.writer)) == (batch.batch_id, batch.run):
            del _claims[url, batch.writer]


def check_tables_kept(store: StateStore, batch: MicroBatch) -> None:
    """Raise `Fenced` if the batch was committed for other tables, some of them the same.

    Its default name would differ then, and a merge would count twice. Commits of this very run belong to other helpers.
    """
    if not batch.tables:
        return
    # The caller has just asked the store for the batch, so the list is up to date.
    ledger: dict[str, Any] = getattr(store.recent_version(), "ledger", {})
    for writer, batches in ledger.items():
        tables = _tables_of(writer, batch)
        if tables is None or not set(tables) & set(batch.tables) or batch.batch_id not in (each[0] for each in batches):
            continue
        with _lock:
            if _claims.get((store.url, writer)) == (batch.batch_id, batch.run):
                continue
        raise Fenced(
            f"batch {batch.batch_id} of query {batch.query} was committed for the tables {tables}, and is now repeated "
            f"for {list(batch.tables)}: the rows that were stored then would be counted again; let the batch end with "
            "the tables as they were and change them after it, or give writer= to know the commit by",
            batch.writer,
            batch.batch_id,
        )


def _tables_of(writer: str, batch: MicroBatch) -> list[str] | None:
    """The tables in a default name of the batch's query, if they differ from the batch's own."""
    if writer == batch.writer or not writer.startswith(f"{batch.query} ["):
        return None
    try:
        tables: list[str] = json.loads(writer.removeprefix(f"{batch.query} "))
    except ValueError:
        return None
    return tables


def _run(context: Any, query: str | None) -> str | None:
    """The run's id, which Spark sets as the group of a query's jobs; `None` if a user has set another group."""
    group = context.getLocalProperty("spark.jobGroup.id") if query is not None else None
    return group if group and _RUN.fullmatch(group) else None


def _check_batch_id(batch_id: object) -> None:
    if isinstance(batch_id, bool) or not isinstance(batch_id, int) or not 0 <= batch_id < 1 << 63:
        raise InvalidOption(f"batch_id is {batch_id!r}; expected an integer from 0 to 2**63-1")
