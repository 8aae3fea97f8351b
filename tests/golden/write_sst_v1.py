"""Write the golden files of SST format version 1: `python tests/golden/write_sst_v1.py FOLDER`.

Run once, when the format was frozen; the files in `sst/v1` are what stores out there hold, and readers must go on
reading them. `tests/statestore/format/test_sst_format.py` reads them to the rows below, and fails if the writer no
longer writes them byte for byte (`zstd` aside, whose output may change with the library).
"""

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.writer import SstWriter

CODECS = ("none", "lz4", "zstd")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("sold", pa.bool_()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


class Golden(NamedTuple):
    """The rows of one golden SST: (key, epoch, values or `None` for a delete)."""

    spec: TableSpec
    inherited: bool
    """The rows carry no epoch; the version gives it."""
    rows: list[tuple[bytes, int, tuple[Any, ...] | None]]

    def columns(self) -> list[pa.Field]:
        """The value columns."""
        if self.spec.schema is None:
            return [pa.field("value", pa.binary())]
        return [field for field in SCHEMA if field.name != "id"]

    def arrow(self) -> Rows:
        """The rows as the writer takes them."""
        deletes = np.array([values is None for _, _, values in self.rows])
        raw = self.spec.schema is None
        columns = tuple(
            pa.array(
                [(b"" if raw else None) if values is None else values[at] for _, _, values in self.rows], field.type
            )
            for at, field in enumerate(self.columns())
        )
        return Rows(
            pa.array([key for key, _, _ in self.rows], pa.binary()),
            0 if self.inherited else np.array([epoch for _, epoch, _ in self.rows], np.uint64),
            deletes if deletes.any() else None,
            columns,
        )


def golden(compression: str) -> dict[str, Golden]:
    """The golden SSTs of one codec, by name."""
    raw = TableSpec(id=1, name="kv", block_bytes=300, compression=compression)
    typed = TableSpec(
        id=2,
        name="sales",
        schema=SCHEMA.serialize().to_pybytes(),
        primary_key=("id",),
        distribution_key=("id",),
        vnodes=256,
        block_bytes=500,
        compression=compression,
    )
    return {
        # A commit: keys of one width, no row epochs.
        "fixed": Golden(
            raw, True, [(b"key-%03d" % n, 0, (b"value %d " % n + b"v" * (n % 4 * 10),)) for n in range(24)]
        ),
        # After compaction: keys of several widths (the empty one, prefixes, bytes 00 and ff), versions over several
        # blocks, deletes, a block of one epoch.
        "versions": Golden(
            raw,
            False,
            [
                (b"", 7, (b"empty key",)),
                (b"\0", 7, (b"",)),
                *[(b"k", epoch, None if epoch % 5 == 0 else (b"version %d" % epoch,)) for epoch in range(60, 20, -1)],
                (b"k\0", 1 << 62, (b"late",)),
                (b"kk", 9, None),
                (b"kk", 8, (b"x" * 700,)),
                *[(b"m%d" % n, 5, (b"same epoch",)) for n in range(12)],
                (b"\xff", 3, None),
                (b"\xff\xff", 2, (bytes(range(256)),)),
            ],
        ),
        # A typed table: two bytes of vnode and eight of key; nulls in every column, a delete.
        "typed": Golden(
            typed,
            True,
            [
                (
                    bytes([0, n]) + (n + (1 << 63)).to_bytes(8, "big"),
                    0,
                    None
                    if n == 13
                    else (
                        None if n % 5 == 1 else f"näme {n}",
                        None if n % 5 == 2 else Decimal(n * 125 - 1000) / 100,
                        None if n % 5 == 3 else n % 2 == 0,
                        None if n % 5 == 4 else datetime(2013, 6, 30, 1, 2, n, tzinfo=UTC),
                        None if n % 5 == 0 else [f"t{tag}" for tag in range(n % 3)],
                    ),
                )
                for n in range(20)
            ],
        ),
    }


def files(compression: str) -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    written: dict[str, bytes] = {}
    for number, (name, case) in enumerate(golden(compression).items(), start=1):
        writer = SstWriter(case.spec, sst_bytes=1 << 20, epoch_inherited=case.inherited, one_object_bytes=0)
        (sst,) = writer.write([case.arrow()])
        for path, parts in sst.objects(f"{number:032x}")[1].items():
            written[f"{name}-{compression}{Path(path).suffix}"] = b"".join(parts)
    return written


if __name__ == "__main__":
    for codec in CODECS:
        for name, data in files(codec).items():
            (Path(sys.argv[1]) / name).write_bytes(data)
