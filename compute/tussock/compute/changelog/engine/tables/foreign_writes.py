"""Tables of a flow that somebody else has written to while it did not run, or altered while it did.

A store lets everybody write to every table. What a flow has in memory, and what its streams have made of each other,
does not hold then: it says so, and goes no further.
"""

from collections.abc import Collection, Mapping

from tussock.compute.applications.durability.claims import TableClaims
from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.progress import ApplicationProgress
from tussock.compute.applications.errors import TablesChanged
from tussock.compute.changelog.progress import StreamProgress
from tussock.statestore import StateStore
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.errors import ObjectNotFound

__all__ = ["changed_by_others", "check_untouched", "made_anew_after", "stream_of", "touched_tables"]

SHARED = "bad_rows"
"""Of which everybody may delete rows."""


def touched_tables(store: StateStore, flow: str, seq: int, tables: Collection[str]) -> dict[str, int]:
    """Of these tables those with a newer epoch than that of the flow's commit `seq`, with that epoch."""
    last = store.committed_batch(flow, seq)
    if last is None:
        return {}
    version = store.version()
    found = {}
    for name in sorted(tables):
        state = version.find_table(name)
        if name != f"{flow}.{SHARED}" and state is not None and state.last_epoch > last:
            found[name] = state.last_epoch
    return found


def check_untouched(
    store: StateStore,
    flow: str,
    known: Mapping[str, StreamProgress],
    tables: Collection[str],
    *,
    place: str | None,
) -> Mapping[str, int]:
    """`TablesChanged` if somebody else has committed to one of these since the flow did.

    Where the input log has what no commit holds, that has to be run first: such tables are returned, with their epochs.
    """
    while True:
        own = TableClaims(store, flow).own
        if own is None or not known:
            return {}
        noted = set(own.tables.values())
        touched = touched_tables(store, flow, own.seq, [name for name in tables if name in noted])
        if not touched:
            return {}
        has_records = _has_records(store, flow, own, place)
        newer = TableClaims(store, flow).own
        # Another runner that has not ended yet may have committed meanwhile.
        if newer is not None and newer.seq == own.seq:
            break
    if has_records:
        return touched
    table, epoch = next(iter(touched.items()))
    raise changed_by_others(flow, table, epoch, stream_of(flow, table, known))


def _has_records(store: StateStore, flow: str, own: ApplicationProgress, place: str | None) -> bool:
    delta = store.delta(flow)
    try:
        bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
        log = InputLog(bucket, flow, own.uid, 0, own.takeovers)
        return any(group.records for group in log.read(own.next_object))
    except ObjectNotFound:
        return True  # its runner lives, and has committed meanwhile
    finally:
        delta.close()


def stream_of(flow: str, table: str, streams: Collection[str]) -> str:
    """Whose table it is, of these; empty if it is the flow's."""
    return next((one for one in streams if table == one or table.startswith(f"{flow}.{one}.")), "")


def made_anew_after(flow: str, table: str, epoch: int, stream: str) -> TablesChanged:
    """What is wrong, of a flow that has brought its log to its end."""
    return TablesChanged(
        f"flow {flow!r}: somebody else has committed to its table {table!r} at epoch {epoch}, after the flow's last "
        "commit. What its input log had is done and committed, and the next start makes the streams anew that this "
        f"concerns, {stream!r} and those behind it; one that reads no others goes on from the rows that are there: "
        "start it again, or restore the store first",
        table,
        epoch,
    )


def changed_by_others(flow: str, table: str, epoch: int, stream: str) -> TablesChanged:
    """What is wrong; `stream`: whose table it is, empty if it is the flow's."""
    way_out = (
        f"let its stream, and those behind it, go on from the rows that are there, by rebuild({stream!r}) of the flow "
        f"or `tussock repair stream {flow} {stream} --rebuild`"
        if stream
        else f"give the flow up, with `tussock repair application {flow} --forget`"
    )
    return TablesChanged(
        f"flow {flow!r}: somebody else has committed to its table {table!r} at epoch {epoch}, after the flow's last "
        f"commit; so its streams do not belong together any more. Nothing was changed. Put the rows of {table!r} back "
        f"as they were, by restoring the store; or {way_out}",
        table,
        epoch,
    )
