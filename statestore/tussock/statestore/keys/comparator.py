"""Full keys and the one rule by which they are ordered.

A full key is a user key followed by the 8-byte big-endian epoch. Comparing full keys as plain bytes would be wrong
twice: the newest epoch has to come first, and a user key may be a prefix of another one (`a` + epoch against
`ab` + epoch). So everything that orders full keys goes by `VersionedComparator`: user key ascending, then epoch
descending (cf. Hummock's `VersionedComparator`). Inside blocks the two parts are separate columns; a joined full
key appears where people see one (`tussock sst dump`) and in tests.
"""

import struct

__all__ = ["VersionedComparator", "full_key", "split_full_key"]

_EPOCH = struct.Struct(">Q")


def full_key(user_key: bytes, epoch: int) -> bytes:
    """Join a user key and an epoch (0 .. 2**64-1) into a full key."""
    return user_key + _EPOCH.pack(epoch)


def split_full_key(key: bytes) -> tuple[bytes, int]:
    """The user key and the epoch of a full key; `ValueError` if it is shorter than an epoch."""
    if len(key) < _EPOCH.size:
        raise ValueError(f"a full key ends with 8 bytes of epoch, this one has {len(key)} bytes in all: {key!r}")
    return key[: -_EPOCH.size], int(_EPOCH.unpack(key[-_EPOCH.size :])[0])


class VersionedComparator:
    """Orders full keys: user key ascending, then epoch descending."""

    @staticmethod
    def compare(left: bytes, right: bytes) -> int:
        """Negative, zero or positive as full key `left` comes before, equals or comes after `right`."""
        left_key, left_epoch = split_full_key(left)
        right_key, right_epoch = split_full_key(right)
        if left_key != right_key:
            return -1 if left_key < right_key else 1
        return (left_epoch < right_epoch) - (left_epoch > right_epoch)

    @staticmethod
    def sort_key(key: bytes) -> tuple[bytes, int]:
        """A key for `sorted` that gives the same order."""
        user_key, epoch = split_full_key(key)
        return user_key, -epoch
