"""What a start does before requests come: read how far the application is, and run what the log has after that."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tussock.compute.applications.durability.background import taken_over
from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.progress import ApplicationProgress, read_progress, write_progress
from tussock.compute.applications.errors import NotDeterministic, TablesChanged
from tussock.compute.applications.program import Host, Program
from tussock.statestore import Fenced, StateStore
from tussock.statestore.base.logs import get_logger
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.transactions.delta import Delta

__all__ = ["Recovered", "blamed", "recover"]

log = get_logger("tussock.compute.applications.recovery")


class Recovered(NamedTuple):
    """Where the work goes on."""

    progress: ApplicationProgress
    """Of the newest commit."""
    input_log: InputLog
    """From now on this runner's."""
    seq: int
    """Of the newest record, which the progress may lack."""


def recover(
    store: StateStore, delta: Delta, name: str, program: Program, host: Host, place: str | None, generation: int
) -> Recovered:
    """Load a program at the newest commit, take its log over, and replay what the commit lacks.

    Raises `NotDeterministic`, `TablesChanged`, `CorruptLog`, what opening the store's tables raises, and
    `ApplicationFenced` where another runner is faster.
    """
    known = read_progress(store, delta, name)
    bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
    input_log = InputLog(bucket, name, known.uid, generation, known.takeovers)
    program.load(delta, known.state, host)
    known = replace(known, tables=_still_there(store, {**known.tables, **delta.opened}))
    seq = known.seq
    if not known.state:
        # The log's uid has to be known before anything is in it.
        known = replace(known, state=program.persist())
        write_progress(delta, name, known)
        try:
            delta.freeze(seq).commit()
        except Fenced as error:
            raise taken_over(name, error) from error
    else:
        _check_newest(store, name, seq, generation)
    replayed, newest = 0, generation
    for group in input_log.take_over(known.next_object):
        if group.generation > newest:
            newest = group.generation
            _check_newest(store, name, known.seq, generation)
        for record in group.records:
            try:
                program.replay(record)
            except NotDeterministic as error:
                raise blamed(store, name, known, {**known.tables, **delta.opened}, error) from error
            seq = record.seq
            replayed += 1
    if replayed:
        log.info("application recovered", application=name, records=replayed, seq=seq)
    return Recovered(known, input_log, seq)


def blamed(
    store: StateStore, name: str, known: ApplicationProgress, tables: Mapping[int, str], error: NotDeterministic
) -> NotDeterministic:
    """What a replay fails with: functions are not to blame for other rows than those that they had."""
    last = store.committed_batch(name, known.seq)
    there = store.version().tables
    for table, named in tables.items():
        if last is not None and table in there and (newest := there[table].last_epoch) > last:
            return TablesChanged(
                f"application {name!r}: somebody else has committed to table {named!r} at epoch {newest}, after the "
                f"application's last commit, epoch {last}; so what its input log has since cannot be run again with "
                f"the results that callers were told ({error}). Nothing was changed. Put the rows of {named!r} back "
                f"as they are at epoch {last}, and start it again; or give up what the log has, with `tussock repair "
                f"application {name} --give-up`, which keeps it in table '{name}.given_up'",
                named,
                newest,
            )
    return error


def _check_newest(store: StateStore, name: str, seq: int, generation: int) -> None:
    """`ApplicationFenced` unless this runner is the newest one by the store, too, and not by its log alone.

    If it took the log from a newer one, neither could go on. A store that was brought back from a backup may count
    fewer generations than the log, so the log alone says nothing.
    """
    probe = store.delta(name, generation=generation)
    try:
        # Without rows, and of a batch that is committed: it changes nothing.
        probe.freeze(seq).commit()
    except Fenced as error:
        raise taken_over(name, error) from error
    finally:
        probe.close()


def _still_there(store: StateStore, tables: Mapping[int, str]) -> dict[int, str]:
    """Without those that a changed program had no use for, and somebody has dropped."""
    there = store.version().tables
    return {table: name for table, name in tables.items() if table in there}
