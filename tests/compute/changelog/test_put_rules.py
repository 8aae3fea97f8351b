"""PUT by record and by column: both do what the plainest interpreter does, for any transaction over any rows."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.changelog.put_oracle import Rows, put
from support.depth import DEPTH
from tussock.compute import changelog as cl
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import changes_bytes, changes_from
from tussock.compute.changelog.loop.put_columns import put_columns
from tussock.compute.changelog.loop.put_rules import PutFault, PutResult, put_records

KEYS = {"one": ["k"], "two": ["k", "g"]}
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("g", pa.string(), nullable=False),
        pa.field("f", pa.float64()),
        pa.field("t", pa.list_(pa.int32())),
    ]
)
WORDS = {
    "insert": cl.insert,
    "update": cl.update,
    "upsert": cl.upsert,
    "delete": cl.delete,
    "safedelete": cl.safedelete,
}


class Case:
    """Rows, and a transaction over them."""

    def __init__(self, seed: int, key: list[str]) -> None:
        self.chance = random.Random(seed)
        self.key = key
        self.shape = StreamShape("s", SCHEMA, key)
        self.rows: Rows = {}
        for _ in range(self.chance.randint(0, 8)):
            row = self._row()
            self.rows[self.of(row)] = row

    def of(self, row: Any) -> Any:
        """The key of a row."""
        return self.shape.key_of(row)

    def records(self) -> list[cl.ChangeRecord]:
        """Of any kind, with keys that come again; mostly such as can be."""
        found = []
        now = set(self.rows)
        for _ in range(self.chance.choice((0, 1, 3, 20))):
            row = self._row()
            at = self.of(row)
            kind = self.chance.choice(("upsert", "upsert", "safedelete", "delete" if at in now else "insert"))
            if self.chance.random() < 0.1:
                kind = self.chance.choice([*WORDS])
            if at in now and self.chance.random() < 0.2:
                kind = "update"
            if self.chance.random() < 0.1 and kind == "upsert":
                old = self._row()
                found.append(self.shape.record(cl.ChangeRecord(cl.Op.UPDATE_BLOCK, row, cl.delete(old)), 0))
                now.discard(self.of(old))
                now.add(at)
                continue
            found.append(self.shape.record(WORDS[kind](row), 0))
            (now.discard if "delete" in kind else now.add)(at)
        return found

    def find_many(self, keys: pa.RecordBatch) -> pa.StructArray:
        """The rows as a table gives them."""
        found = [self.rows.get(self.of(key)) for key in keys.to_pylist()]
        return pa.array(found, pa.struct(list(SCHEMA)))

    def _row(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "k": chance.randint(0, 3),
            "g": chance.choice("ab"),
            "f": chance.choice((None, 0.5, float("nan"), 1.5)),
            "t": chance.choice((None, [], [1, None])),
        }


def plain(found: Any, key: list[str]) -> list[Any]:
    """Rows or keys that a table is given, as a sorted list."""
    if found is None:
        return []
    rows = found.to_pylist() if isinstance(found, pa.RecordBatch) else found
    one = [tuple(row[name] for name in key) if isinstance(row, dict) and set(row) == set(key) else row for row in rows]
    return sorted(repr(row[0] if isinstance(row, tuple) and len(row) == 1 else row) for row in one)


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_both_ways_do_what_the_interpreter_does(seed: int, key: list[str]) -> None:
    """Published records, rows to write and keys to delete; and which record is to blame."""
    faults = 0
    for number in range(150 * DEPTH):
        case = Case(seed * 100_000 + number, key)
        records = case.records()
        given = Changes(case.shape, records)
        columns = Changes(case.shape, None, given.columns)
        results: list[PutResult | tuple[Any, ...]] = []
        for way in (
            lambda given=given, case=case: put_records(case.shape, given, case.rows.get),
            lambda columns=columns, case=case: put_columns(case.shape, columns, case.find_many),
        ):
            try:
                results.append(way())
            except PutFault as fault:
                results.append(fault.args)
        expected = _expected(case, records)
        if expected is None:
            assert results[0] == results[1]
            assert isinstance(results[0], tuple)
            faults += 1
            continue
        rows, published = expected
        for result in results:
            assert isinstance(result, PutResult), (records, result)
            assert repr(list(result.changes.records)) == repr(published)
            upserts = [row for at, row in rows.items() if at not in case.rows or repr(case.rows[at]) != repr(row)]
            assert plain(result.upserts, []) == sorted(map(repr, upserts))
            assert plain(result.deletes, key) == sorted(repr(at) for at in case.rows if at not in rows)
    assert faults > 5 * DEPTH


def _expected(case: Case, records: list[cl.ChangeRecord]) -> tuple[Rows, list[cl.ChangeRecord]] | None:
    """By the interpreter, which knows no NaN and one column as the key."""
    spelled = []
    for one in records:
        if one.old is not None and case.of(one.old) != case.of(one):
            spelled.append(_spelled(case, cl.ChangeRecord(cl.Op.SAFEDELETE, one.old.values_by_column)))
        op = cl.Op.UPSERT if one.op == "UPDATE_BLOCK" else one.op
        spelled.append(_spelled(case, cl.ChangeRecord(op, one.values_by_column)))
    effect = put({at: {**row, "key": at, "f": repr(row["f"])} for at, row in case.rows.items()}, spelled, "key")
    if effect is None:
        return None
    rows, published = effect
    return {at: _back(row) for at, row in rows.items()}, [_back_record(one) for one in published]


def _spelled(case: Case, one: cl.ChangeRecord) -> cl.ChangeRecord:
    return cl.ChangeRecord(one.op, {**one, "key": case.of(one), "f": repr(one["f"])})


def _back(row: Any) -> dict[str, Any]:
    text = row["f"]
    return {"k": row["k"], "g": row["g"], "f": None if text == "None" else float(text), "t": row["t"]}


def _back_record(one: cl.ChangeRecord) -> cl.ChangeRecord:
    return cl.ChangeRecord(one.op, _back(one), None if one.old is None else _back_record(one.old))


FLOATS = {"0.0": "zero", "-0.0": "zero", "nan": "nan", "1.5": "other"}
FLOAT_SHAPE = StreamShape("s", pa.schema([pa.field("x", pa.float64(), nullable=False), ("v", pa.int64())]), ["x"])


def _named(one: cl.ChangeRecord) -> cl.ChangeRecord:
    old = None if one.old is None else _named(one.old)
    return cl.ChangeRecord(one.op, {"k": FLOATS[repr(one["x"])], "v": one["v"]}, old)


@pytest.mark.parametrize("seed", range(200))
def test_a_float_key_has_one_zero_and_one_nan(seed: int) -> None:
    """In both ways, as in tables: what each is called beforehand says what the interpreter makes of it."""
    chance = random.Random(seed)

    def key() -> float:
        return float(chance.choice([*FLOATS]))  # a new NaN each time

    stored = {name: float(text) for text, name in FLOATS.items() if chance.random() < 0.5}
    if "zero" in stored:
        stored["zero"] = 0.0
    rows = {name: {"x": x, "v": 9} for name, x in stored.items()}
    kinds = chance.choice((["upsert", "safedelete"], [*WORDS]))
    records = [
        FLOAT_SHAPE.record(WORDS[chance.choice(kinds)]({"x": key(), "v": chance.randint(0, 2)}), 0) for _ in range(5)
    ]
    expected = put({name: {"k": name, "v": 9} for name in rows}, [_named(one) for one in records])
    given = Changes(FLOAT_SHAPE, records)

    def find(asked: Any) -> Any:
        return rows.get(FLOATS[repr(asked)])

    def find_many(keys: pa.RecordBatch) -> pa.StructArray:
        return pa.array([find(one["x"]) for one in keys.to_pylist()], pa.struct(list(FLOAT_SHAPE.schema)))

    for way in (
        lambda: put_records(FLOAT_SHAPE, given, find),
        lambda: put_columns(FLOAT_SHAPE, Changes(FLOAT_SHAPE, None, given.columns), find_many),
    ):
        try:
            result = way()
        except PutFault:
            assert expected is None
            continue
        assert expected is not None
        assert [_named(one) for one in result.changes.records] == expected[1]
        assert "-0.0" not in repr(result)
        upserts = {name for name, row in expected[0].items() if name not in rows or row["v"] != 9}
        assert len(plain(result.upserts, [])) == len(upserts)
        assert len(plain(result.deletes, [])) == len(rows.keys() - expected[0].keys())


@pytest.mark.parametrize("is_columns", [False, True])
def test_what_is_stored_is_what_is_published(is_columns: bool) -> None:
    """-0.0 after 0.0 changes nothing, so neither gets it."""
    shape = StreamShape("s", pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.float64())]), ["k"])
    given = Changes(shape, [shape.record(cl.upsert(k=1, v=value), 0) for value in (0.0, -0.0)])
    if is_columns:
        none = pa.nulls(2, pa.struct(list(shape.schema)))
        result = put_columns(shape, Changes(shape, None, given.columns), lambda _: none)
    else:
        result = put_records(shape, given, lambda _: None)
    assert plain(result.upserts, []) == ["{'k': 1, 'v': 0.0}"]
    assert [repr(one["v"]) for one in result.changes.records] == ["0.0"]


@pytest.mark.parametrize("seed", range(20))
def test_bytes_of_transactions_are_read_again(seed: int) -> None:
    """As records and as columns."""
    case = Case(seed, ["k"])
    given = Changes(case.shape, case.records(), None, 12345)
    for changes in (given, Changes(case.shape, None, given.columns, 12345)):
        again = changes_from(changes_bytes(changes), case.shape, "here")
        assert (repr(again), again.time) == (repr(given), 12345)


def test_many_columns_of_keys_do_not_overflow() -> None:
    """A number for each key is found column by column."""
    names = [f"k{at}" for at in range(12)]
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])
    shape = StreamShape("s", schema, names)
    values = np.random.default_rng(1).integers(0, 1 << 60, (2000, 12))
    rows = pa.record_batch([pa.array(values[:, at]) for at in range(12)], schema=schema)
    twice = pa.Table.from_batches([rows, rows]).combine_chunks().append_column("_op", pa.repeat("UPSERT", 4000))
    empty = pa.array([None] * 4000, pa.struct(list(schema)))
    result = put_columns(shape, Changes.of_batch(shape, twice, 0), lambda _: empty)
    assert (len(result.changes), result.upserts.num_rows) == (2000, 2000)
