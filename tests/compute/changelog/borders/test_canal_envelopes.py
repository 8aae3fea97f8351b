"""Canal's flat messages, and plain objects: rows by key, whatever their form."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.changelog.fed_files import Fed, feed_lines
from tussock.statestore import StateStore

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("price", pa.decimal128(9, 2))])


def message(kind: str, rows: Any, olds: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "data": rows,
        "database": "shop",
        "es": 1589373560000,
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "int(11)", "name": "varchar(255)", "price": "decimal(9,2)"},
        "old": olds,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "name": 12, "price": 3},
        "table": "items",
        "ts": 1589373560798,
        "type": kind,
        **more,
    }


def text(number: int, name: str | None, price: str | None) -> dict[str, Any]:
    return {"id": str(number), "name": name, "price": price}


def row(number: int, name: str | None, price: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "price": None if price is None else Decimal(price)}


def fed(store: StateStore, tmp_path: Path, *messages: Any, schema: pa.Schema = ITEM, **options: Any) -> Fed:
    return feed_lines(store, tmp_path / "in", messages, schema, **{"format": "canal-json", **options})


HISTORY = [
    message("INSERT", [text(1, "nail", "5.18"), text(2, "saw", None), text(3, "axe", "7.00")]),
    message("UPDATE", [text(1, "nail", "5.20"), text(2, "saw", "1.00")], [{"price": "5.18"}, {"price": None}]),
    message("DELETE", [text(3, "axe", "7.00")]),
    message("UPDATE", [text(9, "saw", "1.00")], [{"id": "2"}]),
    message("ALTER", None, isDdl=True, sql="ALTER TABLE items ADD x int"),
    message("QUERY", None, isDdl=False),
]
LEFT = [row(1, "nail", "5.20"), row(9, "saw", "1.00")]


def test_statements_change_their_rows(store: StateStore, tmp_path: Path) -> None:
    """Of an update `old` has the columns that have changed, the key among them; DDL changes no row."""
    found = fed(store, tmp_path, *HISTORY, batch_rows=1)
    assert found.letters == []
    assert found.rows == LEFT
    block = found.published[1].records[0]
    assert block.old is not None
    assert dict(block.old) == row(1, "nail", "5.18")


def test_statements_that_come_again_change_nothing(store: StateStore, tmp_path: Path) -> None:
    found = fed(store, tmp_path, *HISTORY, *HISTORY)
    assert found.rows == LEFT


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        ("1", pa.bool_(), True),
        ("0", pa.bool_(), False),
        ("-7", pa.int8(), -7),
        ("18446744073709551615", pa.uint64(), 2**64 - 1),
        ("1.5e3", pa.float64(), 1500.0),
        ("1.50", pa.decimal128(9, 2), Decimal("1.50")),
        ("2024-02-29", pa.date32(), dt.date(2024, 2, 29)),
        ("2024-02-29 01:02:03", pa.timestamp("s"), dt.datetime(2024, 2, 29, 1, 2, 3)),
        ("2024-02-29 01:02:03.004005", pa.timestamp("us"), dt.datetime(2024, 2, 29, 1, 2, 3, 4005)),
        ("01:02:03", pa.time32("s"), dt.time(1, 2, 3)),
        ("\x00\xff", pa.binary(), b"\x00\xff"),
        ("é", pa.string(), "é"),
    ],
)
def test_values_are_text_of_the_type_of_the_column(
    store: StateStore, tmp_path: Path, given: str, kind: Any, expected: Any
) -> None:
    """Binary ones have a character a byte."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", kind)])
    found = fed(store, tmp_path, message("INSERT", [{"id": "1", "v": given}, {"id": "2", "v": None}]), schema=schema)
    assert found.letters == []
    assert [one["v"] for one in found.rows] == [expected, None]


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({}, "it has no `type`"),
        ([], "it has no `type`"),
        (message("TRUNCATE", None, isDdl=True), "the table was emptied there (TRUNCATE)"),
        (message("ERASE", None, isDdl=True), "the table was emptied there (ERASE)"),
        (message("INSERT", None), "its `data` is None"),
        (message("INSERT", ["x"]), "'x' is no object of columns"),
        (message("INSERT", [text(1, "a", "x")]), "column 'price': 'x' is not a decimal"),
        (message("INSERT", [{"id": "1x"}]), "column 'id': '1x' is not an integer"),
        (message("INSERT", [{"id": "9" * 41}]), "is not an integer"),
        (message("INSERT", [{"id": "\u0661"}]), "column 'id': '\u0661' is not an integer"),
        (message("INSERT", [text(1, "a", "\u0661")]), "column 'price': '\u0661' is not a decimal"),
        (message("INSERT", [text(1, "a", "1_0")]), "column 'price': '1_0' is not a decimal"),
        (message("INSERT", [text(1, "a", " 1 ")]), "column 'price': ' 1 ' is not a decimal"),
        (message("UPDATE", [text(1, "a", None)], None), "its `old` is None"),
        (message("UPDATE", [text(1, "a", None)], [1]), "its `old` has 1"),
        (message("UPDATE", [text(1, "a", None)], []), "its `old` is []"),
        (message("DELETE", [{"name": "a"}]), "column 'id' of the key is null or missing"),
        (message("INSERT", [{"id": "1", "price": "1E+999999"}]), "is not a decimal"),
    ],
)
def test_what_is_no_statement_is_a_dead_letter(store: StateStore, tmp_path: Path, given: Any, cause: str) -> None:
    found = fed(store, tmp_path, message("INSERT", [text(8, "a", "1")]), given, message("INSERT", [text(9, "b", "2")]))
    assert [one["id"] for one in found.rows] == [8, 9]
    assert cause in found.letters[0]["cause"]


@pytest.mark.parametrize("given", ["\u0661", "1_0", " 1.5 ", "nan", "inf", "1e", "0x1p3"])
def test_only_what_databases_write_is_a_number(store: StateStore, tmp_path: Path, given: str) -> None:
    """Python takes more for one."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.float64())])
    found = fed(store, tmp_path, message("INSERT", [{"id": "1", "v": given}]), schema=schema)
    assert found.rows == []
    assert f"column 'v': {given!r} is not a number" in found.letters[0]["cause"]


def test_a_plain_object_is_a_row_and_may_say_what_is_done(store: StateStore, tmp_path: Path) -> None:
    """Times are ISO 8601, decimals text, binary values base64."""
    columns = [("at", pa.timestamp("us", "UTC")), ("data", pa.binary())]
    schema = pa.schema([*ITEM, *columns])
    found = fed(
        store,
        tmp_path,
        {"id": 1, "name": "nail", "price": "5.18", "at": "2024-02-29T01:02:03.5+01:00", "data": "AP8=", "other": 1},
        {"_op": "INSERT", "id": 2, "name": "saw"},
        {"_op": "INSERT", "id": 2, "name": "saw", "price": 1.5},
        {"_op": "UPDATE", "id": 3, "name": "axe"},
        {"_op": "UPDATE_BLOCK", "id": 4, "name": "axe", "_old": {"id": 3}},
        {"_op": "Delete", "id": 7},
        {"_op": "safedelete", "id": 2},
        {"_op": "MERGE", "id": 1},
        {"_op": "UPDATE_BLOCK", "id": 4},
        schema=schema,
        format="json",
    )
    at = dt.datetime(2024, 2, 29, 0, 2, 3, 500_000, tzinfo=dt.UTC)
    assert found.rows == [
        {**row(1, "nail", "5.18"), "at": at, "data": b"\x00\xff"},
        {**row(4, "axe", None), "at": None, "data": None},
    ]
    causes = [letter["cause"] for letter in found.letters]
    assert causes[0].startswith("its _op is 'MERGE'; expected one of")
    assert causes[1:] == ["None is no object of columns"]
