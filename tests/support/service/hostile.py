"""Requests that no client of Tussock would send: any field, with values at the edges of its type."""

import random
from collections.abc import Sequence

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tussock.meta.rpc.methods import Method

_INTS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_NAMES = ("", "x", "\0", "../log/1", "pins/../leader", "%s%n", "{}", "kv", "\ud7ff\ue000", "a\nb")
_IDS = ("0" * 16, "0" * 32, "f" * 32, "g" * 32, f"{1:020d}-{1:016x}", f"{2**63}-0")
_TEXTS = (*_NAMES, *_IDS, "x" * 255, "x" * 256, "x" * 1025, "x" * 100_000, "\U0001f600" * 300)
_EMPTY = {FieldDescriptor.TYPE_STRING: "", FieldDescriptor.TYPE_BYTES: b""}
_DEPTH_MAX = 5
_SCHEMAS = {"schema", "add", "widen"}
"""Fields that hold an Arrow schema: bytes at random are refused before anything looks at a column."""


class Hostile:
    """Makes requests by a seed."""

    def __init__(self, seed: str, known: Sequence[str]) -> None:
        """`known` are texts with a meaning for the service: sessions, tables, pins."""
        self.random = random.Random(seed)
        self._texts = (*_TEXTS, *known, *known)

    def request(self, method: Method) -> bytes:
        """The bytes of a request, or bytes of none."""
        kind = self.random.random()
        if kind < 0.08:
            return self.random.randbytes(self.random.choice((0, 1, 50, 5_000, 200_000, 2_000_000)))
        data = self._fill(method.request(), 0).SerializeToString()
        if kind < 0.16 and data:
            damaged = bytearray(data)
            for _ in range(self.random.randrange(1, 8)):
                damaged[self.random.randrange(len(damaged))] = self.random.randrange(256)
            return bytes(damaged[: self.random.randrange(len(damaged) + 1)])
        return data * self.random.choice((2, 30)) if kind < 0.2 else data

    def _fill(self, message: Message, depth: int) -> Message:
        for field in message.DESCRIPTOR.fields:
            if self.random.random() < 0.25:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(message, field.name), field)
            elif field.is_repeated:
                self._fill_list(getattr(message, field.name), field, depth)
            elif field.message_type is not None:
                if depth < _DEPTH_MAX:
                    self._fill(getattr(message, field.name), depth + 1)
            else:
                setattr(message, field.name, self._value(field))
        return message

    def _fill_list(self, values, field: FieldDescriptor, depth: int) -> None:
        many = self.random.random() < 0.03
        for _ in range(self.random.randrange(20_000) if many else self.random.randrange(4)):
            if field.message_type is None:
                values.append(_EMPTY.get(field.type, 0) if many else self._value(field))
            elif many or depth >= _DEPTH_MAX:
                values.add()
            else:
                self._fill(values.add(), depth + 1)

    def _fill_map(self, values, field: FieldDescriptor) -> None:
        key, value = field.message_type.fields
        for _ in range(self.random.randrange(4)):
            values[self._value(key)] = self._value(value)

    def _value(self, field: FieldDescriptor):
        if field.enum_type is not None:
            return self.random.choice((0, 1, 2, 77))
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                return self.random.random() < 0.5
            case FieldDescriptor.CPPTYPE_STRING if field.name in _SCHEMAS and self.random.random() < 0.5:
                return self._schema()
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return self.random.randbytes(self.random.choice((0, 1, 20, 1000, 70_000)))
            case FieldDescriptor.CPPTYPE_STRING:
                return self.random.choice(self._texts)
            case kind:
                least, most = _INTS[kind]
                return self.random.choice((0, 1, 2, 7, least, most, most - 1, self.random.randint(least, most)))

    def _schema(self) -> bytes:
        """A schema, perhaps of thousands of columns and with names twice; a message takes about eight thousand."""
        columns = self.random.choice((0, 1, 3, 500, 8_000))
        names = self.random.choice((columns, columns, 7))
        kind = self.random.choice((pa.int64(), pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.null())))
        fields = [pa.field(f"x{at % names}", kind, nullable=at > 0) for at in range(columns)]
        return bytes(pa.schema(fields).serialize().to_pybytes())
