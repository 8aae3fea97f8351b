"""Outside calls that fail, and functions of outside calls that use the transaction."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.applications import askers as asking
from support.applications import payers as program
from support.applications.askers import PLACES, askers
from support.applications.payers import USES, payers
from support.children import child_environment
from tussock.compute import functions as fn
from tussock.statestore import connect

TOO_DEEP = "maximum recursion depth exceeded"
SAID = [TOO_DEEP, "1", "pay a is away", "ConnectionError: try a is away", "second a is away", "6"]
ASKED = ["pay a", "try a", "first a", "second a"]
SECONDS = 30


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(0, 0), (0, 2), (2, 0), (2, 2)], ids=str)
def test_a_call_that_failed_has_failed_at_the_replay_too(tmp_path: Path, workers: tuple[int, int]) -> None:
    """X35, X36. Story: after a call that raised no start succeeded any more. Nobody outside is asked again.

    A stack that was too deep is not tried again either: that depends on the process.
    """
    url, outside = (tmp_path / "store").as_uri(), tmp_path / "outside"
    command = [sys.executable, "-P", program.__file__, url, str(outside), str(workers[0])]
    died = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=child_environment())
    assert (died.returncode, died.stdout.splitlines()) == (9, SAID), died.stderr
    assert outside.read_text().splitlines() == ASKED
    with connect(url) as store, fn.Runtime(store, "payers", [payers(outside)], workers=workers[1]) as runtime:
        assert runtime.query("payer", "a") == {"n": 6}
        again = [runtime.send("payer", "a", name, request_id=f"{name} {at}") for at, name in [(0, "dig"), (2, "pay")]]
        assert [str(one.exception(SECONDS)) for one in again] == [TOO_DEEP, "pay a is away"]
        assert runtime.send("payer", "a", "count").result(SECONDS) == 7
    assert outside.read_text().splitlines() == ASKED


@pytest.mark.slow
def test_a_worker_may_die_after_a_call_that_failed(tmp_path: Path) -> None:
    """Story: the program ended when it ran again what had come since its newest commit."""
    outside = tmp_path / "outside"
    with connect((tmp_path / "store").as_uri()) as store:
        runtime = fn.Runtime(store, "payers", [payers(outside)], checkpoint=3600, workers=2)
        with runtime:
            assert runtime.send("payer", "a", "count").result(SECONDS) == 1
            assert str(runtime.send("payer", "a", "pay").exception(SECONDS)) == "pay a is away"
            os.kill(runtime.worker_processes()[0], signal.SIGKILL)
            assert runtime.send("payer", "a", "count").result(SECONDS) == 2
            assert 0 not in runtime.worker_processes()
    assert outside.read_text().splitlines() == ["pay a"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_each_call_of_a_transaction_has_its_key_in_the_log_first(tmp_path: Path, workers: int) -> None:
    """X36. Story: a call at a second worker was made without; after a crash it had another key, and was made twice."""
    url, outside = (tmp_path / "store").as_uri(), tmp_path / "outside"
    command = [sys.executable, "-P", asking.__file__, url, str(outside), str(workers)]
    died = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=child_environment())
    assert died.returncode == -signal.SIGKILL, died.stderr
    with connect(url) as store, fn.Runtime(store, "askers", [askers(outside, None)]) as runtime:
        numbers = [(runtime.query("asker", place) or {}).get("number") for place in PLACES]
    asked = outside.read_text().splitlines()
    assert asked == [f"{place}:{number}" for place, number in zip(PLACES, numbers, strict=True)] + asked[-2:-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_called_outside_cannot_use_the_context(tmp_path: Path, workers: int) -> None:
    """Story: what it wrote was lost where the transaction ran again, and a call within a call stood still for ever."""
    store = connect((tmp_path / "store").as_uri())
    with store, fn.Runtime(store, "payers", [payers(tmp_path / "outside")], workers=workers) as runtime:
        for what in USES:
            error = runtime.send("payer", "a", "uses", what).exception(SECONDS)
            assert isinstance(error, fn.TransactionAborted)
            assert "what call_external calls cannot use ctx" in str(error), what
        assert runtime.query("payer", "a") is None
        assert runtime.send("payer", "a", "count").result(SECONDS) == 1


def test_a_failure_is_the_same_in_each_run_of_a_transaction() -> None:
    """All of one epoch, so that the losers run again; each asks once, by its key."""
    asked: list[str] = []
    payer = fn.Operator("payer")

    @payer.register
    async def try_to(ctx: fn.FunctionContext, name: str) -> int:
        def fails(key: str) -> None:
            asked.append(key)
            raise OSError("no")

        state = ctx.get() or {"n": 0}
        with pytest.raises(fn.OutsideCallFailed, match=r"^no$"):
            ctx.call_external(name, fails)
        ctx.put({"n": state["n"] + 1})
        return int(state["n"]) + 1

    with connect("memory://") as store, fn.Runtime(store, "p", [payer], epoch_ms=50) as runtime:
        runtime.pause()
        sent = [runtime.send("payer", "a", "try_to", str(at)) for at in range(10)]
        runtime.resume()
        assert [one.result(SECONDS) for one in sent] == list(range(1, 11))
        assert sorted(asked) == [str(at) for at in range(10)]


def test_an_answer_that_cannot_be_recorded_is_a_failure() -> None:
    """The function may go on from that, too."""
    payer = fn.Operator("payer")

    @payer.register
    async def ask(ctx: fn.FunctionContext) -> str:
        try:
            ctx.call_external("key", lambda _: object())
        except fn.OutsideCallFailed as error:
            return f"{error.kind}: {error}"
        return ""

    with connect("memory://") as store, fn.Runtime(store, "p", [payer]) as runtime:
        said = runtime.send("payer", "a", "ask").result(SECONDS)
        assert said.startswith("InvalidOption: the answer of the outside call 'key' cannot be recorded")


@pytest.mark.filterwarnings("error")
def test_what_is_called_outside_is_no_coroutine_function() -> None:
    """Story: the text was that of a library, and the coroutine was never awaited."""
    payer = fn.Operator("payer")

    @payer.register
    async def ask(ctx: fn.FunctionContext) -> None:
        async def answer(key: str) -> str:
            return key

        ctx.call_external("key", answer)

    with connect("memory://") as store, fn.Runtime(store, "p", [payer]) as runtime:
        refused = runtime.send("payer", "a", "ask").exception(SECONDS)
    assert isinstance(refused, fn.TransactionAborted)
    assert "is a coroutine: give a plain function" in str(refused)


@pytest.mark.slow
def test_changed_code_that_loops_is_found_after_one_transaction(tmp_path: Path) -> None:
    """Story: a start stopped each transaction of an epoch after its time: by the defaults for hours."""
    url, outside = (tmp_path / "store").as_uri(), tmp_path / "outside"
    command = [sys.executable, "-P", program.__file__, url, str(outside), "0"]
    died = subprocess.run(command, check=False, capture_output=True, timeout=120, env=child_environment())
    assert died.returncode == 9
    changed = payers(outside)

    @changed.register
    async def other(ctx: fn.FunctionContext) -> None:
        """Beside it, so that this is another program."""

    def loops(ctx: fn.FunctionContext) -> None:
        while True:
            pass

    for name in ("dig", "count", "pay", "try_to", "pay_twice"):
        loops.__name__ = name
        changed.functions.pop(name)
        changed.register(loops)
    with connect(url) as store:
        began = time.monotonic()
        with pytest.raises(fn.NotDeterministic, match="did not return in time, and was stopped; it had ended"):
            fn.Runtime(store, "payers", [changed], timeout=1.0).start()
        assert time.monotonic() - began < 20
