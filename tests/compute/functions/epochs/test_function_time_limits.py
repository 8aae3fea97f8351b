"""What takes too long is stopped and named, wherever it is at that moment; an outage is no function's time."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.compute.applications.deadline import Overdue
from tussock.statestore import StateStore, connect

SECONDS = 30
BOTH = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def late_at(step: int) -> None:
    """Let `Overdue` come `step` lines of the engine's call graph later, in the caller's thread, as a watch does it."""
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith("graph.py"):
            return None
        left -= 1
        if left == 0:
            sys.settrace(None)
            raise Overdue
        return trace

    frame: FrameType | None = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.endswith("deadline.py"):
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)


class Wordless(Exception):
    def __str__(self) -> str:
        while True:
            pass


def lasting() -> fn.Operator:
    """Functions that last too long, each in another place."""
    slow = fn.Operator("slow", partitions=8)

    @slow.register
    async def begin(ctx: fn.FunctionContext, step: int) -> str:
        ctx.call_async("slow", "next", "tiny")
        ctx.call_async("slow", "last", "tiny")
        late_at(step)
        await ctx.call("slow", "other", "tiny")
        return "done"

    @slow.register
    async def tiny(ctx: fn.FunctionContext) -> None:
        ctx.put({"touched": True})

    @slow.register
    async def fail(ctx: fn.FunctionContext) -> None:
        raise ValueError("failed")

    @slow.register
    async def wordless(ctx: fn.FunctionContext) -> None:
        raise Wordless

    @slow.register
    async def tidy(ctx: fn.FunctionContext, other: str) -> None:
        try:
            await ctx.call("slow", other, "fail")
        finally:
            while True:
                pass

    @slow.register
    async def catch(ctx: fn.FunctionContext, other: str) -> None:
        try:
            await ctx.call("slow", other, "fail")
        except BaseException:
            while True:
                pass

    async def refusing(awaited: Any) -> None:
        while True:
            try:
                await awaited
            except BaseException:
                with suppress(BaseException):
                    while True:
                        pass

    @slow.register
    async def refuse(ctx: fn.FunctionContext, other: str) -> None:
        failing = ctx.call("slow", other, "fail")
        begun = [refusing(failing) for _ in range(3)]
        for one in begun:
            one.send(None)
        await failing

    @slow.register
    async def linger(ctx: fn.FunctionContext, other: str) -> None:
        try:
            await ctx.call("slow", other, "fail")
        finally:
            await ctx.call("slow", other, "tiny")

    @slow.register
    async def stick(ctx: fn.FunctionContext, other: str) -> None:
        try:
            await ctx.call("slow", other, "fail")
        finally:
            time.sleep(60)

    @slow.register
    async def pay(ctx: fn.FunctionContext) -> Any:
        return ctx.call_external("pay", str.upper)

    return slow


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_time_that_is_up_between_two_functions_aborts_their_transaction(store: StateStore) -> None:
    """Story: it ended the program. It may be up before any line of the engine, and the last function is named."""
    named: set[Any] = set()
    with fn.Runtime(store, "p", [lasting()]) as runtime:
        for step in range(1, 500):
            error = runtime.send("slow", "first", "begin", step).exception(SECONDS)
            if error is None:
                break
            assert isinstance(error, fn.TransactionAborted)
            assert (error.kind, error.operator) == ("Overdue", "slow")
            assert f"function slow.{error.function} did not return in time" in str(error)
            named.add((error.function, error.key))
            assert runtime.query("slow", "other") is None
        assert step > 40
        assert named == {("begin", "first"), ("tiny", "other"), ("tiny", "next"), ("tiny", "last")}
        assert runtime.query("slow", "other") == {"touched": True}


@pytest.mark.parametrize("function", ["tidy", "catch"])
def test_a_clean_up_without_end_is_stopped_and_named(store: StateStore, function: str) -> None:
    """Story: it ran outside the time limit, and the program hung; a start does not try it again."""
    runtime = fn.Runtime(store, "p", [lasting()], timeout=0.4, checkpoint=3600)
    runtime.start()
    sent, other = runtime.send("slow", "a", function, "b"), runtime.send("slow", "z", "tiny")
    with pytest.raises(fn.TransactionAborted, match=f"slow.{function} did not return in time") as caught:
        sent.result(SECONDS)
    assert (caught.value.kind, caught.value.key, caught.value.function) == ("Overdue", "a", function)
    assert other.result(SECONDS) is None
    assert runtime.stats()["stopped"] == 1
    with fn.Runtime(store, "p", [lasting()], timeout=0.4) as successor:
        assert successor.query("slow", "z") == {"touched": True}
        assert successor.stats()["stopped"] == 0
    with pytest.raises(fn.ApplicationFenced):
        runtime.stop()


@BOTH
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
def test_a_function_that_ends_by_nothing_leaves_the_program_alone(store: StateStore, workers: int) -> None:
    """Story: Python closes it again when it frees it, and what stopped that came too late to save the program."""
    with fn.Runtime(store, "p", [lasting()], timeout=0.4, workers=workers) as runtime:
        assert str(runtime.send("slow", "a", "refuse", "a").exception(SECONDS)) == "failed"
        assert runtime.send("slow", "z", "tiny").result(SECONDS) is None


def test_a_function_that_awaits_in_its_clean_up_ends(store: StateStore) -> None:
    """Nothing that it awaits there runs; the transaction fails by what it failed by."""
    with fn.Runtime(store, "p", [lasting()], timeout=5) as runtime:
        assert str(runtime.send("slow", "a", "linger", "b").exception(SECONDS)) == "failed"
        assert runtime.query("slow", "b") is None
        assert runtime.stats()["stopped"] == 0


def test_a_clean_up_without_end_is_stopped_in_its_worker(store: StateStore) -> None:
    """On the same worker as what failed, or on another one, where it comes with the next epoch."""
    with fn.Runtime(store, "p", [lasting()], timeout=0.4, workers=2) as runtime:
        texts = {str(runtime.send("slow", "a", "tidy", str(other)).exception(SECONDS)) for other in range(8)}
        assert texts == {"function slow.tidy did not return in time, and was stopped", "failed"}
        assert runtime.send("slow", "z", "tiny").result(SECONDS) is None


@BOTH
def test_a_clean_up_that_cannot_be_stopped_ends_the_program(store: StateStore, workers: int) -> None:
    runtime = fn.Runtime(store, "p", [lasting()], timeout=0.3, workers=workers)
    runtime.start()
    with pytest.raises(fn.ApplicationStopped, match="cannot be stopped"):
        runtime.send("slow", "a", "stick", "a").result(SECONDS)
    with pytest.raises(fn.ApplicationStopped):
        runtime.stop()


def test_an_error_that_does_not_come_to_its_words_is_named_by_its_class(store: StateStore) -> None:
    with fn.Runtime(store, "p", [lasting()], timeout=0.4) as runtime:
        error = runtime.send("slow", "a", "wordless").exception(SECONDS)
        assert isinstance(error, fn.TransactionAborted)
        assert (str(error), error.kind) == ("Wordless", "Wordless")
        assert runtime.send("slow", "z", "tiny").result(SECONDS) is None


@BOTH
def test_an_outage_of_the_log_is_no_time_of_a_call_outside(
    store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    """Story: the call waits for the log, and its transaction was aborted, or the program ended."""
    with fn.Runtime(store, "p", [lasting()], timeout=0.2, workers=workers, checkpoint=3600) as runtime:
        runtime.send("slow", "z", "tiny").result(SECONDS)
        folder = tmp_path / "store" / "applications" / "p" / "input"
        aside = folder.rename(folder.with_name("aside"))
        folder.touch()
        paid = runtime.send("slow", "a", "pay")
        # Longer than it takes to give a function up: 1.4 s, and an attempt comes each 0.5 s.
        while sum("input log waits" in one.getMessage() for one in caplog.records) < 5:
            assert not paid.done()
            threading.Event().wait(0.01)
        folder.unlink()
        aside.rename(folder)
        assert paid.result(SECONDS) == "PAY"
        assert runtime.send("slow", "z", "tiny").result(SECONDS) is None


def test_a_replay_that_hangs_is_told_and_starts_nothing(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    """Story: telling it failed for want of a log that could be told, and what replayed on had no time limit."""
    blocked, go_on = threading.Event(), threading.Event()
    go_on.set()
    stuck = fn.Operator("stuck")

    @stuck.register
    async def wait(ctx: fn.FunctionContext) -> None:
        blocked.set()
        go_on.wait()

    first = fn.Runtime(store, "p", [stuck], checkpoint=3600)
    first.start()
    first.send("stuck", "a", "wait").result(SECONDS)
    for one in (blocked, go_on):
        one.clear()
    found: list[BaseException] = []

    def start() -> None:
        try:
            fn.Runtime(store, "p", [stuck], timeout=0.2).start()
        except fn.ApplicationStopped as error:
            found.append(error)

    starts = threading.Thread(target=start)
    starts.start()
    assert blocked.wait(SECONDS)
    eventually(lambda: "application hangs" in caplog.text)
    go_on.set()
    starts.join(SECONDS)
    assert ["cannot be stopped" in str(one) for one in found] == [True]
    with fn.Runtime(store, "p", [stuck], timeout=5) as third:
        assert third.stats()["epoch"] == 1
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
