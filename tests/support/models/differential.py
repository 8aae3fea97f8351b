"""Random operations of two clients on one store, each answer compared with a plain dict.

`python -m support.models.differential --operations 1000000` from `tests/` runs as many over all cores, in stores of
some thousand operations each; `--seed N` repeats one. Unlike the state machine it injects no faults and shrinks
nothing: it is fast, so its stores grow large, with many runs, levels, spills, versions of a key, and caches that hold
next to nothing of them.
"""

import argparse
import itertools
import random
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, ClassVar

import pyarrow as pa

from support.models.history import TableHistory, apply_batch
from support.store.stores import changes_of
from tussock.statestore import StateStore, connect

__all__ = ["History", "run_history"]

Rows = dict[Any, bytes]
OPERATIONS = 8000
"""Of one history."""
SEEDS_A_POOL = 30
_KEPT = 12
"""Committed states that the model keeps for reads at old epochs."""


_NUMBERS = itertools.count()


class _Raw:
    """A raw table: keys of all lengths, many of them beginning alike."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, chance: random.Random) -> None:
        stems = [chance.randbytes(chance.choice([0, 1, 3, 12, 60])) for _ in range(12)]
        keys = {b"", b"\0", b"\xff", b"\xff\xff"} | {
            chance.choice(stems) + chance.randbytes(chance.randint(0, 3)) for _ in range(chance.choice([60, 300]))
        }
        self.keys = sorted(keys)

    def write(self, table: Any, batch: dict[Any, bytes | None], epoch: int) -> None:
        table.ingest_batch(sorted(batch.items()), epoch)

    def get(self, table: Any, key: Any, epoch: int | None) -> bytes | None:
        value: bytes | None = table.get(key, epoch=epoch)
        return value

    def multi_get(self, table: Any, keys: list[Any], epoch: int | None) -> list[bytes | None]:
        values: list[bytes | None] = table.multi_get(keys, epoch=epoch).to_pylist()
        return values

    def scan(self, table: Any, epoch: int | None, **bounds: Any) -> list[tuple[Any, bytes]]:
        batches = table.scan(epoch=epoch, **bounds)
        return [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]

    def changes(self, table: Any, after: int, until: int | None) -> list[tuple[int, Any, bytes | None]]:
        return [(row["epoch"], row["key"], row["value"]) for row in changes_of(table, after, until)]


class _Typed(_Raw):
    """A typed table with a composite key; the value is kept in two columns."""

    options: ClassVar[dict[str, Any]] = {
        "schema": pa.schema([("n", pa.int32()), ("size", pa.int64()), ("t", pa.string()), ("v", pa.binary())]),
        "primary_key": ["n", "t"],
        "vnodes": 8,
    }

    def __init__(self, chance: random.Random) -> None:
        numbers, texts = [-(1 << 31), -1, 0, 7, (1 << 31) - 1], ["", "a", "a\0", "ab", "ä", "zzz" * 9]
        self.keys = [(number, text + str(more)) for number in numbers for text in texts for more in range(6)]

    def write(self, table: Any, batch: dict[Any, bytes | None], epoch: int) -> None:
        puts = [
            {"n": n, "t": t, "v": value, "size": len(value)} for (n, t), value in batch.items() if value is not None
        ]
        table.upsert(pa.Table.from_pylist(puts, schema=self.options["schema"]), epoch)
        if deletes := [key for key, value in batch.items() if value is None]:
            table.delete(deletes, epoch)

    @staticmethod
    def _value(row: dict[str, Any] | None) -> bytes | None:
        if row is None:
            return None
        value: bytes = row["v"]
        assert row["size"] == len(value), "columns of two rows were mixed"
        return value

    def get(self, table: Any, key: Any, epoch: int | None) -> bytes | None:
        return self._value(table.get(key, epoch=epoch))

    def multi_get(self, table: Any, keys: list[Any], epoch: int | None) -> list[bytes | None]:
        return [self._value(row) for row in table.multi_get(keys, epoch=epoch).to_pylist()]

    def scan(self, table: Any, epoch: int | None, **bounds: Any) -> list[tuple[Any, bytes]]:
        rows = [row for batch in table.read(epoch=epoch) for row in batch.to_pylist()]
        found = {(row["n"], row["t"]): self._value(row) for row in rows}
        assert len(found) == len(rows), "a key was read twice"
        # Rows come by virtual node; so only whole tables are compared, in the order of the keys.
        return sorted(found.items())  # type: ignore[arg-type]

    def changes(self, table: Any, after: int, until: int | None) -> list[tuple[int, Any, bytes | None]]:
        rows = changes_of(table, after, until)
        return sorted((row["epoch"], (row["n"], row["t"]), row["v"]) for row in rows)


class _Model:
    """One table, and what was committed to it last."""

    def __init__(self, kind: _Raw) -> None:
        self.kind = kind
        self.history: TableHistory[Any, bytes] = TableHistory(_KEPT)


class _Client:
    """One open store, and what it has written and not committed: at one epoch, by table."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.epoch = 0
        self.own: dict[str, dict[Any, bytes | None]] = {}
        self.pins: list[tuple[Any, dict[str, Rows]]] = []

    def forget(self) -> None:
        self.epoch, self.own = 0, {}


class History:
    """One store, from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.url = f"memory://differential-{seed}-{next(_NUMBERS)}"
        self.retention = chance.choice([0, 3600])
        self.models: dict[str, _Model] = {}
        self.batches: dict[int, int] = {}
        self.done = 0
        """Compared writes, commits and reads until now."""
        self.trace: deque[str] = deque(maxlen=12)
        self.clients = [self._open_client(), self._open_client()]
        for name, kind in (("raw", _Raw(chance)), ("typed", _Typed(chance))):
            self._create(name, kind)

    def run(self, operations: int) -> None:
        """Do that number of operations; an `AssertionError` names seed and operation of a wrong answer."""
        weighted = [
            (self._get, 40),
            (self._multi_get, 12),
            (self._scan, 10),
            (self._write, 16),
            (self._write_row_by_row, 1),
            (self._commit, 12),
            (self._commit_again, 1),
            (self._changes, 2),
            (self._pin, 1),
            (self._read_pinned, 4),
            (self._abort, 1),
        ]
        rare = [self._compact, self._vacuum, self._reopen, self._drop_and_create]
        names, weights = zip(*weighted, strict=True)
        try:
            while self.done < operations:
                operation = self.chance.choices(names, weights)[0]
                if self.chance.random() < 0.004:
                    operation = self.chance.choice(rare)
                self.trace.append(operation.__name__)
                operation(self.chance.choice(self.clients))
                self.done += 1
            for client in self.clients:
                for name in self.models:
                    self._check_all(client, name)
        except Exception as error:
            raise AssertionError(
                f"seed {self.seed}, operation {self.done}, after {list(self.trace)}: {error!r}"
            ) from error
        finally:
            for client in self.clients:
                client.store.close()

    # --- What clients do -------------------------------------------------------------------------------------------

    def _open_client(self) -> _Client:
        chance = self.chance
        return _Client(
            connect(
                self.url,
                retention=self.retention,
                gc_grace=0,
                cache_bytes=chance.choice([0, 5000, 200_000, 64 << 20]),
                buffer_bytes=chance.choice([0, 2000, 100_000, 64 << 20]),
                compaction=chance.random() < 0.7,
            )
        )

    def _create(self, name: str, kind: _Raw) -> None:
        options = {"block_bytes": self.chance.choice([256, 4096, 64 << 10])}
        options |= {"compression": self.chance.choice(["none", "lz4", "zstd"]), **kind.options}
        self.clients[0].store.create_table(name, **options)
        self.models[name] = _Model(kind)

    def _write(self, client: _Client) -> None:
        name, model = self._table()
        many = self.chance.choice([1, 3, 20, len(model.kind.keys)])
        self._put(client, name, self.chance.sample(model.kind.keys, min(many, len(model.kind.keys))))

    def _write_row_by_row(self, client: _Client) -> None:
        name, model = self._table()
        for _ in range(self.chance.choice([5, 60])):
            self._put(client, name, [self.chance.choice(model.kind.keys)])
            self.done += 1

    def _put(self, client: _Client, name: str, keys: list[Any]) -> None:
        client.epoch = client.epoch or client.store.new_epoch()
        batch = {key: self._value() for key in keys}
        client.store.committed_epoch  # noqa: B018 - reads the log, so that the table is the newest of that name
        self.models[name].kind.write(client.store.table(name), batch, client.epoch)
        client.own.setdefault(name, {}).update(batch)

    def _value(self) -> bytes | None:
        chance = self.chance
        size = chance.choice([0, 1, 9, 9, 100, 100, 100, 5000])
        return None if chance.random() < 0.25 else chance.randbytes(size) if chance.random() < 0.5 else b"v" * size

    def _commit(self, client: _Client) -> None:
        if not client.epoch:
            return
        named = {"writer": "w", "batch_id": len(self.batches)} if self.chance.random() < 0.5 else {}
        committed = client.store.commit_epoch(client.epoch, **named)  # type: ignore[arg-type]
        if named:
            self.batches[len(self.batches)] = committed
        for name, batch in client.own.items():
            self.models[name].history.commit(committed, batch)
        client.forget()

    def _commit_again(self, client: _Client) -> None:
        client.store.committed_epoch  # noqa: B018 - reads the log
        for batch_id in list(self.batches)[-3:]:
            assert client.store.committed_batch("w", batch_id) == self.batches[batch_id]

    def _abort(self, client: _Client) -> None:
        if client.epoch:
            client.store.abort_epoch(client.epoch)
        client.forget()

    # --- Reads -----------------------------------------------------------------------------------------------------

    def _table(self) -> tuple[str, _Model]:
        name = self.chance.choice(list(self.models))
        return name, self.models[name]

    def _view(self, client: _Client) -> tuple[Any, _Model, int | None, Rows]:
        """A table, the epoch to read it at, and what is there: the newest with own rows, or an old commit."""
        name, model = self._table()
        client.store.committed_epoch  # noqa: B018 - reads the log
        table = client.store.table(name)
        if self.retention and model.history.epochs and self.chance.random() < 0.4:
            epoch = self.chance.choice(model.history.epochs)
            return table, model, epoch, model.history.at(epoch)
        return table, model, None, apply_batch(model.history.newest, client.own.get(name, {}))

    def _get(self, client: _Client) -> None:
        table, model, epoch, rows = self._view(client)
        for key in self.chance.choices(model.kind.keys, k=4):
            _same(model.kind.get(table, key, epoch), rows.get(key), key, epoch)
        self.done += 3

    def _multi_get(self, client: _Client) -> None:
        table, model, epoch, rows = self._view(client)
        keys = self.chance.choices(model.kind.keys, k=self.chance.choice([1, 5, 40, 300]))
        _same(model.kind.multi_get(table, keys, epoch), [rows.get(key) for key in keys], "many", epoch)

    def _scan(self, client: _Client) -> None:
        table, model, epoch, rows = self._view(client)
        bounds, expected = self._bounds(model, rows)
        _same(model.kind.scan(table, epoch, **bounds), expected, bounds, epoch)

    def _bounds(self, model: _Model, rows: Rows) -> tuple[dict[str, Any], list[tuple[Any, bytes]]]:
        chance, keys = self.chance, sorted(rows)
        if isinstance(model.kind, _Typed) or chance.random() < 0.2:
            return {}, [(key, rows[key]) for key in keys]
        bounds: dict[str, Any] = {"reverse": chance.random() < 0.4, "limit": chance.choice([None, None, 1, 7, 100])}
        if chance.random() < 0.3:
            bounds["prefix"] = chance.choice(model.kind.keys)[: chance.randint(0, 5)]
            keys = [key for key in keys if key.startswith(bounds["prefix"])]
        else:
            start, end = chance.choice([b"", *model.kind.keys]), chance.choice([None, *model.kind.keys])
            bounds |= {"start": start, "end": end}
            keys = keys[bisect_left(keys, start) : None if end is None else bisect_left(keys, end)]
        if bounds["reverse"]:
            keys.reverse()
        return bounds, [(key, rows[key]) for key in keys[: bounds["limit"]]]

    def _changes(self, client: _Client) -> None:
        name, model = self._table()
        epochs = model.history.epochs
        if not self.retention or len(epochs) < 2:
            return
        client.store.committed_epoch  # noqa: B018 - reads the log
        first = self.chance.randrange(len(epochs) - 1)
        after, until = epochs[first], epochs[self.chance.randrange(first, len(epochs))]
        expected = model.history.changes(after, until)
        _same(model.kind.changes(client.store.table(name), after, until), expected, (after, until), None)

    def _pin(self, client: _Client) -> None:
        snapshot = client.store.pin_snapshot()
        client.pins.append((snapshot, {name: model.history.newest for name, model in self.models.items()}))
        if len(client.pins) > 2:
            client.pins.pop(0)[0].close()

    def _read_pinned(self, client: _Client) -> None:
        for snapshot, tables in client.pins[-1:]:
            name = self.chance.choice(list(tables))
            kind = self.models[name].kind
            bounds, expected = self._bounds(self.models[name], tables[name])
            _same(kind.scan(snapshot.table(name), None, **bounds), expected, bounds, snapshot.epoch)
            key = self.chance.choice(kind.keys)
            _same(kind.get(snapshot.table(name), key, None), tables[name].get(key), key, snapshot.epoch)

    def _check_all(self, client: _Client, name: str) -> None:
        client.store.committed_epoch  # noqa: B018 - reads the log
        model = self.models[name]
        rows = apply_batch(model.history.newest, client.own.get(name, {}))
        _same(model.kind.scan(client.store.table(name), None), sorted(rows.items()), name, None)

    # --- What is rare ------------------------------------------------------------------------------------------------

    def _compact(self, client: _Client) -> None:
        client.store.compact(self._table()[0])

    def _vacuum(self, client: _Client) -> None:
        # Without a grace period what the other one has spilled would be garbage.
        for other in self.clients:
            self._abort(other)
        client.store.vacuum()

    def _reopen(self, client: _Client) -> None:
        self.clients.remove(client)
        client.store.close()
        self.clients.append(self._open_client())

    def _drop_and_create(self, client: _Client) -> None:
        for one in self.clients:
            self._abort(one)
            for snapshot, _ in one.pins:
                snapshot.close()
            one.pins = []
        name, model = self._table()
        self.clients[0].store.drop_table(name)
        self._create(name, model.kind)


def _same(found: object, expected: object, what: object, epoch: int | None) -> None:
    if found != expected:
        raise AssertionError(f"{what} at {epoch}: found {found!r:.300}, expected {expected!r:.300}")


def run_history(seed: int, operations: int = OPERATIONS) -> int:
    """Run the history of that seed; returns the number of operations that it had."""
    History(seed).run(operations)
    return operations


def _seeds(first: int, operations: int) -> Iterator[int]:
    return iter(range(first, first + -(-operations // OPERATIONS)))


def main(arguments: list[str], run: Callable[[int], int] = run_history) -> int:
    """Run the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="support.models.differential", description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one only")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        print(f"{run(given.seed)} operations of seed {given.seed}: all answers right")
        return 0
    began, done, failed = time.monotonic(), 0, 0
    seeds = _seeds(given.first, given.operations)
    # New processes now and then, which hold no more than they need. The pool's own `max_tasks_per_child` may wait for
    # ever for a worker that has ended (CPython issue 115634).
    while some := list(itertools.islice(seeds, SEEDS_A_POOL)):
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            for future in [pool.submit(run, seed) for seed in some]:
                try:
                    done += future.result()
                except AssertionError as error:
                    failed += 1
                    print(error, file=sys.stderr)
    print(f"{done} operations in {time.monotonic() - began:.0f} s; {failed} histories failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
