"""A random history of a random program of functions: requests, feeds, deaths and successors, all from a seed.

Threads decide which requests are of one epoch, so two runs of a seed are not the same; the rules hold for all of them.
"""

import json
import random
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from graphlib import TopologicalSorter
from itertools import groupby
from typing import Any

import pyarrow as pa

from support.buckets.faulty_bucket import FaultyBucket
from support.feeds.transfers import answers
from support.functions.random_programs import Interpreter, Steps, make_request, things
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from support.waiting import WAIT_SECONDS
from tussock.compute import functions as fn
from tussock.statestore import ObjectStoreUnavailable
from tussock.statestore.buckets import open_bucket

__all__ = ["History"]

SECONDS = WAIT_SECONDS
FEEDS = ("f", "g")
"""Tables of requests."""
ROWS = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("key", pa.string(), False), ("steps", pa.string(), False)]
)
LOCK_FREE = 1
"""The phase, of a place; before it are those that were aborted in their first run."""


class Sent:
    """A request, and what is known of it."""

    def __init__(self, number: int, key: str, steps: Steps, feed: str = "") -> None:
        self.request_id = f"r{number}"
        self.feed = feed
        self.key = key
        self.steps = steps
        self.answer: Any = None
        self.is_answered = False
        self.place: tuple[int, int, int] | None = None
        """Epoch, phase and number: the serial order, but that `reorder` lets readers go before the writer."""

    def check(self, expected: Any) -> None:
        """That it was answered so."""
        assert self.answer == expected, f"{self.request_id} at {self.place}: {self.key} {self.steps}"


class History:
    """Some lives of one program on one bucket, each of which ends well or by a death."""

    def __init__(self, seed: int, workers_max: int = 0) -> None:
        """`workers_max`: each life has at most that many workers, and none with 0."""
        self.chance = random.Random(seed)
        self.bucket = open_bucket("memory://")
        self.workers_max = workers_max
        rules = random.Random(f"rules {seed}")
        self.conflicts: Any = rules.choice(("serializable", "serializable", "reorder", "snapshot"))
        self.lock_phase = rules.random() < 0.75
        self.sent: list[Sent] = []
        self.has_feeds = rules.random() < 0.5
        if self.has_feeds:
            with open_on(self.bucket, QuickSystem()) as store:
                for name in FEEDS:
                    store.create_table(name, ROWS, primary_key=["id"])

    def run(self) -> None:
        lives = self.chance.randint(1, 4)
        for life in range(lives):
            self._live(is_last=life == lives - 1)
        self._check()

    def _live(self, *, is_last: bool) -> None:
        feeds = [name for name in FEEDS if self.has_feeds and (is_last or self.chance.random() < 0.5)]
        self._fill(feeds)
        at = 10**9 if is_last else self.chance.randint(5, 60)
        fuse = Fuse(at, is_done=self.chance.random() < 0.5, hiccups={})
        try:
            store = open_on(FaultyBucket(self.bucket, fuse), QuickSystem())
        except Dead:
            return
        runtime = fn.Runtime(
            store,
            "random",
            [things()],
            epoch_ms=self.chance.choice((0, 2, 10)),
            epoch_max=self.chance.choice((1, 3, 1000)),
            checkpoint=self.chance.choice((0, 0.01, 3600)),
            group_commit=self.chance.choice((None, 0.0, 0.01)),
            conflicts=self.conflicts,
            lock_phase=self.lock_phase,
            cache_bytes=1 << 20,
            workers=self.chance.randint(0, self.workers_max) if self.workers_max else 0,
        )
        for name in feeds:
            columns: Any = {"key": "key", "arguments": ["steps"], "request_id": "id"}
            runtime.feed("thing", "act", fn.TableFeed(name), name=name, replies=f"{name}.answers", **columns)
        with suppress(Dead, ObjectStoreUnavailable):
            runtime.start()
            self._note(runtime)
            again = [one for one in self.sent if not one.is_answered and not one.feed]
            fresh = [Sent(len(self.sent) + at, *make_request(self.chance)) for at in range(self.chance.randint(5, 60))]
            self.sent += fresh
            futures: list[tuple[Sent, Future[Any]]] = []
            for one in (*again, *fresh):
                try:
                    future = runtime.send("thing", one.key, "act", one.steps, request_id=one.request_id)
                except Dead:
                    break
                futures.append((one, future))
            self._scale(runtime)
            for one, future in futures:
                try:
                    one.answer, one.is_answered = future.result(SECONDS), True
                except fn.TransactionAborted as error:
                    one.answer, one.is_answered = str(error), True
                except Dead:
                    assert not is_last
            with suppress(Dead):
                if feeds:
                    runtime.drain(SECONDS)
            self._note(runtime)
        if is_last:
            assert not fuse.is_blown
            runtime.stop()
            self.state = {
                row["key"]: row["state"] for batch in store.table("thing").read() for row in batch.to_pylist()
            }
            for name in feeds:
                found = answers(store, f"{name}.answers")
                for one in self.sent:
                    if one.feed == name:
                        value, error = found[one.request_id]
                        one.answer, one.is_answered = error if value is None else json.loads(value), True
            store.close()
            return
        fuse.blow()
        # Rows of a feed ran on until then.
        self._note(runtime)
        with suppress(Dead):
            runtime.stop()
        with suppress(Dead):
            store.close()

    def _fill(self, feeds: Sequence[str]) -> None:
        """Rows that a life finds."""
        for name in feeds:
            made = [make_request(self.chance) for _ in range(self.chance.randint(0, 30))]
            rows = [Sent(len(self.sent) + at, *one, name) for at, one in enumerate(made)]
            self.sent += rows
            found = [{"id": one.request_id, "key": one.key, "steps": json.dumps(one.steps)} for one in rows]
            with open_on(self.bucket, QuickSystem()) as store:
                epoch = store.new_epoch()
                store.table(name).upsert(found, epoch)
                store.commit_epoch(epoch)

    def _scale(self, runtime: fn.Runtime) -> None:
        """Sometimes, while requests are under way."""
        if self.workers_max and self.chance.random() < 0.5 and self._has_workers(runtime):
            # A worker that cannot open the store is a failure of this call only.
            with suppress(Dead, ObjectStoreUnavailable):
                runtime.scale(self.chance.randint(1, self.workers_max))

    def _has_workers(self, runtime: fn.Runtime) -> bool:
        with suppress(Dead):
            return "workers" in runtime.stats()
        return False

    def _note(self, runtime: fn.Runtime) -> None:
        """Where requests ended, as this life knows it; a later life knows better, if it knows."""
        for one in self.sent:
            graph = None
            with suppress(Dead, fn.ApplicationStopped):
                graph = runtime.call_graph(one.request_id)
            if graph is not None:
                is_odd = graph["runs"] % 2 == 1 or not self.lock_phase
                is_first = graph["phase"] != "locked" if graph["phase"] != "aborted" else is_odd
                order = 0 if is_first and graph["phase"] == "aborted" else LOCK_FREE if is_first else 2
                one.place = graph["epoch"], order, graph["tid"]

    def _check(self) -> None:
        model = Interpreter()
        assert all(one.is_answered and one.place is not None for one in self.sent)
        ordered = sorted(self.sent, key=lambda one: one.place or (0, 0, 0))
        for (_, phase), ones in groupby(ordered, key=lambda one: (one.place or (0, 0, 0))[:2]):
            # What had been drawn by one that was aborted is not told, and it left nothing.
            known = [one for one in ones if not (isinstance(one.answer, str) and ["draw"] in one.steps)]
            if phase == LOCK_FREE:
                self._check_lock_free(model, known)
                continue
            for one in known:
                one.check(model.run(one.key, one.steps, one.answer))
        assert self.state == {key: f'{{"v":{value}}}' for key, value in model.state.items()}

    def _check_lock_free(self, model: Interpreter, ones: Sequence[Sent]) -> None:
        """All ran on what the epoch began with; but in the mode `snapshot` that is as if one after the other had."""
        looks = [model.look(one.key, one.steps, one.answer) for one in ones]
        for one, (expected, _) in zip(ones, looks, strict=True):
            one.check(expected)
        states = [state for _, state in looks]
        writes = [key for state in states for key in state.writes]
        assert len(set(writes)) == len(writes), "two have written one entity"
        if self.conflicts == "snapshot":
            for state in states:
                model.take(state)
            return
        readers = {
            at: [other for other, it in enumerate(states) if other != at and it.reads & state.writes]
            for at, state in enumerate(states)
        }
        order = TopologicalSorter(readers).static_order() if self.conflicts == "reorder" else range(len(ones))
        for at in order:
            ones[at].check(model.run(ones[at].key, ones[at].steps, ones[at].answer))
