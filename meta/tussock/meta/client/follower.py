"""A version that follows the log by what somebody else reads from it: the entries that a meta service pushes.

Updates may come twice, late, or with a hole between them (two connections, an answer that overtook the stream); the
version only ever moves forward, entry by entry, or jumps ahead by a base version.
"""

from collections.abc import Sequence

from tussock.meta.log.format import base_path, decode_base, decode_entry, entry_path
from tussock.meta.log.recovery import apply_entry
from tussock.meta.version.version import Version

__all__ = ["follow"]


def follow(version: Version, snapshot_seq: int, snapshot: bytes, first_seq: int, entries: Sequence[bytes]) -> Version:
    """`version` moved on by an update, or `version` itself if that is no news or does not reach down to it.

    Raises `CorruptLog` if the bytes are damaged or do not fit; the version is as it was then.
    """
    if snapshot and snapshot_seq > version.seq:
        version = decode_base(base_path(snapshot_seq), snapshot_seq, snapshot)
    skipped = max(version.seq + 1 - first_seq, 0)
    if first_seq > version.seq + 1:
        return version
    for seq, data in enumerate(entries[skipped:], first_seq + skipped):
        version = apply_entry(version, decode_entry(entry_path(seq), seq, data))
    return version
