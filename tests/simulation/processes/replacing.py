"""A table that is dropped and created anew under its name repeatedly, and snapshots that show it as it was."""

from typing import Any

from simulation.judge.oracle import Batch, State
from simulation.machine.scheduler import Violation
from simulation.processes.process import Process
from simulation.processes.workloads import UNAVAILABLE, read_table
from support import inside
from tussock.statestore.errors import (
    EpochOutOfOrder,
    EpochTooOld,
    SnapshotExpired,
    StaleUpload,
    TableExists,
    TableNotFound,
)

__all__ = ["REPLACED", "look_on", "replace"]

REPLACED = "replaced"
ROUNDS = 12


def replace(process: Process) -> None:
    """Drop the table, create it anew and write to it, some times. A process that had this job before may do so, too."""
    world, random = process.world, process.scheduler.random
    for number in range(1, ROUNDS + 1):
        process.system.sleep(random.random() * max(world.plan.nap_seconds, 2.0))
        if world.closing:
            return
        try:
            if random.random() < 0.5:
                process.store.drop_table(REPLACED)
        except (*UNAVAILABLE, TableNotFound) as error:
            world.check_clock(process, error)
        try:
            process.store.create_table(REPLACED, block_bytes=256)
        except (*UNAVAILABLE, TableExists) as error:
            world.check_clock(process, error)
        _write(process, number)
        process.check_memory()


def _write(process: Process, number: int) -> None:
    random, writer = process.scheduler.random, f"{REPLACED} by {process.node}"
    rows: dict[bytes, bytes | None] = {
        b"k%02d" % key: f"{process.node}/{number}".encode() * random.choice([1, 12])
        for key in range(4)
        if random.random() < 0.7
    }
    batch = Batch(f"{writer}:{number}", writer, number, {REPLACED: rows})
    if not rows:
        return
    process.oracle.batches[batch.name] = batch
    epoch = process.store.new_epoch()
    try:
        process.store.table(REPLACED).ingest_batch(sorted(rows.items()), epoch)
        process.store.commit_epoch(epoch, writer, number)
    except (*UNAVAILABLE, EpochOutOfOrder, EpochTooOld, StaleUpload, TableNotFound) as error:
        process.world.check_clock(process, error)
        process.store.abort_epoch(epoch)


def look_on(process: Process) -> None:
    """Pin, and read the table of that moment, whichever table has its name meanwhile."""
    world, random = process.world, process.scheduler.random
    while not world.closing:
        process.system.sleep(random.random() * world.plan.nap_seconds)
        try:
            snapshot = process.store.pin_snapshot()
        except UNAVAILABLE as error:
            world.check_clock(process, error)
            continue
        token = world.note_pin(process, snapshot)
        try:
            want = _rows_in_snapshot(process, snapshot)
            for _ in range(random.choice([1, 2, 5])):
                _look(process, snapshot, want)
                process.system.sleep(random.random() * max(world.plan.hold_seconds, 5.0))
                if world.closing:
                    break
        except UNAVAILABLE as error:
            world.check_clock(process, error)
        except SnapshotExpired as error:
            if not world.may_lose_pins():
                raise Violation(f"guarantee 3: {process.node} lost its pin without a reason: {error}") from error
        finally:
            process.oracle.pins.pop(token, None)
            snapshot.close()
        process.check_memory()


def _rows_in_snapshot(process: Process, snapshot: Any) -> State | None:
    """The rows of the table in the snapshot; `None` if it is not there."""
    pin = inside.pin_info(snapshot)
    state = process.oracle.versions[pin.seq].find_table(REPLACED)
    if state is None or state.created_epoch > pin.epoch:
        return None
    return process.oracle.state_of(state.spec.id, pin.epoch)


def _look(process: Process, snapshot: Any, want: State | None) -> None:
    try:
        found = read_table(snapshot.table(REPLACED))
    except TableNotFound as error:
        # A pin that is lost keeps no table, and its holder may not know yet.
        if want is None or process.world.may_lose_pins():
            return
        raise Violation(f"guarantee 3: {process.node} lost a table that its snapshot keeps: {error}") from error
    if found != want:
        at = snapshot.epoch
        raise Violation(f"guarantee 3: {process.node} reads {REPLACED} pinned at {at} as {found}, expected {want}")
