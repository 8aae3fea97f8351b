"""`read(filter=...)`: the filter narrows what is read by the key, and never changes what is answered."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import pytest

from support import inside
from support.store.values import GROUPS, KINDS, values_of
from tussock.statestore import StateStore, TypedTable, connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.keys.expressions import column_tests


def literal(rng: random.Random, kind: Any) -> Any:
    """A literal for a column of the type: mostly one of its values, sometimes of a related type, null or NaN."""
    if rng.random() < 0.03:
        return pa.scalar(None, kind)
    if rng.random() < 0.6:
        return pa.scalar(rng.choice(values_of(kind)), kind)
    if rng.random() < 0.5:
        value = rng.choice(values_of(kind))
        # As pyarrow takes Python values, if it does.
        return value if type(value) is not int or abs(value) < 1 << 62 else pa.scalar(value, kind)
    other = rng.choice(next(group for group in GROUPS if kind in group))
    return pa.scalar(rng.choice(values_of(other)), other)


def leaf(rng: random.Random, schema: pa.Schema, names: list[str]) -> pc.Expression:
    """One comparison of a column."""
    name = rng.choice(names)
    kind, column = schema.field(name).type, pc.field(name)
    choice = rng.random()
    if choice < 0.1 and (pt.is_string(kind) or pt.is_binary(kind)):
        return pc.starts_with(column, rng.choice(["", "a", "b", "ba"]), ignore_case=rng.random() < 0.2)
    if choice < 0.3:
        values = [rng.choice([*values_of(kind), None]) for _ in range(rng.randrange(4))]
        return column.isin(pa.array(values, kind))
    if choice < 0.35:
        return rng.choice([column.is_valid(), column.is_null(), column.cast(pa.string()) == "1", ~(column == column)])
    value = literal(rng, kind)
    sides = (column, pc.scalar(value)) if rng.random() < 0.8 else (pc.scalar(value), column)
    compare = rng.choice([pc.equal, pc.equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal, pc.not_equal])
    answer: pc.Expression = compare(*sides)
    return answer


def expression(rng: random.Random, schema: pa.Schema, names: list[str], depth: int = 3) -> pc.Expression:
    """Comparisons joined in any way, mostly by AND."""
    if not depth or rng.random() < 0.25:
        return leaf(rng, schema, names)
    left, right = (expression(rng, schema, names, depth - 1) for _ in range(2))
    return left | right if rng.random() < 0.12 else ~left & right if rng.random() < 0.05 else left & right


def some_table(rng: random.Random, store: StateStore, number: int) -> TypedTable:
    """A table of one to three key columns, with rows in several runs, in history, and not committed."""
    count = rng.randint(1, 3)
    kinds = rng.choices(KINDS, k=count)
    fields = [pa.field(f"k{at}", kind, nullable=False) for at, kind in enumerate(kinds)]
    schema = pa.schema([*fields, ("v", pa.int64()), ("w", pa.string())])
    keys = [field.name for field in fields]
    table: TypedTable = store.create_table(
        f"t{number}",
        schema,
        keys,
        distribution_key=rng.sample(keys, rng.randint(1, count)),
        vnodes=rng.choice([1, 4, 256]),
        block_bytes=256,
    )
    for commit in range(rng.randint(1, 4)):
        epoch = store.new_epoch()
        rows = [
            {
                **{field.name: rng.choice(values_of(field.type)) for field in fields},
                "v": rng.choice([None, 0, 1, 2]),
                "w": rng.choice([None, "x" * 20]),
            }
            for _ in range(rng.choice([3, 60, 300]))
        ]
        table.upsert(rows, epoch)
        gone = [tuple(row[name] for name in keys) for row in rows[:: rng.choice([2, 7, 1000])]]
        table.delete(gone[: rng.randrange(30)], epoch)
        if commit < 3:
            store.commit_epoch(epoch)
        if rng.random() < 0.3:
            store.compact(table.name)
        if rng.random() < 0.1:
            table = store.alter_table(table.name, add={f"x{commit}": pa.int32()}, widen={})
    return table


def as_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema)


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal, with NaN equal to itself."""
    return left.schema == right.schema and repr(left.to_pylist()) == repr(right.to_pylist())


def check_filters(seed: int, tables: int, filters: int) -> int:
    """Compare reads with a filter with the same filter on all that is read; how many filters decided something."""
    rng = random.Random(seed)
    decided = 0
    with connect("memory://", compaction=False, limits=Limits(segment_bytes=rng.choice([600, 2 << 20]))) as store:
        for number in range(tables):
            table = some_table(rng, store, number)
            schema = table.schema
            keys = list(table.primary_key)
            everything = as_table(table.read(), schema)
            for _ in range(filters):
                condition = expression(rng, schema, keys * 3 + ["v", "w"])
                at: dict[str, Any] = {}
                if rng.random() < 0.2:
                    most = table.spec.vnodes
                    at["vnodes"] = tuple(sorted(rng.choices(range(most + 1), k=2)))
                elif rng.random() < 0.1:
                    at["prefix"] = (rng.choice(values_of(schema.field("k0").type)),)
                elif rng.random() < 0.1:
                    at["between"] = ((rng.choice(values_of(schema.field("k0").type)),), ())
                whole = as_table(table.read(**at), schema) if at else everything
                try:
                    expected = whole.filter(condition)
                except (pa.ArrowException, TypeError):
                    continue
                names = rng.sample(schema.names, rng.randint(1, len(schema.names)))
                limit = rng.choice([None, None, 0, 1, 5])
                picked = pa.schema([schema.field(name) for name in names])
                found = as_table(table.read(names, condition, limit=limit, **at), picked)
                assert same(found, expected.select(names).slice(0, limit)), (seed, condition, schema, at)
                decided += bool(column_tests(condition, schema, keys))
    return decided


@pytest.mark.parametrize("seed", range(4))
def test_filters_answer_what_they_answer_on_all_rows(seed: int) -> None:
    """Any types, layouts, expressions and other arguments; rows in runs of any number, and own ones."""
    assert check_filters(seed, tables=6, filters=60) > 100


def reads(store: StateStore, read: Callable[[], Iterable[pa.RecordBatch]]) -> tuple[int, int]:
    """How many rows a read answers, and how many requests for blocks it makes; the cache is empty before it."""
    inside.sstables(store).blocks.clear()
    before = store.requests().get("read", {}).get("get_range", (0, 0))[0]
    count = sum(batch.num_rows for batch in read())
    return count, store.requests()["read"].get("get_range", (0, 0))[0] - before


def test_a_filter_on_the_key_leaves_blocks_unread() -> None:
    """Of 20,000 rows in some 100 segments; a filter on other columns reads them all."""
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("v", pa.string())])
    days, n = pa.array([at // 1000 for at in range(20_000)], pa.int32()).cast(pa.date32()), pc.field("n")
    day = [pc.field("day") == pa.scalar(at, pa.int32()).cast(pa.date32()) for at in range(20)]
    with connect("memory://", compaction=False, limits=Limits(segment_bytes=10_000)) as store:
        table = store.create_table(
            "t", schema, ["day", "n"], distribution_key=["day"], block_bytes=2048, compression="none"
        )
        epoch = store.new_epoch()
        table.upsert(pa.table([days, pa.array(range(20_000)), pa.array(["x" * 30] * 20_000)], schema=schema), epoch)
        store.commit_epoch(epoch)
        store.compact("t")
        whole = reads(store, lambda: table.read())
        assert whole[0] == 20_000
        assert whole[1] > 60
        assert reads(store, lambda: table.read(filter=n == 7)) == (1, whole[1])
        assert reads(store, lambda: table.read(filter=day[0] & (n == 7))) == (1, 1)
        assert reads(store, lambda: table.read(filter=day[1] & (n == 7))) == (0, 0)
        assert reads(store, lambda: table.read(filter=day[0] & n.isin([7, 8, 990, 5000])))[1] <= 2
        assert reads(store, lambda: table.read(filter=day[0] & (n == 7) & (day[1]))) == (0, 0)
        found, requests = reads(store, lambda: table.read(filter=day[3]))
        assert (found, requests <= 8) == (1000, True)
        found, requests = reads(store, lambda: table.read(filter=day[3] & (n >= 3100) & (n < 3200)))
        assert (found, requests <= 3) == (100, True)
        found, requests = reads(store, lambda: table.read(filter=pc.field("day").isin(pa.array([3, 9], pa.date32()))))
        assert (found, requests < whole[1]) == (2000, True)
        found, requests = reads(store, lambda: table.read(["v"], day[3], vnodes=(0, 256), limit=10))
        assert (found, requests <= 4) == (10, True)
        found, requests = reads(store, lambda: table.read(filter=pc.field("day") < pa.scalar(3, pa.date32())))
        assert found == 3000


def test_a_filter_on_the_distribution_key_reads_its_virtual_nodes_alone() -> None:
    """Also where it is no leading part of the primary key: of 16 nodes, those of the values that the filter allows."""
    schema = pa.schema([("country", pa.string()), ("user", pa.int64()), ("v", pa.string())])
    users, country = pa.array(range(20_000)), pc.field("country")
    user = pc.field("user")
    with connect("memory://", compaction=False, limits=Limits(segment_bytes=10_000)) as store:
        table = store.create_table(
            "t", schema, ["country", "user"], distribution_key=["user"], vnodes=16, block_bytes=2048, compression="none"
        )
        epoch = store.new_epoch()
        countries = pa.array(["AT", "DE"] * 10_000)
        table.upsert(pa.table([countries, users, pa.array(["x" * 30] * 20_000)], schema=schema), epoch)
        store.commit_epoch(epoch)
        store.compact("t")
        rows, whole = reads(store, lambda: table.read())
        assert rows == 20_000
        found, requests = reads(store, lambda: table.read(filter=user == 7))
        assert (found, requests < whole / 8) == (1, True)
        found, requests = reads(store, lambda: table.read(filter=user.isin([7, 9]) & (country >= "DE")))
        assert (found, requests < whole / 8) == (2, True)
        assert reads(store, lambda: table.read(filter=(user == 7) & (user == 9))) == (0, 0)
        assert reads(store, lambda: table.read(filter=user.isin(pa.array([], pa.int64())))) == (0, 0)
        assert reads(store, lambda: table.read(filter=user.isin(list(range(5000)))))[0] == 5000
