"""A delta: rows over the newest ones, undone to a savepoint, cut into commits beside which it goes on."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from support.growth import cost_ratio
from support.store.stores import TickingSystem
from tussock.statestore import Conflict, Fenced, InvalidOption, StateStore, StoreClosed, TableNotFound, connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.transactions.delta import Delta

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("n", pa.int64())])


@contextmanager
def opened_store(url: str, **limits: int) -> Iterator[StateStore]:
    with connect(url, compaction=False, limits=Limits(**limits)) as opened:
        opened.create_table("t", SCHEMA, primary_key=["k"])
        opened.create_table("u", SCHEMA, primary_key=["k"])
        yield opened


@pytest.fixture
def store(tmp_path: Any) -> Iterator[StateStore]:
    with opened_store(tmp_path.as_uri()) as opened:
        yield opened


@pytest.fixture
def delta(store: StateStore) -> Iterator[Delta]:
    opened = store.delta("app", generation=store.open_writer("app"))
    yield opened
    opened.close()


def row(k: int, n: int) -> dict[str, Any]:
    return {"k": k, "name": f"name {k}", "n": n}


def rows_of(table: Any) -> dict[int, int]:
    return {one["k"]: one["n"] for batch in table.read() for one in batch.to_pylist()}


def commit_of_another(store: StateStore, table: str) -> None:
    epoch = store.new_epoch()
    store.table(table).upsert([row(9, 90)], epoch)
    store.commit_epoch(epoch)


def test_own_rows_are_read_and_nobody_else_sees_them(store: StateStore, delta: Delta) -> None:
    """By get, by many keys and by a scan, whether they were written alone or as Arrow."""
    table = delta.table("t")
    table.upsert([row(1, 10)])
    table.upsert(pa.Table.from_pylist([row(2, 20), row(3, 30)], schema=SCHEMA))
    table.upsert([row(3, 31)])
    table.delete([2])
    assert table.get(1) == row(1, 10)
    assert table.get(2) is None
    assert rows_of(table) == {1: 10, 3: 31}
    assert [one["n"] if one else None for one in table.multi_get([1, 2, 3]).to_pylist()] == [10, None, 31]
    assert rows_of(store.table("t")) == {}


def test_a_frozen_part_is_read_before_and_after_its_commit(store: StateStore, delta: Delta) -> None:
    """What is written meanwhile is on top of it, and in the next commit."""
    table = delta.table("t")
    table.upsert([row(1, 10), row(2, 20)])
    frozen = delta.freeze(1)
    table.upsert([row(2, 21)])
    table.delete([1])
    assert rows_of(table) == {2: 21}
    first = frozen.commit()
    assert rows_of(table) == {2: 21}
    assert rows_of(store.table("t")) == {1: 10, 2: 20}
    second = delta.freeze(2).commit()
    assert second > first
    assert rows_of(store.table("t")) == {2: 21} == rows_of(table)
    assert table.get(1) is None


def test_a_row_that_is_given_out_is_a_copy(delta: Delta) -> None:
    """What its user does to it changes nothing."""
    table = delta.table("t")
    given = row(1, 10)
    table.upsert([given])
    given["n"] = 99
    got = table.get(1)
    got["n"] = 98
    assert table.get(1) == row(1, 10)


@pytest.mark.parametrize("seed", range(40))
def test_random_steps_equal_a_dict(tmp_path: Any, seed: int) -> None:
    """Rows alone and together, deletes, reads, savepoints that are kept or undone, cuts and commits at any place.

    In half of the runs few rows are kept alone, so that copies come and go all the time.
    """
    chance = random.Random(seed)
    limits = {"overlay_rows": chance.randint(1, 9)} if seed % 2 else {}
    with opened_store(tmp_path.as_uri(), **limits) as store:
        take_random_steps(store, chance)


def take_random_steps(store: StateStore, chance: random.Random) -> None:
    delta = store.delta("app", generation=store.open_writer("app"))
    tables = {name: delta.table(name) for name in ("t", "u")}
    truth: dict[str, dict[int, int]] = {"t": {}, "u": {}}
    saved: dict[str, dict[int, int]] | None = None
    frozen: Any = None
    committed: dict[str, dict[int, int]] = {"t": {}, "u": {}}
    cut: dict[str, dict[int, int]] = {}
    batch = 0
    for _ in range(250):
        name = chance.choice("tu")
        table, expected = tables[name], truth[name]
        step = chance.randrange(11)
        keys = [chance.randrange(40) for _ in range(chance.randrange(1, 12))]
        if step < 3:
            written = [row(key, chance.randrange(1000)) for key in keys]
            table.upsert(written if step else pa.Table.from_pylist(written, schema=SCHEMA))
            expected.update((one["k"], one["n"]) for one in written)
        elif step == 3:
            table.delete(keys)
            for key in keys:
                expected.pop(key, None)
        elif step == 4:
            assert rows_of(table) == expected
        elif step in (5, 6):
            for key in keys:
                found = table.get(key)
                assert (found["n"] if found else None) == expected.get(key)
        elif step == 7:
            found = [one["n"] if one else None for one in table.multi_get(keys).to_pylist()]
            assert found == [expected.get(key) for key in keys]
        elif step == 8 and saved is None:
            delta.begin()
            saved = {one: dict(rows) for one, rows in truth.items()}
        elif step == 8:
            if chance.random() < 0.5:
                delta.undo()
                for one, rows in saved.items():
                    truth[one].clear()
                    truth[one].update(rows)
            else:
                delta.keep()
            saved = None
        elif step == 9 and saved is None and frozen is None:
            batch += 1
            frozen, cut = delta.freeze(batch), {one: dict(rows) for one, rows in truth.items()}
        elif step == 10 and frozen is not None:
            frozen.commit()
            frozen, committed = None, cut
            assert {one: rows_of(store.table(one)) for one in truth} == committed
    for one, rows in truth.items():
        assert rows_of(tables[one]) == rows
    delta.close()
    assert {one: rows_of(store.table(one)) for one in truth} == committed


@pytest.mark.parametrize("seed", range(8))
def test_a_delta_larger_than_its_buffer_spills(tmp_path: Any, seed: int) -> None:
    """And what was spilled can be undone, read and committed."""
    chance = random.Random(seed)
    with connect(tmp_path.as_uri(), compaction=False, buffer_bytes=1 << 16) as store:
        store.create_table("t", SCHEMA, primary_key=["k"])
        delta = store.delta("app", generation=store.open_writer("app"))
        table, truth = delta.table("t"), {}
        for number in range(12):
            undone = dict(truth)
            delta.begin()
            for _ in range(3):
                written = [row(chance.randrange(5_000), chance.randrange(1000)) for _ in range(700)]
                table.upsert(pa.Table.from_pylist(written, schema=SCHEMA))
                truth.update((one["k"], one["n"]) for one in written)
            if chance.random() < 0.4:
                delta.undo()
                truth = undone
            else:
                delta.keep()
            assert rows_of(table) == truth
            if number % 4 == 3:
                delta.freeze(number).commit()
                assert rows_of(store.table("t")) == truth
        delta.close()


def test_a_batch_that_was_committed_is_not_committed_twice(store: StateStore, delta: Delta) -> None:
    """A runner that did not hear of its commit repeats it."""
    delta.table("t").upsert([row(1, 10)])
    frozen = delta.freeze(7)
    assert frozen.commit() == frozen.commit()


def test_rows_of_others_in_its_tables_are_a_conflict(store: StateStore, delta: Delta) -> None:
    """What the delta has read of them would not hold."""
    delta.table("t").upsert([row(1, 10)])
    commit_of_another(store, "t")
    frozen = delta.freeze(1)
    with pytest.raises(Conflict, match="'t'"):
        frozen.commit()
    assert rows_of(store.table("t")) == {9: 90}


def test_rows_of_others_in_a_table_that_it_has_opened_are_a_conflict(store: StateStore, delta: Delta) -> None:
    """Also if it has written nothing there: what it wrote elsewhere may rest on what it had read."""
    delta.table("t").upsert([row(1, 10)])
    delta.table("u")
    commit_of_another(store, "u")
    with pytest.raises(Conflict, match="'u'"):
        delta.freeze(1).commit()
    assert rows_of(store.table("t")) == {}


def test_rows_of_others_in_shared_tables_are_none(store: StateStore, delta: Delta) -> None:
    """And are read as they come; in tables that the delta has not opened they are nothing to it."""
    store.create_table("v", SCHEMA, primary_key=["k"])
    delta.table("t").upsert([row(1, 10)])
    other = delta.table("u", shared=True)
    commit_of_another(store, "u")
    commit_of_another(store, "v")
    delta.check_tables()
    delta.freeze(1).commit()
    assert rows_of(store.table("t")) == {1: 10}
    assert rows_of(other) == {9: 90}


def test_a_row_of_a_shared_table_is_read_as_others_have_left_it(store: StateStore, delta: Delta) -> None:
    """Whether it was read or written here before; by `get` as by a scan."""
    other, raw = delta.table("u", shared=True), None
    store.create_table("raw")
    raw = delta.table("raw", shared=True)
    assert (other.get(9), raw.get(b"k")) == (None, None)
    commit_of_another(store, "u")
    epoch = store.new_epoch()
    store.table("raw").ingest_batch([(b"k", b"theirs")], epoch)
    store.commit_epoch(epoch)
    assert other.get(9) == row(9, 90)
    assert raw.get(b"k") == b"theirs"
    other.upsert([row(9, 1)])
    assert other.get(9) == row(9, 1)
    part = delta.freeze(1)
    assert other.get(9) == row(9, 1)
    part.commit()
    assert other.get(9) == row(9, 1)
    commit_of_another(store, "u")
    assert other.get(9) == row(9, 90)
    delta.begin()
    other.upsert([row(9, 2)])
    assert rows_of(other) == {9: 2}
    delta.undo()
    assert other.get(9) == row(9, 90)


def test_a_row_that_expires_is_gone_for_get_as_for_scans(tmp_path: Any) -> None:
    """Own rows are there until their commit gives them a time."""
    system = TickingSystem()
    with connect("memory://", compaction=False, system=system) as store:
        store.create_table("t", SCHEMA, primary_key=["k"], ttl=60)
        delta = store.delta("app", generation=store.open_writer("app"))
        table = delta.table("t")
        table.upsert([row(1, 10)])
        delta.freeze(1).commit()
        assert table.get(1) == row(1, 10)
        system.forward(61)
        table.upsert([row(2, 20)])
        delta.freeze(2).commit()
        assert rows_of(table) == {2: 20}
        assert [table.get(k) for k in (1, 2)] == [None, row(2, 20)]
        delta.close()


def test_what_others_have_committed_is_found_without_a_commit(store: StateStore, delta: Delta) -> None:
    """Own commits are none of others; a table that was dropped is as one that was written to."""
    delta.table("t").upsert([row(1, 10)])
    delta.table("u")
    delta.freeze(1).commit()
    delta.check_tables()
    commit_of_another(store, "u")
    with pytest.raises(Conflict, match=r"'u'.* committed to it since"):
        delta.check_tables()
    second = store.delta("second")
    second.table("u")
    second.check_tables()
    store.drop_table("u")
    with pytest.raises(Conflict, match="'u' was dropped"):
        second.check_tables()


def test_a_newer_generation_shuts_it_out(store: StateStore, delta: Delta) -> None:
    """Two runners of one program."""
    delta.table("t").upsert([row(1, 10)])
    store.open_writer("app")
    with pytest.raises(Fenced):
        delta.freeze(1).commit()


def test_wrong_uses_are_refused(store: StateStore, delta: Delta) -> None:
    """Each with what is wrong."""
    table = delta.table("t")
    with pytest.raises(TableNotFound, match="'nothere'"):
        delta.table("nothere")
    with pytest.raises(InvalidOption, match="a delta takes no epoch"):
        table.upsert([row(1, 1)], 5)
    with pytest.raises(InvalidOption, match="reads its newest rows"):
        table.get(1, 5)
    with pytest.raises(InvalidOption, match="not part of a delta"):
        table.changes(0)
    for end in (delta.keep, delta.undo):
        with pytest.raises(InvalidOption, match="without a savepoint"):
            end()
    delta.begin()
    table.upsert([row(1, 1)])
    with pytest.raises(InvalidOption, match="there is one at a time"):
        delta.begin()
    with pytest.raises(InvalidOption, match="a savepoint of the delta is open"):
        delta.freeze(1)
    delta.undo()
    assert table.get(1) is None
    table.upsert([row(1, 1)])
    delta.freeze(1)
    with pytest.raises(InvalidOption, match="not committed yet"):
        delta.freeze(2)
    delta.close()
    for call in (
        lambda: table.upsert([row(1, 1)]),
        lambda: table.get(1),
        lambda: table.multi_get([1]),
        lambda: next(table.read()),
        lambda: delta.table("t2"),
    ):
        with pytest.raises(StoreClosed):
            call()


def test_rows_of_before_a_savepoint_outlive_a_scan_that_is_undone(delta: Delta) -> None:
    """The scan puts them into the buffer, out of which an undo takes what came since the savepoint."""
    table = delta.table("t")
    table.upsert([row(1, 10)])
    delta.begin()
    assert rows_of(table) == {1: 10}
    delta.undo()
    assert rows_of(table) == {1: 10}
    assert table.get(1) == row(1, 10)


def test_a_savepoint_costs_what_is_written_and_not_all_tables(tmp_path: Any) -> None:
    """A batch of a program that has hundreds of tables writes to few of them."""
    with connect(tmp_path.as_uri(), compaction=False) as store:
        for number in range(400):
            store.create_table(f"t{number}", SCHEMA, primary_key=["k"])

        def opened(tables: int) -> Delta:
            made = store.delta(f"app{tables}", generation=store.open_writer(f"app{tables}"))
            for number in range(tables):
                made.table(f"t{number}", shared=True)
            return made

        def savepoints(delta: Delta) -> None:
            table = delta.table("t0")
            for number in range(200):
                delta.begin()
                table.upsert([row(number, number)])
                delta.digest()
                delta.keep()

        few, many = opened(4), opened(400)
        assert cost_ratio(savepoints, few, many) < 5
        few.close()
        many.close()
