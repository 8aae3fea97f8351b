"""A Hypothesis state machine of the whole client: two clients on one bucket against a plain model of versions.

Operations may be hit by a fault: from some call on the bucket on, requests or answers are lost, or the process dies.
After a lost request or answer the operation is repeated; after a death the client is opened anew. Then an observer
says whether the operation happened, and from there on it must have happened whole, or not at all.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from support import inside
from support.models.machine_base import BATCHES, CLIENTS, FAULTS, INDEX, NAMES, VALUE, Client, Fault, MachineBase
from support.models.model import TYPED_SCHEMA, Batch, TableModel, face
from support.store.stores import TickingSystem
from support.store.versions import ModelBucket, live_objects
from tussock.meta.version.invariants import problems
from tussock.statestore import (
    Conflict,
    EpochOutOfOrder,
    EpochTooOld,
    Fenced,
    InvalidOption,
    SnapshotExpired,
    TableExists,
    TableNotFound,
    WaitTimeout,
)

__all__ = ["StoreMachine"]


class StoreMachine(MachineBase):
    """The rules: everything that users do with a store, in any order."""

    # --- Tables ----------------------------------------------------------------------------------------------------

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), codec=st.sampled_from(["none", "lz4", "zstd"]), fault=FAULTS)
    def create_table(self, number: int, name: str, codec: str, fault: Fault | None) -> None:
        client = self.clients[number]
        typed = name == "typed"
        arguments = {"schema": TYPED_SCHEMA, "primary_key": ["number", "text"], "vnodes": 4} if typed else {}

        def create() -> Any:
            return client.store.create_table(name, block_bytes=256, compression=codec, **arguments)  # type: ignore[arg-type]

        if name in self.model.names:
            with pytest.raises(TableExists, match=name):
                create()
            return
        outcome, table = self._attempt(client, fault, create)
        if outcome != "ok":
            state = self._observe().find_table(name)
            if outcome == "crash" or client.bucket.dead:
                self._revive(client)
                if state is None:
                    return
            elif state is None:
                table = create()
                state = inside.backend_of_table(table).recent().find_table(name)
            table_id = state.spec.id
        else:
            table_id = table.spec.id
        self.model.tables[table_id] = TableModel(name, typed, created=self.model.newest)
        self.model.names[name] = table_id

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), fault=FAULTS, really=st.integers(0, 3))
    def drop_table(self, number: int, name: str, fault: Fault | None, really: int) -> None:
        if really:
            return
        client = self.clients[number]
        if name not in self.model.names:
            with pytest.raises(TableNotFound, match=name):
                client.store.drop_table(name)
            return
        outcome, _ = self._attempt(client, fault, lambda: client.store.drop_table(name))
        if outcome != "ok":
            there = self._observe().find_table(name) is not None
            if outcome == "crash" or client.bucket.dead:
                self._revive(client)
                if there:
                    return
            elif there:
                client.store.drop_table(name)
        del self.model.names[name]

    # --- Writes ----------------------------------------------------------------------------------------------------

    @rule(
        number=CLIENTS,
        name=st.sampled_from(NAMES),
        rows=BATCHES,
        again=st.integers(0, 2),
        fault=FAULTS,
    )
    def ingest(self, number: int, name: str, rows: dict[int, bytes | None], again: int, fault: Fault | None) -> None:
        if not self.model.names:
            return
        name = self._existing_table(name)
        client = self.clients[number]
        client.store.committed_epoch  # noqa: B018 - reads the log, so that the table is the newest of that name
        table = client.store.table(name)
        model = self.model.tables[table.spec.id]
        epochs = sorted(client.open)
        epoch = epochs[-again] if 0 < again <= len(epochs) else client.store.new_epoch()
        batch = {model.keys[at]: value for at, value in rows.items()}
        outcome, _ = self._attempt(client, fault, lambda: face(model).write(table, batch, epoch))
        if outcome == "crash" or client.bucket.dead:
            self._revive(client)
            return
        tables = client.open.setdefault(epoch, {})
        if outcome == "unavailable":
            # The spill failed; the rows are buffered, and writing them again changes nothing.
            face(model).write(table, batch, epoch)
        if batch:
            tables.setdefault(table.spec.id, {}).update(batch)

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), rows=st.lists(st.tuples(INDEX, VALUE), min_size=5, max_size=25))
    def ingest_row_by_row(self, number: int, name: str, rows: list[tuple[int, bytes | None]]) -> None:
        """One epoch in many small batches: the shared buffer merges them, and the last one wins."""
        for at, value in rows:
            self.ingest(number, name, {at: value}, 1, None)

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), rows=st.lists(BATCHES, min_size=1, max_size=4))
    def write_and_commit(self, number: int, name: str, rows: list[dict[int, bytes | None]]) -> None:
        """The usual way, several times: histories get long, and tables get several runs."""
        self._write_all(number, name, rows)

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), rows=st.lists(BATCHES, min_size=2, max_size=6))
    def write_and_commit_much(self, number: int, name: str, rows: list[dict[int, bytes | None]]) -> None:
        """Write enough for background compaction to have something to do."""
        self._write_all(number, name, rows)

    def _write_all(self, number: int, name: str, rows: list[dict[int, bytes | None]]) -> None:
        for one in rows:
            self.ingest(number, name, one, 0, None)
            client = self.clients[number]
            if client.open:
                self.commit(number, len(client.open) - 1, False, "nothing", None, "nothing")

    @rule(
        number=CLIENTS,
        which=st.integers(0, 3),
        named=st.booleans(),
        expecting=st.sampled_from(["nothing", "nothing", "truth", "past"]),
        fault=FAULTS,
        between=st.sampled_from(["nothing", "commit", "vacuum"]),
    )
    def commit(self, number: int, which: int, named: bool, expecting: str, fault: Fault | None, between: str) -> None:
        client = self.clients[number]
        epochs = sorted(client.open)
        epoch = epochs[which % len(epochs)] if epochs else client.store.new_epoch()
        rows = client.open.get(epoch, {})
        client.store.committed_epoch  # noqa: B018 - reads the log, so that names mean what they mean to the model
        expect = self._expectation(expecting)
        name: dict[str, Any] = {}
        if named:
            self.batch_id += 1
            name = {"writer": "w", "batch_id": self.batch_id}

        def commit() -> int:
            return client.store.commit_epoch(epoch, expect=expect, **name)

        if any(older < epoch and client.open[older].keys() & rows.keys() for older in client.open):
            with pytest.raises(EpochOutOfOrder, match=str(epoch)):
                commit()
            return
        if self._is_refused(client, epoch, expect, commit):
            return
        outcome, answer = self._attempt(client, fault, commit)
        if outcome != "ok":
            version = self._observe()
            answer = version.max_committed_epoch if version.max_committed_epoch > self.model.newest else None
            note(f"{outcome}: committed as {answer}")
        if answer is not None:
            self._record_commit(epoch, answer, rows, name)
        if outcome == "crash" or client.bucket.dead:
            self._revive(client)
        elif outcome == "unavailable":
            self._meanwhile(self.clients[1 - number], between)
            if answer is not None:
                assert commit() == answer, "a repeated commit answers the first one's epoch"
            elif not self._is_refused(client, epoch, expect, commit):
                self._record_commit(epoch, commit(), rows, name)
        if self.clients[number] is client:
            client.open.pop(epoch, None)
            with pytest.raises(EpochTooOld, match=str(epoch)):
                client.store.commit_epoch(epoch)

    def _expectation(self, expecting: str) -> dict[str, int] | None:
        names = sorted(self.model.names)
        if expecting == "nothing" or not names:
            return None
        table_id = self.model.names[names[0]]
        last, created = self.model.last_epoch(table_id), self.model.tables[table_id].created
        if expecting == "truth" and last <= created:
            # Read while its creation was the newest event, the table could be the one before it of that name.
            return {names[0]: self.model.newest} if self.model.newest > created else None
        if expecting == "past":
            return {names[0]: max(last, created) - 1} if max(last, created) else None
        return {names[0]: last}

    def _is_refused(self, client: Client, epoch: int, expect: dict[str, int] | None, commit: Callable[[], int]) -> bool:
        """Whether the commit has to be refused; then try it, and give up its rows."""
        gone = [table_id for table_id in client.open.get(epoch, {}) if table_id not in self.model.names.values()]
        gone += [-1 for name in expect or () if name not in self.model.names]
        stale = [
            name
            for name, read in (expect or {}).items()
            if name in self.model.names and self.model.newest_write(self.model.names[name]) > read
        ]
        if not gone and not stale:
            return False
        with pytest.raises((TableNotFound, Conflict)) as refusal:
            commit()
        told = str(refusal.value)
        assert gone or (isinstance(refusal.value, Conflict) and (stale[0] in told or "has been dropped" in told))
        if gone == [-1]:
            client.store.abort_epoch(epoch)
        client.open.pop(epoch, None)
        return True

    def _record_commit(self, epoch: int, answer: int, rows: dict[int, Batch], name: dict[str, Any]) -> None:
        newest = self.model.newest
        assert answer == epoch if epoch > newest else answer > newest
        self.model.commit(self.system.now_ms(), answer, rows)
        if name:
            self.model.ledger[name["writer"], name["batch_id"]] = answer
            self.model.tables_of_batch[name["writer"], name["batch_id"]] = set(rows)

    def _meanwhile(self, other: Client, what: str) -> None:
        """Another process changes something between a failed commit and its repetition."""
        if what == "vacuum" and not any(client.has_uploads() for client in self.clients):
            self._pass_time(self.gc_grace + 1)
            other.store.vacuum()
        elif what == "commit" and self.model.names:
            name = sorted(self.model.names)[0]
            table = other.store.table(name)
            if table.spec.id not in self.model.names.values() or any(
                table.spec.id in own for own in other.open.values()
            ):
                return
            epoch = other.store.new_epoch()
            model = self.model.tables[table.spec.id]
            batch = {model.keys[0]: b"between", model.keys[1]: None}
            face(model).write(table, batch, epoch)
            self._record_commit(epoch, other.store.commit_epoch(epoch), {table.spec.id: batch}, {})

    @precondition(lambda self: self.model.ledger)
    @rule(number=CLIENTS, which=st.integers(0, 15), with_rows=st.booleans())
    def commit_a_batch_again(self, number: int, which: int, with_rows: bool) -> None:
        client = self.clients[number]
        remembered = sorted(self.model.ledger)[-16:]
        writer, batch_id = remembered[which % len(remembered)]
        if client.open:
            # Else the older epoch is in the way, as long as this client does not know of the commit.
            client.store.committed_epoch  # noqa: B018
        epoch = client.store.new_epoch()
        if with_rows and "t0" in self.model.names:
            client.store.table("t0").ingest_batch([(b"twice", b"twice")], epoch)
        known = self.model.ledger[writer, batch_id]
        table_id = self.model.names.get("t0")
        if with_rows and table_id is not None and table_id not in self.model.tables_of_batch[writer, batch_id]:
            with pytest.raises(Fenced, match=r"without rows in \['t0'\]"):
                client.store.commit_epoch(epoch, writer=writer, batch_id=batch_id)
        else:
            assert client.store.commit_epoch(epoch, writer=writer, batch_id=batch_id) == known
        assert client.store.committed_batch(writer, batch_id) == known

    @precondition(lambda self: self.model.ledger)
    @rule(number=CLIENTS, batch_id=st.integers(0, 40))
    def ask_for_any_batch(self, number: int, batch_id: int) -> None:
        """A batch that counts as committed was committed; another one is refused, or still to come."""
        store = self.clients[number].store
        writer = min(self.model.ledger)[0]
        done = sorted(batch for name, batch in self.model.ledger if name == writer)
        if batch_id in done:
            newest = done[-16:]
            assert store.committed_batch(writer, batch_id) == self.model.ledger[writer, max(batch_id, newest[0])]
        elif batch_id > done[-1]:
            assert store.committed_batch(writer, batch_id) is None
        else:
            with pytest.raises(Fenced, match=r"never committed|too old to know"):
                store.committed_batch(writer, batch_id)

    @precondition(lambda self: any(client.open for client in self.clients))
    @rule(number=CLIENTS, which=st.integers(0, 3))
    def abort(self, number: int, which: int) -> None:
        client = self.clients[number]
        epochs = sorted(client.open)
        if not epochs:
            return
        epoch = epochs[which % len(epochs)]
        client.store.abort_epoch(epoch)
        del client.open[epoch]

    # --- Reads -----------------------------------------------------------------------------------------------------

    @rule(
        number=CLIENTS,
        name=st.sampled_from(NAMES),
        which=st.integers(-4, 12),
        fresh=st.booleans(),
        fault=FAULTS,
        picked=st.lists(INDEX, min_size=1, max_size=5),
    )
    def get(self, number: int, name: str, which: int, fresh: bool, fault: Fault | None, picked: list[int]) -> None:
        client, epoch = self.clients[number], self._epoch(which)
        self._fresh(client, fresh)
        key = picked[0]
        single = self._read(client, name, epoch, fault, lambda t, m: (m.keys[key], face(m).get(t, m.keys[key], epoch)))
        if single is not None:
            (asked, value), visible = single
            assert value == visible.get(asked)
        many = self._read(
            self.clients[number],
            name,
            epoch,
            None,
            lambda t, m: ([m.keys[at] for at in picked], face(m).multi_get(t, [m.keys[at] for at in picked], epoch)),
        )
        if many is not None:
            (keys, values), visible = many
            assert values == [visible.get(one) for one in keys]

    @rule(
        number=CLIENTS,
        name=st.sampled_from(["t0", "t1"]),
        which=st.integers(-4, 12),
        fresh=st.booleans(),
        fault=FAULTS,
        bounds=st.sampled_from([(None, None), (b"a", b"b"), (b"\0", None), (None, b"ab"), (b"b", b"a"), b"a", b"\xff"]),
        limit=st.none() | st.integers(0, 5),
        reverse=st.booleans(),
    )
    def scan(
        self,
        number: int,
        name: str,
        which: int,
        fresh: bool,
        fault: Fault | None,
        bounds: Any,
        limit: int | None,
        reverse: bool,
    ) -> None:
        client, epoch = self.clients[number], self._epoch(which)
        self._fresh(client, fresh)
        where = {"prefix": bounds} if isinstance(bounds, bytes) else {"start": bounds[0], "end": bounds[1]}

        def read(table: Any, model: TableModel) -> list[tuple[bytes, bytes]]:
            batches = list(table.scan(**where, epoch=epoch, limit=limit, reverse=reverse))
            assert all(batch.num_rows for batch in batches)
            return [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]

        answer = self._read(client, name, epoch, fault, read, raw=True)
        if answer is None:
            return
        found, visible = answer
        if isinstance(bounds, bytes):
            inside = [key for key in visible if key.startswith(bounds)]
        else:
            start, end = bounds
            inside = [key for key in visible if (start or b"") <= key and (end is None or key < end)]
        expected = [(key, visible[key]) for key in sorted(inside, reverse=reverse)]
        assert found == expected[:limit]

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), which=st.integers(-4, 12), fresh=st.booleans(), fault=FAULTS)
    def everything(self, number: int, name: str, which: int, fresh: bool, fault: Fault | None) -> None:
        client, epoch = self.clients[number], self._epoch(which)
        self._fresh(client, fresh)
        answer = self._read(client, name, epoch, fault, lambda table, model: face(model).everything(table, epoch))
        if answer is not None:
            assert answer[0] == answer[1]

    @precondition(lambda self: self.model.commits)
    @rule(number=CLIENTS, name=st.sampled_from(NAMES), low=st.integers(0, 12), high=st.integers(-2, 12), fault=FAULTS)
    def changes(self, number: int, name: str, low: int, high: int, fault: Fault | None) -> None:
        client = self.clients[number]
        self._fresh(client, True)
        epochs = [0, *(epoch for _, epoch in self.model.commits[-8:])]
        after = epochs[low % len(epochs)]
        until = epochs[high % len(epochs)] if high >= 0 else None
        if until is not None and until < after:
            return
        if high == 12 and self.model.names:
            # Not committed: what is committed at or below it later would be missing.
            with pytest.raises((InvalidOption, SnapshotExpired), match=r"newest committed epoch|no longer kept"):
                client.store.table(self._existing_table(name)).changes(after, self.model.newest + 1)
            return
        answer = self._read(
            client, name, after, fault, lambda table, model: (model, face(model).changes(table, after, until))
        )
        if answer is not None:
            model, found = answer[0]
            assert found == model.history.changes(after, self.model.newest if until is None else until)

    @rule(number=CLIENTS, ahead=st.booleans(), fault=FAULTS)
    def wait_epoch(self, number: int, ahead: bool, fault: Fault | None) -> None:
        client = self.clients[number]
        if not self.model.commits:
            return
        if ahead and isinstance(self.system, TickingSystem):
            with pytest.raises(WaitTimeout, match=str(self.model.newest)):
                client.store.wait_epoch(self.model.newest + 1, timeout=0.05)
        elif self._repeat(client, fault, lambda: client.store.wait_epoch(self.model.newest)) is not None:
            assert client.version.max_committed_epoch == self.model.newest

    # --- Snapshots -------------------------------------------------------------------------------------------------

    @rule(number=CLIENTS, which=st.integers(-4, 12), fault=FAULTS)
    def pin(self, number: int, which: int, fault: Fault | None) -> None:
        client = self.clients[number]
        committed = [epoch for _, epoch in self.model.commits][-8:]
        epoch = committed[which % len(committed)] if which >= 0 and committed else None
        outcome, snapshot = "", None
        try:
            outcome, snapshot = self._attempt(client, fault, lambda: client.store.pin_snapshot(epoch))
        except SnapshotExpired:
            edge = self.model.edge(self.system.now_ms(), min(map(self._retention, (0, 1))))
            assert epoch is not None
            assert epoch < edge
        if outcome == "crash" or client.bucket.dead:
            self._revive(client)
        if outcome == "ok":
            assert snapshot is not None
            assert snapshot.epoch == (self.model.newest if epoch is None else epoch)
            client.pins.append(snapshot)
            if epoch is None:
                client.pinned_names[id(snapshot)] = dict(self.model.names)

    @precondition(lambda self: any(client.pins for client in self.clients))
    @rule(number=CLIENTS, which=st.integers(0, 3), name=st.sampled_from(NAMES), fault=FAULTS, last=st.booleans())
    def read_a_snapshot(self, number: int, which: int, name: str, fault: Fault | None, last: bool) -> None:
        client = self.clients[number]
        if not client.pins:
            return
        snapshot = client.pins[which % len(client.pins)]

        names = client.pinned_names.get(id(snapshot))

        def read() -> Any:
            try:
                table = snapshot.table(name)
                model = self.model.tables[table.spec.id]
                assert names is None or table.spec.id == names[name], "another table has the name now"
                return table.spec.id, face(model).everything(table, None), face(model).get(table, model.keys[3], None)
            except TableNotFound:
                assert names is None or name not in names
                return None

        answer = self._repeat(client, fault, read)
        if answer and answer[0]:
            table_id, found, value = answer[0]
            visible = self.model.tables[table_id].at(snapshot.epoch)
            assert found == visible
            assert value == visible.get(self.model.tables[table_id].keys[3])
        if last and self.clients[number] is client:
            client.pins.remove(snapshot)
            snapshot.close()

    # --- Upkeep ----------------------------------------------------------------------------------------------------

    @rule(number=CLIENTS, name=st.sampled_from(NAMES), fault=FAULTS)
    def compact(self, number: int, name: str, fault: Fault | None) -> None:
        client, name = self.clients[number], self._existing_table(name)
        if name in self.model.names and self._may_compact(client.store):
            self._after_upkeep(client, self._attempt(client, fault, lambda: client.store.compact(name))[0])

    @rule(number=CLIENTS, fault=FAULTS)
    def compact_in_the_background(self, number: int, fault: Fault | None) -> None:
        client = self.clients[number]
        backend: Any = inside.backend(client.store)
        self._after_upkeep(client, self._attempt(client, fault, lambda: inside.step(backend))[0])

    @rule(number=CLIENTS, fault=FAULTS)
    def vacuum(self, number: int, fault: Fault | None) -> None:
        client = self.clients[number]
        # Rows that another process spilled are safe from vacuum only for the grace period.
        if self.clients[1 - number].has_uploads():
            return
        self._after_upkeep(client, self._attempt(client, fault, client.store.vacuum)[0])

    def _after_upkeep(self, client: Client, outcome: str) -> None:
        """In any case nothing readable has changed: not at the newest epoch, an old one, or a pinned one."""
        if outcome == "crash" or client.bucket.dead:
            self._revive(client)
        for name in self.model.names:
            # Old epochs first, by clients that may not have heard of what was done.
            for reader in (self.clients[1 - client.number], self.clients[client.number]):
                self._check_old_epochs(reader, name)
                self._check_table(reader, name)
        for reader in self.clients:
            for snapshot in reader.pins:
                self._check_snapshot(reader, snapshot)

    @rule(seconds=st.sampled_from([0, 1, 16, 30]))
    def let_time_pass(self, seconds: int) -> None:
        self._pass_time(seconds)

    @rule(
        number=CLIENTS,
        name=st.sampled_from(NAMES),
        first=BATCHES,
        later=st.sampled_from([1, 4, 6]).flatmap(lambda size: st.lists(BATCHES, min_size=size, max_size=size)),
        merged=st.booleans(),
        pinned=st.booleans(),
        seconds=st.sampled_from([0, 30, 50, 50]),
        kind=st.sampled_from(["manual", "background", "vacuum"]),
        fault=FAULTS,
    )
    def age(
        self,
        number: int,
        name: str,
        first: dict[int, bytes | None],
        later: list[dict[int, bytes | None]],
        merged: bool,
        pinned: bool,
        seconds: int,
        kind: str,
        fault: Fault | None,
    ) -> None:
        """The life of a table: written, merged, pinned, overwritten, past its retention, merged."""
        if not self.model.names:
            return
        self._write_all(number, name, [first])
        if merged:
            self.compact(1 - number, name, None)
        if pinned:
            self.pin(number, -1, None)
        self._write_all(1 - number, name, later)
        self._pass_time(seconds)
        if pinned and later[0]:
            self.pin(1 - number, 7, None)
        if kind == "manual":
            self.compact(number, name, fault)
        elif kind == "background":
            self.compact_in_the_background(number, fault)
        else:
            self.compact_in_the_background(number, None)
            self._pass_time(seconds)
            self.vacuum(number, fault)

    @rule(number=CLIENTS, rarely=st.integers(0, 5))
    def reopen(self, number: int, rarely: int) -> None:
        if rarely:
            return
        self.clients[number].store.close()
        self.clients[number] = self._open_client(number)

    # --- What holds between any two steps ----------------------------------------------------------------------------

    @invariant()
    def the_version_is_sound_and_its_objects_are_there(self) -> None:
        if not hasattr(self, "clients"):
            return
        version = self._observe()
        assert problems(version) == []
        assert version.max_committed_epoch == self.model.newest
        assert {state.spec.name: table_id for table_id, state in version.tables.items()} == self.model.names
        if isinstance(self.inner, ModelBucket):
            assert live_objects(version) <= self.inner.objects.keys()
