"""What the processes of a simulation do: write, move money, read, compact, vacuum. Every answer is checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation.judge.oracle import Batch, State
from simulation.machine.scheduler import Violation
from simulation.processes.process import Process
from support import inside
from support.store.stores import changes_of
from tussock.statestore.errors import (
    ClockAhead,
    Conflict,
    EpochOutOfOrder,
    EpochTooOld,
    Fenced,
    InvalidBatch,
    MetaUnavailable,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StaleUpload,
    StoreClosed,
    WaitTimeout,
    WriteStalled,
)

UNAVAILABLE = (ClockAhead, MetaUnavailable, ObjectStoreUnavailable, WriteStalled)

__all__ = ["ACCOUNTS", "BANKS", "OPENING_BALANCE", "Job", "maintain", "read", "write"]

BANKS = ("bank0", "bank1")
ACCOUNTS = 4
OPENING_BALANCE = 100


@dataclass
class Job:
    """A writer's progress, which outlives its process as a checkpoint of a streaming job does."""

    name: str
    kind: str
    """`kv`, `bank` or `anonymous`."""
    left: int
    pace: float = 1.0
    """The factor of the plan's pauses: some jobs commit all the time, others now and then."""
    next_id: int = 1
    current: Batch | None = None


def read_table(face: Any, **options: Any) -> State:
    """The whole table as a dictionary; a key that comes twice is a violation."""
    rows = [
        row
        for batch in face.scan(**options)
        for row in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]
    keys = [key for key, _ in rows]
    if keys != sorted(set(keys), reverse=bool(options.get("reverse"))):
        raise Violation(f"a scan of {face.name} answers keys out of order or twice: {keys}")
    return dict(rows)


def write(process: Process, job: Job) -> None:
    """Commit batches until the job is done; a batch that failed is tried again by the process that has the job then."""
    world, random = process.world, process.scheduler.random
    while job.left > 0 and not world.closing:
        process.system.sleep(random.random() * world.plan.think_seconds * job.pace)
        batch = job.current
        try:
            if batch is None or batch.runner not in ("", repr(process.node)):
                batch = None
                batch = _next_batch(process, job)
            _commit(process, job, batch)
        except UNAVAILABLE as error:
            world.check_clock(process, error)
            if job.kind == "anonymous":
                # Nobody can tell whether it happened, so it is not brought again.
                job.current = None
        except (Conflict, EpochOutOfOrder, Fenced, StaleUpload, SnapshotExpired) as error:
            _given_up(process, job, batch, error)
        process.check_memory()


def _given_up(process: Process, job: Job, batch: Batch | None, error: Exception) -> None:
    if isinstance(error, StaleUpload) and process.world.vacuums_alone(process):
        raise Violation(f"guarantee 7: {process.node} has vacuumed its own uploads: {error}") from error
    if isinstance(error, EpochOutOfOrder | StaleUpload | SnapshotExpired):
        return
    if isinstance(error, Fenced) and not process.world.plan.zombies:
        raise Violation(f"guarantee 8: {job.name} was fenced, and nobody else wrote under its name: {error}")
    if isinstance(error, Conflict) and batch is not None and batch.epoch is None:
        batch.given_up = True
    if batch is job.current and batch is not None and (batch.given_up or batch.epoch is not None):
        job.current = None


def _next_batch(process: Process, job: Job) -> Batch:
    random, plan = process.scheduler.random, process.world.plan
    writer = None if job.kind == "anonymous" else job.name
    name = f"{job.name}:{job.next_id}"
    expect: dict[str, int] = {}
    if job.kind == "bank":
        rows, expect = _transfer(process)
    else:
        tables = [f"kv{number}" for number in range(plan.tables)]
        picked = [table for table in tables if random.random() < 0.7] or tables[:1]
        rows = {table: _rows(process, name) for table in picked}
        if job.kind == "anonymous":
            mark = b"\0" + name.encode("latin-1")
            rows = {table: {mark: b"", **mine} for table, mine in rows.items()}
    if job.current is not None and writer is not None:
        # Another process has gone on with the job meanwhile.
        return job.current
    name = f"{job.name}:{job.next_id}"
    batch = Batch(name, writer, job.next_id, rows, expect)
    if writer is None:
        # Without a name nobody else can bring it again.
        batch.runner = repr(process.node)
    job.next_id += 1
    job.current = batch
    process.oracle.batches[batch.name] = batch
    return batch


def _rows(process: Process, name: str) -> dict[bytes, bytes | None]:
    random = process.scheduler.random
    keys = random.sample(range(process.world.plan.keys), random.randint(1, min(6, process.world.plan.keys)))
    return {
        b"k%02d" % key: None if random.random() < 0.35 else f"{name}/{key}".encode() * random.choice([1, 1, 12])
        for key in keys
    }


def _transfer(process: Process) -> tuple[dict[str, dict[bytes, bytes | None]], dict[str, int]]:
    """Move money between two accounts, as read at one epoch."""
    random = process.scheduler.random
    with process.store.pin_snapshot() as snapshot:
        balances = {bank: read_table(snapshot.table(bank)) for bank in BANKS}
        epoch = snapshot.epoch
    places = [(bank, key) for bank in BANKS for key in sorted(balances[bank])]
    source, target = random.sample(places, 2)
    amount = random.randint(1, 50)
    rows: dict[str, dict[bytes, bytes | None]] = {}
    for (bank, key), change in ((source, -amount), (target, amount)):
        rows.setdefault(bank, {})[key] = b"%d" % (int(balances[bank][key]) + change)
    return rows, dict.fromkeys(BANKS, epoch)


def _commit(process: Process, job: Job, batch: Batch) -> None:
    """One attempt to write the batch under a new epoch, and to commit it, perhaps by repeated calls."""
    store, random = process.store, process.scheduler.random
    if batch.epoch is None and random.random() < 0.1:
        # A commit that finds its batch in the ledger must not care for what was written meanwhile.
        process.system.sleep(random.random() * 5)
    epoch = store.new_epoch()
    try:
        for table, rows in batch.rows.items():
            for part in _parts(process, rows):
                process.ingest(batch, table, part, epoch)
        if process.world.plan.dawdle and random.random() < 0.5:
            process.system.sleep(random.random() * process.world.plan.dawdle)
        attempts = random.choice([1, 2, 4])
        unanswered: Exception | None = None
        for attempt in range(1, attempts + 1):
            try:
                committed = store.commit_epoch(
                    epoch,
                    writer=batch.writer,
                    batch_id=batch.batch_id if batch.writer else None,
                    expect=batch.expect or None,
                )
                break
            except (*UNAVAILABLE, EpochOutOfOrder) as error:
                # Out of order: another writer of this process holds older rows of the same table. If that came after
                # a call without an answer, it says nothing of what became of that one.
                unanswered = error if isinstance(error, UNAVAILABLE) else unanswered
                if attempt == attempts:
                    raise unanswered or error  # noqa: B904  # the one is no cause of the other
                process.system.sleep(random.random())
    except InvalidBatch as error:
        if batch.writer is not None or batch.epoch is None:
            raise Violation(f"{batch.name} is refused, and it is not in the log: {error}") from error
        # It happened, its answer was lost, and by now compaction has merged it, so its epoch is not known any more.
        store.abort_epoch(epoch)
        committed = batch.epoch
    except (*UNAVAILABLE, EpochOutOfOrder, StaleUpload):
        store.abort_epoch(epoch)
        raise
    finally:
        # A process that is dead does not come here; what it had open is gone with it.
        process.forget(epoch)
    if batch.epoch is None:
        raise Violation(f"guarantee 4: {batch.name} was acknowledged at epoch {committed}, and is not in the log")
    if not process.oracle.may_answer(batch, committed):
        raise Violation(f"guarantee 4: {batch.name} is at epoch {batch.epoch}, its commit answered {committed}")
    process.floor = max(process.floor, committed)
    if job.current is batch:
        job.current = None
        job.left -= 1


def _parts(process: Process, rows: dict[bytes, bytes | None]) -> list[dict[bytes, bytes | None]]:
    """The rows in one or several writes; a key of an earlier part may be overwritten by a later one."""
    random = process.scheduler.random
    if random.random() < 0.6 or len(rows) < 2:
        return [rows]
    keys = sorted(rows)
    first = {key: b"overwritten" if random.random() < 0.5 else None for key in keys if random.random() < 0.6}
    cut = random.randint(1, len(keys) - 1)
    parts = [first, {key: rows[key] for key in keys[:cut]}, {key: rows[key] for key in keys[cut:]}]
    return [part for part in parts if part]


# --- Reading -----------------------------------------------------------------------------------------------------


def read(process: Process) -> None:
    """Read in all ways, until the world closes."""
    world, random = process.world, process.scheduler.random
    ways: dict[str, tuple[Callable[[Process, str], None], int]] = {
        "scan": (_scan_latest, 3),
        "get": (_get_latest, 3),
        "pinned": (_read_pinned, 3),
        "epoch": (_time_travel, 3),
        "changes": (_changes, 2),
        "newest": (_freshness, 1),
        "wait": (_waiting, 1),
    }
    mine = [ways[name] for name in world.plan.reads]
    while not world.closing:
        process.system.sleep(random.random() * world.plan.nap_seconds)
        way = random.choices([one for one, _ in mine], [weight for _, weight in mine])[0]
        try:
            way(process, random.choice(world.tables))
        except UNAVAILABLE as error:
            world.check_clock(process, error)
            continue
        except StaleUpload as error:
            # Own rows, spilled, and so old that another process's vacuum took them.
            if world.vacuums_alone(process):
                raise Violation(f"guarantee 7: {process.node} vacuumed what it had spilled: {error}") from error
        process.check_memory()


def _scan_latest(process: Process, table: str) -> None:
    floor = process.floor
    for attempt in (1, 2):
        try:
            with process.clean_keys(table) as dirty:
                found = read_table(process.store.table(table), reverse=process.scheduler.random.random() < 0.3)
        except SnapshotExpired:
            # The scan had to move to a newer version, and its epoch was compacted away: it says so rather than mix
            # epochs. With a long grace that happens only to a client that was out of touch for longer.
            if process.world.plan.gc_grace > 15 and attempt == 2:
                raise
            continue
        process.check_latest(table, floor, found, dirty, None)
        return


def _get_latest(process: Process, table: str) -> None:
    random = process.scheduler.random
    keys = random.sample(process.world.keys_of(table), 2)
    floor = process.floor
    face = process.store.table(table)
    with process.clean_keys(table) as dirty:
        if random.random() < 0.5:
            keys = keys[:1]
            values = [face.get(keys[0])]
        else:
            values = face.multi_get(keys).to_pylist()
    found = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
    process.check_latest(table, floor, found, dirty, set(keys))


def _read_pinned(process: Process, table: str) -> None:
    random, oracle = process.scheduler.random, process.oracle
    newest = oracle.newest
    epoch = random.choice(oracle.commits[-5:]) if oracle.commits and random.random() < 0.4 else None
    try:
        snapshot = process.store.pin_snapshot(epoch)
    except SnapshotExpired:
        if epoch is None:
            raise Violation(f"{process.node}: the newest epoch cannot be pinned") from None
        return
    if epoch is None and snapshot.epoch < newest:
        raise Violation(f"{process.node} pinned epoch {snapshot.epoch} when {newest} was committed already")
    process.floor = max(process.floor, snapshot.epoch)
    token = process.world.note_pin(process, snapshot)
    want = {name: oracle.state(name, snapshot.epoch) for name in process.world.tables}
    kept = _kept_tables(process, snapshot, newest=epoch is None)
    try:
        for _ in range(random.choice([1, 2, 5]) if kept else 0):
            name = random.choice(kept)
            _read_at(process, snapshot.table(name), name, want[name], f"pinned epoch {snapshot.epoch}", {})
            process.system.sleep(random.random() * process.world.plan.hold_seconds)
            if process.world.closing:
                break
    except SnapshotExpired as error:
        overtaken = "compaction has dropped" in str(error) and not process.world.plan.jumps
        if overtaken or not process.world.may_lose_pins():
            raise Violation(f"guarantee 3: {process.node} lost its pin without a reason: {error}") from error
    finally:
        oracle.pins.pop(token, None)
        snapshot.close()


def _kept_tables(process: Process, snapshot: Any, *, newest: bool) -> list[str]:
    """The tables that the snapshot keeps; the others it refuses to read.

    There may be none of these: a table beside them may be the only one that keeps the epoch.
    """
    unkept = inside.pin_info(snapshot).unkept
    tables = process.oracle.version.tables
    lost = {tables[one].spec.name for one in unkept if one in tables}
    if lost and newest:
        raise Violation(f"guarantee 3: {process.node} pinned the newest epoch, and it lacks {lost}")
    for name in sorted(lost.intersection(process.world.tables)):
        try:
            read_table(snapshot.table(name))
        except SnapshotExpired:
            continue
        raise Violation(f"guarantee 3: {process.node} reads {name} in a snapshot that came too late for it")
    return [name for name in process.world.tables if name not in lost]


def _read_at(process: Process, face: Any, name: str, want: State, what: str, options: dict[str, int]) -> None:
    """Read the table in one of three ways, and check that it is `want`."""
    random = process.scheduler.random
    way = random.random()
    if way < 0.4:
        found = read_table(face, reverse=random.random() < 0.3, **options)
    else:
        keys = random.sample(process.world.keys_of(name), 2)
        values = (
            face.multi_get(keys, **options).to_pylist() if way < 0.7 else [face.get(key, **options) for key in keys]
        )
        found = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
        want = {key: value for key, value in want.items() if key in keys}
    if found != want:
        raise Violation(f"guarantee 3: {process.node} reads {name} at {what} as {found}, expected {want}")


def _time_travel(process: Process, table: str) -> None:
    random, oracle = process.scheduler.random, process.oracle
    if not oracle.commits:
        return
    # What this process knows as newest is often just on the edge of what the others still keep.
    # A table that was opened long ago: opening it would have looked for what is new.
    face = process.face(table)
    known = inside.version(process.store).max_committed_epoch
    epoch = known if known and random.random() < 0.5 else random.choice(oracle.commits[-6:])
    try:
        # The epoch is committed, so own rows are no part of the answer.
        want = oracle.state(table, epoch)
        if random.random() < 0.5:
            found = read_table(face, epoch=epoch)
        else:
            keys = random.sample(process.world.keys_of(table), 2)
            found = {key: value for key in keys if (value := face.get(key, epoch=epoch)) is not None}
            want = {key: value for key, value in want.items() if key in keys}
    except SnapshotExpired:
        return
    if found != want:
        raise Violation(f"guarantee 3: {process.node} reads {table} at epoch {epoch} as {found}, expected {want}")


def _changes(process: Process, table: str) -> None:
    random, oracle = process.scheduler.random, process.oracle
    if len(oracle.commits) < 2:
        return
    after, until = sorted(random.choices(oracle.commits[-6:], k=2))
    try:
        rows = changes_of(process.store.table(table), after, until)
    except SnapshotExpired:
        return
    found = [(row["epoch"], row["key"], row["value"]) for row in rows]
    want = oracle.changes(table, after, until)
    if found != want:
        raise Violation(f"{process.node} reads the changes of {table} in ({after}, {until}] as {found}, not {want}")


def _freshness(process: Process, table: str) -> None:
    newest = process.oracle.newest
    seen = process.store.committed_epoch
    if seen < newest:
        raise Violation(f"{process.node} was told that {seen} is the newest epoch when {newest} was committed already")
    process.floor = max(process.floor, seen)
    done = [batch for batch in process.oracle.batches.values() if batch.epoch is not None and batch.writer]
    if done:
        batch = done[-1]
        assert batch.writer is not None
        assert batch.batch_id is not None
        if process.store.committed_batch(batch.writer, batch.batch_id) != batch.epoch:
            raise Violation(f"{process.node} does not find batch {batch.name} in the ledger")


def _waiting(process: Process, table: str) -> None:
    oracle = process.oracle
    if oracle.commits:
        epoch = oracle.newest
        try:
            process.store.wait_epoch(epoch, timeout=20)
        except WaitTimeout as error:
            raise Violation(f"guarantee 2: {process.node} does not see epoch {epoch}: {error}") from error
        process.floor = max(process.floor, epoch)


# --- Upkeep ------------------------------------------------------------------------------------------------------


def maintain(process: Process) -> None:
    """Compact and vacuum now and then."""
    world, random = process.world, process.scheduler.random
    while not world.closing:
        process.system.sleep(random.random() * world.plan.upkeep_seconds)
        try:
            what = random.random()
            if what < 0.45:
                process.store.vacuum()
            elif what < 0.5:
                before = world.oracle.version
                report = process.store.vacuum(dry_run=True)
                world.check_dry_run(before, report)
            elif what < 0.75:
                process.store.compact(random.choice(world.tables))
            elif not process.is_remote:
                backend: Any = inside.backend(process.store)
                while inside.step(backend):
                    pass
        except (*UNAVAILABLE, WaitTimeout) as error:
            world.check_clock(process, error)
            continue
        except (EpochTooOld, StoreClosed) as error:
            raise Violation(f"{process.node}: upkeep failed: {error!r}") from error
        process.check_memory()
