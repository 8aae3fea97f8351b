"""What a repair of the store's clock leaves behind: which numbers of epochs mean nothing any more.

A clock that was years ahead, or a number that somebody made up, has given epochs numbers of the far future; the repair
gives their rows present ones. A caller that noted such a number before must not read by it: as a number of the future
it would show what came later, too. Pins, reads by epoch and conditional commits ask here.
"""

import msgspec

from tussock.statestore.errors import SnapshotExpired

__all__ = ["Renumbered", "renumbering_error"]


class Renumbered(msgspec.Struct, frozen=True, kw_only=True):
    """Epochs far ahead of the bucket's clock got smaller numbers."""

    seq: int
    """The log entry that did it."""
    first: int
    """The smallest number that was taken back."""
    last: int
    """The largest one."""

    def means_nothing(self, epoch: int, newest: int) -> bool:
        """Whether the number was noted before the repair, so that nobody may read by it; `newest`: the newest epoch.

        Once the store's epochs have come to these numbers again they are epochs like any other.
        """
        return newest < self.first <= epoch <= self.last

    def ends_pin(self, epoch: int, seen: int) -> bool:
        """Whether a pin on the epoch, found to hold after log entry `seen`, is on a number that was taken back."""
        return seen < self.seq and epoch >= self.first


def renumbering_error(epoch: int, newest: int) -> SnapshotExpired:
    """The error for a number that means nothing any more."""
    return SnapshotExpired(
        f"epoch {epoch} was far ahead of the bucket's clock, and a repair of the store gave its rows a smaller number; "
        f"the newest epoch is {newest}: read there, or pin again",
        epoch,
        newest,
    )
