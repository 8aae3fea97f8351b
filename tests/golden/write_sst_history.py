"""Write the golden SSTs of history: `python tests/golden/write_sst_history.py FOLDER`.

Their bytes are those of format version 2, with one value column more than the table has; the rules of `write_sst_v1.py`
hold for the files in `sst/history`.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.writer import SstWriter

CODECS = ("none", "lz4")
ROWS: list[tuple[bytes, int, int, bytes | None]] = [
    (b"a", 7, 9, b"seven"),
    (b"a", 4, 7, b"four"),
    (b"deleted", 8, 8, None),
    (b"deleted", 3, 8, b"three"),
    *[(b"key-%02d" % number, 2, 10 + number, b"v" * 40) for number in range(12)],
]
"""Key, epoch, until, and the value or `None` for a delete."""


def files(compression: str) -> dict[str, bytes]:
    """Name in the golden folder -> bytes."""
    keys, epochs, untils, values = zip(*ROWS, strict=True)
    deletes = np.array([value is None for value in values])
    columns = (pa.array(untils, pa.uint64()), pa.array([value or b"" for value in values], pa.binary()))
    spec = TableSpec(id=1, name="kv", block_bytes=300, compression=compression)
    writer = SstWriter(spec, sst_bytes=1 << 20, epoch_inherited=False, one_object_bytes=1 << 20, history=True)
    (sst,) = writer.write([Rows(pa.array(keys, pa.binary()), np.array(epochs, np.uint64), deletes, columns)])
    (parts,) = sst.objects(f"{1:032x}")[1].values()
    return {f"history-{compression}.data": b"".join(parts)}


if __name__ == "__main__":
    for codec in CODECS:
        for name, data in files(codec).items():
            (Path(sys.argv[1]) / name).write_bytes(data)
