"""Messages of any size as parts, so that a port takes none that is large, and hears something while one comes."""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.errors import InvalidOption

__all__ = ["PART_BYTES_MAX", "MessageParts", "parts_of"]

PART_BYTES_MAX = 512 << 10


def parts_of(message: bytes) -> Iterator[bytes]:
    """A message as serialized `WorkerPart`s; one at least."""
    last = max(len(message) - 1, 0) // PART_BYTES_MAX
    for at in range(last + 1):
        data = message[at * PART_BYTES_MAX : (at + 1) * PART_BYTES_MAX]
        yield pb.WorkerPart(data=data, is_last=at == last).SerializeToString()


class MessageParts:
    """Puts together what comes in parts."""

    def __init__(self, bytes_max: int) -> None:
        """Of a message."""
        self.bytes_max = bytes_max
        self._parts: list[bytes] = []

    def take(self, data: bytes) -> bytes | None:
        """The message that a part completes, or `None`; `InvalidOption` for what is no part, or one too many."""
        try:
            part = pb.WorkerPart.FromString(data)
        except DecodeError:
            raise InvalidOption(f"{len(data):,} bytes are no part of a message") from None
        # So nobody keeps memory with parts that are nearly empty.
        if len(part.data) > PART_BYTES_MAX or (not part.is_last and len(part.data) < PART_BYTES_MAX):
            raise InvalidOption(f"a part of {len(part.data):,} bytes; all but the last have {PART_BYTES_MAX:,}")
        if len(self._parts) * PART_BYTES_MAX + len(part.data) > self.bytes_max:
            raise InvalidOption(f"a message has more than the {self.bytes_max:,} bytes that fit")
        self._parts.append(part.data)
        if not part.is_last:
            return None
        message, self._parts = b"".join(self._parts), []
        return message
