"""Full keys: a user key followed by the 8-byte big-endian epoch, as people see it (`tussock sst dump`).

Their order is user key ascending, then epoch descending (cf. Hummock's `VersionedComparator`). Comparing them as plain
bytes would be wrong twice: the newest epoch has to come first, and a user key may be a prefix of another one (`a` +
epoch against `ab` + epoch). So inside blocks and batches the two parts are separate columns, and nothing is ordered by
the joined bytes.
"""

import struct

__all__ = ["full_key"]

_EPOCH = struct.Struct(">Q")


def full_key(user_key: bytes, epoch: int) -> bytes:
    """Join a user key and an epoch (0 .. 2**64-1) into a full key."""
    return user_key + _EPOCH.pack(epoch)
