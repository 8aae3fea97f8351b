"""Schemas of thousands of columns, which come from clients that nobody trusts, are checked in linear time."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from support.growth import cost_ratio
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.format.schema_changes import altered_schema, check_evolved, columns_of
from tussock.statestore.tables.table_options import table_spec

FEW, MANY = 800, 8_000
RATIO_MAX = 40
"""Ten times the columns cost ten times the time, and would cost a hundred times if each were compared with each."""


def wide(columns: int, kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("c0", pa.int64(), nullable=False), *((f"c{at}", kind) for at in range(1, columns))])


def create(schema: pa.Schema) -> TableSpec:
    return table_spec("wide", schema, ["c0"], None, 16, 64 << 10, "lz4")


def alter(schema: pa.Schema) -> None:
    """Twice as many columns."""
    spec = create(schema)
    added = columns_of(pa.schema([(f"d{at}", schema.field(1).type) for at in range(len(schema))]), "add")
    check_evolved(spec, altered_schema(spec, added, pa.schema([])))


@pytest.mark.parametrize("work", [create, alter])
@pytest.mark.parametrize("kind", [pa.int64(), pa.dictionary(pa.int8(), pa.string())], ids=["numbers", "dictionaries"])
def test_columns_are_checked_in_linear_time(work: Callable[[pa.Schema], object], kind: pa.DataType) -> None:
    """A service checks them for each client that may write."""
    assert cost_ratio(work, wide(FEW, kind), wide(MANY, kind)) < RATIO_MAX


def test_an_error_about_columns_shows_twenty_names() -> None:
    """A list of thousands would hide what is wrong."""
    twice = pa.schema([*wide(MANY, pa.int64()), pa.field("c0", pa.int64())])
    with pytest.raises(SchemaMismatch, match=r"columns \['c0'\] stand twice in .* and 7,981 more; expected") as caught:
        create(twice)
    assert len(str(caught.value)) < 500
    with pytest.raises(InvalidOption, match=r"twice, of .* and 7,981 more; expected each once") as told:
        columns_of(twice, "add")
    assert len(str(told.value)) < 500
