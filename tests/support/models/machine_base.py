"""The base of the state machine in `machine.py`: two clients on one bucket, faults, checks with a model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from support import inside
from support.buckets.faulty_bucket import Call, Crash, Fate, FaultyBucket, Script
from support.models.model import VALUES, Batch, Model, TableModel, face
from support.store.stores import TickingSystem, open_on, sst_objects
from support.store.versions import ModelBucket
from tussock.statestore import ObjectStoreUnavailable, SnapshotExpired, StateStore, TableNotFound
from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["BATCHES", "CLIENTS", "FAULTS", "INDEX", "NAMES", "VALUE", "Client", "Fault", "MachineBase"]

NAMES = ["t0", "t1", "typed"]
RETENTIONS = (20.0, 45.0)


class Fault(NamedTuple):
    """From some call of an operation on, `count` calls meet `fate`."""

    first: int | str
    """The number of that call, or the name of an operation whose first call it is."""
    count: int
    fate: Fate


# Most operations meet none: histories have to grow between two deaths.
FAULTS = st.sampled_from([False, False, True]).flatmap(
    lambda faulty: (
        st.builds(
            Fault,
            st.integers(1, 10) | st.sampled_from(["create", "put", "list", "delete"]),
            st.integers(1, 3),
            st.sampled_from([Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER]),
        )
        if faulty
        else st.none()
    )
)
CLIENTS = st.integers(0, 1)
INDEX = st.integers(0, 11)
VALUE = st.sampled_from([None, None, *VALUES])
BATCHES = st.dictionaries(INDEX, VALUE, max_size=12)


class Client:
    """One process on the store, as the model knows it."""

    def __init__(self, number: int, bucket: FaultyBucket, store: StateStore) -> None:
        self.number = number
        self.bucket = bucket
        self.store = store
        self.open: dict[int, dict[int, Batch]] = {}
        """Uncommitted rows: by epoch, then table id."""
        self.pins: list[Any] = []
        self.pinned_names: dict[int, dict[str, int]] = {}
        """The tables of each snapshot, by its `id`; none for a given epoch."""

    @property
    def version(self) -> Any:
        """The version that this client knows, without a request."""
        return inside.version(self.store)

    def own(self, table_id: int, epoch: int | None) -> list[Batch]:
        """The uncommitted batches that a read at `epoch` sees, oldest first."""
        if epoch is not None and epoch <= self.version.max_committed_epoch:
            return []  # committed, so it never changes
        seen = [one for one in sorted(self.open) if epoch is None or one <= epoch]
        return [self.open[one][table_id] for one in seen if table_id in self.open[one]]

    def has_uploads(self) -> bool:
        """Whether rows that are not committed lie in the bucket."""
        return any(True for _ in inside.spilled_runs(self.store))


def _script(fault: Fault, calls: int) -> Script:
    """The fault, for an operation that begins after `calls` calls."""
    low = calls + fault.first if isinstance(fault.first, int) else None

    def script(call: Call) -> Fate:
        nonlocal low
        if low is None and call.operation == fault.first:
            low = call.number
        return fault.fate if low is not None and low <= call.number < low + fault.count else Fate.PASS

    return script


class MachineBase(RuleBasedStateMachine):
    """Two clients and a model; subclasses have the rules."""

    faults = True
    gc_grace = 15.0

    def make_bucket(self) -> tuple[ObjectStore, System]:
        """An empty bucket and its clock."""
        system = TickingSystem()
        return ModelBucket(system), system

    @initialize(
        cache_bytes=st.sampled_from([0, 3000, 1 << 20]),
        buffer_bytes=st.sampled_from([0, 10_000, 1 << 20]),
        batch_bytes=st.sampled_from([1, 300, DEFAULT_LIMITS.batch_bytes]),
        base_every=st.sampled_from([2, 5, 64]),
        tables=st.sampled_from([["t0"], ["t0", "typed"], NAMES]),
    )
    def open_clients(
        self, cache_bytes: int, buffer_bytes: int, batch_bytes: int, base_every: int, tables: list[str]
    ) -> None:
        # What a merge holds and gives out at once: with a tiny bound the versions of a key are many batches.
        limits = Limits(batch_bytes=batch_bytes, merge_bytes=batch_bytes)
        self.options: dict[str, Any] = {"cache_bytes": cache_bytes, "buffer_bytes": buffer_bytes, "limits": limits}
        self.options["gc_grace"] = self.gc_grace
        self.base_every = base_every
        self.inner, self.system = self.make_bucket()
        self.model = Model()
        self.batch_id = 0
        self.clients = [self._open_client(number) for number in range(2)]
        if isinstance(self.system, TickingSystem):
            self.system.on_tick.append(self._renew_pins)
        for name in tables:
            self.create_table(0, name, "lz4", None)

    def _open_store(self, bucket: ObjectStore, number: int) -> StateStore:
        store = inside.without_threads(open_on(bucket, self.system, retention=self._retention(number), **self.options))
        inside.base_every(inside.version_log(inside.backend(store)), self.base_every)
        return store

    def _open_client(self, number: int) -> Client:
        bucket = FaultyBucket(self.inner)
        return Client(number, bucket, self._open_store(bucket, number))

    def _retention(self, number: int) -> float:
        return RETENTIONS[number]

    def _renew_pins(self) -> None:
        for client in self.clients:
            inside.pin_keeper(inside.backend(client.store)).renew()

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        try:
            self._nothing_is_left_over()
        finally:
            for client in self.clients:
                client.bucket.script = None
                client.store.close()

    def _nothing_is_left_over(self) -> None:
        """At the end, every table reads right, and vacuum leaves exactly the SSTs of the version."""
        for client in self.clients:
            for snapshot in client.pins:
                snapshot.close()
            client.pins = []
            for epoch in list(client.open):
                client.store.abort_epoch(epoch)
            client.open = {}
        self._pass_time(200)
        store = self.clients[0].store
        for name in store.tables():
            if self._may_compact(store):
                store.compact(name)
            self._check_table(self.clients[1], name)
        store.vacuum()
        self._pass_time(200)
        store.vacuum()
        if isinstance(self.system, TickingSystem):
            # On a real clock outputs of a crash may be young still.
            assert sst_objects(self.inner) == store.version().live_sst_ids()  # type: ignore[attr-defined]

    def _may_compact(self, store: StateStore) -> bool:
        """Claims of the dead expire in seconds; real ones are too many to wait for."""
        version: Any = store.version()
        return isinstance(self.system, TickingSystem) or not version.tasks

    def _pass_time(self, seconds: float) -> None:
        if isinstance(self.system, TickingSystem):
            self.system.forward(seconds)

    def _existing_table(self, name: str, *, raw: bool = False) -> str:
        """A table that exists, as long as there is one: few calls are wasted on others."""
        there = sorted(one for one in self.model.names if not (raw and one == "typed"))
        return there[NAMES.index(name) % len(there)] if there else name

    # --- Faults ----------------------------------------------------------------------------------------------------

    def _attempt(self, client: Client, fault: Fault | None, operation: Callable[[], Any]) -> tuple[str, Any]:
        """("ok", result), or "crash" or "unavailable" if the fault caused that."""
        bucket = client.bucket
        if fault is not None and self.faults:
            bucket.script = _script(fault, len(bucket.calls))
        try:
            return "ok", operation()
        except Crash:
            return "crash", None
        except ObjectStoreUnavailable:
            if bucket.script is None:
                raise
            return "unavailable", None
        finally:
            bucket.script = None

    def _repeat(self, client: Client, fault: Fault | None, operation: Callable[[], Any]) -> Any:
        """The result of an operation that changes nothing, after as many attempts as it takes."""
        outcome, answer = self._attempt(client, fault, operation)
        if outcome == "crash" or client.bucket.dead:
            self._revive(client)
            return None
        return (answer,) if outcome == "ok" else (operation(),)

    def _revive(self, client: Client) -> None:
        """The process has died: its buffer and its pins are gone."""
        note(f"client {client.number} dies and is opened anew")
        inside.kill(client.store)
        self.clients[client.number] = self._open_client(client.number)

    def _observe(self) -> Any:
        """The newest version, read from the bucket alone."""
        store = open_on(self.inner, self.system)
        try:
            return store.version()
        finally:
            inside.kill(store)

    # --- Checks ---------------------------------------------------------------------------------------------------

    def _read(
        self,
        client: Client,
        name: str,
        epoch: int | None,
        fault: Fault | None,
        read: Callable[[Any, TableModel], Any],
        *,
        raw: bool = False,
    ) -> tuple[Any, Batch] | None:
        """The result of `read`, and everything visible to it; `None` if it was refused for a good reason."""
        name = self._existing_table(name, raw=raw)

        def attempt() -> tuple[str, Any, Any]:
            try:
                table = client.store.table(name)
            except TableNotFound:
                assert client.version.find_table(name) is None
                return "no table", None, None
            model = self.model.tables[table.spec.id]
            try:
                return "ok", read(table, model), table.spec.id
            except TableNotFound:
                assert table.spec.id not in client.version.tables
                return "no table", None, None
            except SnapshotExpired:
                assert epoch is not None
                edge = self.model.edge(self.system.now_ms(), min(map(self._retention, (0, 1))))
                assert epoch < edge, "an epoch within every client's retention has to be readable"
                return "expired", None, None

        answer = self._repeat(client, fault, attempt)
        if answer is None or answer[0][0] != "ok":
            return None
        _, found, table_id = answer[0]
        until = client.version.max_committed_epoch if epoch is None else epoch
        assert epoch is None or epoch >= inside.backend(client.store).oldest_readable()
        return found, self.model.tables[table_id].at(until, client.own(table_id, epoch))

    def _epoch(self, which: int) -> int | None:
        """An old or new epoch, or one that was never committed; `None` for the latest."""
        known = [epoch for _, epoch in self.model.commits][-8:] + [epoch for one in self.clients for epoch in one.open]
        known += [epoch + 1 for epoch in known[-2:]]
        return known[which % len(known)] if which >= 0 and known else None

    def _fresh(self, client: Client, fresh: bool) -> None:
        if fresh:
            assert client.store.committed_epoch == self.model.newest

    def _check_old_epochs(self, client: Client, name: str) -> None:
        epochs = [epoch for _, epoch in self.model.commits[-6:]]
        # The first read is the one that may find that the client has fallen behind: not always that of the same age.
        first = len(self.model.commits) % max(len(epochs), 1)
        for epoch in epochs[first:] + epochs[:first]:
            read = self._read(client, name, epoch, None, lambda table, model, e=epoch: face(model).everything(table, e))  # type: ignore[misc]
            if read is not None:
                assert read[0] == read[1]

    def _check_snapshot(self, client: Client, snapshot: Any) -> None:
        """A snapshot shows exactly the tables of its moment, whatever happened to them."""
        names = client.pinned_names.get(id(snapshot))
        for name in NAMES:
            if names is not None and name not in names:
                with pytest.raises(TableNotFound, match="as of this snapshot"):
                    snapshot.table(name)
                continue
            try:
                table = snapshot.table(name)
            except TableNotFound:
                assert names is None, f"{name!r} was there when the snapshot was taken"
                continue
            model = self.model.tables[table.spec.id]
            assert names is None or table.spec.id == names[name]
            assert face(model).everything(table, None) == model.at(snapshot.epoch)

    def _check_table(self, client: Client, name: str) -> None:
        client.store.committed_epoch  # noqa: B018 - reads the log
        answer = self._read(client, name, None, None, lambda table, model: face(model).everything(table, None))
        assert answer is not None
        assert answer[0] == answer[1]
