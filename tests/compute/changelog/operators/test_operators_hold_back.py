"""Bad transactions of operators: what one cannot compute is held back, and never left out.

The law: after each transaction an operator's table is what its rows come to, if they come to something; else it is what
it was, and one bad transaction says so.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.changelog.view_checks import table_rows
from support.depth import DEPTH
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.string(), nullable=False), ("v", pa.int64())]
)
MOST = (1 << 63) - 1

Row = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect(f"memory://{tmp_path.name}", compaction=False) as opened:
        yield opened


# --- Operators, and what their rows are ------------------------------------------------------------------------------


def _groups(rows: list[Row]) -> dict[str, list[Row]]:
    return {group: [row for row in rows if row["g"] == group] for group in sorted({row["g"] for row in rows})}


def _sums(rows: list[Row]) -> list[Row]:
    found = []
    for group, of in _groups(rows).items():
        values = [row["v"] for row in of if row["v"] is not None]
        total = sum(values) if values else None
        assert total is None or -MOST - 1 <= total <= MOST
        with_order = sorted((row["v"], row["k"]) for row in of if row["v"] is not None)
        first = with_order[0][1] if with_order else None
        last = min(((-v, k) for v, k in with_order), default=(0, None))[1]
        ends = min(values, default=None), max(values, default=None)
        found.append(
            {"g": group, "n": len(of), "sum": total, "min": ends[0], "max": ends[1], "first": first, "last": last}
        )
    return found


def _keyed(rows: list[Row]) -> list[Row]:
    assert len({row["v"] for row in rows}) == len(rows)
    assert all(row["v"] is not None for row in rows)
    return [{"v": row["v"], "k": row["k"], "g": row["g"]} for row in rows]


def _halves(rows: list[Row]) -> list[Row]:
    assert all(row["v"] != 0 for row in rows)
    return [row for row in rows if row["v"] is not None and _quotient(row["v"]) < 0]


def _quotient(value: int) -> int:
    return -(100 // -value) if value < 0 else 100 // value


def _required(rows: list[Row]) -> list[Row]:
    assert all(row["v"] is not None for row in rows)
    return rows


def _asked(rows: list[Row]) -> list[Row]:
    assert all(row["v"] != 5 for row in rows)
    return [row for row in rows if row["v"] is not None and row["v"] > 0]


def is_positive(row: cl.ChangeRecord) -> bool:
    if row["v"] == 5:
        raise ValueError("no fives")
    return row["v"] is not None and row["v"] > 0


def _matches(rows: list[Row]) -> list[Row]:
    assert all(row["v"] != 5 for row in rows)
    found = []
    for of in _groups(rows).values():
        ordered = sorted(of, key=lambda row: row["k"])
        for at, row in enumerate(ordered):
            if row["v"] is None or row["v"] <= 0:
                continue
            later = [other for other in ordered[at + 1 :] if other["v"] is None and other["k"] <= row["k"] + 5]
            if later:
                found.append({"g": row["g"], "up_k": row["k"], "none_k": later[0]["k"]})
    return found


VALUES = {
    "n": ("count",),
    "sum": ("sum", "v"),
    "min": ("min", "v"),
    "max": ("max", "v"),
    "first": ("first", "k", "v"),
    "last": ("last", "k", "v"),
}
COLUMNS = {"k": "k", "g": "g", "v": "v"}
STEPS = {"up": is_positive, "none": pc.is_null(pc.field("v"))}
VIEWS: dict[str, tuple[Callable[[cl.Stream], cl.Stream], Callable[[list[Row]], list[Row]]]] = {
    "sums": (lambda s: cl.aggregate("sums", s, "g", VALUES), _sums),
    "keyed": (lambda s: cl.project("keyed", s, {"v": "v", "k": "k", "g": "g"}, key="v"), _keyed),
    "halves": (lambda s: cl.filter("halves", s, pc.divide(pc.scalar(100), pc.field("v")) < 0), _halves),
    "required": (lambda s: cl.project("required", s, COLUMNS, required=["v"]), _required),
    "asked": (lambda s: cl.filter("asked", s, is_positive), _asked),
    "matches": (lambda s: cl.pattern("matches", s, "g", "k", STEPS, 5), _matches),
}


def sorted_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


class Views:
    """A source and all views, in one flow, which may be started anew."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.rows: dict[int, Row] = {}
        self.expected: dict[str, list[Row]] = {name: [] for name in VIEWS}
        self.begin()

    def begin(self) -> None:
        self.source = cl.Stream(self.store, "s", schema=SCHEMA, key=["k"])
        self.views = {name: declare(self.source) for name, (declare, _) in VIEWS.items()}
        self.flow = cl.Flow(self.store, [self.source, *self.views.values()], checkpoint=3600)
        self.flow.start()

    def push(self, *records: cl.ChangeRecord) -> None:
        for record in records:
            if record.op == "SAFEDELETE":
                self.rows.pop(record["k"], None)
            else:
                self.rows[record["k"]] = dict(record)
        self.source.push(records).result(10)
        self.flow.drain(10)

    def check(self) -> set[str]:
        """The law; returns who holds something back."""
        held = set()
        for name, (_, compute) in VIEWS.items():
            bad = self.views[name].bad_rows()
            try:
                self.expected[name] = compute(list(self.rows.values()))
            except AssertionError:
                held.add(name)
            assert [one.is_kept for one in bad] == ([True] if name in held else []), f"{name}: {bad}"
            assert sorted_rows(table_rows(self.store, name)) == sorted_rows(self.expected[name]), name
        return held


def _record(chance: random.Random, key: int) -> cl.ChangeRecord:
    if chance.random() < 0.35:
        return cl.safedelete(k=key)
    odd = chance.choice((0, 1, 2, 5, 5, None, None, MOST, MOST - 2))
    value = odd if chance.random() < 0.6 else chance.randrange(-(10**9), 10**9)
    return cl.upsert(k=key, g=chance.choice("ab"), v=value)


def _is_odd(row: Row) -> bool:
    return row["v"] is None or not 5 < abs(row["v"]) <= 10**9


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_an_operator_is_what_its_rows_come_to_or_says_so(store: StateStore, seed: int) -> None:
    """Random transactions, few records and many, through restarts; each operator is often behind, and catches up."""
    chance = random.Random(seed)
    keys, size = (6, 4) if seed % 2 else (100, 90)
    views = Views(store)
    changes: dict[str, int] = dict.fromkeys(VIEWS, 0)
    was: set[str] = set()
    for _ in range(40):
        views.push(*(_record(chance, key) for key in chance.sample(range(keys), chance.randrange(1, size))))
        if chance.random() < 0.3:
            # What cannot be goes.
            views.push(*(cl.safedelete(k=key) for key, row in [*views.rows.items()] if _is_odd(row)))
        held = views.check()
        for name in held ^ was:
            changes[name] += 1
        was = held
        if held and chance.random() < 0.3:
            name = chance.choice(sorted(held))
            views.flow.replay_bad(views.views[name].bad_rows()[0].number)
        if chance.random() < 0.2:
            before = views.flow
            if chance.random() < 0.5:
                before.stop()
            views.begin()
            with suppress(cl.ApplicationFenced):
                # It has not stopped, and what it did since its start is replayed.
                before.stop()
            views.flow.drain(10)
            assert views.check() == held
    assert all(changes.values()), changes
    views.flow.stop()


# --- One by one ------------------------------------------------------------------------------------------------------


def test_the_greatest_is_right_after_a_bad_transaction_whose_row_goes(store: StateStore) -> None:
    """A row of a bad transaction that has gone meanwhile is not found again when it is given once more."""
    source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    sums = cl.aggregate("sums", source, "g", {"sum": ("sum", "v"), "max": ("max", "v")})
    with cl.Flow(store, [source, sums]) as flow:
        for records in (
            [cl.upsert(k=1, g="a", v=MOST - 10)],
            [cl.upsert(k=2, g="a", v=50), cl.upsert(k=3, g="a", v=MOST - 5)],
            [cl.safedelete(k=3), cl.safedelete(k=1)],
        ):
            source.push(records).result(10)
            flow.drain(10)
        assert table_rows(store, "sums") == [{"g": "a", "sum": 50, "max": 50}]
        assert sums.bad_rows() == []


def test_it_is_told_what_is_held_back(store: StateStore) -> None:
    """From which transaction on, by a number that stays; the history has what was computed together."""
    source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    keyed = cl.project("keyed", source, {"v": "v", "k": "k"}, key="v")
    with cl.Flow(store, [source, keyed]) as flow:

        def push(*records: cl.ChangeRecord) -> None:
            source.push(records).result(10)
            flow.drain(10)

        push(cl.upsert(k=1, g="a", v=1))
        push(cl.upsert(k=2, g="a", v=1))
        (bad,) = keyed.bad_rows()
        assert (bad.source, bad.seq, bad.row, bad.location, bad.is_kept) == ("s", 2, 0, cl.Location.COMPUTE, True)
        push(cl.upsert(k=3, g="a", v=3))
        assert keyed.bad_rows() == [bad]
        assert flow.status()["streams"][1]["held_back"] == 2
        assert [one["k"] for one in flow.what_if(bad=bad.number).taken] == [2, 3]
        flow.replay_bad(bad.number)
        flow.drain(10)
        assert [one.number for one in keyed.bad_rows()] == [bad.number]
        push(cl.upsert(k=1, g="a", v=4))
        assert keyed.bad_rows() == []
        assert flow.status()["streams"][1]["held_back"] == 0
        published = [cl.insert(v=1, k=2), cl.insert(v=3, k=3), cl.insert(v=4, k=1)]
        was = cl.ChangeRecord(cl.Op.UPDATE_BLOCK, {"v": 1, "k": 2}, cl.delete(v=1, k=1))
        assert keyed.out_history()[-1].records == [was, *published[1:]]
        assert [one["k"] for one in keyed.in_history()[-1]] == [2, 3, 1]
        assert flow.what_if(keyed, keyed.in_history()[-1].seq).published == keyed.out_history()[-1].records
        with pytest.raises(InvalidOption, match="has no bad transaction 1"):
            flow.replay_bad(bad.number)


@pytest.mark.parametrize("is_mended", [True, False])
def test_what_is_held_back_can_be_given_again_after_the_operator_was_mended(store: StateStore, is_mended: bool) -> None:
    """By another program, or by the same one, whose function has got what it needs."""
    factors = {"a": 2}

    def begin() -> tuple[cl.Stream, cl.Stream, cl.Flow]:
        source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
        made = cl.project("made", source, {"k": "k", "y": (lambda row: row["v"] * factors[row["g"]], pa.int64())})
        return source, made, cl.Flow(store, [source, made], checkpoint=3600)

    source, made, flow = begin()
    flow.start()
    source.push([cl.upsert(k=1, g="a", v=1), cl.upsert(k=2, g="b", v=1)]).result(10)
    source.push([cl.upsert(k=1, g="a", v=5)]).result(10)
    flow.drain(10)
    (bad,) = made.bad_rows()
    assert "KeyError: 'b'" in bad.error
    if is_mended:
        flow.stop()
        factors["b"] = 10
        source, made, flow = begin()
        flow.start()
    factors["b"] = 10
    flow.replay_bad(bad.number)
    flow.drain(10)
    assert sorted_rows(table_rows(store, "made")) == [{"k": 1, "y": 10}, {"k": 2, "y": 10}]
    assert made.bad_rows() == []
    flow.stop()


def test_what_a_transaction_comes_to_counts_once_it_is_held_back(store: StateStore) -> None:
    """A record that cannot be computed makes it bad, though it is changed at once; given again, the last one counts."""
    source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    asked = cl.filter("asked", source, is_positive)
    with cl.Flow(store, [source, asked]) as flow:
        source.push([cl.upsert(k=1, g="a", v=5), cl.upsert(k=1, g="a", v=6)]).result(10)
        flow.drain(10)
        (bad,) = asked.bad_rows()
        assert "no fives" in bad.error
        flow.replay_bad(bad.number)
        flow.drain(10)
        assert table_rows(store, "asked") == [{"k": 1, "g": "a", "v": 6}]
        assert asked.bad_rows() == []


def test_one_that_holds_back_does_not_keep_others(store: StateStore) -> None:
    """A union of projections, one of which is bad, goes on with the other one."""
    sources = [cl.Stream(store, name, schema=SCHEMA, key=["k"]) for name in ("left", "right")]
    asked = [cl.filter(f"asked_{one.name}", one, is_positive) for one in sources]
    both = cl.union("both", *asked)
    with cl.Flow(store, [*sources, *asked, both]) as flow:
        sources[0].push([cl.upsert(k=1, g="a", v=5), cl.upsert(k=2, g="a", v=7)]).result(10)
        sources[1].push([cl.upsert(k=1, g="b", v=8)]).result(10)
        flow.drain(10)
        assert table_rows(store, "both") == [{"k": 1, "g": "b", "v": 8}]
        sources[0].push([cl.upsert(k=1, g="a", v=6)]).result(10)
        flow.drain(10)
        assert sorted_rows(table_rows(store, "both")) == [{"k": 1, "g": "a", "v": 6}, {"k": 2, "g": "a", "v": 7}]


def test_an_operator_skips_nothing(store: StateStore) -> None:
    """Its rows would be wrong from then on; that is refused by word, and a function that says so ends the flow."""
    source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
    asked = cl.filter("asked", source, is_positive)
    with pytest.raises(InvalidOption, match=r"'asked'.*an operator can leave no transaction out"):
        asked.on_bad_row("skip")
    asked.on_bad_row(lambda _: "skip")
    flow = cl.Flow(store, [source, asked])
    flow.start()
    source.push([cl.upsert(k=1, g="a", v=5)])
    with pytest.raises(InvalidOption, match="an operator can leave no transaction out"):
        flow.drain(10)
    with pytest.raises(InvalidOption, match="an operator can leave no transaction out"):
        flow.stop()


def test_a_flow_stops_where_too_much_is_held_back(store: StateStore) -> None:
    """And goes on when the operator can compute it."""
    fails = True

    def is_any(row: cl.ChangeRecord) -> bool:
        if fails:
            raise ValueError("not yet")
        return True

    def begin() -> tuple[cl.Stream, cl.Flow]:
        source = cl.Stream(store, "s", schema=SCHEMA, key=["k"])
        return source, cl.Flow(store, [source, cl.filter("any", source, is_any)])

    def batch(start: int) -> pa.Table:
        numbers = range(start, start + 680)
        text = "x" * 50_000
        return pa.table({"k": numbers, "g": [text] * 680, "v": numbers, "_op": ["upsert"] * 680})

    source, flow = begin()
    flow.start()
    source.push(batch(0)).result(30)
    flow.drain(60)
    source.push(batch(1000)).result(30)
    with pytest.raises(cl.BadRow, match="from transaction 1 on, 1,360 records: more than 64 MiB") as stopped:
        flow.drain(60)
    assert (stopped.value.stream, stopped.value.seq) == ("any", 1)
    with pytest.raises(cl.BadRow):
        flow.stop()
    fails = False
    _, flow = begin()
    flow.start()
    flow.drain(60)
    assert sum(batch.num_rows for batch in store.table("any").read(["k"])) == 1360
    assert flow.streams["any"].bad_rows() == []
    flow.stop()
