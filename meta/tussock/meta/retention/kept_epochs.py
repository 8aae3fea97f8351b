"""Which tables keep an epoch that is to be pinned; pure decisions on the version that the pin's holder has read.

A table may have its own retention. A pin on an epoch that only some tables keep still is held for these; for which
others it came too late is noted with it (`PinInfo.unkept`), and they are not read through it.
"""

from collections.abc import Callable, Iterator

from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.records import TableState
from tussock.statestore.contract.renumbered import renumbering_error
from tussock.statestore.errors import SnapshotExpired

__all__ = ["check_adopted", "check_kept", "check_not_dropped"]


def check_kept(
    version: Version, epoch: int, now_ms: int, retention_ms: int, smallest_pin: Callable[[], int | None]
) -> tuple[int, ...]:
    """Ids of the tables that do not keep the epoch any more; `SnapshotExpired` if none keeps it.

    `retention_ms` is that of tables without their own. `smallest_pin` lists the live pins beside the one in
    question, a request.
    """
    # In a store without tables the periods of the store decide.
    states: list[TableState | None] = [*_all_tables(version)] or [None]
    oldest = [version.oldest_readable(state, now_ms, retention_ms) for state in states]
    expired = [state for state, least in zip(states, oldest, strict=True) if epoch < least]
    lost = [state for state in expired if epoch < _safe_epoch(version, state)]
    if len(lost) < len(expired):
        # Past its retention, but nothing was dropped yet: fine if an older pin holds it, as where a job hands its
        # snapshot to its workers.
        smallest = smallest_pin()
        if smallest is not None and smallest <= epoch:
            expired = lost
    if len(expired) == len(states):
        raise _no_longer_kept(epoch, min(oldest))
    return tuple(state.spec.id for state in expired if state is not None)


def check_not_dropped(version: Version, epoch: int) -> tuple[int, ...]:
    """No table; `SnapshotExpired` if something of the epoch, which was the newest a moment ago, may be gone."""
    safe = max([version.safe_epoch, *map(version.safe_epoch_of, _all_tables(version))])
    if epoch < safe:
        raise _no_longer_kept(epoch, safe)
    return ()


def check_adopted(version: Version, pin: PinInfo, *, was_kept: bool) -> tuple[int, ...]:
    """Ids of the tables that a pin which another process took does not keep; `SnapshotExpired` if it may have lost one.

    `was_kept`: its object was never out of date.
    """
    repair = version.renumbered
    if repair and (
        repair.means_nothing(pin.epoch, version.max_committed_epoch)
        or (pin.seq and repair.ends_pin(pin.epoch, pin.seq))
    ):
        raise renumbering_error(pin.epoch, version.max_committed_epoch)
    passed_of = version.compacted_epoch_of if was_kept else version.safe_epoch_of
    passed = max((passed_of(state) for state in _all_tables(version) if state.spec.id not in pin.unkept), default=0)
    if pin.epoch < passed:
        raise SnapshotExpired(
            f"the pin {pin.id} on epoch {pin.epoch} cannot be taken over: compaction may have passed it, up to epoch "
            f"{passed}; pin again",
            pin.epoch,
            passed,
        )
    return pin.unkept


def _all_tables(version: Version) -> Iterator[TableState]:
    """Those that a snapshot may show."""
    yield from version.tables.values()
    yield from (gone.state for gone in version.gone.values())


def _safe_epoch(version: Version, state: TableState | None) -> int:
    return version.safe_epoch if state is None else version.safe_epoch_of(state)


def _no_longer_kept(epoch: int, oldest: int) -> SnapshotExpired:
    return SnapshotExpired(
        f"epoch {epoch} is no longer kept: the oldest readable epoch is {oldest}, and no older pin keeps it; read at "
        "that one or later, pin epochs before they expire, or open the store with a longer retention"
    )
