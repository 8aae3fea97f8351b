"""The judge of a chaos run finds each kind of harm: a true history with one change is refused."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from support.chaos.child import COUNTER, TABLE
from support.chaos.verdict import judge, longest_pause
from tussock.statestore import StateStore, connect

Lines = list[dict[str, Any]]

COMMITS = [
    ("v", 0, {"k0": "v.0", "k1": "v.0"}),
    ("w", 0, {"k1": "w.0", "k2": "w.0"}),
    ("v", 1, {COUNTER: "1 v.1"}),
    ("w", 1, {"k0": "w.1"}),
]


@pytest.fixture(scope="module")
def run() -> Iterator[tuple[StateStore, Lines]]:
    """Commit four times to a new store and read three times after each; returns the history of it."""
    lines: Lines = []
    clock = iter(range(1, 1000))
    with connect("memory://", compaction=False) as store:
        kv = store.create_table(TABLE)
        state: dict[str, str] = {}
        for writer, batch, wrote in COMMITS:
            epoch = store.new_epoch()
            kv.ingest_batch(sorted((key.encode(), value.encode()) for key, value in wrote.items()), epoch)
            saw = {COUNTER: None} if COUNTER in wrote else {}
            lines.append({"client": writer, "batch": batch, "pid": 1, "at": next(clock), "saw": saw, "wrote": wrote})
            final = store.commit_epoch(epoch, writer=writer, batch_id=batch)
            lines.append({"client": writer, "batch": batch, "pid": 1, "at": next(clock), "epoch": final})
            state = {**state, **wrote}
            for kind in ("snapshot", "plain", "kept"):
                times = {"called": next(clock), "returned": next(clock)}
                known = None if kind == "plain" else final
                lines.append({"client": "r", "kind": kind, "epoch": known, "rows": dict(state), **times})
        # Never answered, and never there.
        lines.append({"client": "w", "batch": 2, "pid": 1, "at": next(clock), "saw": {}, "wrote": {"k0": "w.2"}})
        # Refused, since the counter was read too early.
        lines.append(
            {
                "client": "v",
                "batch": 2,
                "pid": 1,
                "at": next(clock),
                "saw": {COUNTER: None},
                "wrote": {COUNTER: "1 v.2"},
            }
        )
        lines.append({"client": "v", "batch": 2, "pid": 1, "at": next(clock), "conflict": True})
        yield store, lines


def call(lines: Lines, client: str, batch: int) -> dict[str, Any]:
    return next(line for line in lines if line.get("batch") == batch and line["client"] == client and "wrote" in line)


def answer(lines: Lines, client: str, batch: int) -> dict[str, Any]:
    return next(line for line in lines if line.get("batch") == batch and line["client"] == client and "epoch" in line)


def reads(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line.get("kind") == kind]


def test_a_true_history_passes(run: tuple[StateStore, Lines]) -> None:
    store, lines = run
    verdict = judge(lines, store)
    assert verdict == (4, 1, 0, 4, 4)
    assert longest_pause(lines) == 8e-9
    # An answer that was lost is no harm, and it is known that the commit took effect.
    unanswered = [line for line in lines if line is not answer(lines, "w", 1)]
    assert judge(unanswered, store)[:3] == (3, 2, 1)


def test_a_writer_and_its_successor_may_try_a_batch_with_different_rows(run: tuple[StateStore, Lines]) -> None:
    """One try of the batch is there; the outcome of the other one is unknown, or it was refused."""
    store, lines = run
    wrote = {COUNTER: "2 v.1"}
    tried = {"client": "v", "batch": 1, "pid": 2, "at": 3, "saw": {COUNTER: "1 w.7"}, "wrote": wrote}
    assert judge([*lines, tried], store)[:3] == (4, 2, 0)
    assert judge([*lines, tried, {"client": "v", "batch": 1, "pid": 2, "at": 9, "conflict": True}], store)[:2] == (4, 1)
    both = [*lines, tried, {**answer(lines, "v", 1), "pid": 2}]
    with pytest.raises(AssertionError, match="was acknowledged at"):
        judge(both, store)


def test_a_batch_that_two_tries_committed_is_found() -> None:
    """Each try is whole and there once, so the batch is there twice."""
    lines: Lines = []
    with connect("memory://", compaction=False) as store:
        kv = store.create_table(TABLE)
        for pid in (1, 2):
            wrote = {COUNTER: f"{pid} v.0"}
            epoch = store.new_epoch()
            kv.ingest_batch([(COUNTER.encode(), wrote[COUNTER].encode())], epoch)
            store.commit_epoch(epoch)
            lines.append({"client": "v", "batch": 0, "pid": pid, "at": pid, "saw": {}, "wrote": wrote})
        with pytest.raises(AssertionError, match="batch 0 of v is there 2 times"):
            judge(lines, store)


def add(lines: Lines, **line: Any) -> None:
    lines.append(line)


def swap_rows(lines: Lines, kind: str, one: int, other: int) -> None:
    first, second = reads(lines, kind)[one], reads(lines, kind)[other]
    first["rows"], second["rows"] = second["rows"], first["rows"]


def stale(lines: Lines) -> None:
    """A history whose last snapshot shows the state before it, and says so: right by its epoch, and too late."""
    before, last = reads(lines, "snapshot")[-2:]
    last.update(client="s", epoch=before["epoch"], rows=before["rows"])


HARM: dict[str, tuple[Callable[[Lines], object], str]] = {
    "an acknowledged commit is not there": (
        lambda lines: (
            add(lines, client="x", batch=0, pid=1, at=900, saw={}, wrote={"k5": "x.0"}),
            add(lines, client="x", batch=0, pid=1, at=901, epoch=77),
        ),
        "batch 0 of x was acknowledged at 77 and is at",
    ),
    "it is at another epoch": (
        lambda lines: answer(lines, "w", 0).update(epoch=answer(lines, "w", 0)["epoch"] + 1),
        "batch 0 of w was acknowledged at",
    ),
    "two answers differ": (
        lambda lines: add(lines, client="w", batch=1, pid=1, at=950, epoch=12),
        "and then 12",
    ),
    "a refused commit is there": (
        lambda lines: add(lines, client="w", batch=1, pid=1, at=950, conflict=True),
        "was acknowledged and refused",
    ),
    "a commit of nobody is there": (
        lambda lines: [lines.remove(line) for line in [call(lines, "w", 1), answer(lines, "w", 1)]],
        "nobody has written",
    ),
    "a commit is there by half": (
        lambda lines: call(lines, "w", 0)["wrote"].update(k7="w.0"),
        "is not whole",
    ),
    "a snapshot shows half an epoch": (
        lambda lines: reads(lines, "snapshot")[1]["rows"].pop("k2"),
        r"r read \(snapshot\) at",
    ),
    "a kept snapshot changed": (lambda lines: swap_rows(lines, "kept", 0, 1), r"r read \(kept\) at"),
    "a plain read shows half an epoch": (
        lambda lines: reads(lines, "plain")[1]["rows"].pop("k2"),
        "which the store held at no epoch",
    ),
    "a reader goes back": (lambda lines: swap_rows(lines, "plain", 0, 3), "r went back from"),
    "a snapshot is stale, of a reader that never saw more": (stale, "not linearizable"),
    "a conditional commit did not see what it relied on": (
        lambda lines: call(lines, "v", 1)["saw"].update({COUNTER: "0 x"}),
        "not linearizable",
    ),
    "a commit is seen before it was called": (
        lambda lines: (call(lines, "v", 0).update(at=500), answer(lines, "v", 0).update(at=501)),
        "not linearizable",
    ),
}


@pytest.mark.parametrize(("bend", "reason"), HARM.values(), ids=HARM)
def test_harm_is_found(run: tuple[StateStore, Lines], bend: Callable[[Lines], object], reason: str) -> None:
    """The verdict names the harm."""
    store, lines = run
    bent = deepcopy(lines)
    bend(bent)
    with pytest.raises(AssertionError, match=reason):
        judge(bent, store)


def test_a_row_that_is_committed_twice_is_found() -> None:
    """The same batch under two writers' names: each is a commit, so the store cannot know; the judge does."""
    with connect("memory://", compaction=False) as store:
        kv = store.create_table(TABLE)
        for writer in ("v", "v again"):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"k0", b"v.0")], epoch)
            store.commit_epoch(epoch, writer=writer, batch_id=0)
        lines = [{"client": "v", "batch": 0, "pid": 1, "at": 1, "saw": {}, "wrote": {"k0": "v.0"}}]
        with pytest.raises(AssertionError, match="batch 0 of v is there 2 times"):
            judge(lines, store)
