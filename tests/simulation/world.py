"""One history: builds the cluster of a seed, runs it with failures, then heals it and checks the end."""

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from simulation.judge.oracle import Batch, Oracle
from simulation.machine.bucket import Faults, SimBucket
from simulation.machine.network import Network
from simulation.machine.scheduler import Ambush, Node, Scheduler, Violation
from simulation.plan import Plan, make_plan
from simulation.processes.process import PICKER, Process
from simulation.processes.repairs import mend, mend_all
from simulation.processes.replacing import REPLACED, look_on, replace
from simulation.processes.services import SST_BYTES, RemoteProcess, compact, lead_or_follow
from simulation.processes.workloads import ACCOUNTS, BANKS, OPENING_BALANCE, Job, maintain, read, read_table, write
from support import inside
from tussock.compactor import executor
from tussock.meta.compaction.picker import pick
from tussock.meta.log.bucket_clock import MAX_AHEAD_MS
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import data_object
from tussock.statestore.epochs import epoch_ms
from tussock.statestore.errors import ClockAhead, ObjectStoreUnavailable
from tussock.statestore.write.sst_ids import id_floor

__all__ = ["Outcome", "World", "run_seed"]

STEPS_MAX = 400_000
SECONDS_MAX = 40_000.0
LIFE_SECONDS = 400.0
PLATFORM_SECONDS = 100.0
"""Of a history with a meta service, whose clocks tick all the time."""
CALM = Faults()
DAMAGED = "damaged"
DAMAGED_COMMITS = 5
YEARS_SECONDS = 5 * 365 * 86400.0
AFTER_YEARS_SECONDS = 400.0
"""Seconds for which work that began under a clock that was ahead may go on; its process may stand still."""
HOMES = 6
"""For three writers and three readers, the most there are."""


class Outcome(NamedTuple):
    """How a seed went."""

    seed: int
    failure: BaseException | None
    trace_hash: str
    seconds: float
    """Simulated."""
    counts: dict[str, int]


class World:
    """The cluster of one seed."""

    def __init__(self, seed: int, *, verbose: Callable[[str], None] | None = None) -> None:
        self.scheduler = Scheduler(seed, verbose=verbose)
        self.random = self.scheduler.random
        self._apart = random.Random(f"apart {seed}")
        self.plan: Plan = make_plan(self.random, self._apart)
        self.scheduler.trace(f"seed {seed}: {self.plan}")
        objects: dict[str, tuple[bytes, int]] = {}
        self.oracle = Oracle(objects, bank_total=len(BANKS) * ACCOUNTS * OPENING_BALANCE)
        # A node that is ten times slower than the others may lose at the log for as long as a lease lasts, and so may
        # any if each of the some ten requests of an append takes seconds. One whose clock is years ahead renews none.
        slow = self.plan.slow_nodes or self.plan.faults.latency > 1
        trouble = self.plan.crashes or self.plan.jumps or self.plan.ahead or slow
        self.oracle.tasks_are_kept = not self.may_lose_pins() and not trouble
        self.bucket = SimBucket(self.scheduler, self.oracle, self.plan.bucket_clock)
        self.bucket.objects = objects
        self.oracle.now_ms = self.bucket.now_ms
        self.faults = CALM
        self.network = Network(self.scheduler, lambda: self.faults)
        self.services: list[Node] = []
        """Replicas of the meta service and compactor nodes."""
        self.closing = False
        self.tables = [f"kv{number}" for number in range(self.plan.tables)]
        if self.plan.with_bank:
            self.tables += BANKS
        self.jobs = [self._job(number) for number in range(self.plan.writers)]
        self._homes = [self.random.randrange(self.plan.processes) for _ in range(HOMES)]
        """The process in which each writer, from the front, and each reader, from the back, lives."""
        self.processes: list[Process] = []
        self._running = 0
        self._ready = False
        self._auditing = False
        self._owners: dict[str, Process] = {}
        self._pinned: dict[int, Process] = {}
        self._pins_taken = 0

    # --- What workloads ask ----------------------------------------------------------------------------------------

    def keys_of(self, table: str) -> list[bytes]:
        """All keys that the workloads ever write to the table."""
        if table in BANKS:
            return [b"a%02d" % number for number in range(ACCOUNTS)]
        return [b"k%02d" % number for number in range(max(self.plan.keys, 2))]

    def addresses(self) -> list[str]:
        """Where the replicas of the meta service are."""
        return [f"meta{number}:7070" for number in range(self.plan.metas)]

    def may_lose_pins(self) -> bool:
        """Whether leases may lapse: a process stood still, a clock jumped, or requests were lost."""
        faults, plan = self.plan.faults, self.plan
        aimed = plan.deaf + plan.ambushes + plan.coups
        lost = faults.lose_request + faults.lose_answer + faults.late + faults.slow
        crashes = plan.metas and plan.crashes
        return bool(crashes or plan.stalls or plan.cuts or plan.jumps or lost or aimed or abs(plan.bucket_clock) > 20)

    def vacuums_alone(self, process: Process) -> bool:
        """Whether only this process ever vacuums, and clocks run evenly."""
        plan = self.plan
        others = plan.processes > 1 and (plan.background_compaction or process.node.name != "p0")
        return not others and not plan.metas and not plan.jumps and not (plan.stalls and plan.zombies)

    def check_clock(self, process: Process, error: Exception) -> None:
        """A process is told that its clock is ahead only if it is, or while it still does what it began then."""
        node = process.node
        is_ahead = self.scheduler.now < node.years_until + AFTER_YEARS_SECONDS or node.wall_offset > 3000
        if isinstance(error, ClockAhead) and str(error).startswith("epoch "):
            # Drawn while the clock was ahead, however long ago that is.
            is_ahead = is_ahead or epoch_ms(error.args[1]) > self.bucket.now_ms() + MAX_AHEAD_MS
        if isinstance(error, ClockAhead) and not is_ahead:
            raise Violation(f"{node} is told that its clock is ahead, and it is not: {error}") from error

    def note_pin(self, process: Process, snapshot: Any) -> int:
        """The process holds this pin, unless its lease may lapse without its knowing; returns a token for it."""
        self._pins_taken += 1
        if not self.may_lose_pins():
            unkept = inside.pin_info(snapshot).unkept
            self.oracle.hold(self._pins_taken, snapshot.epoch, repr(process.node), unkept)
            self._pinned[self._pins_taken] = process
        return self._pins_taken

    def check_dry_run(self, before: Version, report: Any) -> None:
        """Check that a dry run names no object of an SST that the version needs, before it and after."""
        # Dropped tables are left out: pins that need them come and go meanwhile.
        live = {sst.id for sst in before.ssts()} & {sst.id for sst in self.oracle.version.ssts()}
        needed = {data_object(sst) for sst in before.ssts() if sst.id in live}
        for path, reason in report.deleted:
            if path in needed or (path.startswith("sst/") and path[4:36] in live):
                raise Violation(f"guarantee 7: a dry run would delete {path} ({reason}), which the version needs")

    # --- The history -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live through the whole history; raises the violation."""
        try:
            self._create_tables()
            self.faults = self.plan.faults
            for number in range(self.plan.metas):
                self._serve(f"meta{number}", 1)
            for number in range(self.plan.compactors):
                self._serve(f"compactor{number}", 1)
            for number in range(self.plan.processes):
                self._start(f"p{number}", 1)
            self._troubles()
            self.scheduler.at(PLATFORM_SECONDS if self.plan.metas else LIFE_SECONDS, self._close)
            self._until(lambda: self.closing and not self._running)
            self._audit()
        finally:
            self.scheduler.end()

    def _until(self, done: Callable[[], bool]) -> None:
        seconds_max = SECONDS_MAX + (100_000.0 if self.plan.ahead else 0.0)
        self.scheduler.run(done, seconds_max=seconds_max, steps_max=STEPS_MAX)

    def _create_tables(self) -> None:
        """The first process creates the tables and opens the accounts."""

        def work(process: Process) -> None:
            for table in self.tables:
                process.store.create_table(table, block_bytes=256, **self.plan.periods.get(table, {}))
            if self.plan.with_bank:
                accounts = {
                    bank: {b"a%02d" % one: b"%d" % OPENING_BALANCE for one in range(ACCOUNTS)} for bank in BANKS
                }
                batch = Batch("opening:1", "opening", 1, accounts)  # type: ignore[arg-type]
                self.oracle.batches[batch.name] = batch
                epoch = process.store.new_epoch()
                for bank, rows in accounts.items():
                    process.store.table(bank).ingest_batch(sorted(rows.items()), epoch)
                process.store.commit_epoch(epoch, "opening", 1)
            if self.plan.damaged:
                self._write_damaged(process)
            process.store.close()
            self._ready = True

        self._spawn(Process(self, Node("founder", 1)), "founder", work)
        self._until(lambda: self._ready)
        if self.plan.damaged:
            state = self.oracle.version.find_table(DAMAGED)
            assert state is not None
            sst = state.levels.ssts()[0]
            path = data_object(sst)
            data, stamp = self.bucket.objects[path]
            middle = sst.offset + sst.data_bytes // 2
            self.bucket.objects[path] = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], stamp

    def _write_damaged(self, process: Process) -> None:
        """Runs enough for a compaction."""
        process.store.create_table(DAMAGED, block_bytes=256)
        for number in range(1, DAMAGED_COMMITS + 1):
            rows: dict[bytes, bytes | None] = {b"k%d" % key: b"%d" % number * 60 for key in range(8)}
            batch = Batch(f"{DAMAGED}:{number}", DAMAGED, number, {DAMAGED: rows})
            self.oracle.batches[batch.name] = batch
            epoch = process.store.new_epoch()
            process.store.table(DAMAGED).ingest_batch(sorted(rows.items()), epoch)
            process.store.commit_epoch(epoch, DAMAGED, number)

    def _job(self, number: int) -> Job:
        kind = "kv"
        if self.plan.with_bank and number % 2 == 0:
            kind = "bank"
        elif self.plan.with_anonymous and number % 2 == 1:
            kind = "anonymous"
        return Job(f"{kind}{number}", kind, self.plan.batches, self.random.choice([1.0, 1.0, 1.0, 20.0]))

    def _start(self, name: str, incarnation: int) -> None:
        """Start a process with its share of the jobs; an earlier one of that name may still run, or have died."""
        number = int(name[1:])
        is_remote = self.plan.metas and not (self.plan.mixed and number == 0)
        process = (RemoteProcess if is_remote else Process)(self, self._node(name, incarnation))
        self.processes.append(process)
        self._owners[name] = process

        def work(process: Process) -> None:
            for home, job in zip(self._homes, self.jobs, strict=False):
                if home == number:
                    self._spawn_workload(process, f"writer {job.name}", lambda job=job: write(process, job))
            for place, home in enumerate(reversed(self._homes)):
                if place < self.plan.readers and home == number:
                    self._spawn_workload(process, f"reader {place}", lambda: read(process))
            if number == 0:
                self._spawn_workload(process, "upkeep", lambda: maintain(process))
            if number == 0 and self.plan.damaged:
                self._spawn_workload(process, "mender", lambda: mend(process, DAMAGED))
            if self.plan.replaced:
                self._spawn_workload(process, "onlooker", lambda: look_on(process))
                if number == 0:
                    self._spawn_workload(process, "replacer", lambda: replace(process))

        self._spawn(process, f"start of {name}", work)

    def _spawn(self, process: Process, name: str, work: Callable[[Process], None]) -> None:
        def connect_and_work() -> None:
            process.connect()
            work(process)

        self._spawn_workload(process, name, connect_and_work)

    def _spawn_workload(self, process: Process, name: str, work: Callable[[], None]) -> None:
        node = process.node
        self._running += 1
        node.workloads += 1

        def work_and_count() -> None:
            work()
            self._running -= 1
            node.workloads -= 1

        self.scheduler.spawn(node, name, work_and_count)

    def _serve(self, name: str, incarnation: int) -> None:
        """A replica of the meta service, or a compactor node."""
        node = self._node(name, incarnation)
        self.services.append(node)
        if name.startswith("meta"):
            self.scheduler.spawn(node, "main", lambda: lead_or_follow(self, node, f"{name}:7070"))
        else:
            self.scheduler.spawn(node, "main", lambda: compact(self, node))

    def _node(self, name: str, incarnation: int) -> Node:
        node = Node(name, incarnation)
        if self.random.random() < self.plan.slow_nodes:
            node.latency = self.plan.slow_latency
        return node

    def _nodes(self) -> list[Node]:
        return [*(process.node for process in self.processes), *self.services]

    def _close(self) -> None:
        """End all failures; workloads end after their present call."""
        self.closing = True
        self.faults = CALM
        for node in self._nodes():
            node.resumes_at = node.cut_off_until = node.parted_until = node.deaf_until = node.latency = 0.0
            node.crash_at_call = 0
            node.ambush = None
            self._set_right(node)

    # --- Troubles --------------------------------------------------------------------------------------------------

    def _troubles(self) -> None:
        plan = self.plan
        kinds = [
            (plan.crashes, self._crash_soon),
            (plan.stalls, self._stall),
            (plan.cuts, self._cut_off),
            (plan.jumps, self._jump),
            (plan.deaf, self._deafen),
            (plan.ambushes, self._ambush),
            (plan.coups, self._overthrow),
        ]
        for mean, trouble in kinds:
            if mean:
                self._again(mean, trouble)
        if plan.ahead:
            self.scheduler.at(self._apart.expovariate(1 / plan.ahead), self._run_ahead)
        self.scheduler.at(1.0, self._look_after)

    def _again(self, mean: float, trouble: Callable[[Node], None]) -> None:
        def happen() -> None:
            if self.closing:
                return
            living = [node for node in self._nodes() if node.alive]
            if living:
                trouble(self.random.choice(living))
            self._again(mean, trouble)

        self.scheduler.at(self.random.expovariate(1 / mean), happen)

    def _crash_soon(self, node: Node) -> None:
        """Let it die at one of its next requests, before that is sent or when the answer comes."""
        node.crash_at_call = node.calls + self.random.randint(1, 30)
        node.crash_after = self.random.random() < 0.5

    def _stall(self, node: Node) -> None:
        self.scheduler.stall(node, self.random.choice([1.0, 25.0, 70.0, 150.0]) * self.random.random())
        owner = self._owners.get(node.name)
        if self.plan.zombies and owner is not None and owner.node is node:
            self._start(node.name, node.incarnation + 1)

    def _cut_off(self, node: Node) -> None:
        until = self.scheduler.now + self.random.random() * 40.0
        if self.plan.metas and self.random.random() < 0.5:
            node.parted_until = until
            self.scheduler.trace(f"{node} is cut off from the other nodes")
        else:
            node.cut_off_until = until
            self.scheduler.trace(f"{node} is cut off from the bucket")

    def _deafen(self, node: Node) -> None:
        node.deaf_until = self.scheduler.now + self.random.random() * 40.0
        self.scheduler.trace(f"{node} gets no answers")

    def _ambush(self, node: Node) -> None:
        kind = self.random.choice(["halt before", "halt after", "silence"])
        # Long enough for sessions to lapse and what they had uploaded to be taken for garbage; or for a truncation.
        least, most = (20.0, 40.0) if kind == "silence" else (0.0, self.random.choice([5.0, 40.0, 150.0]))
        node.ambush = Ambush(kind, least + most * self.random.random())

    def _overthrow(self, _: Node) -> None:
        """Cause failures until another replica leads."""
        leaders = [node for node, meta in self.network.servers.values() if node.alive and meta.is_leader]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        way = self.random.random()
        if way < 0.3 or self.plan.pin_lease < 60:
            self.scheduler.crash(leader)
        elif way < 0.6:
            leader.ambush = Ambush(self.random.choice(["halt before", "halt after"]), 4 + 30 * self.random.random())
        elif way < 0.8:
            self.scheduler.stall(leader, 4 + 30 * self.random.random())
        else:
            self._cut_off(leader)

    def _jump(self, node: Node) -> None:
        node.wall_offset += (self.random.random() * 2 - 1) * self.plan.jump_seconds
        self.scheduler.trace(f"the wall clock of {node} jumps to {node.wall_offset:+.1f} s")

    def _run_ahead(self) -> None:
        """Let the wall clock of a process jump years ahead, and set it right some time later."""
        if self.closing:
            return
        nodes = [process.node for process in self.processes if process.node.alive and process.node.years_until < 0]
        if nodes:
            node, seconds = self._apart.choice(nodes), self._apart.choice([3.0, 30.0, 100.0])
            node.wall_offset += YEARS_SECONDS
            node.years_until = self.scheduler.now + seconds
            self.scheduler.trace(f"the wall clock of {node} is years ahead for {seconds} s")
            self.scheduler.at(seconds, lambda: self._set_right(node))
        self.scheduler.at(self._apart.expovariate(1 / self.plan.ahead), self._run_ahead)

    def _set_right(self, node: Node) -> None:
        if node.wall_offset > YEARS_SECONDS / 2:
            node.wall_offset -= YEARS_SECONDS
            node.years_until = self.scheduler.now

    def _look_after(self) -> None:
        """Start successors of dead processes, as a supervisor that never sleeps."""
        for node in [node for node in self.services if not node.alive]:
            self.services.remove(node)
            if not self._auditing:
                self._serve(node.name, node.incarnation + 1)
        for process in list(self.processes):
            node = process.node
            if node.alive:
                continue
            self._running -= node.workloads
            node.workloads = 0
            self.processes.remove(process)
            for token in [token for token, owner in self._pinned.items() if owner is process]:
                self.oracle.pins.pop(token, None)
            if not self.closing and self._owners[node.name] is process:
                self._start(node.name, node.incarnation + 1)
        if not self.closing and not any(job.left for job in self.jobs):
            self._close()
        if not self._auditing:
            self.scheduler.at(0.2 + self.random.random() * 5, self._look_after)

    # --- The end ---------------------------------------------------------------------------------------------------

    def _audit(self) -> None:
        """On a healed cluster, an auditor finds every commit, and vacuum keeps exactly the needed objects."""
        self.oracle.tasks_are_kept = False
        for node in self._nodes():
            self.scheduler.crash(node)
        self.processes.clear()
        self._ready, self._auditing = False, True
        self._spawn(Process(self, Node("auditor", 1)), "auditor", self._audit_process)
        self._until(lambda: self._ready)

    def _audit_process(self, process: Process) -> None:
        store, oracle = process.store, self.oracle
        if oracle.version.find_table(REPLACED):
            self.tables.append(REPLACED)
        if oracle.version.find_table(DAMAGED):
            self._try(process, lambda: mend_all(process, DAMAGED))
            self.tables.append(DAMAGED)
        for table in self.tables:
            self._same(table, read_table(store.table(table)), "at the end")
        for batch in oracle.batches.values():
            if batch.writer and batch.epoch is not None:
                self._check_ledger(store, batch)
        # Claims and pins of the dead run out; then all that is not needed goes.
        # The pin of one whose clock was years ahead does so after a day.
        process.system.sleep(100_000.0 if self.plan.ahead else 3600.0)
        self._try(process, store.vacuum)
        self._try(process, lambda: self._check_compacted(process))
        for table in self.tables:
            self._try(process, lambda table=table: store.compact(table))
            self._same(table, read_table(store.table(table)), "after a full compaction")
        process.check_memory()
        # Grace periods, and the hour for which half-written things are left alone; clocks may differ.
        for _ in range(3):
            process.system.sleep(4000.0 + 2 * self.plan.gc_grace)
            self._try(process, store.vacuum)
        if oracle.version.gone:
            raise Violation(f"no pin is left, and these tables are kept for one: {oracle.version.gone}")
        self._nothing_left_over()
        for table in self.tables:
            self._same(table, read_table(store.table(table)), "after vacuum")
        oracle.check_nothing_lost()
        process.check_memory()
        store.close()
        self._ready = True

    def _check_compacted(self, process: Process) -> None:
        """Check that compaction gets through with all tables."""
        backend: Any = inside.backend(process.store)
        while inside.step(backend):
            pass
        version = process.store.version()
        for table in self.tables:
            state: Any = version.find_table(table)
            if picked := pick(state, (), PICKER, 0):
                raise Violation(f"{table} was left with a compaction to do: {picked.kind}, {picked.reason}")

    def _try(self, process: Process, work: Callable[[], Any]) -> None:
        try:
            work()
        except ObjectStoreUnavailable as error:
            raise Violation(f"{process.node}: a healed cluster does not work: {error}") from error

    def _same(self, table: str, found: dict[bytes, bytes], when: str) -> None:
        want = self.oracle.state(table, self.oracle.newest)
        if found != want:
            raise Violation(f"guarantee 4: {when}, {table} is {found}, expected {want}")

    def _check_ledger(self, store: Any, batch: Batch) -> None:
        held = store.committed_batch(batch.writer, batch.batch_id)
        ledger = self.oracle.version.ledger.get(batch.writer or "", ())
        if held != batch.epoch and (batch.batch_id, batch.epoch) in ledger:
            raise Violation(f"the ledger says that {batch.name} is at {held}, it is at {batch.epoch}")

    def _nothing_left_over(self) -> None:
        version = self.oracle.version
        there = {path for path in self.bucket.objects if path.startswith("sst/")}
        ids = {path[4:36] for path in there}
        left = sorted(ids - version.live_sst_ids())
        if self.plan.ahead and self.plan.metas:
            # A client of the meta service does not know of the bucket's clock, and names its uploads by its own.
            left = [sst_id for sst_id in left if sst_id < id_floor(self.bucket.now_ms() + int(YEARS_SECONDS * 500))]
        if left:
            raise Violation(f"guarantee 7: nothing names these SSTs, and vacuum leaves them: {left}")
        self.oracle.check_nothing_left()
        others = [path for path in self.bucket.objects if path.startswith(("pins/", "tmp/"))]
        if others:
            raise Violation(f"nobody needs these objects, and vacuum leaves them: {others}")


def run_seed(seed: int, *, verbose: Callable[[str], None] | None = None) -> Outcome:
    """Live through one seed's history."""
    world = World(seed, verbose=verbose)
    failure: BaseException | None = None
    with _small_and_silent():
        try:
            world.run()
        except Exception as error:
            failure = error
    scheduler = world.scheduler
    return Outcome(seed, failure, scheduler.trace_hash(), scheduler.now, world.oracle.counts)


@contextmanager
def _small_and_silent() -> Iterator[None]:
    """SSTs of a few rows, since trees of them reach what large ones reach; and no logging of what is meant to fail."""
    logger, sizes = logging.getLogger("tussock"), executor.execute.__kwdefaults__
    before = logger.level, sizes["sst_bytes"]
    logger.setLevel(logging.CRITICAL + 1)
    sizes["sst_bytes"] = SST_BYTES
    try:
        yield
    finally:
        level, sizes["sst_bytes"] = before
        logger.setLevel(level)
