"""What a function of a stream asks of the flow that runs it is refused, and its transaction is bad."""

import inspect
import queue
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect
from tussock.statestore.buckets import open_bucket

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
SECONDS = 20

FLOW: dict[str, Callable[[cl.Flow], Any]] = {
    "auto_step": lambda flow: flow.auto_step(1),
    "drain": lambda flow: flow.drain(1),
    "feed": lambda flow: flow.feed("s", cl.TableFeed("t")),
    "forget": lambda flow: flow.forget("s"),
    "output": lambda flow: flow.output("s", "t"),
    "partitioned_program": lambda flow: flow.partitioned_program(),
    "pause": lambda flow: flow.pause(),
    "quiesce": lambda flow: flow.quiesce("s"),
    "rebuild": lambda flow: flow.rebuild("s"),
    "replay_bad": lambda flow: flow.replay_bad(1),
    "resume": lambda flow: flow.resume(),
    "served": lambda flow: flow.served(),
    "start": lambda flow: flow.start(),
    "stats": lambda flow: flow.stats(),
    "status": lambda flow: flow.status(),
    "step": lambda flow: flow.step(),
    "stop": lambda flow: flow.stop(),
    "stop_auto_step": lambda flow: flow.stop_auto_step(),
    "wait_paused": lambda flow: flow.wait_paused(1),
    "what_if": lambda flow: flow.what_if("s", 1),
}
STREAM: dict[str, Callable[[cl.Stream], Any]] = {
    "bad_rows": lambda stream: stream.bad_rows(),
    "break_on": lambda stream: stream.break_on("input"),
    "compute": lambda stream: stream.compute(lambda row: row),
    "compute_batch": lambda stream: stream.compute_batch(lambda batch: batch),
    "get": lambda stream: stream.get("a"),
    "hold": lambda stream: stream.hold(),
    "in_history": lambda stream: stream.in_history(),
    "on_bad_row": lambda stream: stream.on_bad_row("skip"),
    "out_history": lambda stream: stream.out_history(),
    "push": lambda stream: stream.push(cl.upsert(k="z", v=9)),
    "release": lambda stream: stream.release(),
    "snapshot": lambda stream: stream.snapshot(),
    "subscribe": lambda stream: stream.subscribe(),
}
ASKED: dict[str, Callable[[cl.Flow], Any]] = {
    **{f"flow.{name}": ask for name, ask in FLOW.items()},
    **{f"stream.{name}": lambda flow, ask=ask: ask(flow.stream("s")) for name, ask in STREAM.items()},
}


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://", compaction=False) as opened:
        yield opened


def asking(store: StateStore, ask: Callable[[cl.Flow], Any], **options: Any) -> cl.Flow:
    """A flow of `s`, whose function asks where `v` is 1, and of `other`, which has no function."""
    s, other = (cl.Stream(store, name, schema=SCHEMA, key=["k"]) for name in ("s", "other"))
    flow = cl.Flow(store, [s, other], **options)

    @s.compute
    def asked(row: cl.ChangeRecord) -> cl.ChangeRecord:
        if row["v"] == 1:
            ask(flow)
        return row

    return flow


def test_all_that_can_be_called_is_here() -> None:
    """But for what tells how the flow was declared."""
    for kind, table, told in ((cl.Flow, FLOW, {"stream"}), (cl.Stream, STREAM, set())):
        calls = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
        assert calls == table.keys() | told


@pytest.mark.parametrize("what", ASKED)
def test_what_a_function_asks_is_refused(store: StateStore, what: str) -> None:
    """Story: breakpoints and counts were let through, and `wait_paused` waited for itself. Nothing comes of it."""
    with asking(store, ASKED[what]) as flow:
        s = flow.stream("s")
        s.push([cl.upsert(k="a", v=1)])
        s.push([cl.upsert(k="b", v=2)])
        flow.drain(SECONDS)
        [bad] = s.bad_rows()
        assert bad.error.startswith("InvalidOption: flow 's' is asked by a function that it runs")
        assert s.snapshot()[0] == [{"k": "b", "v": 2}]
        assert (flow.paused_at, flow.breakpoints, flow.is_running) == (None, [], True)
        # In another thread, all is as it was.
        assert flow.stats()["transactions"] == 2


@pytest.mark.parametrize("what", ["flow.stats", "stream.break_on", "flow.start", "stream.push"])
def test_a_replay_refuses_the_same(what: str) -> None:
    """Story: functions ran in another thread there, so what was refused before was let through."""
    bucket, fuse = open_bucket("memory://"), Fuse(10**9, is_done=False, hiccups={})
    store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
    flow = asking(store, ASKED[what], checkpoint=3600)
    flow.start()
    for key, value in (("a", 1), ("b", 2)):
        flow.stream("s").push([cl.upsert(k=key, v=value)]).result(SECONDS)
    fuse.blow()
    for one in (flow.stop, store.close):
        with suppress(Dead):
            one()
    with open_on(bucket, QuickSystem()) as store, asking(store, ASKED[what]) as flow:
        [bad] = flow.stream("s").bad_rows()
        assert "is asked by a function that it runs" in bad.error
        assert flow.stream("s").snapshot()[0] == [{"k": "b", "v": 2}]


def test_what_a_function_sees_of_its_flow_it_may_read(store: StateStore) -> None:
    """How it was declared, and where streams stand, for those who print it."""
    seen: list[Any] = []

    def look(flow: cl.Flow) -> None:
        s = flow.stream("s")
        seen.extend((flow.name, list(flow.streams), s.location, s.in_row, s.queued, flow.paused_at, s.breakpoints))

    with asking(store, look) as flow:
        flow.stream("s").push([cl.upsert(k="a", v=1)]).result(SECONDS)
        flow.drain(SECONDS)
    assert seen == ["s", ["s", "other"], cl.Location.COMPUTE, cl.upsert(k="a", v=1), 0, None, []]


def test_a_push_in_a_callback_does_not_wait_for_room(store: StateStore) -> None:
    """Story: it waited for the thread that was to make room, and gives replies."""
    s = cl.Stream(store, "s", schema=SCHEMA, key=["k"], queue=1)
    with cl.Flow(store, [s], checkpoint=0) as flow:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def more(_: Any) -> None:
            for at in range(5):
                try:
                    s.push([cl.upsert(k="b", v=at)])
                except cl.Full as error:
                    found.put(error)
                    return
            found.put(None)

        s.push([cl.upsert(k="a", v=1)]).add_done_callback(more)
        assert isinstance(found.get(timeout=SECONDS), cl.Full)
        flow.drain(SECONDS)
