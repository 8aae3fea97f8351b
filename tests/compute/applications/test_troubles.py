"""What an application waits for is told to those who look, and no look waits for ever."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.functions.accounts import cells
from support.store.stores import open_on
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.compute.applications.durability import troubles
from tussock.statestore import StateStore, WaitTimeout
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

SECONDS = 30
SECRET = "gr8secret"


class Outage:
    """A store whose bucket lets nothing be created in a folder while it is down."""

    def __init__(self, name: str) -> None:
        self.down = ""
        self.tries = 0
        self.bucket = FaultyBucket(open_bucket(f"memory://{name}"), self._fate)
        self.store: StateStore = open_on(self.bucket, RealSystem())

    def _fate(self, call: Call) -> Fate:
        if not self.down or not call.path.startswith(self.down) or call.operation == "list":
            return Fate.PASS
        self.tries += 1
        return Fate.LOSE_REQUEST


@pytest.fixture
def outage(request: pytest.FixtureRequest) -> Iterator[Outage]:
    found = Outage(f"trouble-{abs(hash(request.node.name))}")
    yield found
    found.down = ""
    found.store.close()


def program(store: StateStore) -> tuple[Any, "Callable[[], Future[Any]]"]:
    runtime = fn.Runtime(store, "p", [cells()], timeout=0.5)
    return runtime, lambda: runtime.send("cell", "a", "add", 1)


def calls(store: StateStore) -> tuple[Any, "Callable[[], Future[Any]]"]:
    app = ps.App(store, "p", timeout=0.5)

    @app.procedure("take", border=True)
    def take(tx: Any, batch: Any) -> None:
        tx.reply(1)

    return app, lambda: app.submit("take", [{"n": 1}])


def flow(store: StateStore) -> tuple[Any, "Callable[[], Future[Any]]"]:
    numbers = cl.Stream(store, "numbers", schema=pa.schema([("n", pa.int64())]), key=["n"])

    def push() -> "Future[Any]":
        asked: Future[Any] = numbers.push([cl.insert(n=1)], wait=False)
        return asked

    return cl.Flow(store, [numbers], name="p", timeout=0.5), push


LAYERS: dict[str, Any] = {"functions": program, "procedures": calls, "changelog": flow}


@pytest.mark.parametrize("layer", LAYERS)
def test_the_status_says_that_the_input_log_cannot_be_written(outage: Outage, layer: str) -> None:
    """Story: callers waited for hours, and status, page and command said that all was well."""
    application, ask = LAYERS[layer](outage.store)
    with application:
        assert application.status()["trouble"] == []
        outage.down = "applications/"
        asked = ask()
        eventually(lambda: application.status()["trouble"])
        (found,) = application.status()["trouble"]
        assert found["what"] == "input log"
        assert found["error"].startswith("ObjectStoreUnavailable: ")
        since = found["since_ms"]
        tried = outage.tries
        eventually(lambda: outage.tries > tried)
        assert application.status()["trouble"][0]["since_ms"] == since
        assert not asked.done()
        outage.down = ""
        asked.result(SECONDS)
        assert application.status()["trouble"] == []


def test_the_status_says_that_a_commit_waits(outage: Outage) -> None:
    runtime, ask = program(outage.store)
    with runtime:
        ask().result(SECONDS)
        outage.down = "log/"
        eventually(lambda: [one["what"] for one in runtime.status()["trouble"]] == ["commit"])
        outage.down = ""
        eventually(lambda: runtime.status()["trouble"] == [])


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["functions", "procedures"])
def test_a_look_ends_while_the_log_cannot_be_written(outage: Outage, layer: str) -> None:
    """After twice the time of what runs and 5 s; it says what the application waits for."""
    application, ask = LAYERS[layer](outage.store)
    with application:
        outage.down = "applications/"
        asked = ask()
        eventually(lambda: application.status()["trouble"])
        with pytest.raises(WaitTimeout, match=r"no answer within 6 s: the input log waits: ObjectStoreUnavailable"):
            application.query("cell", "a") if layer == "functions" else application.trace()
        outage.down = ""
        asked.result(SECONDS)


def test_what_is_told_has_no_secrets() -> None:
    found = troubles.Troubles("p", RealSystem())
    found.note(troubles.INPUT_LOG, OSError(f"https://key:{SECRET}@minio/b?X-Amz-Signature={SECRET} " + "x" * 9999))
    (told,) = found.told()
    assert SECRET not in str(told)
    assert len(str(told["error"])) <= troubles.TEXT_MAX
    found.end(troubles.INPUT_LOG)
    assert found.told() == []
