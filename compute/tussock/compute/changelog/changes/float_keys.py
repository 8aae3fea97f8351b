"""Floats in keys: one zero and one NaN, as keys of tables have them.

Python's dicts and Arrow's dictionaries see it in other ways: there 0.0 and -0.0 are one key or two, and a NaN is
another one than the next. So what is compared as a key is made the same first.
"""

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["as_key", "key_value"]

NAN = float("nan")
"""One object, as dicts tell NaNs apart by that."""


def as_key(column: pa.Array) -> pa.Array:
    """A column of floats with one zero and one NaN; another column as it is."""
    if not pa.types.is_floating(column.type):
        return column
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = NAN
    return pa.array(values, column.type, mask=column.is_null().to_numpy(zero_copy_only=False))


def key_value(value: Any) -> Any:
    """The same for one value."""
    if type(value) is not float:
        return value
    return value + 0.0 if value == value else NAN
