"""A compactor node at a real meta service in this process; its slots are threads that the tests can hold."""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from support import inside
from support.service.compactions import CompactCall
from support.service.compactors import start_compactor
from support.service.platforms import Platform, Replica
from support.waiting import WAIT_SECONDS, eventually
from tussock.compactor.executor import CompactionCancelled
from tussock.compactor.node.node import CompactorNode
from tussock.compactor.node.slots import Slot, SlotCrashed
from tussock.compactor.parts import TaskPart
from tussock.meta.client.connection import MetaConnection, NoOwner
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.meta.version.version import CompactionTask
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, data_object
from tussock.statestore.errors import (
    AccessDenied,
    CorruptSst,
    Fenced,
    InvalidBatch,
    SessionExpired,
    TussockError,
    WaitTimeout,
    WriteStalled,
)

MANUAL_ONLY = PickerConfig(base_bytes=1 << 40, l0_merge_min=10**6, l0_runs_max=10**6)
"""A picker that compacts nothing unasked."""

_names = count(1)


class Gate:
    """A slot that holds each part until the test opens it; it stops at once when the node says so."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.entered = threading.Event()
        self.open = threading.Event()
        self.parts: list[TaskPart] = []
        self.fails: BaseException | None = None
        self.deaf = False
        """It does not notice that it is to stop, like a process that hangs."""

    def run(
        self, part: TaskPart, progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> tuple[SstInfo, ...]:
        self.parts.append(part)
        self.entered.set()
        while not self.open.wait(0.01):
            if cancelled() and not self.deaf:
                raise CompactionCancelled("told to stop")
        if self.fails is not None:
            raise self.fails
        return self._slot.run(part, progress, cancelled if not self.deaf else lambda: False)

    def close(self) -> None:
        self._slot.close()


class Bench:
    """A platform with a store, and the nodes that a test starts on it."""

    def __init__(self, **options: object) -> None:
        options = {"picker": MANUAL_ONLY, "session_lease_seconds": 5.0, "stuck_task_seconds": 30.0, **options}
        self.url = f"memory://nodes-{next(_names)}"
        self.platform = Platform(self.url, **options)
        self.store = self.platform.connect(retention=0)
        self.store.create_table("kv")
        self.gates: list[Gate] = []
        self.nodes: list[CompactorNode] = []

    def node(self, name: str = "n1", slots: int = 1, *, gated: bool = False, **options: int) -> CompactorNode:
        def wrap(slot: Slot) -> Slot:
            if not gated:
                return slot
            self.gates.append(Gate(slot))
            return self.gates[-1]

        self.nodes.append(start_compactor(self.platform.url, slots=slots, name=name, wrap=wrap, **options))
        return self.nodes[-1]

    def commit(self, times: int = 4, rows: int = 100, table: str = "kv") -> None:
        for number in range(times):
            epoch = self.store.new_epoch()
            values = [(b"%06d" % row, b"%d/%d" % (number, row)) for row in range(rows)]
            self.store.table(table).ingest_batch(values, epoch)
            self.store.commit_epoch(epoch)

    def ask(self, table: str = "kv") -> CompactCall:
        """Call `store.compact` in a thread."""
        return CompactCall(self.store, table)

    def tasks(self) -> dict[str, CompactionTask]:
        return dict(self.platform.leader.node.meta.version().tasks)

    def runs(self, table: str = "kv") -> int:
        state = self.store.version().find_table(table)
        assert state is not None
        return len(state.levels.runs())

    def rows(self, table: str = "kv") -> dict[bytes, bytes]:
        return dict(
            pair
            for batch in self.store.table(table).scan()
            for pair in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        )

    def close(self) -> None:
        for gate in self.gates:
            gate.open.set()
        for node in self.nodes:
            node.drain(5)
        self.platform.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def build(**options: object) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield build
    for bench in made:
        bench.close()


# --- Work --------------------------------------------------------------------------------------------------------


def test_commits_are_compacted_without_being_asked(make: Callable[..., Bench]) -> None:
    """The picker's tasks go to a connected compactor, and readers see no difference."""
    bench = make(picker=PickerConfig())
    bench.node()
    bench.commit(12)
    eventually(lambda: bench.runs() < 4)
    assert bench.rows() == {b"%06d" % row: b"11/%d" % row for row in range(100)}


def test_a_manual_compaction_leaves_one_run_and_returns_then(make: Callable[..., Bench]) -> None:
    """The run holds everything that was committed before the call."""
    bench = make()
    bench.node()
    bench.commit(5)
    bench.ask().wait()
    assert bench.runs() == 1
    assert bench.tasks() == {}
    assert sum(sst.rows for sst in bench.store.version().find_table("kv").levels.ssts()) == 100


def test_one_task_uses_all_slots(make: Callable[..., Bench]) -> None:
    """It is cut by key range; the outputs of all parts together are one sorted run."""
    bench = make()
    bench.node(slots=3, gated=True, part_bytes_min=1000)
    bench.commit(4, rows=20_000)
    before = bench.rows()
    asked = bench.ask()
    for gate in bench.gates:
        assert gate.entered.wait(WAIT_SECONDS)
    ranges = sorted((gate.parts[0].start or b"", gate.parts[0].end or b"\xff") for gate in bench.gates)
    assert ranges[0][0] == b""
    assert ranges[-1][1] == b"\xff"
    assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]
    for gate in bench.gates:
        gate.open.set()
    asked.wait()
    assert (bench.runs(), bench.rows()) == (1, before)


def test_without_a_compactor_a_manual_compaction_says_so(make: Callable[..., Bench]) -> None:
    """The error comes after a while and says what to start."""
    bench = make()
    bench.commit(2)
    hasty = bench.platform.connect(retention=0, limits=Limits(compactor_seconds=1))
    with pytest.raises(WaitTimeout, match=r"0 compactors are connected.*tussock compactor"):
        hasty.compact("kv")


def test_scaling_while_running(make: Callable[..., Bench]) -> None:
    """A node that joins has work at once; one that leaves blocks nothing."""
    bench = make()
    for number in range(3):
        bench.store.create_table(f"t{number}")
        bench.commit(2, table=f"t{number}")
    asked: list[CompactCall] = []
    for number in range(3):
        bench.node(f"n{number}", gated=True)
        asked.append(bench.ask(f"t{number}"))
        assert bench.gates[number].entered.wait(WAIT_SECONDS)
    assert len(bench.tasks()) == 3
    assert len({task.owner for task in bench.tasks().values()}) == 3
    for gate in bench.gates:
        gate.open.set()
    for one in asked:
        one.wait()


def test_pause_stops_new_tasks_only(make: Callable[..., Bench]) -> None:
    """A running task ends; a waiting one begins after `resume`."""
    bench = make()
    bench.store.create_table("other")
    bench.commit(2)
    bench.commit(2, table="other")
    bench.node(slots=2, gated=True)
    first = bench.ask()
    eventually(lambda: len(bench.tasks()) == 1)
    connection = inside.connection(inside.backend(bench.store))
    connection.call("PauseCompaction", pb.PauseCompactionRequest(paused=True, reason="maintenance"))
    second = bench.ask("other")
    for gate in bench.gates:
        gate.open.set()
    first.wait()
    assert bench.tasks() == {}
    answer = connection.call("Compact", pb.CompactRequest(table="other"))
    assert (answer.paused, answer.compactors, answer.done) == (True, 1, False)
    connection.call("PauseCompaction", pb.PauseCompactionRequest(paused=False))
    second.wait()
    assert bench.runs("other") == 1


# --- Lost tasks --------------------------------------------------------------------------------------------------


def test_a_node_that_is_drained_hands_its_task_to_another(make: Callable[..., Bench]) -> None:
    """The other node gets the task at once, without waiting for a lease."""
    bench = make(session_lease_seconds=60.0)
    bench.commit(3)
    first = bench.node("first", gated=True)
    asked = bench.ask()
    assert bench.gates[0].entered.wait(WAIT_SECONDS)
    (lost,) = bench.tasks()
    first.drain(5)
    assert lost not in bench.tasks()
    bench.node("second")
    asked.wait()
    assert bench.runs() == 1


def test_a_stuck_task_is_taken_back_and_its_late_report_refused(
    make: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """The node sends heartbeats and its slot hangs; another node does the task, and the late report changes nothing."""
    bench = make(stuck_task_seconds=2.0)
    bench.commit(3)
    bench.node("stuck", gated=True)
    gate = bench.gates[0]
    gate.deaf = True
    asked = bench.ask()
    assert gate.entered.wait(WAIT_SECONDS)
    (lost,) = bench.tasks()
    with caplog.at_level(logging.INFO):
        eventually(lambda: lost not in bench.tasks())
        bench.node("well")
        asked.wait()
        done = bench.store.version().find_table("kv").levels
        gate.open.set()
        eventually(lambda: "compaction task lost" in caplog.text or "compaction task refused" in caplog.text)
    assert "no progress for" in caplog.text
    assert inside.backend(bench.store).refresh().find_table("kv").levels == done


def test_a_report_for_a_task_that_is_not_held_is_fenced(make: Callable[..., Bench]) -> None:
    """Taken back, another node's, or unknown: the version stays as it is; so with outputs that do not fit."""
    bench = make()
    bench.commit(2)
    bench.node("holder", gated=True)
    asked = bench.ask()
    assert bench.gates[0].entered.wait(WAIT_SECONDS)
    (task,) = bench.tasks().values()
    before = bench.platform.leader.node.meta.version()
    intruder = MetaConnection(
        [bench.platform.leader.address], RealSystem(), GrpcTransport, name="intruder", kind=pb.COMPACTOR,
        first_request=lambda request: setattr(request, "slots", 1),
    )  # fmt: skip
    intruder.start(NoOwner(), subscribe=False)
    for task_id in (task.id, "no such task"):
        request = pb.ReportTaskRequest(session_id=intruder.session_id, task_id=task_id)
        with pytest.raises(Fenced, match="is not held by"):
            intruder.call("ReportTask", request)
        # To return what one does not have is no error, and changes nothing.
        intruder.call("ReturnTask", pb.ReturnTaskRequest(session_id=intruder.session_id, task_id=task_id))
    with pytest.raises((SessionExpired, AccessDenied)):
        inside.transport(intruder, bench.platform.leader.address).call(
            METHODS["ReportTask"], pb.ReportTaskRequest(session_id="0" * 32, task_id=task.id), 5.0
        )
    holder = inside.connection(bench.nodes[0])
    foreign = pb.SstInfo(id="f" * 32, smallest=b"zzz", largest=b"zzzz", rows=1)
    with pytest.raises(InvalidBatch, match="holds keys or epochs that no input had"):
        holder.call(
            "ReportTask", pb.ReportTaskRequest(session_id=holder.session_id, task_id=task.id, outputs=[foreign])
        )
    assert bench.platform.leader.node.meta.version().tables == before.tables
    assert bench.platform.leader.node.meta.version().tasks == before.tasks
    bench.gates[0].open.set()
    asked.wait()
    intruder.close()


def test_a_task_survives_a_change_of_leader(make: Callable[..., Bench]) -> None:
    """The node takes the task along to the new leader, and reports it there."""
    bench = make(session_lease_seconds=6.0)
    bench.platform.replicas.append(Replica(bench.platform.options))
    bench.commit(3)
    bench.node("n1", gated=True)
    asked = bench.ask()
    assert bench.gates[0].entered.wait(WAIT_SECONDS)
    (task,) = bench.tasks().values()
    old = bench.platform.leader
    inside.add_address(bench.nodes[0], bench.platform.replicas[1].address)
    inside.add_address(inside.backend(bench.store), bench.platform.replicas[1].address)
    old.stop(drain=False)
    bench.platform.replicas.remove(old)
    bench.platform.wait_for_leader()
    eventually(lambda: inside.assignments(bench.platform.leader.node).rows_read().keys() == {task.id})
    bench.gates[0].open.set()
    eventually(lambda: task.id not in bench.tasks())
    live = bench.platform.leader.node.meta.version().live_sst_ids()
    assert live.isdisjoint(sst.id for sst in task.ssts()), "its report counted"
    asked.wait()
    assert bench.runs() == 1


# --- Failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SlotCrashed("killed"), RuntimeError("a defect")])
def test_a_failing_slot_fails_its_task_and_not_the_node(make: Callable[..., Bench], error: Exception) -> None:
    """The client that asked for the compaction gets the error; the same slot runs the next task."""
    bench = make()
    bench.commit(2)
    bench.node(gated=True)
    gate = bench.gates[0]
    gate.fails = error
    gate.open.set()
    with pytest.raises(TussockError, match=str(error)):
        bench.ask().wait()
    assert bench.tasks() == {}
    gate.fails = None
    bench.ask().wait()
    assert bench.runs() == 1


def test_damaged_data_fails_the_task_and_names_the_object(make: Callable[..., Bench]) -> None:
    """`store.compact` raises what the compactor met; other tables go on."""
    bench = make()
    bench.store.create_table("other")
    bench.commit(2)
    bench.commit(2, table="other")
    sst = bench.store.version().find_table("kv").levels.ssts()[0]
    bucket = open_bucket(bench.url)
    data = bytearray(bucket.get(data_object(sst)))
    data[sst.offset + 20] ^= 1
    bucket.put(data_object(sst), bytes(data))
    bench.node()
    with pytest.raises(CorruptSst, match=sst.id):
        bench.ask().wait()
    bench.ask("other").wait()
    bucket.delete([data_object(sst)])
    with pytest.raises(CorruptSst, match="it was lost: restore it"):
        bench.ask().wait()


# --- Back-pressure -----------------------------------------------------------------------------------------------


def test_writers_wait_for_compaction_and_log_why(make: Callable[..., Bench], caplog: pytest.LogCaptureFixture) -> None:
    """Writers log one line when the wait begins, fail after the deadline, and go on when compaction has caught up."""
    bench = make(picker=PickerConfig(l0_stall_runs=6, l0_merge_min=2, l0_runs_max=3))
    store = bench.platform.connect(retention=0, deadline=1.5)

    def commit() -> None:
        epoch = store.new_epoch()
        store.table("kv").ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)

    def caught_up(work: Callable[[], object]) -> bool:
        try:
            work()
        except WriteStalled:
            return False
        return True

    with caplog.at_level(logging.INFO, "tussock.meta.client"):
        for _ in range(6):
            commit()
        epoch = store.new_epoch()
        store.table("kv").ingest_batch([(b"a", b"last")], epoch)
        with pytest.raises(WriteStalled, match="table 'kv' has 6 uncompacted runs; writes wait from 6 on"):
            store.commit_epoch(epoch)
        assert caplog.text.count("writes are held back") == 1
        bench.node()
        eventually(lambda: caught_up(lambda: store.commit_epoch(epoch)))
        eventually(lambda: len(inside.backend(store).refresh().find_table("kv").levels.l0) < 3)
        eventually(lambda: caught_up(commit))
    assert store.table("kv").get(b"a") == b"1"


def test_an_error_of_a_compactor_is_kept_and_told_in_short(make: Callable[..., Bench]) -> None:
    """The leader keeps it for the client that waits; a compactor may send any text."""
    bench = make()
    bench.commit(2)
    bench.node("holder", gated=True)
    asked = bench.ask()
    assert bench.gates[0].entered.wait(WAIT_SECONDS)
    (task,) = bench.tasks().values()
    holder = inside.connection(bench.nodes[0])
    fact = pb.Fact(text="x" * 30_000)
    error = pb.ErrorDetail(kind="ObjectStoreUnavailable", message="x" * 30_000, facts=[fact])
    holder.call("ReturnTask", pb.ReturnTaskRequest(session_id=holder.session_id, task_id=task.id, error=error))
    with pytest.raises(TussockError) as raised:
        asked.wait()
    assert 400 < len(str(raised.value)) < 1_000
    assert sum(len(str(part)) for part in raised.value.args) < 2_000
    bench.gates[0].open.set()
