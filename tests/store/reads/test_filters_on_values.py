"""`read(filter=...)` on value columns leaves blocks unread, and answers what the filter leaves of all rows."""

import datetime as dt
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support import inside
from support.depth import DEPTH
from support.models.history import TableHistory
from support.store.stores import TickingSystem, open_on
from tussock.meta.compaction.picker import PickerConfig
from tussock.statestore import Conflict, StateStore, TypedTable, connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.buckets import open_bucket

PICKER = PickerConfig(
    base_bytes=30_000, l0_small_bytes=500, l0_runs_max=3, l0_merge_min=2, l0_merge_max=4, task_bytes_max=60_000,
    history_merge_min=3, history_runs_max=6,
)  # fmt: skip
SMALL = Limits(segment_bytes=3000, sst_bytes=4000, one_object_bytes=0, whole_filter_bytes=20)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("text", pa.string())])
KEYS = range(150)
Row = dict[str, Any]


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


class Lives:
    """A store on a clock of the test, with a table of rows that follow each other in key, value and time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.system = TickingSystem()
        self.bucket = open_bucket(f"memory://filters-on-values-{seed}")
        options: dict[str, Any] = {"retention": 100.0, "gc_grace": 0, "limits": SMALL}
        options |= {
            "cache_bytes": self.chance.choice([0, 1 << 20]),
            "buffer_bytes": self.chance.choice([3000, 1 << 20]),
        }
        self.store = open_on(self.bucket, self.system, **options)
        self.ttl = self.chance.choice([None, None, 60.0])
        self.table: TypedTable = self.store.create_table(
            "t", SCHEMA, ["id"], block_bytes=1024, vnodes=self.chance.choice([1, 4]), ttl=self.ttl
        )
        self.embedded = inside.backend(self.store)
        self.embedded.meta.config = PICKER
        self.system.on_tick.append(lambda: inside.renew_pins(self.embedded))
        self.model: TableHistory[int, Row] = TableHistory()
        self.commits: list[int] = []
        self.pins: list[Any] = []
        self.later: list[str] = []
        self.kinds: set[str] = set()

    def commit(self) -> None:
        """Write and delete some rows, at times in several batches, and commit them."""
        epoch, written = self.store.new_epoch(), {}
        for _ in range(self.chance.choice([1, 1, 2])):
            batch = self._batch()
            self._write(batch, epoch)
            written |= batch
        epoch = self.store.commit_epoch(epoch)
        self.model.commit(epoch, written)
        self.commits.append(epoch)

    def _batch(self) -> dict[int, Row | None]:
        low, high = sorted(self.chance.choices(range(len(KEYS) + 1), k=2))
        some = self.chance.sample(KEYS, 5) if self.chance.random() < 0.3 else KEYS[low : max(high, low + 1)]
        shift = self.chance.choice([0, 0, 40, 300])
        return {at: None if self.chance.random() < 0.15 else self._row(at, shift) for at in some}

    def _row(self, at: int, shift: int) -> Row:
        row: Row = {"id": at, "n": None if at % 11 == 3 else at // 4 + shift, "text": "x" * self.chance.choice([0, 90])}
        return row | {name: self.chance.choice([None, shift, at]) for name in self.later}

    def _write(self, batch: dict[int, Row | None], epoch: int) -> None:
        if rows := [row for row in batch.values() if row is not None]:
            self.table.upsert(rows, epoch)
        if gone := [(at,) for at, row in batch.items() if row is None]:
            self.table.delete(gone, epoch)

    def compact(self) -> None:
        """Do the most urgent task, or merge all."""
        if self.chance.random() < 0.1:
            self.store.compact("t")
            return
        task = self.embedded.meta.own_tasks.claim()
        if task is not None:
            self.kinds.add(task.kind)
            inside.execute(self.embedded, task)

    def live_on(self) -> None:
        """Time goes by, and at times a vacuum runs."""
        self.system.forward(self.chance.choice([1.0, 20.0]))
        if self.chance.random() < 0.3:
            self.store.vacuum()

    def pin(self) -> None:
        """Hold an epoch, or let go of one."""
        if self.pins and self.chance.random() < 0.5:
            self.pins.pop(self.chance.randrange(len(self.pins))).close()
        else:
            self.pins.append(self.store.pin_snapshot())

    def alter(self) -> None:
        """Make the number wider, or add a column."""
        kinds = {pa.int32(): pa.int64(), pa.int64(): pa.decimal128(22, 2)}
        wider = kinds.get(self.table.schema.field("n").type)
        if wider is not None and self.chance.random() < 0.5:
            self.table = self.store.alter_table("t", widen={"n": wider})
        elif len(self.later) < 2:
            self.later.append(f"later{len(self.later)}")
            self.table = self.store.alter_table("t", add={self.later[-1]: pa.int32()})

    def check(self) -> None:
        """Read by filters: now, with own rows, at epochs that are kept, and through pins."""
        for _ in range(3):
            self._check(self.table, None)
        kept = [epoch for epoch in self.commits if epoch >= self.embedded.meta.oldest_readable()]
        for epoch in self.chance.sample(kept, min(len(kept), 4)):
            self._check(self.table, epoch)
        for snapshot in self.pins:
            self._check(snapshot.table("t"), snapshot.epoch, pinned=True)
        if self.chance.random() < 0.2:
            epoch = self.store.new_epoch()
            self._write(self._batch(), epoch)
            self._check(self.table, None, committed=False)
            self.store.abort_epoch(epoch)

    def _check(self, table: TypedTable, epoch: int | None, *, pinned: bool = False, committed: bool = True) -> None:
        condition = self._condition(table)
        at = None if pinned else epoch
        everything = pa.Table.from_batches(table.read(epoch=at), table.schema)
        found = pa.Table.from_batches(table.read(filter=condition, epoch=at), table.schema)
        assert found.to_pylist() == everything.filter(condition).to_pylist(), (condition, epoch)
        if self.ttl is None and committed:
            rows = self.model.newest if epoch is None else self.model.at(epoch)
            assert {row["id"] for row in everything.to_pylist()} == set(rows)

    def _condition(self, table: TypedTable) -> pc.Expression:
        name = self.chance.choice([*["n"] * 3, *self.later])
        field, bound = pc.field(name), self.chance.choice([0, 10, 37, 38, 45, 300, 330, 400])
        kind = table.schema.field(name).type
        low, high, none = pa.array([bound, bound + 40, None], pa.decimal128(20, 0)).cast(kind)
        condition: pc.Expression = self.chance.choice(
            [field > low, field <= low, field == low, field.isin([low, high]), field.isin([low, none])]
        )
        if self.chance.random() < 0.3:
            condition &= pc.field("id") >= self.chance.choice(KEYS)
        if self.chance.random() < 0.1:
            condition |= pc.field("text") == "x"
        return condition


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_filters_answer_what_they_answer_on_all_rows(seed: int) -> None:
    """Merges of every kind, spills, history, deletes, altered columns, pins, expiry and a time to live."""
    lives = Lives(seed)
    steps = [lives.commit, lives.compact, lives.live_on, lives.pin, lives.alter, lives.check]
    for _ in range(120):
        lives.chance.choices(steps, [30, 25, 6, 3, 1, 12])[0]()
    lives.check()
    for snapshot in lives.pins:
        snapshot.close()
    lives.store.close()


def reads(store: StateStore, read: Callable[[], Iterable[pa.RecordBatch]]) -> tuple[int, int]:
    """How many rows a read answers, and how many bytes of blocks it fetches; the cache is empty before it."""
    inside.sstables(store).blocks.clear()
    before = store.requests().get("read", {}).get("get_range", (0, 0))[1]
    count = sum(batch.num_rows for batch in read())
    return count, store.requests()["read"].get("get_range", (0, 0))[1] - before


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://", compaction=False, retention=0, limits=Limits(segment_bytes=40_000)) as opened:
        yield opened


EVENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", "UTC")),
        ("amount", pa.decimal128(12, 2)),
        ("text", pa.string()),
    ]
)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def events(store: StateStore, ids: Iterable[int]) -> TypedTable:
    """A table of events by number, whose times ascend with it, committed as one run."""
    table: TypedTable = (
        store.table("events")
        if "events" in store.tables()
        else store.create_table("events", EVENTS, ["id"], vnodes=1, compression="none")
    )
    epoch = store.new_epoch()
    numbers = pa.array(ids, pa.int64())
    times = pc.add(pa.scalar(int(START.timestamp() * 1_000_000)), pc.multiply(numbers, 60_000_000))
    amounts = pc.divide(numbers, 100).cast(pa.int32()).cast(pa.decimal128(12, 2))
    text = pa.array([f"{number:080}" for number in numbers.to_pylist()])
    table.upsert(pa.table([numbers, times.cast(EVENTS.field("at").type), amounts, text], schema=EVENTS), epoch)
    store.commit_epoch(epoch)
    return table


def test_a_filter_on_a_value_reads_the_blocks_that_can_pass(store: StateStore) -> None:
    """Of some 50 blocks of events by number, those of one hour, or of some amounts."""
    table = events(store, range(30_000))
    rows, whole = reads(store, table.read)
    assert (rows, whole > 2_000_000) == (30_000, True)
    hour = START + dt.timedelta(days=3)
    at, amount = pc.field("at"), pc.field("amount")
    found, fetched = reads(store, lambda: table.read(filter=(at >= hour) & (at < hour + dt.timedelta(hours=1))))
    assert (found, fetched < whole / 10) == (60, True)
    found, fetched = reads(store, lambda: table.read(["id"], amount == pa.scalar(299, pa.decimal128(12, 2))))
    assert (found, fetched < whole / 10) == (100, True)
    assert reads(store, lambda: table.read(filter=amount > pa.scalar(300, pa.decimal128(12, 2)))) == (0, 0)
    assert reads(store, lambda: table.read(filter=pc.field("text") == "none")) == (0, whole)


def test_a_column_that_an_sst_has_not_is_null_in_all_its_rows(store: StateStore) -> None:
    """So a filter on it reads nothing of the SST, if no older run lies beneath it."""
    events(store, range(20_000))
    table = store.alter_table("events", add={"late": pa.string()})
    assert reads(store, lambda: table.read(filter=pc.field("late") == "x")) == (0, 0)
    assert reads(store, lambda: table.read(filter=pc.field("late").is_null()))[0] == 20_000


def test_runs_with_older_ones_beneath_are_read_until_they_are_merged(store: StateStore) -> None:
    """The rows of a newer run hide those of the older one, whether they pass or not."""
    table = events(store, range(20_000))
    events(store, range(5_000, 15_000))
    late = pc.field("at") >= START + dt.timedelta(minutes=19_990)
    _, whole = reads(store, table.read)
    found, fetched = reads(store, lambda: table.read(filter=late))
    assert (found, fetched < 0.5 * whole) == (10, True)
    store.compact("events")
    found, fetched = reads(store, lambda: table.read(filter=late))
    assert (found, fetched < 0.1 * whole) == (10, True)


def test_a_filter_in_a_transaction_depends_on_the_range_that_it_asks_for(store: StateStore) -> None:
    """What was left unread is a part of it all the same: a row that is written there later is a conflict."""
    events(store, range(20_000))
    late = pc.field("at") >= START + dt.timedelta(minutes=19_990)

    def change_the_last_of_them() -> None:
        with store.transaction() as tx:
            assert sum(batch.num_rows for batch in tx.table("events").read(filter=late)) == 10
            events(store, [3])
            tx.table("events").delete([(19_999,)])

    with pytest.raises(Conflict):
        change_the_last_of_them()
