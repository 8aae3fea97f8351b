"""`tables`, `get`, `scan` and `changes` on a small real store."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.store.command import Sample, Tussock
from tussock.statestore.epochs import epoch_ms

ROW_1 = {"day": "2026-01-01", "id": 1, "note": "n1", "amount": "1.50", "at": "2026-01-01T12:00:00Z"}
ROW_2 = {"day": "2026-01-02", "id": 10, "note": None, "amount": "2.25", "at": "2026-01-02T12:00:00Z"}


def test_tables_lists_kind_key_and_size(tussock: Tussock, sample: Sample) -> None:
    """Each table stands in a line with its kind, its key and its newest epoch."""
    ran = tussock("tables")
    assert ran.code == 0
    kv, orders = ran.out.splitlines()[-2:]
    assert kv.split()[:6] == ["kv", "raw", "key", "store's", "360", "3"]
    assert "day, id" in orders
    assert str(sample.epochs[2]) in orders


def test_tables_in_json_says_schema_and_counts(tussock: Tussock, sample: Sample) -> None:
    """The document has the columns with their types, the keys and the counts."""
    tables = {table["name"]: table for table in tussock("tables", "--json").json()["tables"]}
    assert tables["orders"]["columns"]["amount"] == "decimal128(10, 2)"
    assert tables["orders"]["primary_key"] == ["day", "id"]
    assert (tables["kv"]["rows"], tables["kv"]["deletes"], tables["kv"]["ssts"]) == (360, 1, 3)
    assert tables["kv"]["last_epoch"] == sample.epochs[2]


def test_get_finds_a_raw_key(tussock: Tussock, sample: Sample) -> None:
    """The key given as text is its UTF-8."""
    assert tussock("get", "kv", "k005", "--json").json() == {"key": "k005", "value": "v2"}
    assert "v2" in tussock("get", "kv", "k005").out


def test_get_takes_hex_and_an_epoch(tussock: Tussock, sample: Sample) -> None:
    """`hex:` gives any bytes; bytes that are no printable text come back as hex."""
    ran = tussock("get", "kv", "hex:7aff00", "--epoch", str(sample.epochs[1]), "--json")
    assert ran.json() == {"key": {"hex": "7aff00"}, "value": {"hex": "01"}}
    assert "hex:7aff00" in tussock("get", "kv", "hex:7aff00", "-e", str(sample.epochs[1])).out


def test_get_parses_typed_keys(tussock: Tussock, sample: Sample) -> None:
    """The values of a typed key come in key order, each as its column's type."""
    assert tussock("get", "orders", "2026-01-02", "10", "--json").json() == ROW_2
    assert tussock("get", "orders", "2026-01-01", "1", "--json", "-e", str(sample.epochs[1])).json() == ROW_1


@pytest.mark.parametrize("key", [("kv", "nothing"), ("kv", "hex:7aff00"), ("orders", "2026-01-01", "1")])
def test_get_of_no_row_is_code_1(tussock: Tussock, sample: Sample, key: tuple[str, ...]) -> None:
    """For an absent or deleted row stdout is empty and the exit code is 1; JSON says null."""
    ran = tussock("get", *key)
    assert (ran.code, ran.out) == (1, "")
    assert "no row" in ran.err
    assert tussock("get", *key, "--json").json() is None


def test_at_reads_the_state_of_a_moment(tussock: Tussock, sample: Sample) -> None:
    """To the millisecond: later commits are not shown."""
    now = datetime.now(UTC).isoformat()
    assert len(tussock("scan", "kv", "--at", now, "--json").lines()) == 120
    first = datetime.fromtimestamp(epoch_ms(sample.epochs[0]) / 1000, UTC).isoformat()
    shown = tussock("scan", "kv", "--at", first, "--json").lines()
    assert shown == tussock("scan", "kv", "--epoch", str(sample.epochs[0]), "--json").lines()
    assert shown != tussock("scan", "kv", "--json").lines()


@pytest.mark.parametrize(
    ("arguments", "first", "count"),
    [
        ([], "k000", 120),
        (["--limit", "3"], "k000", 3),
        (["--prefix", "k11"], "k110", 10),
        (["--start", "k100", "--end", "hex:6b313035"], "k100", 5),
        (["--reverse", "--limit", "2"], "k119", 2),
    ],
)
def test_scan_of_a_raw_table(tussock: Tussock, sample: Sample, arguments: list[str], first: str, count: int) -> None:
    """A range, a prefix, a limit and the other direction; JSON has a row a line."""
    rows = tussock("scan", "kv", *arguments, "--json").lines()
    assert (rows[0]["key"], len(rows)) == (first, count)


def test_scan_for_people_stops_and_says_so(tussock: Tussock, sample: Sample) -> None:
    """A table for people has a hundred rows unless more are asked for, and says that there are more."""
    ran = tussock("scan", "kv")
    assert len(ran.out.splitlines()) == 102
    assert "more rows follow the 100 shown" in ran.err
    assert tussock("scan", "kv", "--limit", "120").err == ""


def test_scan_of_a_typed_table(tussock: Tussock, sample: Sample) -> None:
    """A prefix of key values, chosen columns, and an epoch."""
    assert tussock("scan", "orders", "--prefix", "2026-01-02", "--columns", "id,amount", "--json").lines() == [
        {"id": 10, "amount": "2.25"},
        {"id": 11, "amount": "2.25"},
        {"id": 12, "amount": "2.25"},
    ]
    assert len(tussock("scan", "orders", "--epoch", str(sample.epochs[0]), "--json").lines()) == 2
    assert "null" in tussock("scan", "orders").out


def test_changes_between_epochs(tussock: Tussock, sample: Sample) -> None:
    """Only what was committed after --from and up to --to, deletes included."""
    first, second, third = map(str, sample.epochs)
    rows = tussock("changes", "orders", "--from", second, "--json").lines()
    assert [(row["op"], row["id"], row["epoch"]) for row in rows] == [
        ("delete", 1, sample.epochs[2]),
        ("put", 12, sample.epochs[2]),
    ]
    assert len(tussock("changes", "kv", "--from", first, "--to", second, "--json").lines()) == 120
    assert tussock("changes", "kv", "--from", third).out == "no rows\n"
    assert "360 changes" in tussock("changes", "kv", "--from", "0", "--limit", "1").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "orders", "2026-01-01"], "key day id"),
        (["get", "orders", "2026-01-01", "one"], "'id'"),
        (["get", "kv", "a", "b"], "one key"),
        (["get", "kv", "hex:0"], "hex digits"),
        (["scan", "kv", "--columns", "value"], "raw"),
        (["scan", "orders", "--start", "a"], "typed"),
        (["scan", "kv", "--at", "yesterday"], "ISO 8601"),
        (["scan", "kv", "--at", "2026-01-01", "--epoch", "1"], "same thing"),
        (["scan", "kv", "--limit", "-1"], "limit"),
        (["changes", "kv"], "--from"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_wrong_usage_is_code_2(tussock: Tussock, sample: Sample, arguments: list[str], said: str) -> None:
    """A call that makes no sense says what was expected."""
    ran = tussock(*arguments)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scan", "nope"], "'nope'"),
        (["ssts", "nope"], "'nope'"),
        (["scan", "orders", "--columns", "colour"], "'colour'"),
        (["changes", "kv", "--from", "5", "--to", "4"], "from 5 to 4"),
        (["tables", "--store", "ftp://x"], "scheme"),
    ],
)
def test_an_error_is_one_line(tussock: Tussock, sample: Sample, arguments: list[str], said: str) -> None:
    """An error of the store is one line on stderr, and the exit code is 1."""
    ran = tussock(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert said in ran.err


COMMANDS = (
    "tables",
    "get kv a",
    "scan kv",
    "changes kv --from 0",
    "version",
    "ssts kv",
    "sst dump 00",
    "log",
    "pins",
    "check",
    "compact",
    "vacuum",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_place_stays_empty(tussock: Tussock, tmp_path: Path, command: str) -> None:
    """No command makes a store, nor a folder, where there is none; it says so with exit code 2."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "absent"):
        ran = tussock(*command.split(), "--store", folder.as_uri())
        assert (ran.code, ran.out) == (2, "")
        assert "no store here" in ran.err
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_reading_writes_nothing(tussock: Tussock, sample: Sample) -> None:
    """No reading command leaves a trace in the bucket."""
    before = {path: path.stat().st_mtime_ns for path in sample.folder.rglob("*") if path.is_file()}
    for command in ("tables", "get kv k001", "scan kv", "changes kv --from 0", "version", "ssts kv", "log", "pins"):
        assert tussock(*command.split()).code == 0
    assert tussock("check").code == 0
    assert tussock("vacuum", "--dry-run").code == 0
    assert {path: path.stat().st_mtime_ns for path in sample.folder.rglob("*") if path.is_file()} == before
