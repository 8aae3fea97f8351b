"""Times that Arrow has and Python has not: they are refused where they come in, and end no flow."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from support.changelog.fed_files import write_lines
from tussock.compute import changelog as cl
from tussock.compute.applications.errors import BadInput
from tussock.compute.changelog.changes.python_times import beyond_python
from tussock.statestore import SchemaMismatch, StateStore, connect

ZONES = (None, "UTC", "Asia/Tokyo", "America/New_York", "+14:00", "-12:00")
KINDS = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in ZONES),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.date32(), pa.date64()),
]
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
BAD = [
    (pa.timestamp("s"), 10**12),
    (pa.timestamp("us", "Asia/Tokyo"), LAST_SECOND * 10**6),
    (pa.timestamp("us", "UTC"), (FIRST_SECOND - 1) * 10**6),
    (pa.date32(), 10_000_000),
    (pa.duration("s"), 10**15),
    (pa.time64("ns"), 1),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def typed(numbers: list[int], kind: Any) -> pa.Array:
    return pa.array(numbers, pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)


def stream_of(store: StateStore, kind: Any, name: str = "s") -> cl.Stream:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("c", kind)])
    return cl.Stream(store, name, schema=schema, key=["id"])


def is_held(value: Any) -> bool:
    """Whether Python has the value, and gives it back."""
    try:
        return pa.array([value.as_py()], value.type)[0].equals(value)
    except (OverflowError, ValueError, TypeError):
        return False


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_python_holds_is_known_of_columns(kind: Any) -> None:
    """Near each border, of the years, of days and of the integers, it is as reading and writing the value says."""
    steps = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    step = steps.get(getattr(kind, "unit", ""), 1)
    days = (-719_162, 2_932_896)
    borders = [
        0,
        86_400 * step,
        FIRST_SECOND * step,
        (LAST_SECOND + 1) * step,
        *days,
        *(86_400_000 * day for day in days),
    ]
    borders += [-999_999_999 * 86_400 * step, 1_000_000_000 * 86_400 * step]
    offsets = [0, 1, -1, 1000, -1000, *(hours * 3600 * step for hours in (-14, -9, -5, 4, 5, 9, 12, 14))]
    least, most = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    numbers = {border + offset for border in (*borders, least, most) for offset in offsets}
    column = typed(sorted(one for one in numbers if least <= one <= most), kind)
    found = beyond_python(column).tolist()
    for value, is_beyond in zip(column, found, strict=True):
        if kind == pa.duration("us") and value.value < least + 86_400 * step:
            assert is_beyond  # Arrow takes some of these back, and others not
        else:
            assert is_beyond is not is_held(value), (kind, value.value)


def test_times_within_others_are_known() -> None:
    """In lists, structs and maps, of slices too."""
    bad = typed([5, 10_000_000, 6], pa.date32())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3]), bad)
    assert beyond_python(lists).tolist() == [False, False, True]
    assert beyond_python(lists.slice(2)).tolist() == [True]
    assert beyond_python(pa.StructArray.from_arrays([lists], ["a"])).tolist() == [False, False, True]
    maps = pa.MapArray.from_arrays([0, 1, 3], pa.array(["a", "b", "c"]), bad)
    assert beyond_python(maps.slice(1)).tolist() == [True]


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(("kind", "number"), BAD, ids=[str(kind) for kind, _ in BAD])
def test_a_push_of_such_a_time_is_refused(store: StateStore, kind: Any, number: int, count: int) -> None:
    """Of few rows as of many, with the column and the place, and the flow goes on."""
    stream = stream_of(store, kind)
    rows = {"_op": ["upsert"] * count, "id": list(range(count)), "c": typed([0] * (count - 1) + [number], kind)}
    with cl.Flow(store, [stream]) as flow:
        with pytest.raises(SchemaMismatch, match=f"stream 's': column 'c' at position {count - 1} is {number} as"):
            stream.push(pa.table(rows))
        stream.push([cl.upsert(id=7)]).result()
        flow.drain(60)
        assert stream.snapshot()[0] == [{"id": 7, "c": None}]


def test_a_record_of_such_a_time_is_refused(store: StateStore) -> None:
    """A moment that Python has, and not by the clock of the column's zone."""
    stream = stream_of(store, pa.timestamp("us", "Asia/Tokyo"))
    with cl.Flow(store, [stream]), pytest.raises(SchemaMismatch, match="column 'c' at position 0 is"):
        stream.push([cl.upsert(id=1, c=dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC))])


@pytest.mark.parametrize("count", [1, 100])
def test_an_operator_that_makes_such_a_time_is_bad(store: StateStore, count: int) -> None:
    """With the record and the column; it is held back until there is no such time any more."""
    source = stream_of(store, pa.int64())
    shown = cl.project("shown", source, {"id": "id", "at": pc.field("c").cast(pa.timestamp("s"))}, key="id")
    with cl.Flow(store, [source, shown]) as flow:
        source.push([cl.upsert(id=at, c=10**12 if at == count - 1 else 0) for at in range(count)])
        source.push([cl.upsert(id=200, c=60)])
        flow.drain(60)
        [bad] = shown.bad_rows()
        assert bad.row == count - 1
        assert "column 'at' is 1000000000000 as timestamp[s]" in bad.error
        assert shown.snapshot()[0] == []
        source.push([cl.upsert(id=count - 1, c=0)])
        flow.drain(60)
        assert shown.bad_rows() == []
        assert len(shown.snapshot()[0]) == count + 1
        assert shown.get(200) == {"id": 200, "at": dt.datetime(1970, 1, 1, 0, 1)}


def test_files_with_such_a_time_go_into_the_dead_letters(store: StateStore, tmp_path: Path) -> None:
    """At each start the flow goes on; of lines only the one that has it is left out."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, at in (("1", LAST_SECOND + 1), ("2", 0)):
        rows = pa.table({"id": [int(number)], "c": typed([at * 10**6], pa.timestamp("us"))})
        pq.write_table(rows, folder / f"{number}.parquet")
    write_lines(folder, "1", [{"id": 1, "c": (LAST_SECOND + 1) * 10**6}, {"id": 2, "c": 0}])
    for kind in ("parquet", "json", "parquet", "json"):
        stream = stream_of(store, pa.timestamp("us"), f"of_{kind}")
        flow = cl.Flow(store, [stream])
        flow.feed(stream, cl.FileFeed(folder.as_uri(), format=kind, on_bad="skip"))
        with flow:
            flow.drain(60)
            assert [row["id"] for row in stream.snapshot()[0]] == [2]
        [letters] = [batch.to_pylist() for batch in store.table(f"of_{kind}.dead_letters").read()]
        assert len(letters) == 1
        assert "column 'c'" in str(letters[0])


@pytest.mark.parametrize("images", [True, False])
def test_rows_of_tables_with_such_a_time_are_left_out(store: StateStore, images: bool) -> None:
    """Each alone; it counts again once its time is one that Python has, and its deletion counts."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("c", pa.timestamp("s"))])
    store.create_table("t", schema, primary_key=["id"])

    def write(rows: dict[int, int], gone: tuple[int, ...] = ()) -> None:
        with store.transaction() as tx:
            if rows:
                tx.table("t").upsert(pa.table({"id": list(rows), "c": typed(list(rows.values()), pa.timestamp("s"))}))
            if gone:
                tx.table("t").delete(list(gone))

    stream = stream_of(store, pa.timestamp("s"))
    flow = cl.Flow(store, [stream])
    flow.feed(stream, cl.TableFeed("t", images=images, on_bad="skip"))
    far = 10**12

    def check(expected: dict[int, int]) -> None:
        flow.drain(60)
        found = {row["id"]: int((row["c"] - dt.datetime(1970, 1, 1)).total_seconds()) for row in stream.snapshot()[0]}
        assert found == expected

    with flow:
        write({1: far, 2: 0, 3: 3, 4: 4})
        check({2: 0, 3: 3, 4: 4})
        write({1: 1, 2: far, 3: 33, 4: far})
        check({1: 1, 2: 0, 3: 33, 4: 4})
        write({1: 11, 2: 22}, gone=(4,))
        check({1: 11, 2: 22, 3: 33})
    letters = [row for batch in store.table("s.dead_letters").read() for row in batch.to_pylist()]
    assert len(letters) == 3
    assert "of table 't' in epoch" in str(letters)


def test_a_table_with_such_a_time_stops_the_flow_if_it_shall(store: StateStore) -> None:
    """By an error that says which row, and what to do."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("c", pa.date32())])
    store.create_table("t", schema, primary_key=["id"])
    with store.transaction() as tx:
        tx.table("t").upsert(pa.table({"id": [1], "c": typed([10_000_000], pa.date32())}))
    stream = stream_of(store, pa.date32())
    flow = cl.Flow(store, [stream])
    flow.feed(stream, cl.TableFeed("t"))
    flow.start()
    with pytest.raises(BadInput, match=r"row 1 of table 't' in epoch .* cannot be a row of stream 's': column 'c' is"):
        flow.drain(60)
    with pytest.raises(BadInput):
        flow.stop()
