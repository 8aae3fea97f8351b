"""Rows of thousands of columns are checked in linear time before `stateful` runs on them."""

import pyarrow as pa
import pytest

from support.growth import cost_ratio
from tussock.compute.spark.state.checks import check_rows
from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.tables.table_options import table_spec

FEW, MANY = 800, 8_000
RATIO_MAX = 40
"""As in `tests/statestore/tables/test_wide_schemas.py`."""
STATE = table_spec("state", pa.schema([pa.field("c0", pa.int64(), nullable=False)]), ["c0"], None, 16, 64 << 10, "lz4")


def rows(columns: int) -> list[pa.Field]:
    return [pa.field(f"c{at}", pa.int64()) for at in range(columns)]


def check(schema: pa.Schema) -> None:
    check_rows(["c0"], STATE, {}, schema, [], None)


def test_columns_of_a_batch_are_checked_in_linear_time() -> None:
    """Each micro-batch is checked."""
    assert cost_ratio(check, pa.schema(rows(FEW)), pa.schema(rows(MANY))) < RATIO_MAX


def test_an_error_about_columns_of_a_batch_shows_twenty_names() -> None:
    """A list of thousands would hide what is wrong."""
    with pytest.raises(SchemaMismatch, match=r"names \['c0', 'c1', .*\] and 7,980 more; rename") as caught:
        check(pa.schema([*rows(MANY), *rows(MANY)]))
    assert len(str(caught.value)) < 500
