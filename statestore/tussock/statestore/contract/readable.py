"""Which epochs a read without a pin may ask a version for."""

from tussock.statestore.contract.backend import VersionView
from tussock.statestore.contract.renumbered import renumbering_error
from tussock.statestore.errors import SnapshotExpired

__all__ = ["check_unpinned", "expiry_error"]


def check_unpinned(version: VersionView, epoch: int) -> None:
    """Raise `SnapshotExpired` if the version may have lost rows of the epoch, or its number means nothing there."""
    if epoch < version.safe_epoch:
        raise expiry_error(epoch, version.safe_epoch)
    if version.renumbered and version.renumbered.means_nothing(epoch, version.max_committed_epoch):
        raise renumbering_error(epoch, version.max_committed_epoch)


def expiry_error(epoch: int, oldest: int) -> SnapshotExpired:
    """The error for an epoch that is older than all that can be read."""
    return SnapshotExpired(
        f"epoch {epoch} is no longer kept: the oldest readable epoch is {oldest}; read at that or a later one, or, if "
        f"a pin keeps it, through pin_snapshot({epoch})",
        epoch,
        oldest,
    )
