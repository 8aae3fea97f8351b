"""Programs and rows that nobody should write: each is refused or rolled back by name, and the application goes on."""

import asyncio
import dataclasses
import datetime as dt
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from support.procedures.deaths import die_after, open_quick
from tussock.compute import procedures as ps
from tussock.statestore import InvalidBatch, InvalidOption, SchemaMismatch, StateStore, StoreClosed, TableNotFound
from tussock.statestore.contract.object_store import ObjectStore

KV = pa.schema([("k", pa.string()), ("v", pa.int64())])
HALF = "caf\udce9"
"""Text with half of a surrogate pair, which UTF-8 does not have: Python makes it of bytes that are no text."""


@pytest.fixture
def store(bucket: ObjectStore) -> Iterator[StateStore]:
    with open_quick(bucket) as opened:
        yield opened


def app_of(store: StateStore, fn: Callable[..., Any], **options: Any) -> ps.App:
    """An application with a table `t`, whose border `p` is `fn`."""
    app = ps.App(store, "a", **options)
    app.table("t", KV, primary_key=["k"])
    app.procedure("p", border=True)(fn)
    return app


def count(tx: Any, batch: pa.Table) -> None:
    """Replies how many rows there were in all."""
    row = tx.table("t").get("n") or {"k": "n", "v": 0}
    tx.table("t").upsert([{"k": "n", "v": row["v"] + batch.num_rows}])
    tx.reply(row["v"] + batch.num_rows)


@pytest.mark.parametrize("recovery", ["weak", "strong"])
def test_no_batch_follows_the_largest_id(bucket: ObjectStore, recovery: str) -> None:
    """The next one was acknowledged under an id that no commit could hold, and no start succeeded any more."""

    def declare(store: StateStore) -> ps.App:
        return app_of(store, count, recovery=recovery, checkpoint=3600)

    def work(app: ps.App) -> None:
        assert app.submit("p", [{"x": 1}], batch_id=(1 << 63) - 1).result(10) == 1
        records = app.stats()["records"]
        with pytest.raises(InvalidBatch, match="no id is left"):
            app.submit("p", [{"x": 1}]).result(10)
        assert app.stats()["records"] == records

    die_after(bucket, declare, work)
    with open_quick(bucket) as store:
        with declare(store) as app:
            assert app.submit("p", [], batch_id=(1 << 63) - 1).result(10) == 1
        assert store.table("t").get("n") == {"k": "n", "v": 1}


@pytest.mark.parametrize("many", [0, 100])
def test_columns_are_named_by_text(bucket: ObjectStore, many: int) -> None:
    """A number as a key in a later row was acknowledged, and the log could not be read again."""

    def declare(store: StateStore) -> ps.App:
        app = app_of(store, count, checkpoint=3600)
        app.procedure("typed", border=True, schema=pa.schema([("k", pa.string())]))(count)
        return app

    def work(app: ps.App) -> None:
        for procedure in ("p", "typed"):
            for rows in ([{"k": "a"}, {"k": "b", 5: 3}], [{5: 3}], [{"k": "a"}, {"k": "b", HALF: 1}], [{"k": HALF}]):
                with pytest.raises(SchemaMismatch):
                    app.submit(procedure, [{"k": "x"}] * many + rows)
        assert app.submit("p", [{"k": "a"}]).result(10) == 1

    die_after(bucket, declare, work)
    with open_quick(bucket) as store, declare(store) as app:
        assert app.submit("p", [{"k": "a"}]).result(10) == 2


def test_a_batch_has_the_columns_of_all_rows(store: StateStore) -> None:
    """Those of later rows only were dropped, and rows that begin with an empty one were none."""
    app = app_of(store, lambda tx, batch: tx.reply(batch))
    with app:
        assert app.submit("p", [{}, {"a": 1}]).result(10).to_pylist() == [{"a": None}, {"a": 1}]
        assert app.submit("p", [{"b": 2}, {"a": "x"}]).result(10).to_pylist() == [
            {"b": 2, "a": None},
            {"b": None, "a": "x"},
        ]
        assert app.submit("p", []).result(10).num_rows == 0
        with pytest.raises(SchemaMismatch, match="2 rows without any column"):
            app.submit("p", [{}, {}])


def outside(answer: Any, **options: Any) -> Callable[[StateStore], ps.App]:
    """An application that puts down what the other system answered, and then changes its copy."""

    def ask(tx: Any, batch: pa.Table) -> None:
        found = tx.call_external(lambda key: answer, "key")
        tx.table("t").upsert([{"k": repr(found), "v": 1}])
        tx.reply(repr(found))
        if isinstance(found, dict):
            found.clear()
        elif isinstance(found, list):
            found.append(1)

    return lambda store: app_of(store, ask, checkpoint=3600, **options)


NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize("recovery", ["weak", "strong"])
@pytest.mark.parametrize(
    "answer", [{"price": 7, "q": [1, {2.5: b"x"}]}, (1, 2), [None, True, 1 << 63], {(1, 2): NOON}], ids=str
)
def test_an_answer_is_recorded_as_it_came(bucket: ObjectStore, answer: Any, recovery: str) -> None:
    """The log had the object that the procedure went on to change, and the replay another answer than the run."""
    declare = outside(answer, recovery=recovery)
    replies: list[str] = []
    die_after(bucket, declare, lambda app: replies.append(app.submit("p", [{"x": 1}]).result(10)))
    with open_quick(bucket) as store:
        with declare(store):
            pass
        assert [row["k"] for rows in store.table("t").read() for row in rows.to_pylist()] == replies


@dataclasses.dataclass(frozen=True)
class Point:
    """Python's own, which MessagePack has as a map."""

    x: int


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "answer",
    [
        Decimal("2.5"),
        UUID(int=7),
        {1, 2},
        {"at": NOON.replace(tzinfo=None)},
        [NOON.date()],
        Point(1),
        {Point(1): 2},
        {frozenset([1]): 2},
        nested(101),
        nested(5000),
        HALF,
        1 << 64,
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_that_would_come_back_as_another_is_refused(bucket: ObjectStore, answer: Any) -> None:
    """A decimal came back as text, so that the replay of the procedure failed; nothing of the batch is kept."""
    declare = outside(answer)

    def work(app: ps.App) -> None:
        with pytest.raises(ps.ProcedureError, match="the answer of the outside call 'key'"):
            app.submit("p", [{"x": 1}]).result(10)

    die_after(bucket, declare, work)
    with open_quick(bucket) as store, declare(store) as app:
        with pytest.raises(ps.ProcedureError, match="the answer of the outside call 'key'"):
            app.submit("p", [{"x": 1}], batch_id=1).result(10)
        assert app.submit("p", [], batch_id=1).exception(10) is not None


@pytest.mark.parametrize("key", [HALF, "", 5, None])
def test_a_key_that_no_log_can_hold_is_refused_before_the_intent(bucket: ObjectStore, key: Any) -> None:
    """The intent was durable, and each start asked again and died of the key."""
    asked: list[str] = []

    def declare(store: StateStore) -> ps.App:
        return app_of(store, lambda tx, _: tx.call_external(asked.append, key), checkpoint=3600)

    def work(app: ps.App) -> None:
        with pytest.raises(ps.ProcedureError, match="InvalidOption: the key of an outside call"):
            app.submit("p", [{"x": 1}]).result(10)
        assert app.stats()["records"] == 1

    die_after(bucket, declare, work)
    with open_quick(bucket) as store, declare(store) as app:
        assert app.trace() == []
    assert asked == []


@pytest.mark.parametrize(
    "use",
    [
        lambda tx: tx.random(),
        lambda tx: str(tx.now()),
        lambda tx: str(tx.uuid()),
        lambda tx: tx.table("t").upsert([{"k": "a", "v": 1}]),
        lambda tx: tx.table("t").get("a"),
        lambda tx: tx.reply(1),
        lambda tx: tx.call_external(str.upper, "inner"),
    ],
)
def test_what_is_called_outside_cannot_use_the_transaction(bucket: ObjectStore, use: Any) -> None:
    """A replay does not call it, so what it drew and wrote was missing there."""

    def ask(tx: Any, _: Any) -> None:
        tx.call_external(lambda key: use(tx), "key")

    def work(app: ps.App) -> None:
        with pytest.raises(ps.ProcedureError, match="InvalidOption: procedure 'p': what call_external calls"):
            app.submit("p", [{"x": 1}]).result(10)

    die_after(bucket, lambda store: app_of(store, ask, checkpoint=3600), work)
    with open_quick(bucket) as store, app_of(store, ask, checkpoint=3600):
        assert store.table("t").get("a") is None


def test_a_procedure_cannot_go_on_from_a_call_that_raised(bucket: ObjectStore) -> None:
    """Nothing of the call was recorded, so the replay found that it asked for more than the first run."""

    def ask(tx: Any, *_: Any) -> str:
        try:
            return str(tx.call_external(lambda key: 1 / 0, "key"))
        except ZeroDivisionError:
            tx.table("t").upsert([{"k": "fallback", "v": 1}])
            return "fallback"

    def declare(store: StateStore) -> ps.App:
        app = app_of(store, lambda tx, batch: tx.reply(ask(tx)), checkpoint=3600)
        app.call_procedure("c")(ask)
        return app

    def work(app: ps.App) -> None:
        for ticket in (app.submit("p", [{"x": 1}]), app.call_async("c")):
            with pytest.raises(ps.ProcedureError, match="gave no answer, and procedure"):
                ticket.result(10)

    die_after(bucket, declare, work)
    with open_quick(bucket) as store:
        with declare(store):
            pass
        assert store.table("t").get("fallback") is None


def test_a_name_that_something_else_commits_under_is_told_at_the_start(store: StateStore) -> None:
    """Each start acknowledged one more batch, and was fenced at its commit as if another runner were there."""
    with app_of(store, count) as app:
        assert app.submit("p", [{"x": 1}]).result(10) == 1
    with store.transaction(writer="a", batch_id=10**9) as tx:
        tx.table("t").upsert([{"k": "z", "v": 1}])
    for _ in range(2):
        with pytest.raises(
            InvalidOption, match="writer of that name which are not the application's, which has record 1"
        ):
            app_of(store, count).start()


def test_a_name_that_was_a_writer_is_told_at_the_first_start(store: StateStore) -> None:
    """A job that writes under the name of a new application."""
    store.create_table("t", KV, primary_key=["k"])
    epoch = store.new_epoch()
    store.table("t").upsert([{"k": "z", "v": 1}], epoch)
    store.commit_epoch(epoch, writer="a", batch_id=0)
    with pytest.raises(InvalidOption, match="which has no row in table '_applications'"):
        app_of(store, count).start()


def test_an_application_whose_row_is_gone_does_not_begin_anew(store: StateStore) -> None:
    """Batches that it was given would have been taken again."""
    with app_of(store, count) as app:
        assert app.submit("p", [{"x": 1}]).result(10) == 1
    store.drop_table("_applications")
    with pytest.raises(InvalidOption, match="that table was dropped"):
        app_of(store, count).start()


class Silent(Exception):
    """Has no text."""

    def __str__(self) -> str:
        return str(1 / 0)


class Endless(Exception):
    """Its text never comes."""

    def __str__(self) -> str:
        while True:
            pass


class Uncaught(BaseException):
    """Not an `Exception`, as what ends a thread, a task of asyncio, or a panic of a library."""


RAISED: dict[str, tuple[BaseException, str]] = {
    "base": (Uncaught("x"), "Uncaught: x"),
    "cancelled": (asyncio.CancelledError(), "CancelledError: "),
    "interrupt": (KeyboardInterrupt(), "KeyboardInterrupt: "),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "generator": (GeneratorExit(), "GeneratorExit: "),
    "half": (ValueError(HALF), r"ValueError: caf\udce9"),
    "no-text": (Silent(), "Silent"),
    "endless-text": (Endless(), "Endless"),
    "of-the-engine": (ps.NotDeterministic("mine"), "NotDeterministic: mine"),
}


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "by-key"])
@pytest.mark.parametrize("case", RAISED)
def test_whatever_a_procedure_raises_is_its_batch_s_result(store: StateStore, case: str, partitioned: bool) -> None:
    """Some ended the thread that runs all, and everybody waited for ever; some ended the application at each start."""
    raised, cause = RAISED[case]
    app = ps.App(store, "a", checkpoint=0, timeout=0.5, partition_by="k" if partitioned else None)
    app.table("t", KV, primary_key=["k"])

    @app.procedure("p", border=True, schema=pa.schema([("k", pa.string())]))
    def run(tx: Any, batch: pa.Table) -> None:
        tx.table("t").upsert([{"k": batch["k"][0].as_py(), "v": 1}])
        if batch["k"][0].as_py() == "bad":
            raise raised

    @app.call_procedure("c")
    def call(tx: Any) -> None:
        raise raised

    with app:
        good = app.submit("p", [{"k": "good"}])
        for ticket in (app.submit("p", [{"k": "bad"}]), app.call_async("c")):
            with pytest.raises(ps.ProcedureError) as caught:
                ticket.result(10)
            assert caught.value.cause == cause
            assert caught.value.__cause__ is raised
        assert good.result(10) is None
    with app:
        with pytest.raises(ps.ProcedureError) as caught:
            app.submit("p", [{"k": "bad"}], batch_id=2).result(10)
        assert caught.value.cause == cause
    assert store.table("t").get("bad") is None
    assert store.table("t").get("good") is not None


def test_an_error_behind_ten_thousand_keys_is_its_batch_s_result(store: StateStore) -> None:
    """The list of the newest executions is no longer than that, and was asked for more."""
    app = ps.App(store, "a", checkpoint=3600, partition_by="k")
    app.table("t", pa.schema([("k", pa.int64())]), primary_key=["k"])

    @app.procedure("p", border=True, schema=pa.schema([("k", pa.int64())]))
    def run(tx: Any, batch: pa.Table) -> None:
        if batch["k"][0].as_py() == 10_050:
            raise ValueError("bad")

    with app:
        with pytest.raises(ps.ProcedureError, match="ValueError: bad"):
            app.submit("p", pa.table({"k": range(10_100)})).result(60)
        assert app.trace() == []
        app.submit("p", [{"k": 1}]).result(10)
        assert app.trace() == [("p", 2)]


@pytest.mark.parametrize("reply", [{Point(1): 2}, nested(5000)], ids=["key", "nested"])
def test_a_reply_that_cannot_be_read_again_is_refused(store: StateStore, reply: Any) -> None:
    """It was written, and reading it for the caller ended the application."""
    app = app_of(store, lambda tx, _: tx.reply(reply))
    app.call_procedure("c")(lambda tx: reply)
    with app:
        for ticket in (app.submit("p", []), app.call_async("c")):
            with pytest.raises(ps.ProcedureError):
                ticket.result(10)
        assert app.submit("p", [], batch_id=1).exception(10) is not None


@pytest.mark.parametrize("checkpoint", [0, 60])
def test_a_callback_cannot_end_a_thread_of_the_application(store: StateStore, checkpoint: float) -> None:
    """A callback of a future that ended its thread took the thread of the log with it."""
    ended: list[Any] = []

    def leave(ticket: Any) -> None:
        ended.append(ticket)
        sys.exit(3)

    with app_of(store, count, checkpoint=checkpoint) as app:
        for number in (1, 2, 3):
            app.submit("p", [{"x": 1}]).add_done_callback(leave)
            assert app.submit("p", []).result(10) == number
        assert app.submit("p", [], batch_id=6).result(10) == 3
    assert len(ended) == 3


class _Interrupted:
    """A bucket in which something ends the thread that writes."""

    def __init__(self, bucket: ObjectStore, folder: str) -> None:
        self._bucket = bucket
        self._folder = folder
        self.is_on = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def create(self, path: str, data: bytes) -> bool:
        if self.is_on and path.startswith(self._folder):
            raise KeyboardInterrupt
        return self._bucket.create(path, data)


@pytest.mark.parametrize("folder", ["applications/", "log/"])
@pytest.mark.parametrize("checkpoint", [0, 0.1, 3600])
def test_callers_hear_of_whatever_ends_a_thread(bucket: ObjectStore, folder: str, checkpoint: float) -> None:
    """Of the log, and of a commit: callers waited for ever."""
    interrupted = _Interrupted(bucket, folder)
    with open_quick(interrupted) as store:
        app = app_of(store, count, checkpoint=checkpoint)
        app.start()
        interrupted.is_on = True
        ticket = app.submit("p", [{"x": 1}])
        if folder == "applications/" or checkpoint == 0:
            assert isinstance(ticket.exception(10), ps.ApplicationStopped)
        else:
            assert ticket.result(10) == 1
        with pytest.raises(ps.ApplicationStopped, match="ended by KeyboardInterrupt"):
            app.stop()
        interrupted.is_on = False


LONG = "x" * (1 << 20)


def dictionary(count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, None] * count, pa.int16()), pa.array([LONG]))


def views(count: int) -> pa.Array:
    """Views of one text."""
    whole = pa.array([LONG], pa.string_view())
    view = whole.buffers()[1].to_pybytes()[:16]
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(view * count), *whole.buffers()[2:]])


def lists(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 2 * count], pa.int32()), dictionary(count))


PACKED: dict[str, tuple[Callable[[int], pa.Array], pa.DataType]] = {
    "dictionary": (dictionary, pa.string()),
    "views": (views, pa.string()),
    "other-dictionary": (dictionary, pa.dictionary(pa.int32(), pa.large_string())),
    "in-lists": (lists, pa.list_(pa.string())),
    "in-structs": (
        lambda count: pa.StructArray.from_arrays([dictionary(count)], ["f"]),
        pa.struct([("f", pa.string())]),
    ),
    "of-lists": (
        lambda count: pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int16()), pa.array([[LONG]])),
        pa.list_(pa.string()),
    ),
}


@pytest.mark.parametrize("case", PACKED)
def test_a_small_batch_cannot_stand_for_gigabytes(store: StateStore, case: str) -> None:
    """A message of 8 MB with a dictionary took 5 GB; what is not far larger than it seems runs."""
    packed, kind = PACKED[case]
    app = ps.App(store, "a", checkpoint=3600)
    app.procedure("p", border=True, schema=pa.schema([("s", kind)]))(lambda tx, batch: tx.reply(batch.num_rows))
    with app:
        with pytest.raises(InvalidBatch, match="stand for"):
            app.submit("p", pa.table({"s": packed(257)}))
        small = pa.table({"s": packed(3)})
        assert app.submit("p", small).result(10) == small.num_rows


@pytest.mark.parametrize("partition_by", [None, "k"])
def test_what_a_procedure_keeps_is_of_no_use_after_its_end(store: StateStore, partition_by: str | None) -> None:
    """A table that was kept wrote what no record had: others read it, and the next start did not find it."""
    app = ps.App(store, "a", partition_by=partition_by)
    app.table("t", KV, primary_key=["k"])
    out = app.stream("out", pa.schema([("k", pa.string())]))
    kept: list[Any] = []

    def keep(tx: Any, *_: Any) -> None:
        kept.append(tx)

    app.procedure("p", border=True, emits=out, schema=out.schema)(
        lambda tx, batch: kept.extend((tx, tx.table("t"), tx.table("t").upsert))
    )
    app.call_procedure("c")(keep)
    with app:
        app.submit("p", [{"k": "a"}]).result(10)
        app.call("c", timeout=10)
        tx, table, upsert, called = kept
        for late in (
            lambda: tx.table("t"),
            lambda: tx.emit(out, [{"k": "a"}]),
            lambda: tx.reply(1),
            lambda: tx.now(),
            lambda: tx.random(),
            lambda: tx.uuid(),
            lambda: tx.call_external(lambda key: 1, "key"),
            lambda: table.upsert([{"k": "a", "v": 1}]),
            lambda: table.ingest_batch(pa.record_batch({"k": ["a"], "v": [1]})),
            lambda: table.delete(["a"]),
            lambda: table.get("a"),
            lambda: table.read(),
            lambda: upsert([{"k": "a", "v": 1}]),
            lambda: called.table("t"),
        ):
            with pytest.raises(StoreClosed, match="has ended, and so has its transaction"):
                late()
        assert app.submit("p", []).result(10) is None
    assert store.table("t").get("a") is None


@pytest.mark.parametrize(
    "argument",
    [HALF, {HALF: 1}, nested(101), nested(5000), {Point(1): 1}, 1 << 64, object()],
    ids=lambda one: type(one).__name__,
)
def test_arguments_that_cannot_be_read_again_are_refused(store: StateStore, argument: Any) -> None:
    """Some ended the application when it read them, some a start from a deeper place of a program."""
    app = app_of(store, count)
    app.call_procedure("c")(lambda tx, *values: len(values))
    with app:
        with pytest.raises(InvalidOption, match="call procedure 'c': its arguments"):
            app.call("c", argument)
        assert app.call("c", 1, nested(99)) == 2
        with pytest.raises(SchemaMismatch, match="cannot be recorded"):
            app.submit("p", [{"x": nested(70)}])
        for name in ([], HALF, 5, None):
            with pytest.raises(InvalidOption, match="no border procedure"):
                app.submit(name, [])
            with pytest.raises(InvalidOption, match="no call procedure"):
                app.call(name)


def test_a_table_that_was_dropped_is_named(store: StateStore) -> None:
    """By the application that wrote to it, and by its next start, which blamed the procedure."""
    app = app_of(store, count, checkpoint=3600)
    app.start()
    assert app.submit("p", [{"x": 1}]).result(10) == 1
    store.drop_table("t")
    with pytest.raises(TableNotFound, match="table 't' was dropped while 'a' had rows for it"):
        app.stop()
    with pytest.raises(TableNotFound, match="application 'a': table 't' was dropped since it was declared"):
        app.start()
