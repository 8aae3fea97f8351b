"""What a flow has after its process died, was replaced, or was declared otherwise."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, WaitTimeout, connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def bucket() -> ObjectStore:
    return open_bucket("memory://")


def stream(store: StateStore, name: str = "s", **options: Any) -> cl.Stream:
    return cl.Stream(store, name, schema=SCHEMA, key=["k"], **options)


def rows(store: StateStore, name: str = "s") -> dict[str, int]:
    return {row["k"]: row["v"] for batch in store.table(name).read() for row in batch.to_pylist()}


def die_after(bucket: ObjectStore, declare: Callable[[StateStore], cl.Flow], work: Callable[[cl.Flow], Any]) -> None:
    """A process that is dead after `work`, without a last commit."""
    fuse = Fuse(10**9, is_done=False, hiccups={})
    store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
    flow = declare(store)
    flow.start()
    work(flow)
    fuse.blow()
    with suppress(Dead):
        flow.stop()
    with suppress(Dead):
        store.close()


def two(store: StateStore, **options: Any) -> cl.Flow:
    """`s`, and `d` behind it with a queue of one."""
    s = stream(store)
    return cl.Flow(store, [s, stream(store, "d", inputs=[s], queue=1)], **options)


def test_ce12_a_crash_after_put_and_before_the_commit(bucket: ObjectStore) -> None:
    """The transaction is replayed from the input log, and has one effect."""

    def work(flow: cl.Flow) -> None:
        flow.streams["s"].push([cl.insert(k="a", v=1)]).result(10)
        assert flow.streams["s"].get("a") == {"k": "a", "v": 1}

    die_after(bucket, lambda store: two(store, checkpoint=3600), work)
    with open_on(bucket, QuickSystem()) as store:
        assert rows(store) == {}
        with two(store) as flow:
            flow.drain(10)
            assert [one.records for one in flow.streams["d"].out_history()] == [[cl.insert(k="a", v=1)]]
        assert rows(store) == rows(store, "d") == {"a": 1}


def test_ce12_a_crash_after_the_commit_and_before_output(bucket: ObjectStore) -> None:
    """The transaction is not computed again, and is delivered once."""
    computed = []

    def declare(store: StateStore) -> cl.Flow:
        s = stream(store)
        d = stream(store, "d", inputs=[s], queue=1)

        @s.compute
        def note(row: cl.ChangeRecord) -> cl.ChangeRecord:
            computed.append(row["v"])
            return row

        return cl.Flow(store, [s, d], checkpoint=0)

    def work(flow: cl.Flow) -> None:
        flow.streams["d"].hold()
        for at in (1, 2):
            flow.streams["s"].push([cl.upsert(k="a", v=at)]).result(10)
        assert flow.streams["s"].location is cl.Location.OUTPUT

    die_after(bucket, declare, work)
    with open_on(bucket, QuickSystem()) as store:
        assert rows(store) == {"a": 2}
        with declare(store) as flow:
            flow.drain(10)
            assert computed == [1, 2]
            assert [[one["v"] for one in each] for each in flow.streams["d"].in_history()] == [[1], [2]]


def test_what_waits_in_queues_waits_after_a_stop(store: StateStore) -> None:
    """In its order; a paused flow stops, and begins without a pause."""
    s = stream(store)
    flow = cl.Flow(store, [s])
    flow.start()
    flow.pause()
    for at in range(5):
        s.push([cl.upsert(k="a", v=at)]).result(10)
    assert s.queued == 5
    flow.stop()
    assert rows(store) == {}
    with flow:
        flow.drain(10)
        assert [one.records[0]["v"] for one in s.in_history()] == [0, 1, 2, 3, 4]


def test_a_commit_in_the_middle_of_a_transaction_has_nothing_of_it(store: StateStore) -> None:
    """A pause in COMPUTE lets others commit; then the transaction goes on as if nothing had been."""
    s = stream(store)
    d = stream(store, "d", inputs=[s])
    with cl.Flow(store, [s, d], checkpoint=0) as flow:
        d.break_on("input", lambda row: row["k"] == "b")
        s.push([cl.upsert(k="a", v=1), cl.upsert(k="b", v=2), cl.upsert(k="c", v=3)]).result(10)
        assert flow.wait_paused(10).row == 1
        for at in range(3):
            s.push([cl.upsert(k="other", v=at)]).result(10)
        assert (rows(store), rows(store, "d")) == ({"a": 1, "b": 2, "c": 3}, {})
        assert flow.step("row").row == 2
        assert [one["k"] for one in d.out_trans or ()] == ["a", "b"]
        flow.resume()
        flow.drain(10)
        assert rows(store, "d") == {"a": 1, "b": 2, "c": 3, "other": 2}


def test_a_stream_that_comes_later_begins_with_the_rows_of_its_input(store: StateStore) -> None:
    """As one transaction of insertions; then it follows."""
    s = stream(store)
    with cl.Flow(store, [s]) as flow:
        s.push([cl.insert(k="a", v=1), cl.insert(k="b", v=2)])
        s.push([cl.delete(k="b")]).result(10)
        flow.drain(10)
    s, late = stream(store), None
    late = stream(store, "late", inputs=[s])
    with cl.Flow(store, [s, late]) as flow:
        s.push([cl.insert(k="c", v=3)]).result(10)
        flow.drain(10)
        assert [one.records for one in late.out_history()] == [[cl.insert(k="a", v=1)], [cl.insert(k="c", v=3)]]
    assert rows(store, "late") == {"a": 1, "c": 3}


def test_a_function_that_is_not_deterministic_does_not_start(bucket: ObjectStore) -> None:
    """It is told by the record; nothing is changed."""
    draws = iter(range(1000))

    def declare(store: StateStore) -> cl.Flow:
        s = stream(store)
        s.compute(lambda row: cl.upsert(k=row["k"], v=next(draws)))
        return cl.Flow(store, [s], checkpoint=3600)

    die_after(bucket, declare, lambda flow: flow.streams["s"].push([cl.upsert(k="a", v=1)]).result(10))
    with open_on(bucket, QuickSystem()) as store:
        with pytest.raises(cl.NotDeterministic, match="Does a compute function read a clock"):
            declare(store).start()
        assert rows(store) == {}


def test_a_flow_that_was_changed_with_records_left_says_so(bucket: ObjectStore) -> None:
    """Its log has a transaction for a stream that it no longer has."""
    die_after(
        bucket,
        lambda store: two(store, checkpoint=3600),
        lambda flow: flow.streams["s"].push([cl.upsert(k="a", v=1)]).result(10),
    )
    with open_on(bucket, QuickSystem()) as store:
        with pytest.raises(cl.NotDeterministic, match="Stop it in order before you change it"):
            cl.Flow(store, [stream(store)]).start()
        with two(store) as flow:
            flow.drain(10)
            assert flow.streams["d"].get("a") == {"k": "a", "v": 1}


def test_a_second_runner_shuts_the_first_one_out(store: StateStore) -> None:
    """Callers and subscribers of the first one hear of it."""
    first, second = two(store), two(store)
    first.start()
    first.streams["s"].push([cl.upsert(k="a", v=1)]).result(10)
    reader = first.streams["s"].subscribe(from_seq=None, timeout=20)
    with second:
        with pytest.raises(cl.ApplicationFenced):
            first.streams["s"].push([cl.upsert(k="a", v=2)]).result(10)
        with pytest.raises(cl.ApplicationFenced):
            next(reader)
        second.drain(10)
        assert second.streams["s"].get("a") == {"k": "a", "v": 1}
    with pytest.raises(cl.ApplicationFenced):
        first.stop()


def test_histories_keep_what_they_are_told_to(store: StateStore) -> None:
    """The newest ones, and over a restart; a subscriber who comes too late is told."""
    s = stream(store, history=3)
    flow = cl.Flow(store, [s])
    for _ in range(2):
        with flow:
            for at in range(5):
                s.push([cl.upsert(k="a", v=at)]).result(10)
            flow.drain(10)
            newest = [one.seq for one in s.out_history()]
            assert newest == [one.seq for one in s.in_history()]
            assert len(newest) == 3
            with pytest.raises(cl.HistoryGone) as gone:
                s.subscribe(from_seq=1)
            assert gone.value.args[1] == newest[0]
            with s.subscribe(from_seq=newest[0], timeout=10) as found:
                assert [one.seq for one in itertools.islice(found, 3)] == newest
    with flow:
        assert [one.seq for one in s.out_history()] == [8, 9, 10]
        with s.subscribe(from_seq=None, timeout=0.01) as found, pytest.raises(WaitTimeout):
            next(found)


def test_a_history_keeps_what_a_subscriber_has_not_read(store: StateStore) -> None:
    """However few transactions it holds otherwise."""
    s = stream(store, history=1)
    with cl.Flow(store, [s]) as flow:
        with s.subscribe(timeout=10) as found:
            for at in range(20):
                s.push([cl.upsert(k="a", v=at)]).result(10)
            flow.drain(10)
            assert [next(found).records[0]["v"] for _ in range(20)] == list(range(20))
        s.push([cl.upsert(k="a", v=99)]).result(10)
        assert len(s.out_history()) == 1


def test_many_flows_run_in_one_process(store: StateStore) -> None:
    """Each on its own, on one store."""
    flows = [cl.Flow(store, [stream(store, f"s{at}")]) for at in range(8)]
    for flow in flows:
        flow.start()
    answers = [
        flow.streams[f"s{at}"].push([cl.insert(k="a", v=number)])
        for number in range(1)
        for at, flow in enumerate(flows)
    ]
    assert [one.result(10) for one in answers] == [1] * 8
    for flow in flows:
        flow.stop()
    assert [rows(store, f"s{at}") for at in range(8)] == [{"a": 0}] * 8


def test_bad_transactions_are_given_again_after_a_fix(store: StateStore) -> None:
    """Kept with their records over a restart; gone from the list once they were given again."""
    s, d = stream(store), None
    d = stream(store, "d", inputs=[s])
    d.compute(lambda row: cl.upsert(k=row["k"], v=100 // row["v"]))
    with cl.Flow(store, [s, d]) as flow:
        s.push([cl.upsert(k="a", v=0)]).result(10)
        flow.drain(10)
        [bad] = d.bad_rows()
    s, d = stream(store), None
    d = stream(store, "d", inputs=[s])
    d.compute(lambda row: cl.upsert(k=row["k"], v=100 // (row["v"] or 1)))
    with cl.Flow(store, [s, d]) as flow:
        assert d.bad_rows() == [bad]
        flow.replay_bad(bad.number)
        flow.drain(10)
        assert d.bad_rows() == []
        assert [one.records for one in d.in_history()] == [[cl.insert(k="a", v=0)]]
        with pytest.raises(InvalidOption, match="no bad transaction 1"):
            flow.replay_bad(bad.number)
    assert rows(store, "d") == {"a": 100}


def test_a_handler_says_what_becomes_of_bad_transactions(store: StateStore) -> None:
    """Skipped ones are told, and cannot be given again; one that stops the flow comes again at the next start."""
    s = stream(store)
    told: list[cl.BadRecord] = []

    def handle(bad: cl.BadRecord) -> str | None:
        told.append(bad)
        return {2: "skip", 4: "stop"}.get(bad.seq)

    s.on_bad_row(handle)  # type: ignore[arg-type]  # its words are checked as they come
    flow = cl.Flow(store, [s])
    flow.start()
    for at in range(4):
        s.push([cl.insert(k="a", v=at)]).result(10)
    with pytest.raises(cl.BadRow, match="transaction 4 of what was pushed") as error:
        flow.stop()
    assert (error.value.stream, error.value.seq, error.value.row) == ("s", 4, 0)
    s.on_bad_row("skip")
    with flow:
        flow.drain(10)
        assert [(one.seq, one.is_kept) for one in s.bad_rows()] == [(2, False), (3, True), (4, False)]
        with pytest.raises(InvalidOption, match="was skipped"):
            flow.replay_bad(1)
        flow.replay_bad(2)
        flow.drain(10)
        assert [one.seq for one in s.bad_rows()] == [2, 4, 5]
    assert [one.seq for one in told] == [2, 3, 4]


def test_an_outage_of_the_bucket_is_no_fault_of_a_transaction(bucket: ObjectStore) -> None:
    """The flow waits, and goes on."""
    with open_on(bucket, QuickSystem()) as store, cl.Flow(store, [stream(store)]) as flow:
        flow.streams["s"].push([cl.insert(k=f"k{at}", v=at) for at in range(100)]).result(10)
    faulty = FaultyBucket(bucket)
    with open_on(faulty, QuickSystem()) as store, cl.Flow(store, [stream(store)]) as flow:
        outages = iter([True] * 3)
        faulty.script = lambda call: _lost(call, outages)
        flow.streams["s"].push([cl.upsert(k=f"k{at}", v=-at) for at in range(100)]).result(30)
        flow.drain(30)
        assert flow.streams["s"].bad_rows() == []
    assert rows(open_on(bucket, QuickSystem())) == {f"k{at}": -at for at in range(100)}


def _lost(call: Any, outages: Iterator[bool]) -> Any:
    from support.buckets.faulty_bucket import Fate

    return Fate.LOSE_REQUEST if call.operation in ("get", "get_range") and next(outages, False) else Fate.PASS


def test_a_replay_does_what_the_handler_said(bucket: ObjectStore) -> None:
    """It is not asked again, and what it would say now does not count."""

    def declare(store: StateStore, word: str) -> cl.Flow:
        s = stream(store)
        s.on_bad_row(word)  # type: ignore[arg-type]  # one of the words
        return cl.Flow(store, [s], checkpoint=3600)

    def work(flow: cl.Flow) -> None:
        for _ in range(2):
            flow.streams["s"].push([cl.insert(k="a", v=1)]).result(10)

    die_after(bucket, lambda store: declare(store, "skip"), work)
    with open_on(bucket, QuickSystem()) as store, declare(store, "stop") as flow:
        flow.drain(10)
        assert [one.is_kept for one in flow.streams["s"].bad_rows()] == [False]


def test_a_snapshot_and_what_comes_behind_it_are_the_table(store: StateStore) -> None:
    """While transactions come: a reader who begins with the rows misses nothing, and meets nothing twice."""
    s = stream(store, history=1)
    with cl.Flow(store, [s]) as flow:
        answers = [s.push([cl.upsert(k=f"k{at % 7}", v=at), cl.safedelete(k=f"k{(at + 3) % 7}")]) for at in range(200)]
        answers[20].result(10)
        begun, number = s.snapshot()
        with s.subscribe(from_seq=number + 1, timeout=10) as found:
            seen = {row["k"]: row["v"] for row in begun}
            for one in itertools.islice(found, 200 - number):
                for record in one:
                    if record.op == "DELETE":
                        assert seen.pop(record["k"]) == record["v"]
                    else:
                        assert (record["k"] in seen) == (record.op == "UPDATE")
                        seen[record["k"]] = record["v"]
        flow.drain(10)
        assert rows(store) == seen


def test_what_waited_is_computed_where_arrow_wants_it(store: StateStore, capfd: pytest.CaptureFixture[str]) -> None:
    """Its expressions warn of columns that begin elsewhere than at a multiple of their width."""
    for is_held in (True, False):
        source = stream(store)
        large = cl.filter("large", source, pc.field("v") > 0)
        with cl.Flow(store, [source, large]) as flow:
            if is_held:
                large.hold()
                names = [f"k{at}" for at in range(100)]
                source.push(pa.table({"_op": ["upsert"] * 100, "k": names, "v": list(range(100))})).result(20)
            else:
                flow.drain(20)
                assert len(large.snapshot()[0]) == 99
    assert "aligned" not in capfd.readouterr().err
