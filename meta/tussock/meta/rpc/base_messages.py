"""Answers that are bytes already: a base version is many megabytes, and all who ask for it are sent the same ones.

Made by hand, by the encoding that protobuf documents, since a message of protobuf copies the bytes that it is given:
once into itself, once into the message around it, and once when it is encoded.
"""

from tussock.meta.rpc import meta_pb2 as pb

__all__ = ["Encoded", "base_message"]

_FIRST_FIELD = b"\x0a"
"""Number 1 of wire type 2: the update in an `Event` and in a `GetVersionResponse`, the snapshot in the update."""


class Encoded:
    """A message of protobuf that is encoded; satisfies what an answer has to."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:  # noqa: N802  # as protobuf calls it
        """The bytes."""
        return self._data


def base_message(seq: int, snapshot: bytes) -> bytes:
    """An `Event`, and a `GetVersionResponse`, whose update is the base version of `seq` alone."""
    rest = pb.VersionUpdate(snapshot_seq=seq, first_seq=seq + 1, seq=seq).SerializeToString()
    head = _FIRST_FIELD + _number(len(snapshot))
    return b"".join((_FIRST_FIELD, _number(len(head) + len(snapshot) + len(rest)), head, snapshot, rest))


def _number(value: int) -> bytes:
    """A number, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
