"""Avro's binary form behind the head of a schema registry: a zero, the number of the writer's schema, the data.

Schemas come from a registry, or are given by the program. What they say of times and decimals is taken out before the
library has them, and kept as a `Meaning`, so that one rule holds for all formats. A schema of which a short message
could be without end is refused: one that contains itself, or lists of what takes no bytes.
"""

import io
import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from tussock.compute.changelog.envelopes.json_messages import decoded
from tussock.compute.changelog.envelopes.meanings import DEPTH_MAX, Meaning, Misread, scale_of
from tussock.statestore.errors import InvalidOption

__all__ = ["AvroReader", "GivenSchemas", "SchemaSource", "avro_library"]

SCHEMAS_MAX = 1000
"""That are kept ready; one more lets the oldest go."""
_HEAD = struct.Struct(">bI")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def avro_library() -> Any:
    """The module `fastavro`; `InvalidOption` that says what to install where it is missing."""
    try:
        import fastavro
    except ImportError as error:
        raise InvalidOption(
            f"Avro needs the package fastavro, which cannot be imported here ({error}): pip install 'tussock[avro]'"
        ) from error
    return fastavro


class SchemaSource(Protocol):
    """Where the schemas of writers are."""

    def schema(self, number: int) -> tuple[Any, list[Any]]:
        """A schema, and those that it names, each after those that it names itself.

        `Misread` if there is none of that number; `WaitTimeout` if that cannot be known at present.
        """


class GivenSchemas:
    """Those that the program has given, by number."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = schemas

    def schema(self, number: int) -> tuple[Any, list[Any]]:
        """One of them."""
        if number not in self._schemas:
            raise Misread(f"its schema is number {number}, which is none of those that the feed was given")
        return self._schemas[number], []


class _Writer(NamedTuple):
    schema: Any
    meaning: Meaning


class AvroReader:
    """Reads keys and values of a topic."""

    def __init__(self, source: SchemaSource, reader: Any, what: str) -> None:
        """`reader`: the schema as which values are read, or `None`; `InvalidOption` if it is none."""
        self._fastavro = avro_library()
        self._source = source
        self._reader: _Writer | None = None
        if reader is not None:
            try:
                self._reader = self._parsed(reader, [])
            except Misread as error:
                raise InvalidOption(f"{what}: schema= {error}") from error
        self._writers: OrderedDict[int, _Writer | str] = OrderedDict()

    def read_value(self, data: bytes) -> tuple[Any, Meaning]:
        """As the reader's schema has it, if there is one. Raises `Misread`, and what a registry raises."""
        return self._read(data, self._reader)

    def read_key(self, data: bytes) -> tuple[Any, Meaning]:
        """As it was written."""
        return self._read(data, None)

    def _read(self, data: bytes, reader: _Writer | None) -> tuple[Any, Meaning]:
        if len(data) < _HEAD.size or data[0]:
            raise Misread(f"it begins with {data[:5]!r}; expected a zero and the number of its schema")
        writer = self._writer(_HEAD.unpack_from(data)[1])
        stream = io.BytesIO(data)
        stream.seek(_HEAD.size)
        try:
            found = self._fastavro.schemaless_reader(stream, writer.schema, None if reader is None else reader.schema)
        except Exception as error:  # noqa: BLE001 - the library raises whatever comes of the bytes
            raise Misread(f"it does not fit its schema: {type(error).__name__}: {error!s:.200}") from None
        if stream.tell() != len(data):
            raise Misread(f"behind what its schema says there are {len(data) - stream.tell()} bytes more")
        return found, (reader or writer).meaning

    def _writer(self, number: int) -> _Writer:
        found = self._writers.get(number)
        if found is None:
            try:
                found = self._parsed(*self._source.schema(number))
            except Misread as error:
                # Numbers are given before they are used: what is not there now will not come.
                found = str(error)
            self._writers[number] = found
            if len(self._writers) > SCHEMAS_MAX:
                self._writers.popitem(last=False)
        if isinstance(found, str):
            raise Misread(found)
        return found

    def _parsed(self, schema: Any, named: list[Any]) -> _Writer:
        names: dict[str, Meaning] = {}
        library: dict[str, Any] = {}
        for one in named:
            bare, _ = _Walk(names).walk(_as_json(one), "", 0)
            self._parse(bare, library)
        bare, meaning = _Walk(names).walk(_as_json(schema), "", 0)
        return _Writer(self._parse(bare, library), meaning)

    def _parse(self, bare: Any, names: dict[str, Any]) -> Any:
        try:
            return self._fastavro.parse_schema(bare, named_schemas=names)
        except Exception as error:  # noqa: BLE001 - the library has several bases
            raise Misread(f"is no schema of Avro: {type(error).__name__}: {error!s:.200}") from None


def _as_json(schema: Any) -> Any:
    if not isinstance(schema, str) or schema in _PRIMITIVES:
        return schema
    return decoded(schema.encode())


class _Walk:
    """Goes through one schema."""

    def __init__(self, names: dict[str, Meaning]) -> None:
        """`names`: the named types that are known, which it adds to."""
        self._names = names
        self._open: set[str] = set()

    def walk(self, schema: Any, space: str, depth: int) -> tuple[Any, Meaning]:
        """The schema without logical types, and what it means; `space` is the namespace around it."""
        if depth > DEPTH_MAX:
            raise Misread(f"its schema nests more than {DEPTH_MAX} deep")
        if isinstance(schema, str):
            return schema, self._named(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if not isinstance(schema, dict):
            raise Misread(f"its schema has {schema!r:.100} for a type")
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.walk(kind, space, depth + 1)
        bare = {name: value for name, value in schema.items() if name not in ("logicalType", "precision", "scale")}
        said = schema.get("connect.name") or schema.get("logicalType") or ""
        meaning = Meaning(str(said), scale_of(schema.get("scale")))
        if meaning.is_decimal and meaning.scale is None:
            meaning = meaning._replace(scale=_connect_scale(schema))
        if kind == "array" or kind == "map":
            inner = "items" if kind == "array" else "values"
            bare[inner], of_items = self.walk(schema.get(inner), space, depth + 1)
            if kind == "array" and _is_empty(schema.get(inner)):
                raise Misread("its schema has a list of what takes no bytes, which may be without end")
            return bare, meaning._replace(items=of_items)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema, bare, meaning, space, depth)
        self._named(kind, space)
        return bare, meaning

    def _define(self, schema: Any, bare: Any, meaning: Meaning, space: str, depth: int) -> tuple[Any, Meaning]:
        name = schema.get("name")
        if not isinstance(name, str):
            raise Misread(f"its schema has a {schema.get('type')} named {name!r:.100}")
        space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space) or "")
        full = name if "." in name or not space else f"{space}.{name}"
        if schema.get("type") in ("record", "error"):
            self._open.add(full)
            fields: list[Any] = []
            meanings = {}
            given = schema.get("fields")
            if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
                raise Misread(f"its schema has a record {full!r:.100} without fields")
            for one in given:
                kind, of_field = self.walk(one.get("type"), space, depth + 1)
                fields.append({**one, "type": kind})
                meanings[str(one.get("name"))] = of_field
            self._open.discard(full)
            bare, meaning = {**bare, "fields": fields}, meaning._replace(fields=meanings)
        self._names[full] = meaning
        return bare, meaning

    def _union(self, schema: list[Any], space: str, depth: int) -> tuple[Any, Meaning]:
        found = [self.walk(one, space, depth + 1) for one in schema]
        meanings = [meaning for (bare, meaning) in found if bare != "null"]
        if len(meanings) == 1:
            return [bare for bare, _ in found], meanings[0]
        # Of several kinds of values none is told by its schema.
        said = [one for one in meanings if one.name]
        return [bare for bare, _ in found], Meaning("a union of several types" if said else "")

    def _named(self, name: Any, space: str) -> Meaning:
        if name in _PRIMITIVES:
            return Meaning()
        full = name if not isinstance(name, str) or "." in name or not space else f"{space}.{name}"
        if full in self._open or name in self._open:
            raise Misread(f"its schema has a type {name!r:.100} that contains itself")
        for one in (full, name):
            if isinstance(one, str) and one in self._names:
                return self._names[one]
        raise Misread(f"its schema has an unknown type {name!r:.100}")


def _connect_scale(schema: Mapping[str, Any]) -> int | None:
    parameters = schema.get("connect.parameters")
    return scale_of(parameters.get("scale") if isinstance(parameters, dict) else None)


def _is_empty(schema: Any) -> bool:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("record", "error"):
            fields = schema.get("fields")
            return isinstance(fields, list) and all(_is_empty(one.get("type")) for one in fields)
        if kind == "fixed":
            return schema.get("size") == 0
        return _is_empty(kind)
    return bool(schema == "null")
