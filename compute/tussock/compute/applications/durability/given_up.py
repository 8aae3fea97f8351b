"""Giving up what an application's input log has after its newest commit, where no start can run it again.

The records are kept in the table `APPLICATION.given_up`, in the epoch that moves the application behind them: callers
have had replies to them, so they must not be lost without a word.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.borders.exact_json import json_part
from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.progress import (
    APPLICATIONS,
    create_applications,
    read_progress,
    write_progress,
)
from tussock.compute.applications.ipc_streams import ipc_table
from tussock.compute.applications.records import FED, Record, RecordKind
from tussock.statestore import InvalidOption, StateStore, TableExists
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.rows.python_values import python_rows
from tussock.statestore.transactions.delta import Delta

__all__ = ["GIVEN_UP_SCHEMA", "GivenUp", "give_up_application"]

TEXT_MAX = 65_536
GIVEN_UP_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("given", pa.binary(), nullable=False),
    ]
)


class GivenUp(NamedTuple):
    """What was given up."""

    records: int
    table: str
    """Where they are kept; it is not made for none."""
    epoch: int
    """That holds them, and from which the application goes on."""


def give_up_application(store: StateStore, application: str, *, place: str | None = None, forget: bool) -> GivenUp:
    """Give up the records that no commit holds, or with `forget` the application as well, whose tables stay.

    It has to be stopped: what runs is shut out. `place`: the URL of the input log, if not in the store's bucket. Raises
    `InvalidOption` if the store has no such application, and `CorruptLog`.
    """
    create_applications(store)
    if store.table(APPLICATIONS).get(application) is None:
        known = sorted(
            row["name"] for batch in store.table(APPLICATIONS).read(columns=["name"]) for row in batch.to_pylist()
        )
        raise InvalidOption(f"the store has no application {application!r:.120}; there are {known[:20]}")
    generation = store.open_writer(application)
    delta = store.delta(application, generation=generation)
    try:
        return _give_up(store, delta, application, generation, place, forget=forget)
    finally:
        delta.close()


def _give_up(
    store: StateStore, delta: Delta, application: str, generation: int, place: str | None, *, forget: bool
) -> GivenUp:
    known = read_progress(store, delta, application)
    bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
    log = InputLog(bucket, application, known.uid, generation, known.takeovers)
    table, count, seq = f"{application}.given_up", 0, known.seq
    for group in log.take_over(known.next_object):
        if group.records:
            count += len(group.records)
            seq = group.records[-1].seq
            _kept(store, delta, table).upsert(pa.Table.from_pylist(list(_rows(group.records)), schema=GIVEN_UP_SCHEMA))
    if forget:
        seq += 1
        delta.table(APPLICATIONS, shared=True).delete([application])
    elif count:
        write_progress(delta, application, replace(known, seq=seq, next_object=log.next, takeovers=list(log.takeovers)))
    epoch = delta.freeze(seq).commit() if forget or count else store.committed_epoch
    log.truncate(log.next)
    return GivenUp(count, table, epoch)


def _kept(store: StateStore, delta: Delta, table: str) -> Any:
    if table not in store.tables():
        try:
            store.create_table(table, GIVEN_UP_SCHEMA, primary_key=["seq"], vnodes=1)
        except TableExists:
            store.tables()
    # Shared: users look at them, and delete them.
    return delta.table(table, shared=True)


def _rows(records: list[Record]) -> Iterator[dict[str, Any]]:
    for one in records:
        yield {
            "seq": one.seq,
            "kind": RecordKind(one.kind).name.lower(),
            "name": one.name,
            "batch_id": one.batch_id,
            "text": readable(one.given),
            "given": one.given,
        }


_RECORDS, _ARROW = b"D", b"A"
"""What rows begin with (`docs/formats/input-log.md`)."""


def readable(given: bytes) -> str:
    """What a record was given, as JSON where it can be told, for people: of rows, or of requests and arguments."""
    for decode in (_of_arrow, _of_msgpack):
        try:
            text = msgspec.json.encode(decode(given), enc_hook=json_part).decode()
            return clean_text(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " ...")
        except (pa.ArrowException, msgspec.MsgspecError, OSError, TypeError, ValueError, RecursionError):
            continue
    return ""


def _of_arrow(given: bytes) -> Any:
    return python_rows(ipc_table(given.removeprefix(_ARROW)).slice(0, 1000))


def _of_msgpack(given: bytes) -> Any:
    marks = (FED, _RECORDS)
    return msgspec.msgpack.decode(given[1:] if given.startswith(marks) else given)
