"""One simulated process with an open store: its clocks, its way to the bucket, and the newest state of its readers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simulation.judge.oracle import Batch, State
from simulation.machine.bucket import NodeBucket
from simulation.machine.scheduler import Node, Violation
from simulation.machine.system import SimSystem
from support import inside
from tussock.meta.compaction.picker import PickerConfig
from tussock.statestore.base.limits import Limits
from tussock.statestore.client import StateStore
from tussock.statestore.connection import open_store
from tussock.statestore.errors import ObjectStoreUnavailable
from tussock.statestore.settings import StoreSettings

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Process"]

# Trees of some SSTs of some rows have to reach every kind of compaction.
PICKER = PickerConfig(
    base_bytes=2000,
    level_ratio=2,
    l0_merge_min=2,
    l0_small_bytes=200,
    l0_runs_max=4,
    l0_stall_runs=24,
    history_merge_min=3,
    history_runs_max=6,
)

# The same of SSTs, which commits make of several times the size that compaction does.
LIMITS = Limits(sst_bytes=2000)


class Process:
    """A store opened by one node, and the checks of its answers."""

    is_remote = False

    def __init__(self, world: "World", node: Node) -> None:
        self.world = world
        self.node = node
        self.scheduler = world.scheduler
        self.oracle = world.oracle
        self.system = SimSystem(world.scheduler, node)
        self.bucket = NodeBucket(world.bucket, node, lambda: world.faults)
        self.store: StateStore
        self.floor = 0
        """No reader of this process may see less than this epoch."""
        self.open: dict[int, dict[str, dict[bytes, bytes | None]]] = {}
        """Own uncommitted rows: by epoch, then table."""
        self._writing: dict[int, list[tuple[str, set[bytes]]]] = {}
        """Tables and keys with writes, by epoch."""
        self._touched: list[tuple[str, set[bytes]]] = []
        self._seen: Any = None
        self._faces: dict[str, Any] = {}

    def settings(self) -> StoreSettings:
        """The store's options, from the plan."""
        plan = self.world.plan
        return StoreSettings(
            "sim://",
            retention=plan.retention,
            gc_grace=plan.gc_grace,
            cache_bytes=plan.cache_bytes,
            buffer_bytes=plan.buffer_bytes,
            compaction=plan.background_compaction,
            limits=LIMITS,
        )

    def connect(self) -> None:
        """Open the store, however many attempts the network needs."""
        settings = self.settings()
        while True:
            try:
                self.store = open_store(settings, self.system, self.bucket)
                break
            except ObjectStoreUnavailable:
                self.system.sleep(1.0)
        backend: Any = inside.backend(self.store)
        backend.meta.config = PICKER
        inside.base_every(inside.version_log(backend), self.world.plan.base_every)
        inside.set_pin_lease(backend, self.world.plan.pin_lease)
        self.check_memory()

    def check_memory(self) -> None:
        """Check that the node's version is the log's, and never goes back."""
        version: Any = inside.version(self.store)
        if version is self._seen:
            return
        if self._seen is not None and version.seq < self._seen.seq:
            raise Violation(f"{self.node} went back from version {self._seen.seq} to {version.seq}")
        self._seen = version
        if version != self.oracle.versions.get(version.seq):
            raise Violation(f"guarantee 4: {self.node} has a version {version.seq} that is not what the log holds")

    def face(self, table: str) -> Any:
        """The table, opened once."""
        if table not in self._faces:
            self._faces[table] = self.store.table(table)
        return self._faces[table]

    # --- Own rows ------------------------------------------------------------------------------------------------

    def ingest(self, batch: Batch, table: str, rows: dict[bytes, bytes | None], epoch: int) -> None:
        """Write rows of the batch, and read them back."""
        self._touched.append((table, set(rows)))
        self._writing.setdefault(epoch, []).append((table, set(rows)))
        self.open.setdefault(epoch, {}).setdefault(table, {})
        face = self.store.table(table)
        face.ingest_batch(sorted(rows.items()), epoch)
        if epoch not in self.open:
            return
        self.open[epoch][table].update(rows)
        key = self.scheduler.random.choice(sorted(rows))
        if any(key in mine.get(table, {}) for at, mine in self.open.items() if at != epoch):
            return
        writes = len(self._touched)
        value = face.get(key)
        if any(name == table and key in keys for name, keys in self._touched[writes:]):
            return
        if epoch in self.open and value != self.open[epoch][table][key]:
            raise Violation(f"guarantee 2: {self.node} wrote {key!r} = {rows[key]!r} of {batch.name}, reads {value!r}")

    def forget(self, epoch: int) -> None:
        """The epoch was committed or given up."""
        self.open.pop(epoch, None)
        self._writing.pop(epoch, None)

    @contextmanager
    def clean_keys(self, table: str) -> Iterator[set[bytes]]:
        """Inside, a read; after, the set has the keys for which own rows may have hidden committed ones."""
        dirty = {key for mine in self._writing.values() for name, keys in mine if name == table for key in keys}
        start = len(self._touched)
        yield dirty
        for name, keys in self._touched[start:]:
            if name == table:
                dirty |= keys

    # --- Reads at the latest epoch -------------------------------------------------------------------------------

    def check_latest(self, table: str, floor: int, found: State, dirty: set[bytes], only: set[bytes] | None) -> None:
        """Check that the rows are one state of the table, no older than earlier reads here; of `only` these keys."""

        def cut(state: State) -> State:
            return {key: value for key, value in state.items() if key not in dirty and (only is None or key in only)}

        seen = cut(found)
        for epoch, state in self.oracle.states(table, floor):
            if cut(state) == seen:
                self.floor = max(self.floor, epoch)
                return
        states = [(epoch, cut(state)) for epoch, state in self.oracle.states(table, floor)]
        raise Violation(
            f"guarantee 4: {self.node} reads {table} as {seen}, which it was at no epoch from {floor} on: {states}"
        )
