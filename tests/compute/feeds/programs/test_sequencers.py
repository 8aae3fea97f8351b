"""Callers and each feed have a sequencer: their requests take turns, and a replay gives the same numbers."""

import os
import signal
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from support.feeds.transfers import answers
from support.functions.accounts import cells
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import StateStore, TableNotFound

SECONDS = 60
ROWS = pa.schema([pa.field("id", pa.string(), nullable=False), ("key", pa.string(), False), ("n", pa.int64(), False)])


def fill(store: StateStore, table: str, ids: Iterable[str], key: str = "hot") -> None:
    """Rows that ask for a 1 more."""
    if table not in store.tables():
        store.create_table(table, ROWS, primary_key=["id"])
    epoch = store.new_epoch()
    store.table(table).upsert([{"id": one, "key": key, "n": 1} for one in ids], epoch)
    store.commit_epoch(epoch)


def program(store: StateStore, feeds: str, **options: Any) -> fn.Runtime:
    """Adds what callers and the rows of tables say, where feeds are named by letters."""
    runtime = fn.Runtime(store, "p", [cells()], **options)
    for name in feeds:
        columns: Any = {"key": "key", "arguments": ["n"], "request_id": "id"}
        runtime.feed("cell", "add", fn.TableFeed(name), name=name, replies=f"{name}.answers", **columns)
    return runtime


def numbers(runtime: fn.Runtime, ids: Iterable[str]) -> list[int]:
    """Of transactions, by their ids."""
    found = [runtime.call_graph(one) for one in ids]
    return [one["tid"] for one in found if one is not None]


@pytest.mark.parametrize("workers", [0, 2])
def test_callers_and_feeds_take_turns(store: StateStore, workers: int) -> None:
    """X11, X12: those of one epoch get the numbers of three sequencers, though they came one source after the other."""
    fill(store, "f", [])
    fill(store, "g", [])
    with program(store, "fg", workers=workers) as runtime:
        runtime.send("cell", "k", "add", 1).result(SECONDS)
        before = runtime.stats()["tid"]
        assert before % 3 == 0
        runtime.pause()
        for name, count in (("f", 5), ("g", 1)):
            fill(store, name, [f"{name}{at}" for at in range(count)])
            eventually(lambda name=name, count=count: runtime.stats()["feeds"][name]["rows"] == count)  # type: ignore[misc]
        mine = [runtime.send("cell", "hot", "add", 1, request_id=f"c{at}") for at in range(2)]
        runtime.resume()
        runtime.drain(SECONDS)
        assert [one.result(SECONDS) for one in mine] == [1, 4]
        assert numbers(runtime, ["c0", "c1"]) == [before + 1, before + 4]
        assert sorted(numbers(runtime, [f"f{at}" for at in range(5)])) == [before + 2 + 3 * at for at in range(5)]
        assert numbers(runtime, ["g0"]) == [before + 3]
        runtime.send("cell", "hot", "add", 1, request_id="next").result(SECONDS)
        assert numbers(runtime, ["next"]) == [before + 16]
    assert answers(store, "g.answers") == {"g0": ("3", None)}


def test_feeds_come_and_go_and_a_replay_numbers_as_before(store: StateStore) -> None:
    """Each of these lives takes over from one that has committed nothing."""
    fill(store, "f", ["f0", "f1"])
    fill(store, "g", ["g0", "g1"])
    lives: list[fn.Runtime] = []
    known: dict[str, list[int]] = {}
    for at, (feeds, rows) in enumerate([("", 0), ("f", 2), ("fg", 2), ("g", 0), ("", 0), ("fg", 0), ("f", 0)]):
        runtime = program(store, feeds, checkpoint=3600)
        runtime.start()
        lives.append(runtime)
        if rows:
            # All that this life's feeds have not had.
            name = feeds[-1]
            eventually(lambda life=runtime, name=name: life.stats()["feeds"][name]["rows"] == 2)  # type: ignore[misc]
        sent = runtime.send("cell", "hot", "add", 1, request_id=f"c{at}")
        sent.result(SECONDS)
        assert {one: numbers(runtime, [one]) for one in known} == known
        ids = [f"c{at}", *([f"{feeds[-1]}0", f"{feeds[-1]}1"] if rows else [])]
        known |= {one: numbers(runtime, [one]) for one in ids}
        assert runtime.stats()["tid"] % (1 + len(feeds)) == 0
        assert runtime.stats()["commits"] == 0
    assert len({number for found in known.values() for number in found}) == len(known) == 11
    *others, last = lives
    assert last.query("cell", "hot") == {"value": 11}
    last.stop()
    for one in others:
        with pytest.raises(fn.ApplicationFenced):
            one.stop()


@pytest.mark.parametrize("others", ["", "g"])
def test_a_replay_has_replies_of_a_feed_that_is_gone(
    store: StateStore, caplog: pytest.LogCaptureFixture, others: str
) -> None:
    """They are in the table that they would be in, and behind what comes there when the feed is back."""
    fill(store, "f", ["f0"])
    fill(store, "g", [])
    first = program(store, "f", checkpoint=3600)
    first.start()
    eventually(lambda: first.query("cell", "hot") == {"value": 1})
    for _ in range(2):
        # The first of these commits.
        with program(store, others) as second:
            assert second.query("cell", "hot") == {"value": 1}
        assert answers(store, "f.answers") == {"f0": ("1", None)}
    assert "has rows that no commit has, which run again" in caplog.text
    fill(store, "f", ["f1"])
    with program(store, "f") as third:
        third.drain(SECONDS)
    assert answers(store, "f.answers") == {"f0": ("1", None), "f1": ("2", None)}
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


def test_a_replay_does_without_a_table_of_replies_that_was_dropped(store: StateStore) -> None:
    """Its rows run again all the same."""
    fill(store, "f", ["f0"])
    first = program(store, "f", checkpoint=3600)
    first.start()
    eventually(lambda: first.query("cell", "hot") == {"value": 1})
    store.drop_table("f.answers")
    with program(store, "") as second:
        assert second.query("cell", "hot") == {"value": 1}
    assert "f.answers" not in store.tables()
    with pytest.raises((fn.ApplicationFenced, TableNotFound)):
        first.stop()


def test_an_epoch_that_ends_early_leaves_rows_of_each_feed_to_the_next(store: StateStore) -> None:
    """What has no room for its reply runs later, once, and nothing behind it of the same feed goes first."""
    operator = cells()

    @operator.register
    def large(ctx: fn.FunctionContext, n: int) -> str:
        ctx.put({"value": ((ctx.get() or {}).get("value") or 0) + n})
        return "x" * 1_000_000

    counts = {"f": 60, "g": 20, "c": 20}
    for name in "fg":
        fill(store, name, [f"{name}{at}" for at in range(counts[name])], name)
    for life in range(2):
        runtime = fn.Runtime(store, "p", [operator], epoch_ms=500, lock_phase=False)
        for name in "fg":
            columns: Any = {"key": "key", "arguments": ["n"], "request_id": "id"}
            runtime.feed("cell", "large", fn.TableFeed(name), name=name, **columns)
        with runtime:
            sent = [runtime.send("cell", "c", "large", 1, request_id=f"c{at}") for at in range(counts["c"])]
            runtime.drain(SECONDS)
            assert all(len(one.result(SECONDS)) == 1_000_000 for one in sent)
            assert {name: runtime.query("cell", name) for name in counts} == {
                name: {"value": count} for name, count in counts.items()
            }
            if life == 0:
                assert len({runtime.call_graph(f"f{at}")["epoch"] for at in range(60)}) > 1  # type: ignore[index]


def test_a_drain_waits_for_rows_that_run_again(store: StateStore) -> None:
    """Story: it returned when all were taken, and those that had lost ran in later epochs."""
    fill(store, "f", [f"f{at}" for at in range(40)])
    with program(store, "f", lock_phase=False) as runtime:
        runtime.drain(SECONDS)
        assert runtime.query("cell", "hot") == {"value": 40}
    assert len(answers(store, "f.answers")) == 40


def test_a_lost_worker_changes_no_number(store: StateStore) -> None:
    """All go back to the newest commit, and the feed's sequencer is there again before its rows are."""
    fill(store, "f", ["f0", "f1"])
    with program(store, "f", workers=2, checkpoint=3600) as runtime:
        eventually(lambda: runtime.query("cell", "hot") == {"value": 2})
        runtime.send("cell", "hot", "add", 1, request_id="c0").result(SECONDS)
        known = numbers(runtime, ["f0", "f1", "c0"])
        os.kill(runtime.worker_processes()[0], signal.SIGKILL)
        assert runtime.send("cell", "hot", "add", 1, request_id="c1").result(SECONDS) == 4
        assert runtime.stats()["commits"] == 0
        assert numbers(runtime, ["f0", "f1", "c0"]) == known
    assert len(answers(store, "f.answers")) == 2
