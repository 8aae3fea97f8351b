"""Random histories: every version keeps the invariants, and a replayed log is the version that its writers had."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.versions import FakeSystem, ModelBucket, make_id, request, run, spec, sst
from tussock.meta.compaction.picker import PickerConfig, pick, pick_manual
from tussock.meta.log.format import LogEntry, decode_base, decode_entry, encode_base, encode_entry
from tussock.meta.log.log import VersionLog
from tussock.meta.version.deltas.commits import CommitEpoch, stamp
from tussock.meta.version.deltas.delta import Delta, advance
from tussock.meta.version.deltas.retention import AdvanceHorizon, AdvanceSafeEpoch, ForgetDropped
from tussock.meta.version.deltas.tables import CreateTable, DropTable
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.chunked import Chunked
from tussock.statestore.contract.records import Run, SstInfo, TableLevels
from tussock.statestore.errors import Fenced, TussockError

SMALL = PickerConfig(base_bytes=4000, l0_small_bytes=1, task_bytes_max=20_000, l0_runs_max=5, level_ratio=2)
NOW = 1_700_000_000_000


def replace_inputs(levels: TableLevels, task: CompactionTask, outputs: tuple[SstInfo, ...]) -> TableLevels:
    """The levels after a report, computed in the plainest way: look at every SST."""
    gone = {one.id for one in task.ssts()}
    l0 = []
    placed = task.target_level != 0
    for sub in levels.l0:
        kept = tuple(one for one in sub.ssts if one.id not in gone)
        if len(kept) < len(sub.ssts) and not placed:
            l0.append(outputs)
            placed = True
        l0.append(kept)
    below = [[one for one in level if one.id not in gone] for level in levels.levels]
    below += [[] for _ in range(task.target_level - len(below))]
    if task.target_level:
        below[task.target_level - 1] = sorted([*below[task.target_level - 1], *outputs], key=lambda one: one.smallest)
    while below and not below[-1]:
        below.pop()
    return TableLevels(l0=tuple(Run(ssts=ssts) for ssts in l0 if ssts), levels=tuple(tuple(level) for level in below))


class History:
    """A store's life as a seeded random walk over deltas; keys are two bytes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.version = Version()
        self.deltas: list[list[Delta]] = []
        self.clock = NOW
        self.serial = 0
        self.done = {"pick": 0, "report": 0}

    def take(self, *deltas: Delta) -> None:
        self.version = advance(self.version, deltas)
        self.deltas.append(list(deltas))
        assert problems(self.version) == []

    def step(self) -> None:
        self.clock += self.random.choice([0, 1, 1000, -5000])
        self.random.choice([self.commit, self.commit, self.commit, self.claim, self.claim, self.report, self.rare])()

    def new_id(self) -> str:
        self.serial += 1
        return make_id(NOW + 10**6, self.serial)

    def cut(self, count: int, **fields: object) -> tuple[SstInfo, ...]:
        """A sorted run of `count` files."""
        bounds = sorted(self.random.sample(range(10_000), 2 * count))
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        return tuple(
            sst(
                b"%05d" % low,
                b"%05d" % high,
                id=self.new_id(),
                deletes=self.random.choice([0, 0, 10, 60]),
                data_bytes=self.random.choice([100, 500, 2000]),
                **fields,
            )
            for low, high in pairs
        )

    def commit(self) -> None:
        if not self.version.tables:
            self.take(CreateTable(spec=spec(f"t{self.version.next_table_id}", self.version.next_table_id)))
        table = self.random.choice(sorted(self.version.tables))
        runs = tuple(run(*self.cut(self.random.randint(1, 3))) for _ in range(self.random.choice([1, 1, 2])))
        writer = self.random.choice([None, "w", "x"])
        req = CommitRequest(
            epoch=self.random.choice([self.version.max_committed_epoch + 3, 1]),
            tables={table: runs},
            writer=writer,
            batch_id=None if writer is None else self.random.randint(0, 50),
        )
        try:
            stamped = stamp(self.version, req, self.clock)
        except Fenced:
            # A batch between committed ones; the version stays as it is.
            return
        if isinstance(stamped, CommitEpoch):
            self.take(stamped)

    def claim(self) -> None:
        if not self.version.tables:
            return
        state = self.version.tables[self.random.choice(sorted(self.version.tables))]
        tasks = list(self.version.tasks.values())
        manual = self.random.random() < 0.05
        picked = pick_manual(state, tasks, SMALL) if manual else pick(state, tasks, SMALL, self.version.safe_epoch)
        if picked is None:
            return
        self.done["pick"] += 1
        task = CompactionTask(
            id=self.new_id(),
            table_id=state.spec.id,
            kind=picked.kind,
            inputs=picked.inputs,
            target_level=picked.target_level,
            bottom=picked.bottom,
            watermark=self.version.safe_epoch,
            owner="me",
            claimed_ms=self.clock,
            expires_ms=self.clock + 1000,
        )
        if picked.kind == "trivial-move":
            moved = tuple(task.ssts())
            report = ReportCompaction(task_id=task.id, owner="me", outputs=moved, watermark=0, at_ms=self.clock)
            self.take(ClaimCompaction(task=task), report)
        else:
            self.take(ClaimCompaction(task=task))

    def report(self) -> None:
        if not self.version.tasks:
            return
        task = self.version.tasks[self.random.choice(sorted(self.version.tasks))]
        if self.random.random() < 0.15:
            self.take(ReleaseCompaction(task_id=task.id, owner="me", at_ms=self.clock))
            return
        files = task.ssts()
        edges = sorted({key for one in files for key in (one.smallest, one.largest)})
        middle = len(edges) // 2
        halves = [edges[:middle], edges[middle:]] if self.random.random() < 0.5 and middle else [edges]
        span = (min(one.min_epoch for one in files), max(one.max_epoch for one in files))
        outputs = tuple(
            sst(half[0], half[-1], id=self.new_id(), epoch=0, min_epoch=span[0], max_epoch=span[1], data_bytes=900)
            for half in halves
        )
        if self.random.random() < 0.1:
            outputs = ()
        self.done["report"] += 1
        expected = replace_inputs(self.version.tables[task.table_id].levels, task, outputs)
        self.take(
            ReportCompaction(task_id=task.id, owner="me", outputs=outputs, watermark=task.watermark, at_ms=self.clock)
        )
        assert self.version.tables[task.table_id].levels == expected

    def rare(self) -> None:
        version = self.version
        match self.random.randint(0, 5):
            case 0 if version.safe_epoch < version.max_committed_epoch:
                self.take(
                    AdvanceSafeEpoch(epoch=self.random.randint(version.safe_epoch + 1, version.max_committed_epoch))
                )
            case 1 if self.version.dropped:
                self.take(ForgetDropped(ids=tuple(one.id for one in version.dropped[:3])))
            case 2 if self.random.random() < 0.2 and version.tables:
                self.take(DropTable(table_id=self.random.choice(sorted(version.tables)), at_ms=self.clock))
            case 3 if version.gc_horizon < make_id(NOW, self.serial):
                self.take(AdvanceHorizon(horizon=make_id(NOW, self.serial)))
            case 4 if len(version.tables) < 3:
                self.take(CreateTable(spec=spec(f"t{version.next_table_id}", version.next_table_id)))
            case _:
                pass


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_histories_keep_the_invariants_and_replay_to_the_same_version(seed: int) -> None:
    """Replayed through the bytes of every entry, and through a snapshot of any of the versions."""
    history = History(seed)
    for _ in range(120):
        history.step()
    version = Version()
    middle = len(history.deltas) // 2
    for number, deltas in enumerate(history.deltas, start=1):
        data = encode_entry(number, LogEntry(id=b"\0" * 16, writer="w", at_ms=0, deltas=tuple(deltas)))
        version = advance(version, decode_entry("x", number, data).deltas, check=False)
        if number == middle:
            version = decode_base("x", number, encode_base(version))
    assert version == history.version


def test_the_random_walk_reaches_compactions() -> None:
    """The walk is of use only if it picks and reports often."""
    history = History(7)
    for _ in range(600):
        history.step()
    assert history.done["pick"] > 30
    assert history.done["report"] > 20
    assert len(history.version.ledger.get("w", ())) <= 16


def test_a_dropped_table_leaves_only_its_dropped_ssts() -> None:
    """No task, no level and no name of it stays; its id is not used again."""
    history = History(3)
    for _ in range(200):
        history.step()
    for table in sorted(history.version.tables):
        live = {one.id for one in history.version.tables[table].levels.ssts()}
        history.take(DropTable(table_id=table, at_ms=5))
        assert live <= {one.id for one in history.version.dropped}
    version = history.version
    assert (version.tables, version.tasks) == ({}, {})
    assert version.next_table_id > 1


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        (CreateTable(spec=spec("kv", 2)), "exists already"),
        (CreateTable(spec=spec("new", 7)), "next id is 2"),
        (DropTable(table_id=9, at_ms=0), "id 9"),
        (AdvanceSafeEpoch(epoch=4), "must be above"),
        (AdvanceSafeEpoch(epoch=11), "at most the newest"),
        (AdvanceHorizon(horizon=make_id(5)), "must be above"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused_with_a_reason(delta: Delta, words: str) -> None:
    """Each refusal says what was expected and what was found."""
    version = advance(Version(), [CreateTable(spec=spec()), AdvanceHorizon(horizon=make_id(5))])
    stamped = stamp(version, request(10), NOW)
    assert isinstance(stamped, CommitEpoch)
    version = advance(version, [stamped, AdvanceSafeEpoch(epoch=4)])
    with pytest.raises(TussockError, match=words):
        advance(version, [delta])


def test_several_deltas_of_an_entry_take_effect_together_or_not_at_all() -> None:
    """The second delta is validated on what the first one left."""
    version = advance(Version(), [CreateTable(spec=spec("a", 1)), CreateTable(spec=spec("b", 2))])
    assert (version.seq, sorted(version.tables)) == (1, [1, 2])
    with pytest.raises(TussockError):
        advance(version, [CreateTable(spec=spec("c", 3)), CreateTable(spec=spec("c", 4))])


def test_a_commit_to_a_version_of_ten_thousand_ssts_copies_none_of_them() -> None:
    """Applying a commit shares the levels; only the new run and the dictionaries are new objects."""
    files = Chunked(sst(b"%06d" % number, b"%06d" % number) for number in range(10_000))
    version = advance(Version(), [CreateTable(spec=spec())])
    state = version.tables[1]
    deep = msgspec.structs.replace(state, levels=msgspec.structs.replace(state.levels, levels=(files,)))
    version = msgspec.structs.replace(version, tables={1: deep}, max_committed_epoch=1)
    stamped = stamp(version, request(5), NOW)
    assert isinstance(stamped, CommitEpoch)
    assert advance(version, [stamped]).tables[1].levels.levels[0] is files


def test_the_log_replays_a_history_through_a_bucket() -> None:
    """A history is appended through the log, and the bucket opened anew gives the same version."""
    bucket = ModelBucket(FakeSystem())
    log = VersionLog(bucket, bucket.system, owner="a", base_every=16)
    history = History(11)
    for _ in range(100):
        history.step()
    for deltas in history.deltas:
        log.append(lambda _, deltas=deltas: (deltas, None))
    assert log.version == history.version
    assert VersionLog(bucket, bucket.system, owner="b").refresh() == history.version


def test_a_version_with_impossible_fences_is_found() -> None:
    """A term without a leader, and a generation that no writer can have."""
    assert problems(Version(term=3, leader="m", generations={"w": 1})) == []
    assert "term 3" in problems(Version(term=3))[0]
    assert "generation 0" in problems(Version(generations={"w": 0}))[0]
