"""How the states of one operator are stored: as bytes of JSON, or as a tuple of the values of its columns."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.arguments import NESTING_MAX, check_nesting
from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.operators import Operator
from tussock.compute.functions.program.values import VALUE_BYTES_MAX, Key
from tussock.statestore import InvalidOption, SchemaMismatch
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.rows.nested_values import copy_of, nested_take_of
from tussock.statestore.rows.python_values import python_rows
from tussock.statestore.rows.row_codec import RowCodec
from tussock.statestore.tables.typed_input import conform

__all__ = ["ENTITY_BYTES", "KEY", "STATE", "VALUE_BYTES", "StateForm", "table_schema"]

KEY, STATE = "key", "state"
ENTITY_BYTES = 200
"""What Python takes for a key and its place."""
VALUE_BYTES = 32
"""And for a value beside what it holds."""
ROW_BYTES_MAX = 16 << 20
_SIZED = frozenset((str, bytes))
_ADVICE = "give the operator a schema for types that JSON lacks"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def table_schema(operator: Operator) -> pa.Schema:
    """Of the table that has the entities: the key, and the columns of the state, or all of it as JSON."""
    key = pa.field(KEY, operator.key_type, nullable=False)
    if operator.schema is None:
        return pa.schema([key, pa.field(STATE, pa.string(), nullable=False)])
    return pa.schema([key, *operator.schema])


class StateForm:
    """How the states of one operator are stored."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.schema = operator.schema
        self.names: tuple[str, ...] = ()
        if operator.schema is not None:
            self.names = tuple(operator.schema.names)
            self._codec = RowCodec.of(operator.schema, (), nested_take_of)
            self._copies = [
                (field.name, copy) for field in operator.schema if (copy := copy_of(field.type)) is not None
            ]
            """Of columns whose values could be changed."""
            self._row_bytes = ENTITY_BYTES + VALUE_BYTES * len(self.names)
            self._wide = [
                (at, _measure_of(field.type)) for at, field in enumerate(operator.schema) if not _is_fixed(field.type)
            ]
            """Places of values that may be of any size, and what they take."""
        self._has_wide_key = operator.key_class is not int
        self.is_even = operator.schema is not None and not self._wide
        """Whether all states of an entity count the same."""
        self.entity_bytes = self._row_bytes if self.is_even and not self._has_wide_key else 0
        """Where all entities count the same, that; else 0."""

    def encode(self, state: Any, key: Key) -> Any:
        """A dict as bytes of JSON, or as a tuple of the columns' values."""
        if type(state) is not dict:
            way = "; ctx.delete() lets the entity be gone" if state is None else ""
            raise FunctionFault(f"{self._of(key)} is {state!r:.100}; expected a dict{way}")
        return self._encode_dict(state, key) if self.schema is None else self._encode_row(state, key)

    def decode(self, stored: Any) -> dict[str, Any]:
        """A dict that nobody else has; `FunctionFault` if somebody else has written what is none."""
        if self.schema is None:
            try:
                return _decode(stored)
            except UNREADABLE as error:
                raise FunctionFault(
                    f"a state in table {self.operator.name!r} is not the JSON of an object, so no function wrote it: "
                    f"{error}; while the program is stopped, put the row right or delete it"
                ) from error
        row = dict(zip(self.names, stored, strict=True))
        for name, copy in self._copies:
            value = row[name]
            if value is not None and not isinstance(value, pa.Scalar):
                row[name] = copy(value)
        return row

    def of_row(self, row: Mapping[str, Any]) -> Any:
        """The stored form of a row of the table."""
        return row[STATE].encode() if self.schema is None else tuple([row[name] for name in self.names])

    def size(self, key: Any, stored: Any) -> int:
        """What an entity takes in memory, about; also the note that there is none."""
        if self.schema is None:
            size = ENTITY_BYTES if stored is None else ENTITY_BYTES + len(stored)
        elif stored is None or not self._wide:
            size = self._row_bytes
        else:
            size = self._row_bytes
            for at, measure in self._wide:
                if stored[at] is not None:
                    size += measure(stored[at])
        return size + len(key) if self._has_wide_key else size

    def table(self, states: Mapping[Key, Any]) -> pa.Table:
        """Rows of the table."""
        keys = pa.array(states.keys(), self.operator.key_type)
        if self.schema is None:
            columns = [pa.array(states.values(), pa.binary()).cast(pa.string())]
        else:
            values = zip(*states.values(), strict=True)
            columns = [pa.array(one, field.type) for one, field in zip(values, self.schema, strict=True)]
        return pa.Table.from_arrays([keys, *columns], schema=table_schema(self.operator))

    def _of(self, key: Key) -> str:
        return f"the state of {self.operator.name} {key!r:.100}"

    def _encode_dict(self, state: dict[str, Any], key: Key) -> bytes:
        try:
            data = _encode(state)
            if data.count(b"[") + data.count(b"{") > NESTING_MAX:
                # Only now is it worth a look.
                check_nesting(state, self._of(key))
            is_same = _decode(data) == state
        except InvalidOption as error:
            raise FunctionFault(str(error)) from error
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise FunctionFault(f"{self._of(key)} cannot be kept as JSON: {error}; {_ADVICE}") from error
        if not is_same:
            _check_json(state, _decode(data), self._of(key))
        if len(data) > VALUE_BYTES_MAX:
            raise FunctionFault(f"{self._of(key)} takes {len(data):,} bytes; at most 1 MiB fit")
        return data

    def _encode_row(self, state: dict[str, Any], key: Key) -> tuple[Any, ...]:
        assert self.schema is not None
        row = None if self._codec is None else self._codec.row(state)
        if row is None:
            try:
                # Of a row without any column Arrow makes none.
                row = python_rows(conform([state or {self.names[0]: None}], self.schema, (), self.operator.name))[0]
            except SchemaMismatch as error:
                raise FunctionFault(f"{self._of(key)} does not fit its schema: {error}") from error
        stored = tuple(row.values())
        self.check_row(stored, key)
        return stored

    def check_row(self, stored: tuple[Any, ...], key: Key) -> None:
        """`FunctionFault` for a string over 1 MiB, or a state over 16 MiB, which no message has room for."""
        size = 0
        for at, measure in self._wide:
            value = stored[at]
            if value is None:
                continue
            if type(value) in _SIZED and len(value) > VALUE_BYTES_MAX:
                raise FunctionFault(f"{self._of(key)} has a value of {len(value):,} bytes; at most 1 MiB fit")
            size += measure(value)
        if size > ROW_BYTES_MAX:
            raise FunctionFault(f"{self._of(key)} takes {size:,} bytes; at most 16 MiB fit")


def _is_fixed(kind: pa.DataType) -> bool:
    """Whether Python's values of a type take a known size at most."""
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _measure_of(kind: Any) -> Callable[[Any], int]:
    """What tells of a value of a type what `_held_by` does."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return sys.getsizeof
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return (lambda value: VALUE_BYTES * len(value)) if is_list and _is_fixed(kind.value_type) else _held_by


def _held_by(value: Any) -> int:
    """What a value takes in memory beside its place, about."""
    kind = type(value)
    if kind in _SIZED:
        return sys.getsizeof(value)
    if kind is dict:
        value = [*value, *value.values()]
    elif kind is not list and kind is not tuple:
        return int(pa.array([value], value.type).nbytes) if isinstance(value, pa.Scalar) else 0
    return sum([VALUE_BYTES + _held_by(one) for one in value])


def _check_json(value: Any, kept: Any, what: str) -> None:
    """Tuples are lists afterwards; whatever else comes back as something else is refused."""
    kind = type(value)
    if kind is dict:
        if any(type(name) is not str for name in value):
            raise FunctionFault(f"{what} has a dict with keys that are no strings")
        for name, item in value.items():
            _check_json(item, kept[name], what)
    elif kind is list or kind is tuple:
        for item, other in zip(value, kept, strict=True):
            _check_json(item, other, what)
    elif value != kept or type(kept) is not kind:
        raise FunctionFault(f"{what} has {value!r:.100}, which JSON does not keep as it is; {_ADVICE}")
