"""Which epochs a read may ask a version for."""

from collections.abc import Collection

from tussock.statestore.contract.backend import VersionView
from tussock.statestore.contract.records import TableState
from tussock.statestore.contract.renumbered import renumbering_error
from tussock.statestore.errors import SnapshotExpired

__all__ = ["check_exact", "check_unpinned", "expiry_error"]


def check_unpinned(version: VersionView, state: TableState, epoch: int) -> None:
    """Raise `SnapshotExpired` if the table in that version may have lost rows of the epoch, or the epoch is no number.

    The latter is so where a repair of the store's clock has given it another one.
    """
    safe = version.safe_epoch_of(state)
    if epoch < safe:
        raise expiry_error(epoch, safe)
    if version.renumbered and version.renumbered.means_nothing(epoch, version.max_committed_epoch):
        raise renumbering_error(epoch, version.max_committed_epoch)


def check_exact(version: VersionView, state: TableState, epoch: int, unkept: Collection[int] = ()) -> None:
    """Raise `SnapshotExpired` unless the table in that version has all rows of the epoch, which a pin keeps.

    `unkept`: ids of the tables that the pin came too late for.
    """
    if state.spec.id in unkept:
        raise SnapshotExpired(
            f"table {state.spec.name!r}: epoch {epoch} was no longer kept when it was pinned, as the table's retention "
            "is shorter than that of others; read it at a later epoch, or pin epochs before they expire",
            epoch,
        )
    compacted = version.compacted_epoch_of(state)
    if compacted > epoch:
        raise SnapshotExpired(
            f"table {state.spec.name!r}: epoch {epoch} is pinned, but compaction has dropped rows below epoch "
            f"{compacted}: the pin was lost, or a clock in the cluster is wrong by more than a lease; pin again",
            epoch,
            compacted,
        )


def expiry_error(epoch: int, oldest: int, advice: str = "") -> SnapshotExpired:
    """The error for an epoch that is older than all that can be read; `advice` says what to do."""
    otherwise = f"read at that or a later one, or, if a pin keeps it, through pin_snapshot({epoch})"
    return SnapshotExpired(
        f"epoch {epoch} is no longer kept: the oldest readable epoch is {oldest}; {advice or otherwise}",
        epoch,
        oldest,
    )
