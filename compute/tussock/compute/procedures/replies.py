"""The replies of the newest batches, so that a batch that comes twice gets the first one again."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.statestore.errors import InvalidOption

__all__ = ["REPLIES_SCHEMA", "Replies", "Reply", "pack_value", "unpack_value"]

REPLIES_MAX = 10_000
"""Of one procedure."""
REPLY_BYTES_MAX = 1 << 20
REPLIES_BYTES_MAX = 64 << 20
"""Of all that are kept of one procedure."""

REPLIES_SCHEMA = pa.schema(
    [
        pa.field("procedure", pa.string(), nullable=False),
        pa.field("slot", pa.int64(), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("failed", pa.string(), nullable=False),
        pa.field("cause", pa.string(), nullable=False),
    ]
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_FLAT = (bool, int, float, str, bytes)
_NOTHING = b"P" + _encode(None)


def pack_value(value: Any) -> bytes:
    """A reply as bytes; `InvalidOption` if it is neither plain nor a table."""
    if value is None:
        return _NOTHING
    if isinstance(value, pa.Table):
        data = b"A" + ipc_bytes(value)
    else:
        try:
            data = b"P" + _encode(value)
            if not isinstance(value, _FLAT):
                # Some values can be written that cannot be read, and nobody could be given such a reply.
                _decode(data[1:])
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError) as error:
            raise InvalidOption(
                f"a reply is {value!r:.100}: {error}; expected None, booleans, numbers, strings, bytes, times, lists "
                "and dicts of them, or an Arrow table"
            ) from error
    if len(data) > REPLY_BYTES_MAX:
        raise InvalidOption(f"a reply has {len(data):,} bytes; at most 1 MiB fit: reply with keys, and read the rows")
    return data


def unpack_value(data: bytes) -> Any:
    """The reply as a caller gets it, the first time and later."""
    if data is _NOTHING:
        return None
    if data[:1] == b"P":
        return _decode(data[1:])
    return ipc_table(pa.py_buffer(data)[1:])


class Reply(NamedTuple):
    """What a batch was answered."""

    batch_id: int
    value: bytes
    failed: str = ""
    """The procedure that raised."""
    cause: str = ""


class Replies:
    """The newest replies of each border procedure."""

    def __init__(self) -> None:
        self._by_procedure: dict[str, dict[int, tuple[int, Reply]]] = {}
        """By batch id, in the order of the ids: the slot of the row, and the reply."""
        self._nbytes: dict[str, int] = {}
        self._fresh: dict[tuple[str, int], Reply] = {}
        self._gone: dict[tuple[str, int], None] = {}

    def add(self, procedure: str, reply: Reply) -> None:
        """The reply of a batch, whose id is above all others of the procedure; the oldest one goes for it."""
        replies = self._by_procedure.setdefault(procedure, {})
        slot = (next(reversed(replies.values()))[0] + 1) % (2 * REPLIES_MAX) if replies else 0
        self._keep(procedure, slot, reply)
        self._fresh[procedure, slot] = reply
        self._gone.pop((procedure, slot), None)
        while len(replies) > REPLIES_MAX or self._nbytes[procedure] > REPLIES_BYTES_MAX:
            oldest, old = replies.pop(next(iter(replies)))
            self._nbytes[procedure] -= len(old.value) + len(old.cause)
            self._fresh.pop((procedure, oldest), None)
            self._gone[procedure, oldest] = None

    def find(self, procedure: str, batch_id: int) -> Reply | None:
        """The reply of just that batch, if it is still kept."""
        found = self._by_procedure.get(procedure, {}).get(batch_id)
        return None if found is None else found[1]

    def load(self, rows: Iterable[dict[str, Any]]) -> None:
        """What `changed_rows` gave in former runs."""
        for row in sorted(rows, key=lambda row: row["batch_id"]):
            reply = Reply(row["batch_id"], row["value"], row["failed"], row["cause"])
            self._keep(row["procedure"], row["slot"], reply)

    def changed_rows(self) -> tuple[list[dict[str, Any]], list[tuple[str, int]]]:
        """Since the last call: rows of `REPLIES_SCHEMA` that came, and keys of those that went."""
        fresh, gone = self._fresh, list(self._gone)
        self._fresh, self._gone = {}, {}
        rows = [{"procedure": name, "slot": slot, **reply._asdict()} for (name, slot), reply in fresh.items()]
        return rows, gone

    def _keep(self, procedure: str, slot: int, reply: Reply) -> None:
        self._by_procedure.setdefault(procedure, {})[reply.batch_id] = slot, reply
        self._nbytes[procedure] = self._nbytes.get(procedure, 0) + len(reply.value) + len(reply.cause)
