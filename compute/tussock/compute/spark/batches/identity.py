"""Whose a micro-batch is: the writer under which the ledger has it, so that a repeat is known and nothing else is.

A function of `foreachBatch` may commit several times. Each commit needs a name of its own in the ledger, or the second
one would be taken for a repeat of the first, and its rows would be lost without a sign. So the name that a commit has
by default is that of the query and the tables; where a user gives one name to two commits, the second is refused.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from tussock.statestore.base.arguments import WRITER_LENGTH_MAX
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Fenced, InvalidOption

__all__ = ["MicroBatch", "check_tables_kept", "claim", "default_writer", "micro_batch", "release", "sink_batch"]

_CLAIMS_MAX = 1024
_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_claims: dict[tuple[str, str], tuple[int, str]] = {}
"""By store and writer the newest batch that this process committed, or found committed, and in which run of a query."""
_lock = threading.Lock()


class MicroBatch(NamedTuple):
    """A batch that is to be committed."""

    writer: str
    number: int
    query: str | None
    """The streaming query that it is of; its listeners can hear of it."""
    source: str | None = None
    """Whose the writer's batches are, in words; the ledger keeps this, and refuses those of another source."""
    earlier: str | None = None
    """The writer's name by default in earlier versions, which took no heed of tables."""
    run: str | None = None
    """The run of the query: each start of it is another one, and has each batch once."""
    tables: tuple[str, ...] = ()
    """What tells this commit from others of the same query, where the writer has its name from there."""


def micro_batch(rows: DataFrame, number: int, writer: str | None, tables: Iterable[str]) -> MicroBatch:
    """The batch that a function of `foreachBatch` was given, for a commit to these tables.

    `tables` are those by which the commit is known when it is repeated: of `stateful` those of the state. Raises
    `InvalidOption` without a writer, if the batch is no query's, and for a number that no batch has.
    """
    _check_number(number)
    context = rows.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId") or None
    names = tuple(sorted(tables))
    if writer is not None:
        return MicroBatch(str(writer), number, query, source_of(query, names), run=_run(context, query))
    if query is None:
        raise InvalidOption(
            "writer is missing, and this is not a streaming query's batch, whose id would do; give a writer, so that "
            "a repeated batch is recognised"
        )
    return MicroBatch(
        default_writer(query, names), number, query, source_of(query, names), query, _run(context, query), names
    )


def sink_batch(writer: str | None, number: int, query: str | None, table: str) -> MicroBatch:
    """The batch of a sink or of a batch write, of which a query has one: its id does for a name."""
    name = writer or query
    assert name is not None
    return MicroBatch(name, number, query, source_of(query, (table,)))


def default_writer(query: str, tables: Iterable[str]) -> str:
    """The name under which a helper commits a query's batches, where the user gave none."""
    return _bounded(f"{query} {json.dumps(sorted(tables))}")


def source_of(query: str | None, tables: Iterable[str]) -> str:
    """Whose a writer's batches are. A query's may have other tables from batch to batch; calls are told by `claim`."""
    return f"query {query}" if query is not None else _bounded(f"a write of {json.dumps(sorted(tables))}")


def _bounded(name: str) -> str:
    """A name as short as the ledger takes them, and still another one for other tables."""
    if len(name) <= WRITER_LENGTH_MAX:
        return name
    return f"{name[: WRITER_LENGTH_MAX - 65]} {hashlib.sha256(name.encode()).hexdigest()}"


def claim(url: str, batch: MicroBatch) -> None:
    """Note that this run of the query has brought the batch under that name; `Fenced` if another call of it did."""
    if batch.run is None:
        return
    with _lock:
        if _claims.get((url, batch.writer)) == (batch.number, batch.run):
            raise Fenced(
                f"batch {batch.number} was committed as writer {batch.writer!r} before, by another call within the "
                "same batch: the store would take this one for a repeat, and its rows would be lost; give each of the "
                "helpers in your function a writer= of its own, or write their tables by one write_epoch",
                batch.writer,
                batch.number,
            )
        _claims.pop((url, batch.writer), None)
        _claims[url, batch.writer] = batch.number, batch.run
        if len(_claims) > _CLAIMS_MAX:
            del _claims[next(iter(_claims))]


def release(url: str, batch: MicroBatch) -> None:
    """The claimed commit failed: the same call may come again."""
    with _lock:
        if _claims.get((url, batch.writer)) == (batch.number, batch.run):
            del _claims[url, batch.writer]


def check_tables_kept(store: StateStore, batch: MicroBatch) -> None:
    """Raise `Fenced` if the batch was committed when its commit had other tables, some of them the same.

    Its name by default would be another one then, and a merge would count twice. Commits of this very run are those of
    other helpers.
    """
    if not batch.tables:
        return
    # The caller has just asked the store for the batch, so what is known here is new.
    ledger: dict[str, Any] = getattr(store.recent_version(), "ledger", {})
    for writer, batches in ledger.items():
        tables = _tables_of(writer, batch)
        if tables is None or not set(tables) & set(batch.tables) or batch.number not in (each[0] for each in batches):
            continue
        with _lock:
            if _claims.get((store.url, writer)) == (batch.number, batch.run):
                continue
        raise Fenced(
            f"batch {batch.number} of query {batch.query} was committed for the tables {tables}, and is now repeated "
            f"for {list(batch.tables)}: the rows that were stored then would be counted again; let the batch end with "
            "the tables as they were and change them after it, or give writer= to know the commit by",
            batch.writer,
            batch.number,
        )


def _tables_of(writer: str, batch: MicroBatch) -> list[str] | None:
    """The tables in a name by default of the batch's query, if they are not the batch's own."""
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


def _check_number(number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
        raise InvalidOption(f"batch_id is {number!r}; expected an integer from 0 to 2**63-1")
