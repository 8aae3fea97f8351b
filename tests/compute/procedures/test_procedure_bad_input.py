"""What is refused, with what is wrong: at the declaration, at the start, at the call, or as the batch's result."""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support.procedures.procedure_story import Story, X, batch
from tussock.compute import procedures as ps
from tussock.compute.applications.limits import ApplicationLimits
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TableNotFound, connect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def app(store: StateStore) -> ps.App:
    declared = ps.App(store, "bad", checkpoint=60)
    declared.stream("s", X)
    return declared


def nothing(*_: Any) -> None:
    """A procedure."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "no spaces"}, "named 'no spaces'"),
        ({"name": 5}, "named 5"),
        ({"recovery": "weekly"}, "recovery='weekly'"),
        ({"group_commit": -1}, "group_commit is -1"),
        ({"group_commit": "soon"}, "group_commit is 'soon'"),
        ({"checkpoint": None}, "checkpoint is None"),
        ({"timeout": 0}, "timeout=0"),
        ({"input": 7}, "input=7"),
    ],
)
def test_options_of_an_application(store: StateStore, options: dict[str, Any], message: str) -> None:
    """Each by its name."""
    with pytest.raises(InvalidOption, match=message):
        ps.App(store, **{"name": "a", **options})


S = "the stream s"

WRONG: dict[str, tuple[Callable[[ps.App, ps.TupleStream], Any], str]] = {
    "slide-above-size": (lambda app, s: app.window("w", on=s, rows=4, slide=5), "slide=5 is more than rows=4"),
    "no-size": (lambda app, s: app.window("w", on=s, slide=1), "give either rows= or batches="),
    "two-sizes": (lambda app, s: app.window("w", on=s, rows=1, batches=1), "give either rows= or batches="),
    "size-of-zero": (lambda app, s: app.window("w", on=s, rows=0), "rows=0"),
    "first": (lambda app, s: app.window("w", on=s, rows=1, first="later"), "first='later'"),
    "window-on-nothing": (lambda app, _: app.window("w", on="t", rows=1), r"on='t'; expected a stream.*\['own', 's'\]"),
    "schema-of-a-stream": (lambda app, _: app.stream("t", ["x"]), "expected a pyarrow.Schema"),
    "stream-twice": (lambda app, _: app.stream("s", X), "has a stream 's' already"),
    "name": (lambda app, _: app.stream("", X), "stream ''"),
    "never-runs": (lambda app, _: app.procedure("p")(nothing), "'p' would never run"),
    "nested": (lambda app, s: app.procedure("p", border=True, consumes=s)(nothing), "graphs do not nest"),
    "consumes-the-unknown": (
        lambda app, _: app.procedure("p", consumes="t")(nothing),
        "consumes='t'; expected a stream",
    ),
    "consumes-another's": (
        lambda app, s: app.procedure("p", consumes=ps.TupleStream(s.name, X))(nothing),
        "expected a stream of this application",
    ),
    "consumes-twice": (lambda app, s: app.procedure("p", consumes=[s, "own"])(nothing), "a stream twice"),
    "writes-to-the-unknown": (
        lambda app, _: app.procedure("p", border=True, writes=["t"])(nothing),
        r"writes=\['t'\]: not tables",
    ),
    "trigger-on-the-unknown": (
        lambda app, _: app.trigger("t")(nothing),
        r"trigger 'nothing': on='t'; expected .*streams \['own', 's'\], windows \[\] and tables \[\]",
    ),
    "table-without-schema": (lambda app, _: app.table("t"), "no table 't'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_declarations(app: ps.App, store: StateStore, case: str) -> None:
    """Each at its place in the program."""
    del store
    declare, message = WRONG[case]
    stream = app.stream("own", X)
    if case in ("slide-above-size", "no-size"):
        assert stream.name == "own"
    with pytest.raises((InvalidOption, TableNotFound), match=message):
        declare(app, stream)


def test_a_stream_has_one_source(app: ps.App) -> None:
    """The second procedure is refused at its declaration."""
    own = app.stream("own", X)
    app.procedure("p", border=True, emits=own)(nothing)
    with pytest.raises(InvalidOption, match="emitted by 'p' already"):
        app.procedure("q", border=True, emits=own)(nothing)


def test_a_circle_is_named(app: ps.App) -> None:
    """With the procedures that are in it."""
    a, b = app.stream("a", X), app.stream("b", X)
    app.procedure("p", consumes=b, emits=a)(nothing)
    app.procedure("q", consumes=a, emits=b)(nothing)
    with pytest.raises(InvalidOption, match="p <- q <- p"):
        app.start()


def test_a_stream_without_a_source(app: ps.App) -> None:
    """Its consumer would never run."""
    app.procedure("q", consumes=app.stream("a", X))(nothing)
    with pytest.raises(InvalidOption, match="no procedure emits"):
        app.start()


def test_a_table_with_another_schema(app: ps.App, store: StateStore) -> None:
    """The table that is there stays as it is."""
    store.create_table("t", X, primary_key=["x"])
    with pytest.raises(InvalidOption, match="another schema: column 'x' is int64 in the store, and string is declared"):
        app.table("t", pa.schema([("x", pa.string())]), primary_key=["x"])
    with pytest.raises(InvalidOption, match="primary_key is 'x'; expected a list"):
        app.table("t", X, primary_key="x")
    assert app.table("t").name == "t"


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ([("k", pa.int64()), ("w", pa.string())], "column 2 is 'v' in the store, and 'w' is declared"),
        ([("k", pa.int32()), ("v", pa.string())], "column 'k' is int64 in the store, and int32 is declared"),
        ([("k", pa.int64()), ("v", pa.binary())], "column 'v' is string in the store, and binary is declared"),
        ([("k", pa.int64()), ("v", pa.string(), False)], "column 'v' may be null in the store, and not in the decl"),
        ([("k", pa.int64()), ("v", pa.string()), ("z", pa.int8(), False)], "column 'z' is declared only"),
        ([("k", pa.int64())], "column 'v' is in the store only"),
    ],
)
def test_a_schema_that_differs_says_where(
    app: ps.App, store: StateStore, columns: list[tuple[Any, ...]], difference: str
) -> None:
    """The first column that differs, with both sides."""
    store.create_table("kv", pa.schema([("k", pa.int64()), ("v", pa.string())]), primary_key=["k"])
    with pytest.raises(InvalidOption, match=difference):
        app.table("kv", pa.schema([pa.field(*column) for column in columns]), primary_key=["k"])
    with pytest.raises(InvalidOption, match=r"with the key \['k'\], and \['v'\] is declared"):
        app.table("kv", primary_key=["v"])


def test_what_clients_ask_wrongly(store: StateStore) -> None:
    """At the call, and nothing runs."""
    story = Story(store)
    app = story.app
    with pytest.raises(ps.ApplicationStopped, match="not running"):
        app.submit("SP1", batch(1))
    with app:
        for wrong, message in (
            (lambda: app.submit("nothere", batch(1)), r"no border procedure 'nothere'.*\['SP1'\]"),
            (lambda: app.submit("SP2", batch(1)), "no border procedure 'SP2'"),
            (lambda: app.submit("SP1", batch(1), batch_id=0), "batch_id 0"),
            (lambda: app.submit("SP1", batch(1), batch_id=True), "batch_id True"),
            (lambda: app.call("nothere"), "no call procedure 'nothere'"),
            (lambda: app.call("times", object()), "cannot be recorded"),
            (lambda: app.window_rows("nothere"), "no window 'nothere'"),
            (lambda: app.trace(0), "last is 0"),
            (lambda: app.stream("late", X), "is running"),
        ):
            with pytest.raises(InvalidOption, match=message):
                wrong()
        with pytest.raises(SchemaMismatch, match="int is not rows"):
            app.submit("SP1", 5)
        with pytest.raises(SchemaMismatch, match="expected a list of dicts"):
            app.submit("SP1", [1, 2])
        assert story.runs == []
    app.stop()


def test_rows_come_in_any_form(store: StateStore) -> None:
    """Arrow, a frame, dicts."""
    story = Story(store)
    with story.app as app:
        assert app.submit("SP1", pa.table({"x": [1]})).result(10) == 4
        assert app.submit("SP1", pa.record_batch({"x": [1]})).result(10) == 8
        assert app.submit("SP1", pl.DataFrame({"x": [1]})).result(10) == 12
        assert app.submit("SP1", batch(1)).result(10) == 16


def failing(store: StateStore, fn: Callable[..., Any], **options: Any) -> str:
    """What a batch is answered whose procedure is `fn`; a good one after it runs."""
    app = ps.App(store, "failing", checkpoint=60, **{"timeout": 30.0, **options})
    own, other = app.stream("own", X), app.stream("other", X)
    app.table("allowed", X, primary_key=["x"])
    app.table("closed", X, primary_key=["x"])

    @app.procedure("p", border=True, emits=own, writes=["allowed"])
    def p(tx: Any, given: pa.Table) -> Any:
        if given.num_rows:
            tx.table("allowed").upsert([{"x": 77}])
            return fn(tx, other)
        tx.reply("good")
        return None

    app.procedure("q", border=True, emits=other)(nothing)
    with app:
        with pytest.raises(ps.ProcedureError) as caught:
            app.submit("p", batch(1)).result(20)
        assert app.submit("p", []).result(10) == "good"
    assert store.table("allowed").get(77) is None
    assert caught.value.procedure == "p"
    return str(caught.value)


def test_what_procedures_do_wrongly(store: StateStore) -> None:
    """Each rolls the batch back, and the next one runs."""
    assert "ZeroDivisionError" in failing(store, lambda *_: 1 / 0)
    assert "SystemExit: 3" in failing(store, lambda *_: sys.exit(3))
    assert "not among its writes=" in failing(store, lambda tx, _: tx.table("closed").upsert([{"x": 1}]))
    assert "not among its writes=" in failing(store, lambda tx, _: tx.table("closed").delete([1]))
    assert "not one of application" in failing(store, lambda tx, _: tx.table("failing.replies"))
    assert "declared for ['own']" in failing(store, lambda tx, other: tx.emit(other, batch(1)))
    assert "unknown columns ['y']" in failing(store, lambda *_: [{"y": 1}])
    assert "expected int64" in failing(store, lambda *_: [{"x": "text"}])
    assert "is not rows" in failing(store, lambda *_: 5)
    assert "a reply is" in failing(store, lambda tx, _: tx.reply(object()))
    assert "at most 1 MiB" in failing(store, lambda tx, _: tx.reply(b"x" * (1 << 20)))
    assert "takes no epoch" in failing(store, lambda tx, _: tx.table("allowed").upsert([{"x": 1}], 5))
    assert "cannot be recorded" in failing(store, lambda tx, _: tx.call_external(lambda _: object(), "key"))


def test_a_procedure_that_does_not_return(store: StateStore) -> None:
    """Its batch ends with the time, and the next one runs."""

    def forever(*_: Any) -> None:
        while True:
            pass

    def stubborn(*_: Any) -> None:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                while True:
                    pass
            except Exception:
                pass

    assert "did not return within 0.3 s" in failing(store, forever, timeout=0.3)
    assert "did not return within 0.3 s" in failing(store, stubborn, timeout=0.3)


def test_a_procedure_that_hangs_in_a_library(store: StateStore) -> None:
    """It cannot be ended: the application gives up, and says so to all who wait."""
    app = ps.App(store, "hangs", checkpoint=60, timeout=0.2)
    app.procedure("p", border=True)(lambda *_: time.sleep(4))
    app.start()
    waiting = [app.submit("p", []), app.submit("p", [])]
    for ticket in waiting:
        with pytest.raises(ps.ApplicationStopped, match="has not returned for 0"):
            ticket.result(10)
    with pytest.raises(ps.ApplicationStopped):
        app.submit("p", [])
    with pytest.raises(ps.ApplicationStopped):
        app.stop()


NESTED: dict[str, Callable[[ps.App], Any]] = {
    "call": lambda app: app.call("times", 2),
    "call_async": lambda app: app.call_async("times", 2),
    "submit": lambda app: app.submit("SP1", batch(1)).result(),
    "window_rows": lambda app: app.window_rows("recent"),
    "trace": lambda app: app.trace(),
    "drain": lambda app: app.drain(),
    "stop": lambda app: app.stop(),
}


@pytest.mark.parametrize("recovery", ["weak", "strong"])
@pytest.mark.parametrize("case", NESTED)
def test_a_procedure_that_asks_its_own_application(store: StateStore, case: str, recovery: str) -> None:
    """It would wait for itself: its batch, or call, is rolled back with what to do instead, and all others run."""
    story = Story(store, recovery=recovery)
    app = story.app
    asks = app.procedure("asks", border=True, emits=app.stream("asked", X))
    watched = app.stream("watched", X)
    app.window("recent", on=watched, rows=2)
    app.procedure("watch", border=True, emits=watched)(nothing)

    @asks
    def ask(tx: Any, given: pa.Table) -> None:
        tx.table("sum").upsert([{"k": 7, "v": 7}])
        NESTED[case](app)

    app.call_procedure("asks_too")(lambda _: NESTED[case](app))
    with app:
        with pytest.raises(ps.ProcedureError, match="graphs do not nest; emit to a stream") as caught:
            app.submit("asks", batch(1)).result(10)
        assert (caught.value.procedure, caught.value.batch_id) == ("asks", 1)
        with pytest.raises(ps.ProcedureError, match="graphs do not nest; emit to a stream"):
            app.call("asks_too", timeout=10)
        assert app.submit("SP1", batch(1)).result(10) == 4
        assert app.call("times", 2, timeout=10) == 8
    with story.app:
        assert app.call("read_sum") == 8
    assert store.table("sum").get(7) is None


def test_a_callback_may_ask_the_application(store: StateStore) -> None:
    """It runs in a thread of the application, but within no request."""
    story = Story(store, checkpoint=0)
    answers: list[Any] = []
    with story.app as app:
        first = app.submit("SP1", batch(1))
        first.add_done_callback(lambda _: answers.append(app.submit("SP1", batch(1))))
        first.result(10)
        app.call("read_sum", timeout=10)
    assert [answer.result(10) for answer in answers] == [8]


def test_nulls_where_a_schema_has_none(store: StateStore) -> None:
    """Arrow data of just the schema, too: its types say nothing of nulls."""
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    app = ps.App(store, "strict", checkpoint=60)
    app.procedure("p", border=True, schema=strict)(nothing)
    with app:
        for rows in ([{"x": None}], pa.table({"x": pa.array([None], pa.int64())}, schema=strict)):
            with pytest.raises(SchemaMismatch, match=r"^procedure 'p': column 'x' is null at position 0"):
                app.submit("p", rows)
        app.submit("p", [{"x": 1}]).result(10)


def test_batches_that_wait_for_others_are_limited(store: StateStore) -> None:
    """A join whose other border is given nothing: its batches are refused, and those that wait stay."""
    app = ps.App(store, "joins", checkpoint=60, limits=ApplicationLimits(waiting_batches=3))
    left, right = app.stream("left", X), app.stream("right", X)
    seen: list[tuple[int, int]] = []
    app.procedure("l", border=True, emits=left)(lambda _, given: given)
    app.procedure("r", border=True, emits=right)(lambda _, given: given)

    @app.procedure("both", consumes=[left, right])
    def both(tx: Any, one: pa.Table, two: pa.Table) -> None:
        seen.append((tx.batch_id, one["x"][0].as_py() + two["x"][0].as_py()))

    with app:
        for number in (1, 2, 3):
            app.submit("l", batch(number)).result(10)
        with pytest.raises(ps.ProcedureError, match="3 batches wait in the streams"):
            app.submit("l", batch(4)).result(10)
        app.submit("r", batch(10), batch_id=2).result(10)
        app.submit("r", batch(10), batch_id=3).result(10)
        assert seen == [(2, 12), (3, 13)]


def test_what_the_engine_keeps_has_names_of_its_own(app: ps.App, store: StateStore) -> None:
    """A window took the engine's table of replies; windows, tables and outputs keep off each other's as well."""
    stream = app.stream("own", X)
    for name in ("replies", "streams", "dead_letters", "given_up", "unsent"):
        with pytest.raises(InvalidOption, match=f"'bad.{name}' the engine keeps"):
            app.window(name, on=stream, rows=1)
        with pytest.raises(InvalidOption, match=f"'bad.{name}' the engine keeps"):
            app.table(f"bad.{name}", X, primary_key=["x"])
        with pytest.raises(InvalidOption, match=f"'bad.{name}' the engine keeps"):
            app.output(stream, f"bad.{name}")
    with pytest.raises(InvalidOption, match="'_applications' the engine keeps"):
        app.table("_applications")
    app.window("w", on=stream, rows=1)
    app.table("bad.v", X, primary_key=["x"])
    app.output(stream, "bad.out")
    for declare in (
        lambda: app.table("bad.w", X, primary_key=["x"]),
        lambda: app.table("bad.out", X, primary_key=["x"]),
        lambda: app.output(app.stream("other", X), "bad.w"),
        lambda: app.window("v", on=stream, rows=1),
        lambda: app.window("out", on=stream, rows=1),
    ):
        with pytest.raises(InvalidOption, match="window"):
            declare()
    assert store.tables() == ["bad.v"]


async def later(*_: Any) -> None:
    """Nothing of it runs when it is called."""


def steps(*_: Any) -> Iterator[None]:
    """Nothing of it runs when it is called, either."""
    yield


class Later:
    """An object that can be called, and does nothing then."""

    async def __call__(self, *_: Any) -> None:
        """Not yet."""


@pytest.mark.parametrize("fn", [later, steps, Later(), functools.partial(later), 5, None], ids=range(6))
def test_what_does_not_run_when_it_is_called_is_no_procedure(app: ps.App, fn: Any) -> None:
    """Such triggers did nothing, and their batch was committed."""
    stream = app.stream("own", X)
    for declare in (
        app.procedure("p", border=True),
        app.call_procedure("c"),
        app.trigger(stream),
    ):
        with pytest.raises(InvalidOption, match=r"expected a (plain )?function"):
            declare(fn)


def test_a_trigger_needs_no_name(app: ps.App, store: StateStore) -> None:
    """A lambda's was refused as one; what is called and returns a coroutine undoes the batch."""
    stream = app.stream("own", X)
    seen: list[int] = []
    app.procedure("p", border=True, emits=stream)(lambda _, batch: batch)
    app.trigger(stream)(lambda _, rows: seen.append(rows["x"][0].as_py()))
    app.trigger(stream)(functools.partial(nothing))
    app.trigger(stream)(lambda tx, rows: {1: nothing, 2: later, 3: steps}[rows["x"][0].as_py()](tx))
    with app:
        app.submit("p", batch(1)).result(10)
        with pytest.raises(ps.ProcedureError, match="returned a coroutine"):
            app.submit("p", batch(2)).result(10)
        with pytest.raises(ps.ProcedureError, match="returned a generator"):
            app.submit("p", batch(3)).result(10)
    assert seen == [1, 2, 3]
