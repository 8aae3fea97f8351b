"""The command shows each value exactly, reads back what it shows, and passes no control character to a terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from support.store.command import Sample, Tussock
from tussock.cli.times import time_parser, time_text
from tussock.cli.values import as_json, as_text, batch_rows, parse_key, safe
from tussock.statestore import connect
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.tables import typed_input as conform_module

COMMAND = [sys.executable, "-c", "from tussock.cli.main import main; main()"]

KINDS = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    pa.date32(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
]


def scalar_of(kind: Any, number: int) -> Any:
    """The value that Arrow stores as that number."""
    return pa.array([number], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)[0]


def bounds(kind: Any) -> tuple[int, int]:
    if pa.types.is_time(kind):
        return 0, {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] * 86_400 - 1
    return (-(1 << 31), (1 << 31) - 1) if kind.bit_width == 32 else (-(1 << 63), (1 << 63) - 1)


@given(st.sampled_from(KINDS), st.data())
def test_a_time_that_is_shown_can_be_typed_in_again(kind: Any, data: st.DataObject) -> None:
    """Times of any year come back to the last digit as the key of the same row."""
    small = st.integers(-(10**6), 10**6) if not pa.types.is_time(kind) else st.integers(*bounds(kind))
    scalar = scalar_of(kind, data.draw(st.integers(*bounds(kind)) | small))
    schema = pa.schema([("k", kind)])
    text = time_text(scalar)
    key = time_parser(kind)(text)
    assert KeyEncoder(schema, ["k"]).encode_row((key,)) == KeyEncoder(schema, ["k"]).encode_row((scalar,)), text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("us"), "1970-01-01T00:00:01.1234567"),
        (pa.timestamp("ns"), "1970-01-01T00:00:01.1234567891"),
        (pa.timestamp("us"), "1970-01-01T00:00:01+01:00"),
        (pa.time64("us"), "00:00:01.1234567"),
        (pa.duration("us"), "1.1234567"),
        (pa.duration("s"), "0.5"),
        (pa.duration("s"), "nan"),
        (pa.date32(), "1970-01-01T01:00"),
    ],
    ids=str,
)
def test_a_time_finer_than_the_column_is_refused(kind: pa.DataType, text: str) -> None:
    """Without the surplus digits it would be the key of another row."""
    schema = pa.schema([("k", kind)])
    spec = TableSpec(id=1, name="t", schema=schema.serialize().to_pybytes(), primary_key=("k",))
    with pytest.raises(typer.BadParameter, match="'k' is of type"):
        parse_key(spec, [text])


@pytest.mark.parametrize(
    ("kind", "number", "shown"),
    [
        (pa.timestamp("us"), 1 << 62, "4611686018427387904us"),
        (pa.date32(), (1 << 31) - 1, "2147483647d"),
        (pa.duration("s"), 1 << 62, "4611686018427387904"),
        (pa.duration("ns"), 1, "0.000000001"),
        (pa.timestamp("us", "Mars/Base"), 5, "1970-01-01 00:00:00.000005Z"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
    ],
    ids=str,
)
def test_a_value_that_python_has_no_class_for_is_shown(kind: pa.DataType, number: int, shown: str) -> None:
    """Such values are shown in a column, in a list and in a struct, as text and as JSON."""
    column = pa.array([number], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    structs = pa.StructArray.from_arrays([column], names=["a"])
    (row,) = batch_rows(pa.record_batch({"plain": column, "list": lists, "struct": structs}))
    assert row == {"plain": shown, "list": [shown], "struct": {"a": shown}}
    assert as_text(column[0]) == shown
    assert as_json({"v": structs[0]}) == {"v": {"a": shown}}


@given(st.text())
def test_control_characters_are_escaped(text: str) -> None:
    """Control characters are escaped; printable text stays as it is."""
    shown = safe(text)
    assert all(letter.isprintable() or letter.isspace() for letter in shown)
    assert not set(shown) & set("\x1b\x07\n\r\t\x9b\u202e\u2028")
    assert shown == text or not text.isprintable()


def test_an_integer_that_a_float_column_cannot_hold_is_refused(tmp_path: Path, tussock: Tussock) -> None:
    """An integer that the column does not have is refused, as in Python; as a float it would be the nearest number."""
    url = tmp_path.as_uri()
    with connect(url, compaction=False) as store:
        for name, kind, key in (("narrow", pa.float32(), 2.0**24), ("wide", pa.float64(), 2.0**53)):
            store.create_table(name, pa.schema([("k", kind), ("v", pa.int64())]), ["k"]).upsert([{"k": key, "v": 1}], 1)
        store.commit_epoch(1)
    for name, key, other in (("narrow", "16777216", "16777217"), ("wide", "9007199254740992", "9007199254740993")):
        assert tussock("get", name, key, "--store", url, "--json").json()["v"] == 1
        assert tussock("get", name, f"{key}.0", "--store", url, "--json").json()["v"] == 1
        refused = tussock("get", name, other, "--store", url)
        assert refused.code
        assert f"found {other}" in refused.err


EVIL = "\x1b]0;OWNED\x07\x1b[2J\nrow\u202e\x9b"


@pytest.fixture
def odd_store(tmp_path: Path) -> str:
    """A store with control characters in a value, in names and in a comment, and times that Python does not have."""
    url = f"file://{tmp_path / 'store'}"
    with connect(url, compaction=False) as store:
        for name in (EVIL, "odd"):
            schema = pa.schema([("k", pa.timestamp("ns")), ("v", pa.string()), (EVIL, pa.timestamp("us"))])
            table = store.create_table(name, schema, ["k"])
            moments = pa.array([1_123_456_789, 1_123_456_000], pa.timestamp("ns"))
            far = pa.array([1 << 62, None], pa.timestamp("us"))
            table.upsert(pa.table({"k": moments, "v": [EVIL, "plain é"], EVIL: far}), 1)
        store.commit_epoch(1)
        store.backup("b", EVIL)
    return url


def test_no_output_has_control_characters_and_json_loses_nothing(odd_store: str, tussock: Tussock) -> None:
    """Rows, names of tables and columns, comments, and errors."""
    for arguments in (
        ["scan", "odd"],
        ["get", "odd", "1970-01-01T00:00:01.123456789"],
        ["changes", "odd", "--from", "0"],
        ["tables"],
        ["version"],
        ["log"],
        ["backup", "list"],
        ["scan", EVIL],
        ["scan", f"no{EVIL}"],
    ):
        for extra in ([], ["--json"]):
            ran = tussock(*arguments, "--store", odd_store, *extra)
            assert not set(ran.out + ran.err) & set("\x1b\x07\u202e\x9b")
            assert not any(line.startswith("row") for line in ran.out.splitlines())
            assert "Traceback" not in ran.err
    lines = tussock("scan", "odd", "--store", odd_store, "--json").lines()
    assert {(line["v"], line[EVIL]) for line in lines} == {(EVIL, "4611686018427387904us"), ("plain é", None)}
    assert EVIL in [table["name"] for table in tussock("tables", "--store", odd_store, "--json").json()["tables"]]


def test_a_key_in_nanoseconds_is_its_own_row(odd_store: str, tussock: Tussock) -> None:
    """It is not that of the microsecond; the text is the one that `scan` shows."""
    for line in tussock("scan", "odd", "--store", odd_store, "--json").lines():
        assert tussock("get", "odd", line["k"], "--store", odd_store, "--json").json()["v"] == line["v"]
        assert tussock("scan", "odd", "--prefix", line["k"], "--store", odd_store, "--json").json()["v"] == line["v"]
    assert tussock("get", "odd", "1970-01-01T00:00:01.123456001", "--store", odd_store).code == 1


@pytest.mark.parametrize("arguments", [["scan", "odd"], ["scan", "odd", "--json"], ["--help"]])
def test_a_full_device_is_one_line_on_stderr(odd_store: str, arguments: list[str]) -> None:
    """The exit code is 1."""
    environment = {**os.environ, "TUSSOCK_STORE": odd_store}
    with open("/dev/full", "w") as full:
        ran = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment, check=False)
    assert ran.returncode == 1
    assert b"No space left on device" in ran.stderr
    assert b"Traceback" not in ran.stderr
    assert b"Exception ignored" not in ran.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_terminal_cannot_encode_are_escaped(odd_store: str, encoding: str) -> None:
    """JSON escapes them in its own way, so that it is still the same document."""
    environment = {**os.environ, "TUSSOCK_STORE": odd_store, "PYTHONIOENCODING": encoding}
    for extra in ([], ["--json"]):
        command = [*COMMAND, "scan", "odd", *extra]
        ran = subprocess.run(command, capture_output=True, env=environment, check=True)
        assert b"Traceback" not in ran.stderr
        if extra:
            values = {json.loads(line)["v"] for line in ran.stdout.decode(encoding).splitlines()}
            assert values == {EVIL, "plain é"}


def test_a_column_op_of_the_table_is_not_taken_for_the_change(sample: Sample, tussock: Tussock, tmp_path: Path) -> None:
    """The added columns `_epoch` and `__op` get names that no column has, and stand first."""
    url = f"file://{tmp_path / 'ops'}"
    with connect(url, compaction=False) as store:
        table = store.create_table(
            "t", pa.schema([("op", pa.int64()), ("_op", pa.int64()), ("epoch", pa.int64())]), ["op"]
        )
        table.upsert([{"op": 7, "_op": 8, "epoch": 9}], 5)
        store.commit_epoch(5)
    (line,) = tussock("changes", "t", "--from", "0", "--store", url, "--json").lines()
    assert list(line.items()) == [("_epoch", 5), ("__op", "put"), ("op", 7), ("_op", 8), ("epoch", 9)]


def test_old_rows_whose_text_is_no_utf8_are_shown_and_named(
    tussock: Tussock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scan` and `sst dump` show them as hex digits; `check` names the rows and says what to do."""
    url = f"file://{tmp_path / 'old'}"
    text = pa.array([b"\xff\xfe"]).view(pa.string())
    with connect(url, compaction=False) as store:
        table = store.create_table("t", pa.schema([("k", pa.string()), ("v", pa.string())]), ["k"])
        with monkeypatch.context() as patched:
            patched.setattr(conform_module, "check_text", lambda _: None)
            table.upsert(pa.table({"k": text, "v": text}), 1)
        store.commit_epoch(1)
        (sst,) = store.version().find_table("t").levels.ssts()
    assert "hex:fffe" in tussock("scan", "t", "--store", url).out
    assert tussock("scan", "t", "--store", url, "--json").lines() == [{"k": {"hex": "fffe"}, "v": {"hex": "fffe"}}]
    assert "hex:fffe" in tussock("sst", "dump", sst.id, "--store", url).out
    checked = tussock("check", "--store", url)
    assert checked.code == 1
    assert "a key column of ['k']: text is stored as UTF-8" in checked.out + checked.err
