"""How long a key may be: a table's index, each version of the store and each entry of its log hold whole keys.

An SST names its smallest and its largest key, and the first of each block. With the bound a version takes at most
128 KiB an SST; without one, eight keys of 1 MiB made base versions of 16 MiB. SlateDB has the same bound, of 16 bits.
"""

import numpy as np
import pyarrow as pa

from tussock.statestore.errors import InvalidBatch
from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["KEY_BYTES_MAX", "check_key_bytes"]

KEY_BYTES_MAX = 64 << 10
"""Of an encoded key of a row that is written or deleted, its virtual node included. Older rows may have longer ones."""


def check_key_bytes(keys: pa.BinaryArray, table: str) -> None:
    """`InvalidBatch` if one of n keys is longer than may be; names the first. O(n), and O(1) for few bytes in all."""
    offsets, _ = binary_buffers(keys)
    if int(offsets[-1]) - int(offsets[0]) <= KEY_BYTES_MAX:
        return
    lengths = np.diff(offsets)
    if int(lengths.max()) <= KEY_BYTES_MAX:
        return
    at = int(np.argmax(lengths > KEY_BYTES_MAX))
    raise InvalidBatch(
        f"table {table!r}: the key at position {at} has {int(lengths[at])} bytes as it is stored, and at most "
        f"{KEY_BYTES_MAX} are allowed; nothing was stored. Keep long values outside of the key, and their digest in it",
        at,
    )
