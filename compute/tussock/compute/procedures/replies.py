"""The replies of the newest batches, so that a batch that comes twice gets the first one again."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.statestore.errors import InvalidOption

__all__ = ["REPLIES_SCHEMA", "Replies", "Reply", "pack_value", "unpack_value"]

REPLIES_MAX = 10_000
"""Of one procedure."""
REPLY_BYTES_MAX = 1 << 20

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
_NOTHING = b"P" + _encode(None)


def pack_value(value: Any) -> bytes:
    """A reply as bytes; `InvalidOption` if it is neither plain nor a table."""
    if value is None:
        return _NOTHING
    if isinstance(value, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        data = b"A" + sink.getvalue().to_pybytes()
    else:
        try:
            data = b"P" + _encode(value)
        except (TypeError, OverflowError, UnicodeEncodeError) as error:
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
    with pa.ipc.open_stream(pa.py_buffer(data)[1:]) as reader:
        return reader.read_all()


class Reply(NamedTuple):
    """What a batch was answered."""

    batch_id: int
    value: bytes
    failed: str = ""
    """The procedure that raised."""
    cause: str = ""


class Replies:
    """The newest replies of each border procedure, in a ring of slots: batch ids modulo their number."""

    def __init__(self) -> None:
        self._by_procedure: dict[str, dict[int, Reply]] = {}
        self._fresh: dict[tuple[str, int], None] = {}

    def add(self, procedure: str, reply: Reply) -> None:
        """The reply of a batch, in the place of a much older one."""
        slot = reply.batch_id % REPLIES_MAX
        self._by_procedure.setdefault(procedure, {})[slot] = reply
        self._fresh[procedure, slot] = None

    def find(self, procedure: str, batch_id: int) -> Reply | None:
        """The reply of just that batch, if it is still kept."""
        reply = self._by_procedure.get(procedure, {}).get(batch_id % REPLIES_MAX)
        return reply if reply is not None and reply.batch_id == batch_id else None

    def load(self, rows: Iterable[dict[str, Any]]) -> None:
        """What `changed_rows` gave in former runs."""
        for row in rows:
            reply = Reply(row["batch_id"], row["value"], row["failed"], row["cause"])
            self._by_procedure.setdefault(row["procedure"], {})[row["slot"]] = reply

    def changed_rows(self) -> list[dict[str, Any]]:
        """Rows of `REPLIES_SCHEMA` for what was added since the last call."""
        fresh, self._fresh = self._fresh, {}
        return [
            {"procedure": procedure, "slot": slot, **self._by_procedure[procedure][slot]._asdict()}
            for procedure, slot in fresh
        ]
