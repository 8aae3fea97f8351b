"""Keys of typed tables: the primary key's columns as bytes whose order is the order of the rows, and back.

A key is the row's vnode (two bytes, if the table has vnodes) and then each primary key column in turn. Comparing two
keys bytewise compares vnode, first column, second column and so on, so everything below knows only bytes. Upserts,
deletes and scans encode whole batches; a single get encodes one row. `docs/formats/keys.md` has every byte.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.keys.codecs import TERMINATOR, FixedCodec, TextCodec, codec_for
from tussock.statestore.keys.cursor import KeyCursor
from tussock.statestore.keys.pieces import Piece, join_pieces, text_piece
from tussock.statestore.keys.spark_hash import SPARK_SEED, spark_hash, value_hasher
from tussock.statestore.keys.vnode import vnode_table
from tussock.statestore.rows.buffers import AnyArray, null_mask
from tussock.statestore.rows.conversion import kind_of
from tussock.statestore.rows.python_values import BAD_VALUE, array_of
from tussock.statestore.shown import show_value

__all__ = ["KeyEncoder", "upper_bound"]

VNODE = np.dtype(">u2")
MARKER = np.dtype("u1")

_SIMPLE = ("bool", "integer", "float", "string", "binary")
"""Kinds whose values Python has exactly."""

_DECODED_BY_ROW = 24
"""Fewer keys are decoded in less time one by one than as arrays."""

_UNPACKED = (*BAD_VALUE, struct.error, SchemaMismatch)
"""What packing a value raises if it is not of the class that Python has for its column's type."""


class KeyEncoder:
    """Encodes and decodes the keys of one table; immutable, safe from any thread.

    `schema` holds the columns of `primary_key`; `distribution_key` names those of them that make the vnode, one of
    `vnodes` (a power of two up to 256), or there are none with `vnodes=0`. The columns in `nullable` may hold nulls,
    which sort first and cost a byte a value; in others a null is refused. Raises `SchemaMismatch` for a column that is
    missing, named twice or of a type that cannot be in a key.
    """

    def __init__(
        self,
        schema: pa.Schema,
        primary_key: Sequence[str],
        distribution_key: Sequence[str] = (),
        vnodes: int = 0,
        nullable: Collection[str] = (),
    ) -> None:
        self.primary_key = tuple(primary_key)
        self.vnodes = vnodes
        self._check_names(schema, distribution_key, nullable)
        self._kinds: list[pa.DataType] = [schema.field(name).type for name in self.primary_key]
        last = len(self.primary_key) - 1
        self._codecs = [codec_for(name, self._kinds[i], i == last) for i, name in enumerate(self.primary_key)]
        self._nullable = [name in nullable for name in self.primary_key]
        columns = zip(self._codecs, self._nullable, strict=True)
        self._packs = [_nullable_pack(codec) if null else codec.pack for codec, null in columns]
        self._is_simple = all(kind_of(kind) in _SIMPLE for kind in self._kinds)
        self._distribution = [self.primary_key.index(name) for name in distribution_key] if vnodes else []
        self._hashers = [(i, value_hasher(self._kinds[i])) for i in self._distribution]
        self._vnode_table = vnode_table(vnodes or 1).astype(np.uint16)
        self._vnode_bytes = [int(vnode).to_bytes(2, "big") for vnode in self._vnode_table]

    @property
    def distribution_width(self) -> int:
        """How many leading key columns it takes to tell the vnode; 0 if there are no vnodes."""
        return max(self._distribution, default=-1) + 1

    def _check_names(self, schema: pa.Schema, distribution_key: Sequence[str], nullable: Collection[str]) -> None:
        key = list(self.primary_key)
        if not key or len(set(key)) < len(key):
            raise SchemaMismatch(f"primary key {show_value(key)}; expected one column at least and none twice")
        for name in key:
            _check_present(name, schema)
        for what, names in (("distribution key", distribution_key), ("nullable columns", nullable)):
            if stray := [name for name in names if name not in key]:
                raise SchemaMismatch(f"{what}: found {show_value(stray)}, expected columns of the primary key {key}")
        if self.vnodes and not distribution_key:
            raise SchemaMismatch(
                f"no distribution key for {self.vnodes} vnodes; expected columns of {key}, or no vnodes"
            )

    # --- Whole batches ---------------------------------------------------------------------------------------------

    def encode(self, batch: pa.RecordBatch | pa.Table) -> pa.BinaryArray:
        """The key of each row, in the batch's order; other columns of the batch are ignored.

        Raises `SchemaMismatch` for a key column that is missing, of another type, or null where it must not be, and
        `InvalidBatch` if the keys take 2 GiB or more together.
        """
        return self._encode([self._column(batch, i) for i in range(len(self.primary_key))], batch.num_rows)

    def _encode(self, columns: Sequence[AnyArray], rows: int) -> pa.BinaryArray:
        pieces: list[Piece] = []
        if self.vnodes:
            hashes = spark_hash([columns[i] for i in self._distribution])
            pieces.append((VNODE, self._vnode_table.take(hashes & np.uint32(255))))
        return join_pieces([*pieces, *self._pieces(columns)], rows)

    def _pieces(self, columns: Sequence[AnyArray]) -> list[Piece]:
        """What the keys have of these first columns, after their vnode."""
        pieces: list[Piece] = []
        for codec, nullable, column in zip(self._codecs, self._nullable, columns, strict=False):
            nulls = null_mask(column) if nullable else None
            if nulls is not None:
                pieces.append((MARKER, ~nulls))
            if isinstance(codec, TextCodec):
                pieces.append(text_piece(codec.escape(column)))
                if not codec.raw:
                    pieces.append(TERMINATOR)
                continue
            words = codec.words(column)
            if nulls is not None and nulls.any():
                words = words.copy()
                words[nulls] = np.zeros(1, words.dtype)[0]
            pieces.append((codec.layout, words))
        return pieces

    def decode(self, keys: pa.BinaryArray, *, check_text: bool = True) -> list[AnyArray]:
        """The key columns of n keys, in primary key order, each an array of exactly its column's type.

        Raises `ValueError` for bytes that are no keys of this table, and with `check_text` for strings that are no
        UTF-8, which older programs took.
        """
        cursor = KeyCursor(keys)
        if self.vnodes:
            cursor.words(VNODE)
        columns: list[AnyArray] = []
        for codec, nullable in zip(self._codecs, self._nullable, strict=True):
            nulls = cursor.words(MARKER) == 0 if nullable else None
            if isinstance(codec, FixedCodec):
                columns.append(codec.array(cursor.words(codec.layout), nulls))
            else:
                text = cursor.rest() if codec.raw else cursor.take_texts()
                columns.append(codec.array(text, nulls, check=check_text))
        cursor.check_end()
        return columns

    def _column(self, batch: pa.RecordBatch | pa.Table, index: int) -> AnyArray:
        """The key column as one array, checked."""
        name, kind = self.primary_key[index], self._kinds[index]
        _check_present(name, batch.schema)
        column: Any = batch.column(name)
        if column.type != kind:
            raise SchemaMismatch(f"key column {name!r}: expected {kind}, found {column.type}; cast the column")
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
        if column.null_count and not self._nullable[index]:
            row = int(np.flatnonzero(null_mask(column))[0])
            raise SchemaMismatch(f"key column {name!r}: expected {kind}, found null in row {row}; keys have no nulls")
        array: AnyArray = column
        return array

    # --- Single rows -----------------------------------------------------------------------------------------------

    def encode_row(self, values: Sequence[Any]) -> bytes:
        """The key of one row, from its primary key's Python values; equal to what `encode` gives for it.

        Raises `SchemaMismatch` for a value that its column cannot hold, and for too few or too many of them.
        """
        if len(values) != len(self._packs):
            raise SchemaMismatch(
                f"key {show_value(values)} of {len(values)} values; expected one for each of {self.primary_key}"
            )
        try:
            key = b"".join([pack(value) for pack, value in zip(self._packs, values, strict=True)])
        except _UNPACKED:
            encoded: bytes = self._encode(self._arrays(values), 1)[0].as_py()
            return encoded
        if not self.vnodes:
            return key
        h = SPARK_SEED
        for index, hasher in self._hashers:
            h = hasher(values[index], h)
        return self._vnode_bytes[h & 255] + key

    def decode_row(self, key: bytes) -> tuple[Any, ...]:
        """The primary key's Python values of one key; `ValueError` for bytes that are no key of this table.

        A time that Python's class cannot hold is an `OverflowError`; `decode` has no such limit.
        """
        at = 2 if self.vnodes else 0
        values: list[Any] = []
        for codec, nullable in zip(self._codecs, self._nullable, strict=True):
            is_null = nullable and key[at : at + 1] == b"\0"
            at += nullable
            if isinstance(codec, FixedCodec):
                end = after = at + codec.layout.itemsize
            elif codec.raw:
                end = after = max(at, len(key))
            else:
                end = key.find(TERMINATOR, at)
                after = end + len(TERMINATOR) if end >= 0 else len(key) + 1
            if after > len(key):
                raise ValueError(f"key {key.hex()} ends within the columns {self.primary_key}")
            values.append(None if is_null else codec.unpack(key[at:end]))
            at = after
        if at != len(key):
            raise ValueError(f"key {key.hex()} has {len(key) - at} bytes after the columns {self.primary_key}")
        return tuple(values)

    def decode_few(self, keys: Sequence[bytes]) -> list[AnyArray]:
        """What `decode` gives for keys of the table, in less time if they are few and their types simple."""
        if self._is_simple and 0 < len(keys) < _DECODED_BY_ROW:
            with suppress(ValueError):  # old rows may hold strings that are no UTF-8
                columns = zip(*map(self.decode_row, keys), strict=True)
                return [pa.array(column, kind) for column, kind in zip(columns, self._kinds, strict=True)]
        return self.decode(pa.array(keys, pa.binary()), check_text=False)

    def encode_prefix(self, values: Sequence[Any]) -> bytes:
        """What the keys of all rows whose first columns have these values begin with, after their vnode.

        No other keys begin with it, except where `values` covers the whole key and its last column is a string or
        a binary: then those match too whose last column only starts with the value.
        """
        if len(values) > len(self._packs):
            raise SchemaMismatch(f"{len(values)} values {show_value(values)} for the key columns {self.primary_key}")
        try:
            return b"".join([pack(value) for pack, value in zip(self._packs, values, strict=False)])
        except _UNPACKED:
            prefix: bytes = join_pieces(self._pieces(self._arrays(values)), 1)[0].as_py()
            return prefix

    def prefix_vnode(self, values: Sequence[Any]) -> int | None:
        """The vnode of all rows whose first columns have these values, if these cover the distribution key.

        `None` if they do not (the rows are then spread over all vnodes), or if the table has no vnodes. The values
        must be such that `encode_prefix` takes them.
        """
        if not self.vnodes or any(index >= len(values) for index in self._distribution):
            return None
        h = SPARK_SEED
        try:
            for index, hasher in self._hashers:
                self._packs[index](values[index])
                h = hasher(values[index], h)
        except _UNPACKED:
            columns = self._arrays(values)
            h = int(spark_hash([columns[index] for index in self._distribution])[0])
        return int(self._vnode_table[h & 255])

    def _arrays(self, values: Sequence[Any]) -> list[AnyArray]:
        """The values as columns of one row; `SchemaMismatch` names the first that does not fit."""
        columns = []
        for name, kind, nullable, value in zip(self.primary_key, self._kinds, self._nullable, values, strict=False):
            try:
                column = array_of([value], kind)
            except BAD_VALUE as error:
                raise SchemaMismatch(
                    f"key column {name!r}: expected {kind}, found {show_value(value)}, which does not fit: {error}"
                ) from error
            if column.null_count and not nullable:
                raise SchemaMismatch(
                    f"key column {name!r}: expected {kind}, found {show_value(value)}; keys have no nulls"
                )
            columns.append(column)
        return columns


def upper_bound(prefix: bytes) -> bytes | None:
    """The smallest key after all that begin with `prefix`; `None` if there is none (it is empty or only ff bytes)."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _check_present(name: str, schema: pa.Schema) -> None:
    count = len(schema.get_all_field_indices(name))
    if count != 1:
        raise SchemaMismatch(
            f"key column {show_value(name)}: expected it once, found it {count} times in {schema.names}"
        )


def _nullable_pack(codec: FixedCodec | TextCodec) -> Callable[[Any], bytes]:
    """`codec.pack` with the marker in front: 0 for null, then an empty text or zero bytes; 1 for a value."""
    pack = codec.pack
    if isinstance(codec, FixedCodec):
        null = bytes(1 + codec.layout.itemsize)
    else:
        null = b"\0" if codec.raw else b"\0" + TERMINATOR
    return lambda value: null if value is None else b"\1" + pack(value)
