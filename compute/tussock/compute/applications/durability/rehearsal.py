"""A replay before the takeover: a program that has another result than it had is refused, and its runner goes on.

It runs on a delta that is never committed, and reads the log without taking it. A runner that is alive may commit
meanwhile; then the log and the tables do not fit together any more, and it begins anew, a few times. Where nothing can
be told so, the start goes on, and its own replay tells.
"""

from collections.abc import Callable

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.progress import APPLICATIONS, ApplicationProgress, progress_of
from tussock.compute.applications.durability.recovery import blamed
from tussock.compute.applications.durability.troubles import Troubles
from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.applications.program import Program
from tussock.compute.applications.records import Record
from tussock.statestore import StateStore, TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.transactions.delta import Delta

__all__ = ["rehearse"]

log = get_logger("tussock.compute.applications.rehearsal")

TRIES = 3


class _NoHost:
    """A replay needs nothing of its host."""

    def __init__(self, application: str, delta: Delta) -> None:
        self.troubles = Troubles(application, delta.system)

    def write_now(self, record: Record) -> None:
        raise AssertionError(f"a replay has written record {record.seq}")

    def wait_committed(self) -> None:
        """Nothing is cut."""

    def commit_now(self) -> None:
        raise AssertionError("a replay has committed")

    def give_up(self, why: str) -> None:
        log.error("a replay hangs before the takeover", error=why)


def rehearse(
    store: StateStore,
    name: str,
    make: Callable[[], Program],
    is_due: Callable[[bytes], bool],
    place: str | None,
) -> None:
    """Replay what no commit holds with a program of `make`; raises `NotDeterministic` and `TablesChanged`.

    `is_due` says of what the newest commit keeps for the layer whether that is of use. `place`: of the input log.
    """
    for _ in range(TRIES):
        known = _progress(store, name)
        if known is None or not known.state or not is_due(known.state):
            return
        error = _replay(store, name, make(), known, place)
        if error is None:
            return
        if _progress(store, name) == known:
            if isinstance(error, NotDeterministic):
                raise error
            log.warning("what the input log has is not tried before the takeover", application=name, error=str(error))
            return
    log.warning(
        "what the input log has is not tried before the takeover: its runner commits all the time", application=name
    )


def _replay(
    store: StateStore, name: str, program: Program, known: ApplicationProgress, place: str | None
) -> Exception | None:
    """What it has failed with; nothing is committed."""
    delta = store.delta(name)
    try:
        bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
        program.load(delta, known.state, _NoHost(name, delta))
        records = 0
        for group in InputLog(bucket, name, known.uid, 0, known.takeovers).read(known.next_object):
            for record in group.records:
                program.replay(record)
                records += 1
        log.info("replayed before the takeover", application=name, records=records)
        return None
    except NotDeterministic as error:
        return blamed(store, name, known, {**known.tables, **delta.opened}, error)
    except TussockError as error:
        return error
    finally:
        try:
            program.unload()
        except Exception as error:  # noqa: BLE001 - a program that was not loaded has nothing to unload
            log.debug("nothing to unload", application=name, error=cause_of(error))
        delta.close()


def _progress(store: StateStore, name: str) -> ApplicationProgress | None:
    row = store.table(APPLICATIONS).get(name)
    return None if row is None else progress_of(row)
