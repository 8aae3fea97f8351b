"""The example of two workers whose states commit together: it runs, and its reader would see a half checkpoint."""

import re
import subprocess
import sys

import checkpoint_workers
import pyarrow as pa
import pytest
from checkpoint_workers import PROGRESS, WORDS, counted, line, look

from tussock.statestore import StateStore, connect


@pytest.fixture
def store():
    with connect("memory://") as store:
        store.create_table("words", WORDS, ["half", "word"], vnodes=1)
        store.create_table("progress", PROGRESS, ["half"], vnodes=1)
        yield store


def write(store: StateStore, progress: list[tuple[int, int, int]], words: list[tuple[int, int]]) -> None:
    """Commit rows of progress (half, lines, checkpoint), and the right counts of (half, lines)."""
    epoch = store.new_epoch()
    rows = [{"half": half, "lines": lines, "checkpoint": number} for half, lines, number in progress]
    store.table("progress").upsert(pa.Table.from_pylist(rows, PROGRESS), epoch)
    counts = [
        {"half": half, "word": word, "count": count}
        for half, lines in words
        for word, count in counted(half, lines).items()
    ]
    store.table("words").upsert(pa.Table.from_pylist(counts, WORDS), epoch)
    store.commit_epoch(epoch)


def test_counts_of_the_stream() -> None:
    """What the reader compares with is counted from the lines themselves."""
    assert counted(1, 2) == checkpoint_workers.Counter(line(1) + line(3))


def test_reader_finds_a_whole_checkpoint(store: StateStore) -> None:
    assert look(store, 9) == (0, 0)
    write(store, [(0, 3, 7), (1, 4, 7)], [(0, 3), (1, 4)])
    assert look(store, 9) == (7, 7)
    write(store, [(0, 5, 8), (1, 9, 8)], [(0, 5), (1, 9)])
    write(store, [(0, 6, 9)], [(0, 6)])
    assert look(store, 9) == (15, 9)  # half 1 was done and has left


@pytest.mark.parametrize(
    ("progress", "words", "message"),
    [
        ([(0, 3, 7)], [(0, 3)], "half a checkpoint is visible"),
        ([(0, 3, 7), (1, 4, 6)], [(0, 3), (1, 4)], "half a checkpoint is visible"),
        ([(0, 3, 7), (1, 4, 7)], [(0, 3), (1, 5)], "half 1 has read 4 lines, and its counts are not theirs"),
        ([(0, 3, 7), (1, 4, 7)], [(1, 4)], "half 0 has read 3 lines, and its counts are not theirs"),
    ],
)
def test_reader_finds_half_a_checkpoint(store: StateStore, progress, words, message: str) -> None:
    """The play would end if the platform ever showed one."""
    write(store, progress, words)
    with pytest.raises(SystemExit, match=message):
        look(store, 9)


@pytest.mark.slow
def test_example_runs() -> None:
    """Real processes: a meta service, two workers, one of them killed with `kill -9` in the middle."""
    command = [sys.executable, checkpoint_workers.__file__, "--lines", "300"]
    ran = subprocess.run(command, capture_output=True, check=False, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert "kill -9 of the worker of half 1" in ran.stdout
    assert re.search(r"snapshots, each with both halves of one checkpoint; all 600 lines counted once", ran.stdout)
