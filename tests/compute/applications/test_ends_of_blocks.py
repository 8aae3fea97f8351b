"""How long the end of a `with` block of functions or procedures waits while its bucket is away.

What holds of flows is in `test_flow_waits.py`.
"""

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support.applications.forward_system import ForwardSystem
from support.buckets.faulty_bucket import FaultyBucket
from support.buckets.outage import Outage
from support.functions.accounts import cells
from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.compute.applications.errors import ApplicationFenced, ApplicationStopped
from tussock.statestore import InvalidOption, StateStore, WaitTimeout, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

SECONDS = 20


class Program:
    """Functions, of which one adds to a number."""

    what = "program 'p'"

    def __init__(self, store: StateStore) -> None:
        self.application: Any = fn.Runtime(store, "p", [cells()], checkpoint=3600)

    def add(self) -> Any:
        return self.application.send("cell", "a", "add", 1)

    def number(self) -> int:
        return int(self.application.query("cell", "a")["value"])

    def declare(self) -> None:
        self.application.load("cell", [])


class Calls:
    """A procedure that adds to a number."""

    what = "application 'p'"

    def __init__(self, store: StateStore) -> None:
        self.application: Any = ps.App(store, "p", checkpoint=3600)
        schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
        numbers = self.application.table("numbers", schema, ["k"])

        @self.application.call_procedure("add", writes=[numbers])
        def add(tx: Any) -> int:
            row = tx.table(numbers).get(1)
            number = 1 if row is None else row["n"] + 1
            tx.table(numbers).upsert([{"k": 1, "n": number}])
            return int(number)

    def add(self) -> Any:
        return self.application.call_async("add")

    def number(self) -> int:
        return int(self.application.call("add")) - 1

    def declare(self) -> None:
        self.application.table("others")


LAYERS: dict[str, Callable[[StateStore], Any]] = {"functions": Program, "procedures": Calls}


class World:
    """A store whose bucket is away when a test says so; with each request that is lost 5 seconds pass."""

    def __init__(self, *prefixes: str) -> None:
        self.system, self.bucket = ForwardSystem(), open_bucket("memory://")
        self.outage = Outage(*prefixes, on_loss=lambda: self.system.forward(5))
        self.store = open_on(FaultyBucket(self.bucket, self.outage), self.system)

    def leave(self, layer: Any, error: Exception | None = None) -> Any:
        """Use it, and leave the block while the bucket is away; returns what is asked for last."""
        with layer.application:
            for _ in range(3):
                layer.add().result(SECONDS)
            self.outage.begin()
            self.asked = layer.add()
            if error is not None:
                raise error


@pytest.mark.parametrize("is_raised", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_the_end_of_a_block_waits_half_a_minute_for_a_bucket(name: str, *, is_raised: bool) -> None:
    """Story: it waited for ever. What is in the log comes back with the next start, and the error says so."""
    world = World("log/", "sst/")
    layer = LAYERS[name](world.store)
    with pytest.raises(WaitTimeout, match=f"{layer.what} has not ended within 30 s, .*: the commit waits: ") as caught:
        world.leave(layer, ValueError("of the block") if is_raised else None)
    assert " records are in its input log and in no committed epoch: the next start runs them again." in str(
        caught.value
    )
    assert " 0 are not known to be in the log, and 0 requests have not begun" in str(caught.value)
    assert isinstance(caught.value.__context__, ValueError) == is_raised
    # The process ends here, and another one begins.
    with open_on(world.bucket, RealSystem()) as other:
        again = LAYERS[name](other)
        with again.application:
            assert again.number() == 4
    world.outage.end()
    with pytest.raises(ApplicationFenced):
        layer.application.stop()
    world.store.close()


@pytest.mark.parametrize("name", LAYERS)
def test_an_end_that_nobody_waits_for_goes_on(name: str) -> None:
    """Nothing begins meanwhile; when the bucket is back all is as after any end, also what was not in the log."""
    world = World("applications/")
    with world.store:
        layer = LAYERS[name](world.store)
        with pytest.raises(WaitTimeout, match=r"the input log waits: .* 1 are not known to be in the log"):
            world.leave(layer)
        assert not world.asked.done()
        for refused in (layer.application.start, layer.declare):
            with pytest.raises(InvalidOption, match=f"{layer.what} is ending still: call stop"):
                refused()
        with pytest.raises(ApplicationStopped):
            layer.add()
        world.outage.end()
        layer.application.stop()
        layer.application.stop()
        assert world.asked.result(SECONDS) == 4
        with layer.application:
            assert layer.number() == 4


@pytest.mark.parametrize("name", LAYERS)
def test_the_end_of_a_block_raises_what_it_fails_with(name: str) -> None:
    """Also where it ends beside the caller."""
    world = World()
    with world.store, open_on(world.bucket, RealSystem()) as other:
        layer, successor = LAYERS[name](world.store), LAYERS[name](other)

        def block() -> None:
            with layer.application:
                layer.add().result(SECONDS)
                successor.application.start()

        with pytest.raises(ApplicationFenced):
            block()
        assert successor.number() == 1
        successor.application.stop()


def test_a_procedure_cannot_wait_for_the_end_that_waits_for_it() -> None:
    """Nor look at what is being ended; the block ends as any."""
    with connect("memory://", compaction=False) as store:
        app = ps.App(store, "p")
        told = []

        @app.call_procedure("stop_it")
        def stop_it(_: Any) -> None:
            while app.is_running:
                time.sleep(0.001)
            for asked in (app.stop, app.trace):
                with pytest.raises(InvalidOption) as caught:
                    asked()
                told.append(str(caught.value))

        with app:
            stopped = app.call_async("stop_it")
        stopped.result(SECONDS)
        assert all("is asked by a procedure that it runs" in one for one in told)
