"""One random history of one random flow: pushes, pauses, steps, slow readers, deaths, successors; all from a seed.

Threads decide which records become durable together, so two runs of a seed are not the same in every request; what is
asked for is, and the rules hold for all of them.
"""

import random
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.changelog.flow_operators import check_operators, operators
from support.changelog.put_oracle import Rows, apply_published, put
from support.procedures.histories import Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, WaitTimeout
from tussock.statestore.buckets import open_bucket
from tussock.statestore.errors import ObjectStoreUnavailable

__all__ = ["FlowHistory"]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.string())])
KEYS = 8
KEEP = 5
"""Rows of the stream whose rows expire."""
LIVES = (1, 4)
SECONDS_MAX = 20


class _Died(Exception):
    """The runner is dead."""


def by_record(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
    """Some records vanish, some are two, some cannot be."""
    if row.op == "DELETE":
        return [cl.safedelete(k=row["k"]), cl.safedelete(k=row["k"] + 100)]
    if row["v"] % 11 == 0:
        raise ValueError(f"no {row['v']}")
    if row["v"] % 5 == 0:
        return []
    twin = cl.upsert(k=row["k"] + 100, v=-row["v"], t=None)
    return [cl.upsert(k=row["k"], v=row["v"] * 2, t=row["t"]), *([twin] if row["v"] % 2 else [])]


def by_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Another value in each row; of a key that changes with it the old row has to go."""
    key = pc.add(pc.multiply(batch.column("k"), 10), pc.bit_wise_and(batch.column("v"), 1))
    return batch.set_column(0, "k", key)


class _ReadFuse(Fuse):
    """A `Fuse` with outages of reads, too: what a stream is at has to be done once more."""

    every = 0
    """One of that many reads of rows fails; 0: none does."""
    _reads = 0

    def __call__(self, call: Call) -> Fate:
        fate = super().__call__(call)
        if fate is not Fate.PASS or call.operation != "get" or not call.path.startswith("sst/"):
            return fate
        self._reads += 1
        return Fate.LOSE_REQUEST if self.every and self._reads % self.every == 0 else fate


class FlowHistory:
    """The flow of one seed, through all its lives."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bucket = open_bucket("memory://")
        self.sent: list[tuple[int, list[cl.ChangeRecord], Future[int]]] = []
        """Pushed: to which source, what, and the reply; unique by the text of its first record."""
        self.seen: dict[str, list[cl.StreamTransaction]] = {}
        """By stream, what a subscriber has got, in all lives."""
        self.deaths = 0
        self.checkpoint = self.chance.choice((0, 0.01, 3600))

    def run(self) -> None:
        """All its lives; the last one ends well, and is looked at closely."""
        lives = self.chance.randint(*LIVES)
        for life in range(lives + 1):
            self._live(is_last=life == lives)

    def _live(self, *, is_last: bool) -> None:
        fuse = self._fuse(is_last=is_last)
        store = flow = None
        is_begun = False
        try:
            store = open_on(FaultyBucket(self.bucket, fuse), QuickSystem())
            flow = self._flow(store)
            flow.start()
            is_begun = True
            for _ in range(self.chance.randint(2, 20)):
                self._act(flow)
            if self.chance.random() < 0.5:
                self._walk(flow)
            if is_last or self.chance.random() < 0.3:
                self._end_well(flow)
                if is_last:
                    self._check(store, flow)
            flow.stop()
        except AssertionError:
            raise
        except Exception as error:
            # An outage ends a start, and nothing that runs.
            if not fuse.is_blown and (is_begun or not isinstance(error, ObjectStoreUnavailable)):
                raise AssertionError(f"without a death: {type(error).__name__}: {error}") from error
            self.deaths += 1
        finally:
            if not is_last:
                fuse.blow()
            with suppress(Exception):
                if flow is not None:
                    flow.stop()
            with suppress(Exception):
                if store is not None:
                    store.close()

    def _fuse(self, *, is_last: bool) -> Fuse:
        chance = self.chance
        at = 10**9 if is_last or chance.random() < 0.2 else chance.randint(5, 120)
        hiccups = {chance.randint(10, 80): chance.choice((Fate.LOSE_REQUEST, Fate.LOSE_ANSWER)) for _ in range(2)}
        fuse = _ReadFuse(at, is_done=chance.random() < 0.5, hiccups={} if is_last else hiccups)
        fuse.every = 0 if is_last else chance.choice((0, 2, 3))
        return fuse

    def _flow(self, store: StateStore) -> cl.Flow:
        chance = self.chance
        options: dict[str, Any] = {"schema": SCHEMA, "key": ["k"], "history": 100_000}
        first = cl.Stream(store, "first", queue=chance.choice((1, 3, 1024)), **options)
        second = cl.Stream(store, "second", **options)
        mapped = cl.Stream(store, "mapped", inputs=[first], queue=chance.choice((1, 2, 1024)), **options)
        mapped.compute(by_record)
        batched = cl.Stream(store, "batched", inputs=[mapped], **options)
        batched.compute_batch(by_batch)
        both = cl.Stream(store, "both", inputs=[first, second], queue=chance.choice((1, 1024)), **options)
        newest = cl.Stream(store, "newest", inputs=[both], keep=f"{KEEP} rows", **options)
        views = operators(first, second)
        return cl.Flow(
            store,
            [first, second, mapped, batched, both, newest, *views],
            checkpoint=self.checkpoint,
            group_commit=chance.choice((None, 0.0, 0.005)),
        )

    # --- What happens ------------------------------------------------------------------------------------------------

    def _act(self, flow: cl.Flow) -> None:
        chance, streams = self.chance, flow.streams
        one = chance.random()
        if one < 0.4:
            self._push(flow)
        elif one < 0.5:
            self._walk(flow)
        elif one < 0.6:
            flow.pause()
        elif one < 0.75 and flow.paused_at is not None:
            flow.step(chance.choice(("row", "trans", "location")), chance.choice((None, *streams)))
        elif one < 0.8:
            flow.resume()
        elif one < 0.85:
            streams[chance.choice([*streams])].hold()
        elif one < 0.9:
            streams[chance.choice([*streams])].release()
        elif one < 0.95:
            side = chance.choice(("input", "output"))
            streams[chance.choice([*streams])].break_on(side, lambda row: row["k"] % 3 == 0, every=chance.randint(1, 3))
        else:
            self._read(flow, chance.choice([*streams]))

    def _walk(self, flow: cl.Flow) -> None:
        """Step by step through what comes, which stands half computed in between."""
        flow.pause()
        self._push(flow, is_good=self.chance.random() < 0.7)
        stream = self.chance.choice((None, "sums"))
        if stream is not None:
            for before in ("first", "shown"):
                flow.quiesce(before)
        for _ in range(self.chance.randint(1, 6)):
            flow.step(self.chance.choice(("row", "row", "location")), stream)

    def _push(self, flow: cl.Flow, *, is_good: bool = False) -> None:
        """To either source; or what no stream has anything against, to the first one."""
        chance = self.chance
        to = 0 if is_good else chance.randint(0, 1)
        records = []
        for _ in range(chance.randint(2 * is_good, 5)):
            kind = chance.choice((cl.upsert, cl.upsert, cl.insert, cl.update, cl.delete, cl.safedelete))
            kind = cl.upsert if is_good else kind
            value = chance.choice((1, 2, 3, 4)) if is_good else chance.randrange(100)
            values = {"k": chance.randrange(KEYS), "v": value, "t": f"{len(self.sent)}"}
            records.append(kind(**values))
        stream = flow.streams[("first", "second")[to]]
        with suppress(cl.Full):
            self.sent.append((to, records, stream.push(records, wait=False)))

    def _read(self, flow: cl.Flow, name: str) -> None:
        """A subscriber goes on where one of that stream was, and takes what is there."""
        seen = self.seen.setdefault(name, [])
        reader = flow.streams[name].subscribe(from_seq=len(seen) + 1, blocks=True, timeout=0.01)
        with reader as found, suppress(WaitTimeout):
            for one in found:
                seen.append(one)

    def _end_well(self, flow: cl.Flow) -> None:
        for one in flow.streams.values():
            for point in one.breakpoints:
                point.remove()
            one.release()
        flow.resume()
        flow.drain(SECONDS_MAX)
        for name in flow.streams:
            self._read(flow, name)

    # --- What has to hold --------------------------------------------------------------------------------------------

    def _check(self, store: StateStore, flow: cl.Flow) -> None:
        taken = {name: one.in_history() for name, one in flow.streams.items()}
        out = {name: one.out_history() for name, one in flow.streams.items()}
        bad = {name: one.bad_rows(100_000) for name, one in flow.streams.items()}
        for name in flow.streams:
            assert [one.seq for one in out[name]] == list(range(1, len(out[name]) + 1)), f"{name}: numbers have gaps"
            (key,) = flow.streams[name].key
            table = {row[key]: row for batch in store.table(name).read() for row in batch.to_pylist()}
            shown: Rows = {}
            for one in out[name]:
                apply_published(shown, one, key)
            assert table == shown, f"{name}: the table is not what was published"
            seen = [(one.seq, repr(one.records)) for one in self.seen.get(name, [])]
            published = [(one.seq, repr(_with_pairs(one))) for one in out[name]]
            assert seen == published[: len(seen)], f"{name}: a subscriber has got something else"
            assert len(seen) == len(published), f"{name}: a subscriber has missed something"
        for at, name in enumerate(("first", "second")):
            self._check_source(at, taken[name], bad[name], out[name])
        self._check_order(taken, out, bad)
        self._check_put("mapped", taken, out, lambda one: [r for row in one for r in by_record(row)])
        self._check_put("batched", taken, out, _batched)
        self._check_put("both", taken, out, lambda one: [_soft(row) for row in one])
        assert len([1 for batch in store.table("newest").read() for _ in range(batch.num_rows)]) <= KEEP
        check_operators(out, bad)

    def _check_source(
        self, at: int, taken: list[cl.StreamTransaction], bad: list[cl.BadRecord], out: list[cl.StreamTransaction]
    ) -> None:
        """Each push that was answered is there once, in order; of the others some; and each has its effect."""
        rows: Rows = {}
        good = iter(taken)
        results = iter(out)
        numbers = {one.seq for one in bad}
        ours = [(records, reply) for to, records, reply in self.sent if to == at]
        known = {reply.result() for _, reply in ours if _is_answered(reply)}
        following = next(good, None)
        for records, reply in ours:
            answered = _is_answered(reply)
            fits = following is not None and [_key(one) for one in following] == [_key(one) for one in records]
            # What was taken has the number with which the push was answered.
            fits = fits and (following.seq == reply.result() if answered else following.seq not in known)
            effect = put(rows, records)
            if answered:
                seq = reply.result()
                if effect is None:
                    assert seq in numbers, f"push {seq}: {records} is bad, and is not told"
                    continue
                assert fits, f"push {seq}: {records} is not there; the next one is {following}"
            elif effect is None or not fits:
                continue
            assert effect is not None
            rows, published = effect
            assert next(results).records == published
            following = next(good, None)
        assert following is None, f"more than was pushed: {following}"

    def _check_order(self, taken: Any, out: Any, bad: Any) -> None:
        for name, source in (("mapped", "first"), ("batched", "mapped"), ("newest", "both")):
            good = [repr(one.records) for one in taken[name]]
            kept = {one.seq for one in bad[name]}
            given = [repr(one.records) for one in out[source] if one.seq not in kept]
            assert good == given, f"{name}: took {good}; {source} has {given}; {bad[name]}"
        merged = [repr(one.records) for one in taken["both"]]
        for source in ("first", "second"):
            own = [repr(one.records) for one in out[source]]
            at = iter(merged)
            assert all(any(one == other for other in at) for one in own), f"both: not {source} in its order"
        assert len(merged) == len(out["first"]) + len(out["second"])

    def _check_put(self, name: str, taken: Any, out: Any, compute: Any) -> None:
        rows: Rows = {}
        for one, result in zip(taken[name], out[name], strict=True):
            effect = put(rows, compute(one.records))
            assert effect is not None
            rows, published = effect
            assert result.records == published, f"{name} {one.seq}"


def _is_answered(reply: Future[int]) -> bool:
    return reply.done() and not reply.cancelled() and reply.exception() is None


def _batched(records: list[cl.ChangeRecord]) -> list[cl.ChangeRecord]:
    found = []
    for one in records:
        if one.old is not None and _moved(one.old)["k"] != _moved(one)["k"]:
            found.append(cl.safedelete(_moved(one.old)))
        found.append((cl.safedelete if one.op == "DELETE" else cl.upsert)(_moved(one)))
    return found


def _moved(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "k": one["k"] * 10 + (one["v"] & 1)}


def _soft(one: cl.ChangeRecord) -> cl.ChangeRecord:
    return (cl.safedelete if one.op == "DELETE" else cl.upsert)(dict(one))


def _key(one: cl.ChangeRecord) -> tuple[Any, ...]:
    return one.op, one["k"], None if one.op in ("DELETE", "SAFEDELETE") else (one["v"], one["t"])


def _with_pairs(one: cl.StreamTransaction) -> list[cl.ChangeRecord]:
    return [part for record in one for part in ((record,) if record.old is None else (record, record.old))]
