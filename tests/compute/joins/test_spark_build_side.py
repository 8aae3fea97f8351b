"""A lookup that has read the whole table: the results of `multi_get`, within its bytes, and only if it pays."""

import datetime as dt
import importlib
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support import inside
from tussock.compute.spark.joins.build_side import BuildSide, BuildSides
from tussock.compute.spark.joins.key_index import KeyIndex
from tussock.compute.spark.joins.lookup import LookupTask
from tussock.compute.spark.options.options import StoreAddress
from tussock.compute.spark.options.schemas import arrow_target, spark_schema
from tussock.compute.spark.reads.connections import working_store
from tussock.statestore import SchemaMismatch, SnapshotExpired, TableNotFound, connect
from tussock.statestore.client import StateStore

TARGET = pa.schema([("v", pa.string()), ("x", pa.float64())])

# The package has the function under the module's name.
lookup_module = importlib.import_module("tussock.compute.spark.joins.lookup")

# Per type of a key as many values as a test wants, drawn with repetitions.
DAY = dt.date(2013, 1, 1)
DRAWN: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), lambda at: at % 2 == 0),
    "i8": (pa.int8(), lambda at: at % 256 - 128),
    "i16": (pa.int16(), lambda at: at - 300),
    "i32": (pa.int32(), lambda at: (at - 300) * 7_000_001),
    "i64": (pa.int64(), lambda at: (at - 300) * 30_000_000_000_000_001),
    "u64": (pa.uint64(), lambda at: 2**64 - 1 - at * 30_000_000_000_000_001),
    "f32": (pa.float32(), lambda at: [-0.0, 0.0, float("nan"), float("inf"), at / 8][min(at, 4)]),
    "f64": (pa.float64(), lambda at: [0.0, -0.0, float("nan"), float("-inf"), -at / 7][min(at, 4)]),
    "dec": (pa.decimal128(38, 18), lambda at: Decimal(at - 300) / 8),
    "text": (pa.string(), lambda at: ["", "a", "a\0", "a\0\0", "ab", "grüße\0\U0001f600"][at % 6] * (at // 6)),
    "large": (pa.large_string(), lambda at: str(at * at)),
    "fixed": (pa.binary(3), lambda at: at.to_bytes(3, "big")),
    "bytes": (pa.binary(), lambda at: at.to_bytes(2, "little").rstrip(b"\0") + b"\xff\0" * (at % 3)),
    "day": (pa.date32(), lambda at: DAY + dt.timedelta(days=(at - 300) * 99)),
    "at": (pa.timestamp("us", "UTC"), lambda at: dt.datetime(1970, 1, 1, 0, 0, 0, at, dt.UTC)),
    "ms": (pa.timestamp("ms", "Europe/Berlin"), lambda at: dt.datetime(1969, 12, 31, 23, 50, at % 60, 7000, dt.UTC)),
    "ntz": (pa.timestamp("us"), lambda at: dt.datetime(9999, 1, 1) + dt.timedelta(hours=at)),
    "time": (pa.time64("us"), lambda at: dt.time(at % 24, at % 60, 59, at)),
    "span": (pa.duration("us"), lambda at: dt.timedelta(days=at - 300, microseconds=at)),
}


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> BuildSides:
    """The worker's build sides, without those of other tests."""
    fresh = BuildSides()
    monkeypatch.setattr(lookup_module, "worker_sides", fresh)
    return fresh


def side_count(sides: BuildSides) -> int:
    """The number of build sides."""
    return sides.stats().entries


def fill(store: StateStore, table: str, rows: Any) -> int:
    """Write `rows` in a new epoch; returns the epoch."""
    epoch = store.new_epoch()
    store.table(table).upsert(rows, epoch)
    return store.commit_epoch(epoch)


def fill_t(store: StateStore, first: int, last: int, word: str) -> int:
    return fill(store, "t", [{"id": key, "v": f"{word}-{key}", "x": key / 2} for key in range(first, last)])


def task_of(store: StateStore, url: str, table: str, epoch: int | None, columns: list[str] | None = None) -> LookupTask:
    """A task, as `lookup` makes it."""
    spec = store.table(table).spec
    schema = spec.arrow_schema()
    columns = columns or [name for name in schema.names if name not in spec.primary_key]
    shown = spark_schema(pa.schema([schema.field(name).with_nullable(True) for name in columns]), (), table)
    return LookupTask(StoreAddress(url), spec, tuple(columns), epoch, arrow_target(shown))


def run(task: LookupTask, *batches: Any) -> list[Any]:
    """The task's results for batches of one key column."""
    return [array.to_pylist() for array in task.run(iter([(pa.array(batch, pa.int64()),) for batch in batches]))]


def both(sides: BuildSides, task: LookupTask, columns: list[pa.Array]) -> list[Any]:
    """Assert that `multi_get` and a build side give the same results; returns them."""
    count = side_count(sides)
    rows = len(columns[0])
    # One key at a time, of a table with more rows: none is read whole.
    few = [array for at in range(2) for array in task.run(iter([tuple(column.slice(at, 1) for column in columns)]))]
    assert side_count(sides) == count
    # All at once, without build sides.
    looked_up = next(iter(_without_sides(task, columns)))
    built = next(task.run(iter([tuple(columns)])))
    assert side_count(sides) == count + 1
    assert built.type == looked_up.type
    assert len(built) == rows
    assert str(built.to_pylist()) == str(looked_up.to_pylist())
    assert built.null_count == looked_up.null_count
    assert str([array.to_pylist()[0] for array in few]) == str(built.slice(0, 2).to_pylist())
    built.validate(full=True)
    return built.to_pylist()


def _without_sides(task: LookupTask, columns: list[pa.Array]) -> list[pa.StructArray]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup_module, "worker_sides", BuildSides(bytes_max=0))
        return list(task.run(iter([tuple(columns)])))


@pytest.mark.parametrize("second", [None, "i64", "text"])
@pytest.mark.parametrize("first", DRAWN)
def test_a_build_side_finds_every_key_type_like_multi_get(
    store: StateStore, url: str, sides: BuildSides, first: str, second: str | None
) -> None:
    """One or two key columns: present and absent, deleted, null, and double keys, in random order."""
    random = np.random.default_rng([list(DRAWN).index(first), 0 if second is None else 1 + len(second)])
    names = ["k"] if second is None else ["k", "l"]
    kinds = [DRAWN[name][0] for name in (first, second) if name is not None]
    draws = [DRAWN[name][1] for name in (first, second) if name is not None]
    store.create_table("keys", pa.schema([*zip(names, kinds, strict=True), ("n", pa.int32())]), names)

    def draw_keys(low: int, high: int, count: int) -> list[pa.Array]:
        picked = random.integers(low, high, count)
        other = picked if second is None else random.integers(0, 5, count)
        return [
            pa.array([draw(int(at)) for at in which], kind)
            for draw, kind, which in zip(draws, kinds, (picked, other), strict=False)
        ]

    columns = draw_keys(0, 400, 700)
    fill(store, "keys", pa.record_batch([*columns, pa.array(range(700), pa.int32())], [*names, "n"]))
    epoch = store.new_epoch()
    gone = [name.slice(0, 1) for name in columns]
    store.table("keys").delete(pa.record_batch(gone, names), epoch)
    store.commit_epoch(epoch)
    asked = draw_keys(0, 600, 3000)
    nulls = [random.random(3000) < 0.1 for _ in asked]
    asked = [
        pa.array([None if null else value for value, null in zip(column.to_pylist(), mask, strict=True)], column.type)
        for column, mask in zip(asked, nulls, strict=True)
    ]
    answers = both(sides, task_of(store, url, "keys", epoch, ["n"]), asked)
    assert any(answers)
    assert not all(answers)
    assert all(answer is None for answer, *masks in zip(answers, *nulls, strict=True) if any(masks))


def test_a_build_side_gives_every_value_type_like_multi_get(store: StateStore, url: str, sides: BuildSides) -> None:
    """Nested values, types that Spark lacks, nulls among them, and columns of the key itself."""
    kinds = {
        **{name: kind for name, (kind, _) in DRAWN.items()},
        "none": pa.null(),
        "list": pa.list_(pa.int32()),
        "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
        "map": pa.map_(pa.string(), pa.float64()),
        "view": pa.string_view(),
    }
    draws = {
        **{name: draw for name, (_, draw) in DRAWN.items()},
        "none": lambda at: None,
        "list": lambda at: [at, None][: at % 3],
        "struct": lambda at: {"a": at, "b": None},
        "map": lambda at: [(str(at), None)] * (at % 2),
        "view": lambda at: "long enough to be elsewhere" * (at % 3),
    }
    store.create_table("wide", pa.schema([("id", pa.int64()), *kinds.items()]), ["id"])
    rows = [
        {"id": at, **{name: None if (at + i) % 7 == 0 else draws[name](at) for i, name in enumerate(kinds)}}
        for at in range(300)
    ]
    epoch = fill(store, "wide", rows)
    asked = pa.array(np.random.default_rng(3).integers(-50, 350, 1000))
    both(
        sides, task_of(store, url, "wide", epoch, ["text", "id", *(name for name in kinds if name != "text")]), [asked]
    )


def test_the_table_is_read_once_the_keys_are_as_many_as_its_rows(
    store: StateStore, url: str, sides: BuildSides
) -> None:
    """The keys of all tasks of a worker count, without null ones; then nothing more is read."""
    epoch = fill_t(store, 0, 100, "old")
    task = task_of(store, url, "t", epoch)
    run(task, range(50), [None] * 500)
    run(task, range(49))
    assert side_count(sides) == 0
    run(task, [7])
    assert side_count(sides) == 1
    address, table = StoreAddress(url), store.table("t")
    side = sides.get(store, address, table, epoch, task.target, 1)
    assert isinstance(side, BuildSide)
    assert side is sides.get(store, address, table, epoch, task.target, 1)


def test_an_empty_table_has_a_build_side(store: StateStore, url: str, sides: BuildSides) -> None:
    """No key is found in it."""
    store.create_table("other", pa.schema([("id", pa.int64())]), ["id"])
    epoch = fill(store, "other", [{"id": 1}])
    assert run(task_of(store, url, "t", epoch), [1, None, 2]) == [[None, None, None]]
    assert side_count(sides) == 1


def test_only_commits_to_the_table_need_another_build_side(store: StateStore, url: str, sides: BuildSides) -> None:
    """Each epoch shows its rows, also an older one, and one that the reader has yet to learn of."""
    store.create_table("other", pa.schema([("id", pa.int64())]), ["id"])
    keys = [*range(20)] * 2
    old = fill_t(store, 0, 10, "old")
    later = fill(store, "other", [{"id": 1}])
    answers = run(task_of(store, url, "t", old), keys)
    assert run(task_of(store, url, "t", later), keys) == answers
    assert side_count(sides) == 1
    new = fill_t(store, 5, 15, "new")
    changed = run(task_of(store, url, "t", new), keys)
    assert side_count(sides) == 2
    assert [row and row["v"] for row in changed[0][:20]] == [
        *(f"old-{key}" for key in range(5)),
        *(f"new-{key}" for key in range(5, 15)),
        *[None] * 5,
    ]
    assert run(task_of(store, url, "t", old), keys) == answers
    assert run(task_of(store, url, "t", None), keys) == changed
    # The last write comes after that epoch, so it has a build side by its own number.
    assert run(task_of(store, url, "t", later), keys) == answers


def test_a_table_altered_or_compacted_in_between(store: StateStore, url: str, sides: BuildSides) -> None:
    """Wider types and new columns come as each plan has them, from the same rows."""
    store.create_table("w", pa.schema([("id", pa.int64()), ("n", pa.int32())]), ["id"])
    epoch = fill(store, "w", [{"id": key, "n": key} for key in range(50)])
    planned = task_of(store, url, "w", epoch)
    before = run(planned, range(60))
    store.alter_table("w", add={"more": pa.string()}, widen={"n": pa.int64()})
    store.compact("w")
    altered = task_of(store, url, "w", epoch)
    assert altered.target == pa.schema([("n", pa.int64()), ("more", pa.string())])
    assert run(planned, range(60)) == before
    assert run(altered, range(60)) == [[row and {**row, "more": None} for row in before[0]]]
    newest = fill(store, "w", [{"id": 7, "n": 2**40, "more": "x"}])
    count = side_count(sides)
    planned_newest = task_of(store, url, "w", newest, ["n"])
    planned_newest = LookupTask(planned_newest.address, planned.spec, ("n",), newest, planned.target)
    assert run(planned_newest, [*range(7)] * 20) == [list(before[0][:7]) * 20]
    assert side_count(sides) == count, "a value that the plan's type does not hold: only who asks for it is refused"
    with pytest.raises(SchemaMismatch, match="'n'"):
        run(planned_newest, [7])


def test_an_expired_epoch_is_refused_though_its_rows_are_in_memory(
    store: StateStore, url: str, sides: BuildSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup refuses it, too; a user's pin allows it. A dropped table is named as dropped."""
    epoch = fill_t(store, 0, 10, "old")
    task, keys = task_of(store, url, "t", epoch), list(range(12))
    answers = run(task, keys)
    with connect(url, retention=0, compaction=False) as short:
        with short.pin_snapshot(epoch):
            fill_t(short, 0, 10, "new")
            assert run(task, keys, keys) == answers * 2
        fill_t(short, 0, 10, "newest")
        short.compact("t")
        working_store(StoreAddress(url)).version()  # It learns of versions now and then.
        with pytest.raises(SnapshotExpired, match=str(epoch)):
            run(task, keys)
    assert side_count(sides) == 1, "pinned or not, newest epoch or not: the same rows"
    task = task_of(store, url, "t", store.committed_epoch)
    assert run(task, keys)[0][3] == {"v": "newest-3", "x": 1.5}
    answered = replace(task, keys_at_once=1).run(iter([(pa.array([1]),)] * 2))
    next(answered)
    store.drop_table("t")
    working_store(StoreAddress(url)).version()
    with pytest.raises(TableNotFound):
        next(answered)


def test_keys_of_another_kind_are_refused(store: StateStore, url: str, sides: BuildSides) -> None:
    """`multi_get` refuses them, too: strings for integers, and a number that the key's type does not hold."""
    store.create_table("small", pa.schema([("id", pa.int16()), ("n", pa.int32())]), ["id"])
    task = task_of(store, url, "small", fill(store, "small", [{"id": 1, "n": 1}]))
    assert run(task, [1, 2]) == [[{"n": 1}, None]]
    assert side_count(sides) == 1
    for keys in (pa.array(["1"]), pa.array([1.0]), pa.array([70_000])):
        with pytest.raises(SchemaMismatch, match="'id'"):
            next(task.run(iter([(keys,)])))


def test_a_table_that_does_not_fit_is_looked_up(store: StateStore, url: str) -> None:
    """The size is known from its rows before the read, or from its bytes in it; the read is not repeated."""
    epoch = fill_t(store, 0, 1000, "x" * 200)
    table, address = store.table("t"), StoreAddress(url)
    index = KeyIndex.bytes_for(1000)
    for bytes_max, reads in ((index - 1, False), (index + 100_000, True)):
        with connect(url, compaction=False) as reader:
            sides = BuildSides(bytes_max)
            task = reader.table("t")
            assert sides.get(reader, address, task, epoch, TARGET, 10_000) is None
            assert ("read" in reader.requests()) == reads
            before = reader.requests().get("read")
            assert sides.get(reader, address, task, epoch, TARGET, 10_000) is None
            assert reader.requests().get("read") == before
    roomy = BuildSides(index + 300_000)
    assert roomy.get(store, address, table, epoch, TARGET, 1000) is not None


def test_build_sides_together_keep_within_their_bytes(store: StateStore, url: str) -> None:
    """The oldest go; one that is asked for again for as many keys as it has rows comes back."""
    epoch = fill_t(store, 0, 1000, "x" * 20)
    address = StoreAddress(url)
    for number in range(5):
        store.create_table(f"t{number}", pa.schema([("id", pa.int64()), *TARGET]), ["id"])
        epoch = fill(store, f"t{number}", [{"id": key, "v": "y" * 20} for key in range(1000)])
    sides = BuildSides(150_000)
    for number in [*range(5), 0, 0]:
        side = sides.get(store, address, store.table(f"t{number}"), epoch, TARGET, 1000)
        assert side is not None
        assert side.nbytes < 125_000
        assert sides.stats().bytes <= 150_000
    stats = sides.stats()
    assert stats.entries >= 2
    assert stats.evictions >= 3
    fresh = BuildSides(150_000)
    for number in range(200):
        assert fresh.get(store, address, store.table("t0"), epoch - number % 3, TARGET, 1) is None
    assert inside.reads_counted(fresh) <= 64
