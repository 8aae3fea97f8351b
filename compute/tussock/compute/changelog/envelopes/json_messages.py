"""JSON of messages, with Kafka Connect's wrapper of schema and payload, or without it."""

from collections import OrderedDict
from decimal import Decimal
from typing import Any

import msgspec

from tussock.compute.changelog.envelopes.meanings import NO_MEANING, Meaning, Misread, connect_meaning
from tussock.statestore.base.damage import UNREADABLE

__all__ = ["JsonReader", "decoded"]

SCHEMAS_MAX = 64
"""Of which the meaning is kept."""

_generic = msgspec.json.Decoder(float_hook=Decimal)
"""A number with a point stays what it is."""


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_wrapped = msgspec.json.Decoder(_Wrapped)


def decoded(data: Any) -> Any:
    """The value of JSON; `Misread`."""
    try:
        return _generic.decode(data)
    except (*UNREADABLE, ValueError) as error:
        raise Misread(f"it is no JSON: {error}") from None


class JsonReader:
    """Reads keys and values of a topic."""

    def __init__(self) -> None:
        self._meanings: OrderedDict[bytes, Meaning] = OrderedDict()

    def read_key(self, data: bytes) -> tuple[Any, Meaning]:
        """As a value."""
        return self.read_value(data)

    def read_value(self, data: bytes) -> tuple[Any, Meaning]:
        """The payload, and what its schema means; `Misread`."""
        if data[:1] == b"\0":
            raise Misread("it begins with a zero, as Avro with a schema registry does; the feed expects JSON")
        try:
            found = _wrapped.decode(data)
        except (*UNREADABLE, ValueError):
            found = None  # no object: whatever it is
        if found is None or found.payload is msgspec.UNSET or found.schema is msgspec.UNSET:
            return decoded(data), NO_MEANING
        return decoded(found.payload), self._meaning(bytes(found.schema))

    def _meaning(self, schema: bytes) -> Meaning:
        found = self._meanings.get(schema)
        if found is None:
            found = self._meanings[schema] = connect_meaning(decoded(schema))
            if len(self._meanings) > SCHEMAS_MAX:
                self._meanings.popitem(last=False)
        return found
