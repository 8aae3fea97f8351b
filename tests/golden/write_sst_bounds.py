"""Write the golden SSTs with bounds of values: `python tests/golden/write_sst_bounds.py FOLDER`.

Their bytes are those of format version 1, with the field `bounds` in the meta; the rules of `write_sst_v1.py` hold for
the files in `sst/bounds`.
"""

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.writer import SstWriter

CODECS = ("none", "lz4")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("count", pa.int32()),
        pa.field("share", pa.float32()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("sold", pa.bool_()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
BOUNDED = ("count", "share", "price", "at")


def row_of(number: int) -> dict[str, Any] | None:
    """The values under a number: nulls in every column, NaN, a block without a `count`; `None` for a delete."""
    if number == 13:
        return None
    return {
        "name": None if number % 5 == 1 else f"näme {number} " + "v" * 40,
        "count": None if number < 60 or number % 5 == 2 else number - 100,
        "share": float("nan") if number % 3 == 1 else None if number % 5 == 3 else number / 4,
        "price": None if number % 5 == 4 else Decimal(number * 125 - 1000) / 100,
        "sold": None if number % 5 == 0 else number % 2 == 0,
        "at": None if number % 7 == 0 else datetime(2013, 6, 30, number // 60, number % 60, tzinfo=UTC),
    }


ROWS = [(bytes([0, 7]) + (number + (1 << 63)).to_bytes(8, "big"), row_of(number)) for number in range(180)]


def files(compression: str) -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    fields = [field for field in SCHEMA if field.name != "id"]
    rows = Rows(
        pa.array([key for key, _ in ROWS], pa.binary()),
        0,
        np.array([values is None for _, values in ROWS]),
        tuple(pa.array([None if row is None else row[field.name] for _, row in ROWS], field.type) for field in fields),
    )
    spec = TableSpec(
        id=2,
        name="sales",
        schema=SCHEMA.serialize().to_pybytes(),
        primary_key=("id",),
        distribution_key=("id",),
        vnodes=256,
        block_bytes=4096,
        compression=compression,
    )
    (sst,) = SstWriter(spec, sst_bytes=1 << 20, epoch_inherited=True, one_object_bytes=0).write([rows])
    objects = sst.objects(f"{1:032x}")[1]
    return {f"bounds-{compression}{Path(path).suffix}": b"".join(parts) for path, parts in objects.items()}


if __name__ == "__main__":
    for codec in CODECS:
        for name, data in files(codec).items():
            (Path(sys.argv[1]) / name).write_bytes(data)
