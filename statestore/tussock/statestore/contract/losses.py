"""What a store has lost for good, as its version tells: rows of damaged SSTs that somebody has agreed to go without.

Records that the rooms pass to each other, as those in `records.py`; `docs/version-log.md` lists their fields.
"""

import msgspec

from tussock.statestore.contract.records import SstInfo

__all__ = ["AcceptedLoss", "LostRange"]


class LostRange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """User keys of a table some of whose rows were lost."""

    first: bytes
    """The smallest."""
    end: bytes
    """Where they end: what comes before it was lost, and it itself if the range is `closed`."""
    closed: bool = False

    def text(self) -> str:
        """For people and logs, keys as hex."""
        return f"{self.first.hex() or 'the first key'} {'to' if self.closed else 'until before'} {self.end.hex()}"


class AcceptedLoss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One damaged SST that a repair has put aside, and which of its rows no reader sees any more."""

    sst: SstInfo
    """As the version named it until then."""
    table_id: int
    table: str
    """The table's name then."""
    rows: int
    """Rows that were lost, every version and delete counted."""
    deletes: int
    """Of these, deletes: what they hid may be seen again."""
    bytes: int
    """Of the blocks that were lost, as they are stored."""
    min_epoch: int
    """No lost row has a smaller epoch; 0 if none was lost."""
    max_epoch: int
    ranges: tuple[LostRange, ...]
    """Ascending and apart from each other; none if all rows could be saved."""
    uncovered: int = 0
    """SSTs of older runs that have keys in these ranges: rows in them may be seen again."""
    saved: str = ""
    """Id of the SST that has the other rows; empty: there were none."""
    seq: int = 0
    """The log entry that put it aside."""
    at_ms: int = 0
    by: str = ""
    """Host and process, for people."""
    discarded: bool = False
    """Its objects are no longer kept."""
