"""`distinct`: the combinations of some columns that a stream has. It keeps how many rows have each."""

from collections.abc import Sequence

import pyarrow as pa

from tussock.compute.changelog.operators.groups.group_table import Grouping, group_columns
from tussock.compute.changelog.operators.operator_base import check_source, derive
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["distinct"]


def distinct(name: str, source: Stream, columns: str | Sequence[str]) -> Stream:
    """A stream with a row for each combination of values of these columns, while a row of `source` has it.

    The columns are its key, so they must not be nullable. Raises `InvalidOption`.
    """
    what = f"distinct {name!r}"
    check_source(what, source)
    by = group_columns(what, "columns", columns, source)
    if not by:
        raise InvalidOption(f"{what}: columns=[]; expected one at least")
    schema = pa.schema([source.schema.field(one) for one in by])
    return derive("distinct", name, [source], schema, by, lambda shape: Grouping(shape, by, []))
