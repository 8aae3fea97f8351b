"""`Limits`: sizes, and a time, that nobody has to choose, and that tests and small machines shrink.

With small ones a few rows make what else takes gigabytes: many segments, a key whose versions fill many batches, an
SST of two objects. None is stored: a store may be opened with others each time.
"""

import msgspec

from tussock.statestore.errors import InvalidOption
from tussock.statestore.shown import show_value

__all__ = ["DEFAULT_LIMITS", "Limits", "check_sizes"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much an open store handles at once."""

    segment_bytes: int = 2 << 20
    """Consecutive blocks are read, decoded and cached together up to about this size when many of them are wanted."""
    segment_bytes_max: int = 8 << 20
    """A segment that many versions of one key have made larger than this is read in pieces."""
    batch_bytes: int = 32 << 20
    """A merged batch has no more, unless a single row has."""
    merge_bytes: int = 64 << 20
    """Once the inputs of a merge hold this many bytes, another is opened only when nothing else can be given out."""
    sst_bytes: int = 64 << 20
    """Bytes of an SST before compression, in commits, spills and merges of an embedded store."""
    one_object_bytes: int = 256 << 10
    """An SST with no more data than this is one object. Measured in decision 0014: up to here it is written sooner, and
    read whole sooner than a meta and one block in two requests."""
    whole_filter_bytes: int = 64 << 10
    """A larger filter of an SST of two objects lies apart from the rest of its meta, in parts of up to a quarter of
    this. Measured in decision 0038."""
    hand_on_bytes: int = 4 << 20
    """An SST of a compaction is uploaded while it is made, by this many bytes, once it has them."""
    commit_payload_bytes: int = 1 << 20
    """Bytes of small SSTs that one commit puts into its log entry; further ones become objects. A process that reads
    the log reads them whether it needs them or not."""
    issued_epochs: int = 100_000
    """Epochs handed out and not yet used that are remembered; older ones are forgotten and then refused."""
    overlay_rows: int = 16_384
    """Rows of a table that a transaction keeps as it was given them, in each of two generations."""
    compactor_seconds: int = 30
    """A manual compaction of a platform waits for a compactor that long while none is connected."""


DEFAULT_LIMITS = Limits()


def check_sizes(limits: object, kind: type[msgspec.Struct] = Limits) -> None:
    """`InvalidOption` unless these are limits of that kind, at least 1 each; an SST of one object may have no data."""
    if not isinstance(limits, kind):
        raise InvalidOption(f"limits is {show_value(limits)}; expected {kind.__module__}.{kind.__name__}")
    for name in limits.__struct_fields__:
        size, least = getattr(limits, name), int(name != "one_object_bytes")
        if type(size) is not int or size < least:
            raise InvalidOption(f"limits.{name} is {show_value(size)}; expected a number of at least {least}")
