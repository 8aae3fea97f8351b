"""What is done to the kept state of a flow that does not run: a stream to be made anew, or to be no more as it was.

Both are a commit under the flow's own name, which shuts out what may still run. Where the input log has what no commit
holds nothing is done: it is of the flow as it was.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.progress import (
    APPLICATIONS,
    ApplicationProgress,
    create_applications,
    write_progress,
)
from tussock.compute.applications.durability.progress import read_progress as read_application
from tussock.compute.changelog.bad_rows import BAD_ROWS_KEY
from tussock.compute.changelog.engine.tables.foreign_writes import changed_by_others, touched_tables
from tussock.compute.changelog.histories import HISTORY_KEY
from tussock.compute.changelog.progress import VERSION, FlowProgress, StreamProgress, read_progress
from tussock.compute.changelog.push_ids import PUSH_IDS_KEY
from tussock.statestore import InvalidOption, StateStore, TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.transactions.delta import Delta

__all__ = ["forget_stream", "rebuild_stream", "repair"]

log = get_logger("tussock.compute.changelog")

OWN = ("by_age", "by_key", "outbox")
"""Of `FLOW.STREAM.*` what is no operator's: ages of rows that stay, and what an output has still to send."""

Change = Callable[[Delta, FlowProgress], Iterable[str]]
"""Changes the progress; returns the names of tables to drop."""


def rebuild_stream(store: StateStore, flow: str, stream: str, *, place: str | None = None) -> None:
    """Let the next start make a stream anew from the rows of its inputs, and publish what differs.

    One that reads no others goes on from the rows that it has. Streams whose tables others have written to are made
    anew with it. `place`: the URL of the input log, if not in the store's bucket. Raises `InvalidOption` if there is no
    such flow or stream, or if the flow was not stopped in order.
    """

    def change(_: Delta, known: FlowProgress) -> list[str]:
        if stream not in known.streams:
            raise InvalidOption(f"flow {flow!r} has no stream {stream!r:.120}; it has {sorted(known.streams)}"[:2000])
        known.streams[stream] = replace(known.streams[stream], is_rebuilt=True)
        return _tables_of(flow, stream, tables)

    tables: list[str] = []
    repair(store, flow, place, change, tables, InvalidOption)


def forget_stream(store: StateStore, flow: str, stream: str, *, place: str | None = None) -> list[str]:
    """Drop a stream's table, histories, bad transactions and position: at its next start it is empty, and begins anew.

    It goes on with its numbers. Those behind it are made anew by the next start, and so is it, if it reads others.
    Returns the names of tables that were dropped. Raises `InvalidOption` as `rebuild_stream`.
    """

    def change(delta: Delta, known: FlowProgress) -> list[str]:
        gone = _tables_of(flow, stream, tables)
        gone += [
            one for one in tables if one == stream or one in (f"{flow}.{stream}.by_age", f"{flow}.{stream}.by_key")
        ]
        if stream not in known.streams and not gone:
            raise InvalidOption(f"flow {flow!r} has no stream {stream!r:.120}; it has {sorted(known.streams)}"[:2000])
        one = known.streams.get(stream)
        if one is not None:
            known.streams[stream] = StreamProgress(
                taken=one.taken, published=one.published, pushed=one.pushed, is_rebuilt=True
            )
        known.feeds.pop(stream, None)
        for name in _behind(known, stream):
            known.streams[name] = replace(known.streams[name], is_rebuilt=True)
            # What an operator keeps depends on the key of its input, which may be another one now.
            gone += _tables_of(flow, name, tables)
        _delete(delta, f"{flow}.histories", HISTORY_KEY, stream)
        _delete(delta, f"{flow}.bad_rows", BAD_ROWS_KEY, stream)
        if f"{flow}.push_ids" in tables:
            _delete(delta, f"{flow}.push_ids", PUSH_IDS_KEY, stream, in_columns=("stream",))
        return gone

    tables: list[str] = []
    return repair(store, flow, place, change, tables, InvalidOption)


def _rebuild_touched(flow: str, known: FlowProgress, touched: Mapping[str, int]) -> None:
    """Let streams be made anew whose tables others have written to since the last commit, and those behind them.

    One that reads no others goes on from the rows that it has. `TablesChanged` for what is no stream's.
    """
    for table, epoch in touched.items():
        own = {f"{flow}.{one}" for one in ("histories", "push_ids")}
        if table in own:
            raise changed_by_others(flow, table, epoch, "")
        for name in [one for one in known.streams if table == one or table.startswith(f"{flow}.{one}.")]:
            log.warning("somebody else has written to a stream's table", flow=flow, stream=name, table=table)
            for one in (name, *_behind(known, name)):
                known.streams[one] = replace(known.streams[one], is_rebuilt=True)


def _behind(known: FlowProgress, stream: str) -> list[str]:
    """Those that read it, or one of these."""
    found = [stream]
    for one in found:
        found += [
            name for name, other in known.streams.items() if one in {*other.read, *other.begins} and name not in found
        ]
    return found[1:]


def _tables_of(flow: str, stream: str, tables: Iterable[str]) -> list[str]:
    """What its operator keeps."""
    own = f"{flow}.{stream}."
    return [one for one in tables if one.startswith(own) and one.removeprefix(own) not in OWN]


def _delete(
    delta: Delta, table: str, key: tuple[str, ...], stream: str, in_columns: tuple[str, ...] = ("stream", "source")
) -> None:
    """The rows of a stream, and those that are in its columns."""
    rows = delta.table(table, shared=True)
    found = [
        row
        for batch in rows.read([*dict.fromkeys((*key, *in_columns))])
        for row in batch.to_pylist()
        if stream in [row[one] for one in in_columns]
    ]
    if found:
        rows.delete([row[key[0]] if len(key) == 1 else tuple(row[one] for one in key) for row in found])


def repair(
    store: StateStore,
    flow: str,
    place: str | None,
    change: Change,
    tables: list[str],
    refusal: Callable[[str], TussockError],
) -> list[str]:
    """Change what is kept of a flow in a commit under its name; returns the names of the tables that were dropped.

    `tables` gets the names of the flow's tables before the change looks at them. `refusal` makes the error of a log
    that has what no commit holds.
    """
    create_applications(store)
    if store.table(APPLICATIONS).get(flow) is None:
        raise InvalidOption(f"the store has no flow {flow!r:.120} that has run: nothing is kept of it")
    delta = store.delta(flow, generation=(generation := store.open_writer(flow)))
    try:
        known = read_application(store, delta, flow)
        state = read_progress(flow, known.state)
        bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
        log = InputLog(bucket, flow, known.uid, generation, known.takeovers)
        # Read to its end, as only then the log is this one's.
        records = [len(group.records) for group in log.take_over(known.next_object)]
        if any(records):
            raise refusal(
                f"flow {flow!r} was not stopped in order: its input log has what no commit holds. Start it as it was, "
                f"and stop it; or give that up, with `tussock repair application {flow} --give-up`"
            )
        tables += known.tables.values()
        _rebuild_touched(flow, state, touched_tables(store, flow, known.seq, tables))
        gone = {table: name for name in set(change(delta, state)) for table, one in known.tables.items() if one == name}
        _commit(store, delta, flow, known, log, state, gone)
        return sorted(gone.values())
    finally:
        delta.close()


def _commit(
    store: StateStore,
    delta: Delta,
    flow: str,
    known: ApplicationProgress,
    log: InputLog,
    state: FlowProgress,
    gone: dict[int, str],
) -> None:
    # Dropped first: what is still noted when this fails half-way is asked for again, and an unnoted table is not.
    there = store.version().tables
    for table, name in gone.items():
        if table in there:
            store.drop_table(name)
    state.version = VERSION
    progress = ApplicationProgress(
        known.uid,
        known.seq + 1,
        log.next,
        list(log.takeovers),
        msgspec.msgpack.encode(state),
        {table: name for table, name in known.tables.items() if table not in gone},
    )
    write_progress(delta, flow, progress)
    delta.freeze(progress.seq).commit()
    log.truncate(log.next)
