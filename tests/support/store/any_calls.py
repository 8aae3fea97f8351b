"""Any call of the store's public face, with any arguments: most are right, so that a call gets far, and some are not.

What there is to call comes from the classes, and what a call takes from its signature, so a method or an option that is
added is tried without a word here. `GOOD` makes right values by the names of parameters.
"""

import contextlib
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from support.store.nasty_values import Planted, any_array, any_batch, any_schema, any_type, any_value
from tussock.statestore import RawTable, SnapshotExpired, StateStore, Transaction, TussockError, connect
from tussock.statestore.base.limits import Limits

__all__ = ["WRITES", "AnyCall", "Face", "argument_for", "outcome"]

WIDE = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("v", pa.float64()),
        ("l", pa.list_(pa.int8())),
        ("d", pa.decimal128(9, 2)),
        ("ts", pa.timestamp("us", "UTC")),
        ("c", pa.dictionary(pa.int32(), pa.string())),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("b", pa.bool_()),
        ("f", pa.binary(3)),
        ("t", pa.time64("ns")),
        ("n", pa.date32()),
    ]
)
KEYS = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("ts", pa.timestamp("ns")),
        ("d", pa.decimal128(20, 3)),
        ("f", pa.float32()),
        ("n", pa.date32()),
        ("b", pa.bool_()),
        ("y", pa.binary()),
        ("v", pa.int8()),
    ]
)
RAW = pa.schema([("key", pa.binary()), ("value", pa.binary())])
WRITES = ("upsert", "ingest_batch", "delete")
NOT_CALLED = ("close", "give_up", "join_checkpoint")
"""The first two end something, and `join_checkpoint` needs a platform: `test_wrong_arguments.py` has it."""


class AnyCall(NamedTuple):
    """A call that was drawn."""

    name: str
    run: Callable[..., Any]
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={_shown(value)}' for name, value in self.arguments.items())})"


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.200}"
    except Exception:
        return f"<{type(value)}>"


class Face:
    """A store with all that can be called of it, and dice."""

    def __init__(self, seed: int, url: str = "memory://") -> None:
        """`url`: of an empty store, in a bucket or of a meta service."""
        self.chance = random.Random(seed)
        small = Limits(one_object_bytes=1000, batch_bytes=4000, merge_bytes=4000, overlay_rows=3, compactor_seconds=1)
        self.store = connect(url, compaction=False, limits=self.chance.choice([Limits(compactor_seconds=1), small]))
        raw = self.store.create_table("raw")
        wide = self.store.create_table("t", WIDE, ["k", "s"], vnodes=4)
        keys = self.store.create_table("u", KEYS, KEYS.names[:-1], vnodes=2)
        self.tables = {"raw": raw, "t": wide, "u": keys}
        epoch = self.store.new_epoch()
        raw.ingest_batch([(b"a", b"1")], epoch)
        wide.upsert([{"k": 1, "s": "a"}], epoch)
        self.committed = self.store.commit_epoch(epoch)
        self.open_epoch = self.store.new_epoch()
        self.snapshot = self.store.pin_snapshot()
        self.transaction: Transaction = self.store.transaction()
        self.delta = self.store.delta("w")
        version = self.store.version()
        self.objects: list[Any] = [self.store] * 3 + [raw, wide, keys] * 3 + [self.snapshot, self.transaction]
        for owner in (self.snapshot, self.transaction, self.delta):
            self.objects += [owner.table(name) for name in ("raw", "t")]
        self.objects += [self.transaction.table("u"), self.delta, version]

    def close(self) -> None:
        """End it; the transaction is given up."""
        self.transaction.give_up()
        self.snapshot.close()
        self.store.close()

    def draw(self) -> AnyCall:
        """Some call of some object."""
        while True:
            owner = self.chance.choice(self.objects)
            kind = type(owner)
            names = ["find_table"] if kind.__name__ == "Version" else [one for one in dir(kind) if one[0] != "_"]
            name = self.chance.choice(names)
            method = inspect.getattr_static(kind, name)
            if not inspect.isfunction(method) or name in NOT_CALLED:
                continue
            arguments = {}
            wrong = self.chance.choice([0, 0.1, 0.4])
            for parameter in list(inspect.signature(method).parameters.values())[1:]:
                is_left_out = parameter.default is not parameter.empty and self.chance.random() < 0.6
                if is_left_out and (name, parameter.name) != ("wait_epoch", "timeout"):
                    continue
                arguments[parameter.name] = self._argument(owner, name, parameter.name, wrong)
            if name == "drop_table" and _is_one_of(arguments["name"], self.tables):
                continue
            return AnyCall(f"{kind.__name__}.{name}", getattr(owner, name), arguments)

    def _argument(self, owner: Any, method: str, name: str, wrong: float) -> Any:
        if method == "wait_epoch" and name == "timeout":
            # Long ones would be waited for, and the default is ten seconds.
            return self.chance.choice([0, 0.0, None, True, -1, "0", float("nan")])
        good = None if self.chance.random() < wrong else self._good(owner, method, name)
        if good is not None:
            # A store that is closed makes nothing.
            with contextlib.suppress(TussockError):
                return good()
        return argument_for(name, self.chance)

    def _good(self, owner: Any, method: str, name: str) -> Callable[[], Any] | None:
        chance = self.chance
        if name == "epoch" and method in WRITES:
            return lambda: self.open_epoch
        if name == "epoch" and method.endswith("_epoch"):
            return self._ended_epoch
        if name == "columns" and method != "alter_table":
            names = getattr(owner, "schema", RAW).names
            return lambda: chance.sample(names, chance.randrange(1, len(names) + 1))
        makers: dict[str, Callable[[], Any]] = {
            "epoch": lambda: self.committed,
            "rows": lambda: self._uploaded(owner) if method == "upload" else self.rows(owner),
            "keys": lambda: self.keys(owner),
            "key": lambda: self.key(owner),
            "name": lambda: chance.choice([*self.tables, f"new {chance.randrange(9)}"]),
            "from_epoch": lambda: chance.choice([0, self.committed]),
            "to_epoch": lambda: self.committed,
            "table": lambda: chance.choice(list(self.tables)),
            "fn": lambda: lambda _: None,
            "attempts": lambda: 1,
            "isolation": lambda: chance.choice(["serializable", "snapshot"]),
            "writer": lambda: "w",
            "batch_id": lambda: chance.randrange(5),
            "uploads": lambda: {name: self._runs(name) for name in chance.sample(list(self.tables), 2)},
            "uploaded": lambda: self._runs(chance.choice(list(self.tables))),
            "runs": lambda: self._runs(chance.choice(list(self.tables))),
            "schema": lambda: self._schema(),
            "primary_key": lambda: ["k"],
            "add": lambda: {chance.choice(["x", "y", "v"]): any_type(chance)},
            "widen": lambda: {chance.choice(["v", "l", "d"]): any_type(chance)},
            "filter": lambda: pc.field(chance.choice(WIDE.names)).is_valid(),
            "prefix": lambda: b"a" if isinstance(owner, RawTable) else self.key(owner)[: chance.randrange(3)],
            "between": lambda: (self.key(owner)[:1], self.key(owner)[: chance.randrange(2)]),
            "vnodes": lambda: chance.choice([(0, 2), (1, 1)]) if hasattr(owner, "read") else 4,
            "limit": lambda: chance.randrange(3),
            "start": lambda: b"a",
            "end": lambda: b"b",
        }
        return makers.get(name)

    def _ended_epoch(self) -> int:
        """The epoch that was written to; later writes go to the next."""
        ended, self.open_epoch = self.open_epoch, self.store.new_epoch()
        return ended

    def _schema(self) -> Any:
        fields = {field.name: field for field in (*WIDE, *any_schema(self.chance))}
        return pa.schema(self.chance.sample(list(fields.values()), 4) + [fields["k"]] * self.chance.randrange(2))

    def rows(self, owner: Any) -> Any:
        """Rows for a table: right ones, those with a column that is not, or right ones as dicts or pairs."""
        chance, schema = self.chance, getattr(owner, "schema", WIDE)
        count = chance.randrange(4)
        fate = chance.random()
        if fate < 0.2:
            return any_batch(chance, schema)
        # A column that is missing is null, and of a few it is likelier that all of them fit.
        few = chance.sample(schema.names, chance.randrange(3)) + list(getattr(owner, "primary_key", schema.names))
        columns = {name: any_array(chance, count, schema.field(name).type) for name in few}
        if fate < 0.6:
            name = chance.choice(schema.names)
            columns[name] = any_array(chance, count)
        try:
            table = pa.table(columns)
            if fate > 0.9:
                return (
                    [tuple(row.values()) for row in table.to_pylist()]
                    if isinstance(owner, RawTable)
                    else table.to_pylist()
                )
            return table if fate > 0.75 or not count else table.combine_chunks().to_batches()[0]
        except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError, UnicodeDecodeError):
            # Not all of these are rows by Arrow's own account, and Python has no class for some.
            return any_batch(chance, schema)

    def _uploaded(self, owner: Any) -> list[Any]:
        return [self.rows(owner) for _ in range(self.chance.randrange(3))]

    def _runs(self, name: str) -> Any:
        try:
            return self.tables[name].upload(self._uploaded(self.tables[name]))
        except TussockError:
            return []

    def keys(self, owner: Any) -> Any:
        """Keys for a table, in any of the shapes."""
        if isinstance(owner, RawTable):
            return self.chance.choice([[b"a", b"x"], pa.array([b"a"]), any_array(self.chance, 2, pa.binary()), []])
        names = getattr(owner, "primary_key", ("k", "s"))
        rows = self.rows(owner)
        try:
            picked = rows.select(names) if isinstance(rows, pa.Table | pa.RecordBatch) else rows
            if self.chance.random() < 0.5:
                return picked
            return [tuple(one[name] for name in names) for one in rows.to_pylist()]
        except Exception:
            return [self.key(owner)]

    def key(self, owner: Any) -> Any:
        """A key of a table, some of whose values may be any."""
        if isinstance(owner, RawTable):
            return b"a"
        schema = getattr(owner, "schema", WIDE)
        values: list[Any] = []
        for name in getattr(owner, "primary_key", ("k", "s")):
            if self.chance.random() < 0.15:
                values.append(any_value(self.chance))
                continue
            scalar = any_array(self.chance, 1, schema.field(name).type)[0]
            try:
                values.append(scalar.as_py() if self.chance.random() < 0.7 else scalar)
            except Exception:
                values.append(scalar)
        return tuple(values)

    def contents(self) -> list[Any]:
        """What the tables hold that were there at the beginning, own rows too."""
        found = []
        for table in self.tables.values():
            batches = table.scan() if isinstance(table, RawTable) else table.read()
            found.append([(batch.num_rows, batch.nbytes) for batch in batches])
        return found

    def check_changes(self) -> None:
        """All that was committed to them, and is kept, can be read, too."""
        for table in self.tables.values():
            since = 0
            try:
                table.changes(since)
            except SnapshotExpired:
                # A call has shortened the table's retention; what it was is told nowhere, and the newest is kept.
                since = self.store.version().max_committed_epoch
            for batches in (table.changes(since), table.change_feed(since)):
                for batch in batches:
                    batch.validate()


def argument_for(name: str, chance: random.Random) -> Any:
    """Any value for a parameter; where a function is called, what it raises is its own matter, so that is known."""
    value = any_value(chance)
    return _fails if name in ("fn", "waited", "on_bytes") and callable(value) else value


def _fails(*_: object) -> None:
    raise Planted


def _is_one_of(value: Any, names: Any) -> bool:
    return isinstance(value, str) and str(value) in names


def outcome(call: AnyCall) -> BaseException | None:
    """Make the call and use up what it returns; the error that it raised."""
    try:
        returned = call.run(**call.arguments)
        if isinstance(returned, Iterator):
            for _ in returned:
                pass
        if isinstance(returned, StateStore):
            returned.close()
    except (TussockError, Planted) as error:
        str(error)
        return error
    return None
