"""The matches of a pattern are those that a plain interpreter finds among all rows, after each transaction."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.changelog.pooled_transactions import PooledTransactions
from support.changelog.view_checks import applied, comparable, table_rows
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

FIRST = dt.datetime(2026, 1, 1)
ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        ("user", pa.string()),
        ("kind", pa.string()),
        ("at", pa.timestamp("us")),
        ("tick", pa.int64()),
        ("day", pa.date32()),
        ("v", pa.float64()),
    ]
)
POOLS: dict[str, list[Any]] = {
    "id": list(range(-60, 60)),
    "part": ["", "a", "a\0"],
    "user": [None, "", "u", "é"],
    "kind": [None, "a", "b", "c"],
    "at": [None, *(FIRST + dt.timedelta(seconds=one) for one in range(0, 400, 3))],
    "tick": [None, -(2**63), 2**63 - 1, 2**63 - 5, -(2**63) + 4, *range(-100, 100)],
    "day": [None, *(dt.date(2026, 1, 1) + dt.timedelta(days=one) for one in range(60))],
    "v": [None, float("nan"), -1.0, 0.0, 1.0, 2.0],
}


def is_kind(kind: str) -> Any:
    return lambda row: row["kind"] == kind


KINDS = pc.field("kind")
UP, DOWN = pc.field("v") > 0, pc.field("v") <= 0
PATTERNS: dict[str, tuple[list[str], str, Any, Any, Any]] = {
    "by expression": (
        ["user"],
        "at",
        [("one", KINDS == "a"), ("two", KINDS == "b"), ("three", KINDS == "c")],
        dt.timedelta(seconds=20),
        "any",
    ),
    "by function": (["user"], "tick", {"one": is_kind("a"), "two": is_kind("a"), "three": UP}, 12, "any"),
    "the very next": (["user"], "day", [("up", UP), ("down", DOWN)], dt.timedelta(days=3), "next"),
    "all in one group": ([], "at", [("one", KINDS == "a"), ("two", KINDS == "b")], dt.timedelta(seconds=6), "any"),
    "at the same time": (["v", "kind"], "day", [("one", KINDS == "a"), ("two", KINDS == "a")], dt.timedelta(0), "any"),
    "however much later": (["user"], "tick", [("one", KINDS == "a"), ("two", KINDS == "c")], 2**63 - 1, "any"),
}


def transactions(seed: int) -> PooledTransactions:
    return PooledTransactions(seed, ROWS, ["id", "part"], POOLS)


def make(store: StateStore, of: str) -> tuple[cl.Stream, cl.Stream, cl.Flow]:
    by, time, steps, within, contiguity = PATTERNS[of]
    source = cl.Stream(store, "source", schema=ROWS, key=["id", "part"])
    found = cl.pattern("found", source, by, time, steps, within, contiguity=contiguity)
    return source, found, cl.Flow(store, [source, found], checkpoint=60.0)


def holds(row: dict[str, Any], step: str, condition: Any) -> bool:
    if not isinstance(condition, pc.Expression):
        return bool(condition(row))
    v = row["v"]
    by_text = {str(UP): v is not None and v > 0, str(DOWN): v is not None and v <= 0}
    by_text |= {str(one == KINDS): row["kind"] == one for one in ("a", "b", "c")}
    return by_text[str(condition)]


def interpreted(rows: list[dict[str, Any]], of: str) -> list[dict[str, Any]]:
    """Row by row over everything, by the definition."""
    by, time, steps, within, contiguity = PATTERNS[of]
    steps = list(steps.items()) if isinstance(steps, dict) else steps
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row[time] is not None:
            groups.setdefault(repr([row[one] for one in by]), []).append(row)
    matches = []
    for group in groups.values():
        group.sort(key=lambda row: (row[time], row["id"], row["part"].encode()))
        for at, first in enumerate(group):
            chain = [first] if holds(first, *steps[0]) else []
            behind = iter(group[at + 1 :])
            for step, condition in steps[1:] if chain else ():
                following = next((row for row in behind if contiguity == "next" or holds(row, step, condition)), None)
                if following is None or not holds(following, step, condition):
                    break
                chain.append(following)
            if len(chain) < len(steps) or chain[-1][time] - first[time] > within:
                continue
            match = {one: first[one] for one in by}
            for (step, _), row in zip(steps, chain, strict=True):
                match |= {f"{step}_id": row["id"], f"{step}_part": row["part"], f"{step}_{time}": row[time]}
            matches.append(match)
    return matches


class TestPatternLaw:
    @pytest.mark.parametrize("of", PATTERNS)
    def test_matches_equal_those_of_the_interpreter(self, of: str) -> None:
        """Late rows, corrections and deletes included, few or many records at once."""
        store = connect("memory://")
        source, found, flow = make(store, of)
        random = transactions(21)
        names, count, matches = found.schema.names, 30, 0
        with flow:
            for turn in range(count):
                records = random.next(random.size(1500 if turn % 4 == 0 else 60))
                source.push(random.as_arrow(records) if random.is_heads() else records).result()
                flow.drain()
                rows = table_rows(store, "found")
                matches += len(rows)
                expected = interpreted(list(random.rows.values()), of)
                assert comparable(rows, names) == comparable(expected, names), f"after transaction {turn}"
            assert matches > count
            assert not found.bad_rows()
            assert comparable(applied(found, count), names) == comparable(rows, names)

    @pytest.mark.parametrize("of", PATTERNS)
    def test_small_transactions_come_to_the_same_matches(self, of: str) -> None:
        """Record by record or by columns."""
        results = []
        for size in (9, 350):
            store = connect("memory://")
            source, _, flow = make(store, of)
            records = transactions(22).next(700)
            with flow:
                for at in range(0, len(records), size):
                    source.push(records[at : at + size])
                flow.drain()
            kept = {}
            for name in ("found", "source.found.window_rows", "source.found.window_counts"):
                names = [one for one in store.table(name).schema.names if one != "slot"]
                kept[name] = comparable(table_rows(store, name), names)
            results.append(kept)
        assert results[0] == results[1]
        assert results[0]["source.found.window_rows"]

    def test_pattern_goes_on_after_a_restart(self) -> None:
        """What it has of the rows is in its tables."""
        store = connect("memory://")
        random = transactions(23)
        for _ in range(4):
            source, found, flow = make(store, "by expression")
            with flow:
                source.push(random.next(40)).result()
                source.push(random.as_arrow(random.next(400))).result()
            expected = interpreted(list(random.rows.values()), "by expression")
            assert comparable(table_rows(store, "found"), found.schema.names) == comparable(
                expected, found.schema.names
            )

    def test_a_late_row_changes_which_rows_match(self) -> None:
        """The first completion counts: a match is corrected when an earlier one arrives, and when that goes again."""
        store = connect("memory://")
        source = cl.Stream(
            store, "source", schema=pa.schema([("k", pa.int64()), ("t", pa.int64()), ("w", pa.string())]), key=["k"]
        )
        steps = {"ask": pc.field("w") == "ask", "pay": pc.field("w") == "pay"}
        found = cl.pattern("found", source, [], "t", steps, 10)
        with cl.Flow(store, [source, found]) as flow:
            for record in (
                cl.insert(k=1, t=0, w="ask"),
                cl.insert(k=2, t=9, w="pay"),
                cl.insert(k=3, t=4, w="pay"),
                cl.delete(k=3),
                cl.update(k=2, t=11, w="pay"),
            ):
                source.push([record]).result()
            flow.drain()
            published = [one.records for one in found.out_history()]
        late = {"ask_k": 1, "ask_t": 0, "pay_k": 2, "pay_t": 9}
        early = {"ask_k": 1, "ask_t": 0, "pay_k": 3, "pay_t": 4}
        gone = {"ask_k": 1, "ask_t": 0, "pay_k": 2, "pay_t": 9}
        ops = [[(one.op, dict(one)) for one in records] for records in published]
        assert ops == [
            [],
            [(cl.Op.INSERT, late)],
            [(cl.Op.UPDATE_BLOCK, early)],
            [(cl.Op.UPDATE_BLOCK, late)],
            [(cl.Op.DELETE, gone)],
        ]

    def test_a_condition_that_fails_makes_the_transaction_bad(self) -> None:
        """With the number of the record, few or many of them."""
        store = connect("memory://")
        source = cl.Stream(store, "source", schema=ROWS, key=["id", "part"])
        steps = {"one": lambda row: 1 / row["v"] > 0, "two": UP}
        found = cl.pattern("found", source, ["user"], "at", steps, dt.timedelta(seconds=1))
        with cl.Flow(store, [source, found]) as flow:
            for count in (10, 200):
                rows = [{"id": 1000 * count + at, "part": "", "v": float(at != 7), "at": FIRST} for at in range(count)]
                source.push([cl.upsert(row) for row in rows]).result()
                flow.drain()
                assert [(one.row, "division" in one.error) for one in found.bad_rows()] == [(7, True)]
                source.push([cl.safedelete(row) for row in rows]).result()
                flow.drain()
                assert found.bad_rows() == []
        assert table_rows(store, "found") == []
