"""A table's changes as its users see them: Arrow batches of the table's own columns, then `op` and `epoch`."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tussock.statestore.base.arguments import check_flag
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.rows.wider_types import as_type
from tussock.statestore.sst.writer import value_schema
from tussock.statestore.tables.change_feed import OPERATIONS, ChangeFeed, ChangeRows, FeedRange
from tussock.statestore.tables.reads import added_fields, picked_columns

__all__ = ["change_batches"]

_ADDED = (pa.field("op", pa.string(), nullable=False), pa.field("epoch", pa.uint64(), nullable=False))


def change_batches(
    feed: ChangeFeed,
    spec: TableSpec,
    epochs: tuple[int, int | None],
    keys: tuple[bytes | None, bytes | None],
    columns: Sequence[str] | None,
    *,
    before_images: bool = False,
    compared: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The changes in `epochs` (from, to] of the encoded `keys` [start, end), with these `columns`, all if `None`.

    `feed` is that of the table; if not `compared` they are versions, each put or deleted. The epochs are checked at
    once; see `ChangeFeed.between`.
    """
    check_flag(before_images, "before_images")
    schema, values = spec.arrow_schema(), value_schema(spec)
    names = picked_columns(columns, schema, spec.name)
    wanted = [at for at, name in enumerate(values.names) if name in names]
    want = FeedRange(*keys, wanted, [values.types[at] for at in wanted], before_images, compared)
    changes = feed.between(*epochs, want)
    added = added_fields(_ADDED, schema)
    target = pa.schema([*(schema.field(name).with_nullable(True) for name in names), *added])
    encoder = KeyEncoder(schema, spec.primary_key, spec.distribution_key, spec.vnodes) if spec.primary_key else None
    return (_batch(part, target, [values.names[at] for at in wanted], encoder, spec) for part in changes)


def _batch(
    part: ChangeRows, target: pa.Schema, values: Sequence[str], encoder: KeyEncoder | None, spec: TableSpec
) -> pa.RecordBatch:
    """One batch in the target's columns, from encoded keys and stored values."""
    by_name = dict(zip(values, part.columns, strict=True))
    if encoder is None:
        by_name["key"] = part.keys
    elif any(name in target.names for name in spec.primary_key):
        by_name.update(zip(spec.primary_key, encoder.decode(part.keys, check_text=False), strict=True))
    fields = list(target)[: -len(_ADDED)]
    arrays = [as_type(by_name[field.name], field.type) for field in fields]
    return pa.record_batch(
        [*arrays, pa.array(OPERATIONS).take(pa.array(part.operations)), pa.array(part.epochs)], schema=target
    )
