"""What a flow keeps beside its tables: how far each stream is. It is in the epoch of the state."""

import msgspec
from msgspec.structs import replace

from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import InvalidOption

__all__ = ["VERSION", "FlowProgress", "StreamProgress", "read_progress"]

VERSION = 3
"""Of what is written; those before it are read."""


class StreamProgress(msgspec.Struct):
    """Of one stream."""

    taken: int = 0
    """Transactions that were taken from the queue, bad ones included."""
    published: int = 0
    """The number of the newest transaction that was published."""
    pushed: int = 0
    """The number of the newest one that was pushed."""
    read: dict[str, int] = {}
    """By input stream, the number of the newest transaction of it that was taken; under "" of those pushed."""
    queued: list[int] = []
    """Numbers of pushed ones that wait; `FLOW.histories` has them."""
    rows: int = 0
    """Of a stream whose rows expire, how many there are."""
    numbered: int = 0
    """Of these, the newest number that one was given."""
    stamped: int = 0
    """Of these, the newest time that one was given, in milliseconds since 1970: times never go back."""
    begins: dict[str, int] = {}
    """By input that it is new to, and whose rows it takes part by part, how many it has taken; it is not in `read`."""
    definition: dict[str, str] = {}
    """What it is, in words; empty in version 1, which did not say."""
    columns: list[str] = []
    """Its columns in the order that records in histories have, if its table has another; from version 3 on."""
    is_away: bool = False
    """The flow has run without it since, so it lacks what its inputs have published meanwhile."""
    is_rebuilt: bool = False
    """The next start makes it anew from the rows of its inputs."""

    @property
    def is_old(self) -> bool:
        """Whether its rows are not what its inputs' rows come to."""
        return self.is_away or self.is_rebuilt


class FlowProgress(msgspec.Struct):
    """Of all streams, feeds and outputs."""

    streams: dict[str, StreamProgress] = {}
    bad: int = 0
    """Bad transactions of all runs."""
    feeds: dict[str, bytes] = {}
    letters: int = 0
    outputs: dict[str, list[int]] = {}
    layer: str = "changelog"
    version: int = 1
    """1 did not say it, nor what streams are."""


def read_progress(flow: str, state: bytes) -> FlowProgress:
    """What the newest commit holds; `InvalidOption` for another layer's, or a later version's."""
    if not state:
        return FlowProgress()
    try:
        found = msgspec.msgpack.decode(state, type=FlowProgress)
    except UNREADABLE:
        found = None
    # The progress of procedures has fields of the same names.
    if found is None or b"streams" not in state:
        raise InvalidOption(
            f"flow {flow!r}: the store has an application of that name which is no flow; give this one another name="
        )
    if found.version > VERSION:
        raise InvalidOption(
            f"flow {flow!r}: a newer Tussock has run it, and keeps its state in version {found.version}; this one "
            f"knows versions up to {VERSION}: install the newer one"
        )
    _rebuild_behind(found)
    return found


def _rebuild_behind(known: FlowProgress) -> None:
    """Let those that have begun with the rows of a stream that is made anew, and not got to the end, be so as well.

    They know these rows by their places, and there will be others. So do those that have begun with theirs.
    """
    old = [name for name, one in known.streams.items() if one.is_old]
    for name in old:
        behind = [one for one, other in known.streams.items() if name in other.begins and not other.is_old]
        for one in behind:
            known.streams[one] = replace(known.streams[one], is_rebuilt=True)
        old += behind
