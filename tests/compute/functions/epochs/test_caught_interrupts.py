"""What the engine ends a run by ends it, whatever a function catches; and what cannot come again equal is recorded."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.applications.forward_system import ForwardSystem
from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.store.stores import OBJECTS, open_on
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect
from tussock.statestore.buckets import open_bucket

SECONDS = 30
BOTH = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def catching(outside: Path) -> fn.Operator:
    """Functions that catch whatever comes."""
    careless = fn.Operator("careless", partitions=4)

    def answers(key: str) -> int:
        with outside.open("a") as file:
            file.write(f"{key}\n")
        return 7

    @careless.register
    async def pay(ctx: fn.FunctionContext) -> str:
        try:
            paid = ctx.call_external(f"pay {ctx.key}", answers)
        except:  # noqa: E722 - as users write it
            paid = None
        ctx.put({"paid": paid})
        return f"paid {paid}"

    @careless.register
    async def pay_loudly(ctx: fn.FunctionContext) -> str:
        try:
            return f"paid {ctx.call_external(f'loud {ctx.key}', answers)}"
        except BaseException as error:
            raise ValueError("not paid") from error

    @careless.register
    def pay_at_last(ctx: fn.FunctionContext) -> str:
        said = "not paid"
        try:
            said = f"paid {ctx.call_external(f'last {ctx.key}', answers)}"
        finally:
            return said  # noqa: B012 - as users write it

    @careless.register
    async def pay_by_another(ctx: fn.FunctionContext) -> str:
        try:
            paid = ctx.call_external(f"other {ctx.key}", answers)
        except BaseException:
            paid = await ctx.call("careless", f"{ctx.key}2", "count")
        return f"paid {paid}"

    @careless.register
    async def count(ctx: fn.FunctionContext) -> int:
        try:
            state = ctx.get() or {"n": 0}
        except BaseException:
            state = {"n": -100}
        ctx.put({"n": state["n"] + 1})
        return int(state["n"]) + 1

    @careless.register
    async def linger(ctx: fn.FunctionContext) -> str:
        ctx.put({"n": 5})
        try:
            while True:
                pass
        except BaseException:
            return "in time"

    @careless.register_batch
    def count_many(batch: fn.FunctionBatch) -> Any:
        try:
            found = batch.state("n").to_pylist()
        except BaseException:
            found = [-100] * batch.num_rows
        batch.put({"n": [n + 1 for n in found]})
        return [n + 1 for n in found]

    return careless


@BOTH
def test_a_call_outside_is_made_though_its_function_catches_everything(
    store: StateStore, tmp_path: Path, workers: int
) -> None:
    """Story: with workers it was never made, as the function caught that the call had to wait for the log."""
    outside = tmp_path / "outside"
    with fn.Runtime(store, "p", [catching(outside)], workers=workers) as runtime:
        for name in ("pay", "pay_loudly", "pay_at_last", "pay_by_another"):
            assert runtime.send("careless", "a", name).result(SECONDS) == "paid 7", name
        assert runtime.query("careless", "a2") is None
    assert outside.read_text().splitlines() == ["pay a", "loud a", "last a", "other a"]


class Reads:
    """A script: that many of the next reads of SSTs are lost."""

    lost = 0

    def __call__(self, call: Call) -> Fate:
        if not self.lost or call.operation not in ("get", "get_range") or not call.path.startswith("sst/"):
            return Fate.PASS
        self.lost -= 1
        return Fate.LOSE_REQUEST


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[fn.Runtime]:
    """A program that has entity `a`, where `count` has run once, and not in its memory; three reads are lost."""
    bucket, system, reads = open_bucket("memory://"), ForwardSystem(), Reads()
    with open_on(bucket, system, limits=OBJECTS) as store, fn.Runtime(store, "p", [catching(tmp_path)]) as runtime:
        assert runtime.send("careless", "a", "count").result(SECONDS) == 1
    faulty = FaultyBucket(bucket, reads)
    with open_on(faulty, system, limits=OBJECTS) as store, fn.Runtime(store, "p", [catching(tmp_path)]) as runtime:
        reads.lost = 3
        yield runtime
        assert not reads.lost


def test_an_outage_of_the_store_is_no_state_though_its_function_catches_everything(outage: fn.Runtime) -> None:
    """Story: the function took the entity for one that was not there, and what it made of that was stored."""
    assert outage.send("careless", "a", "count").result(SECONDS) == 2


def test_nor_where_a_batch_function_catches_everything(outage: fn.Runtime) -> None:
    """It has one entity, whose state is read as the function asks for it."""
    assert outage.send_many("careless", "count_many", ["a"]).to_pylist() == [{"reply": 2, "error": None}]
    assert outage.query("careless", "a") == {"n": 2}


def test_a_look_waits_for_the_store(outage: fn.Runtime) -> None:
    """Story: it ended the program."""
    assert outage.query("careless", "a") == {"n": 1}
    assert outage.send("careless", "a", "count").result(SECONDS) == 2


@BOTH
def test_a_function_that_catches_the_end_of_its_time_is_aborted_all_the_same(
    store: StateStore, tmp_path: Path, workers: int
) -> None:
    """Story: it committed, and a replay on a faster machine had another result. Here the replay does not try it."""
    options: dict[str, Any] = {"timeout": 0.4, "checkpoint": 3600, "workers": workers}
    first = fn.Runtime(store, "p", [catching(tmp_path)], **options)
    first.start()
    error = first.send("careless", "a", "linger").exception(SECONDS)
    assert isinstance(error, fn.TransactionAborted)
    assert (error.kind, error.function) == ("Overdue", "linger")
    with fn.Runtime(store, "p", [catching(tmp_path)], **options) as successor:
        assert successor.query("careless", "a") is None
        assert successor.stats()["stopped"] == 0
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


def replayed(store: StateStore, operator: fn.Operator, *, workers: int = 0) -> fn.Runtime:
    """A program that has what the one before it has run and not committed."""
    return fn.Runtime(store, "p", [operator], checkpoint=3600, workers=workers)


@BOTH
def test_a_text_that_is_another_one_in_each_run_is_recorded(store: StateStore, workers: int) -> None:
    """Story: an address or a set in the text of an error, and no start succeeded after a crash.

    A caller that asks again by the id gets the text of the first run.
    """
    thing = fn.Operator("thing")
    count = itertools.count()

    @thing.register
    async def fail(ctx: fn.FunctionContext) -> None:
        raise LookupError(f"no <object at 0x{id(ctx):x} {next(count)}>")

    @thing.register
    async def give(ctx: fn.FunctionContext) -> Any:
        return object()

    first = replayed(store, thing, workers=workers)
    first.start()
    said = [str(first.send("thing", "a", name, request_id=name).exception(SECONDS)) for name in ("fail", "give")]
    with replayed(store, thing) as successor:
        again = [successor.send("thing", "a", name, request_id=name).exception(SECONDS) for name in ("fail", "give")]
        assert [str(one) for one in again] == said
        assert [isinstance(one, fn.TransactionAborted) and one.kind for one in again] == [
            "LookupError",
            "FunctionFault",
        ]
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


@BOTH
def test_what_is_done_to_an_answer_is_not_part_of_it(store: StateStore, workers: int) -> None:
    """Story: asked for twice, a replay had the changed one, and no start succeeded; with workers each run had it."""
    asker = fn.Operator("asker", partitions=4)

    @asker.register
    async def ask(ctx: fn.FunctionContext) -> list[Any]:
        found = []
        for _ in range(3):
            answer = ctx.call_external("key", lambda _: {"left": [1, 2]})
            answer["left"].append(3)
            found.append(len(answer["left"]))
        ctx.put({"found": found})
        return found

    first = replayed(store, asker, workers=workers)
    first.start()
    assert first.send("asker", "a", "ask").result(SECONDS) == [3, 3, 3]
    with replayed(store, asker, workers=workers) as successor:
        assert successor.query("asker", "a") == {"found": [3, 3, 3]}
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


class Nameless(type):
    """Raises when its classes are asked for their names."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise LookupError("no name")


class Unnamed(Exception, metaclass=Nameless):
    """Of such a class."""


class Words(str):
    """Text that is no plain text however it is cut."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> "Words":
        return self

    def isascii(self) -> bool:
        return True


class Wordy(Exception):
    def __str__(self) -> str:
        return Words("words")


def test_a_failure_outside_is_recorded_whatever_its_class_does(store: StateStore) -> None:
    """Story: what asking for the class's name raised was no record, and no start succeeded after a crash."""
    asker = fn.Operator("asker")

    def fails(key: str) -> None:
        raise {"name": Unnamed("gone"), "words": Wordy()}[key]

    @asker.register
    async def ask(ctx: fn.FunctionContext, key: str) -> str:
        try:
            ctx.call_external(key, fails)
        except fn.OutsideCallFailed as error:
            ctx.put({"said": f"{error.kind}: {error}"})
            return f"{error.kind}: {error}"
        return ""

    @asker.register
    async def say(ctx: fn.FunctionContext) -> None:
        raise Wordy

    first = replayed(store, asker)
    first.start()
    assert first.send("asker", "a", "ask", "name").result(SECONDS) == "Unnamed: gone"
    assert first.send("asker", "a", "ask", "words").result(SECONDS) == "Wordy: words"
    assert str(first.send("asker", "a", "say", request_id="say").exception(SECONDS)) == "words"
    with replayed(store, asker) as successor:
        assert successor.query("asker", "a") == {"said": "Wordy: words"}
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
