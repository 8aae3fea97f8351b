"""What a merge leaves in the live tree, what it takes to history, and what it drops."""

import random

import pyarrow as pa
import pytest

from tussock.compactor.kept_rows import part_rows, unexpired
from tussock.statestore.rows.rows import Rows

Row = tuple[bytes, int, bytes | None]


def rows(*given: Row) -> Rows:
    """Versions by key, newest first within a key; `None` is a delete."""
    keys, epochs, values = zip(*given, strict=True)
    deletes = pa.array([value is None for value in values]).to_numpy(zero_copy_only=False)
    column = pa.array([value or b"" for value in values], pa.binary())
    return Rows(pa.array(keys, pa.binary()), pa.array(epochs, pa.uint64()).to_numpy(), deletes, (column,))


def shown(given: Rows) -> list[tuple[bytes, int, bytes | None]]:
    """Rows of the live tree."""
    values = zip(given.columns[-1].to_pylist(), given.delete_array().tolist(), strict=True)
    return list(
        zip(
            given.keys.to_pylist(),
            given.epoch_array().tolist(),
            [None if gone else value for value, gone in values],
            strict=True,
        )
    )


def past(given: Rows) -> list[tuple[bytes, int, int]]:
    """Key, epoch and `until` of rows of history."""
    return list(zip(given.keys.to_pylist(), given.epoch_array().tolist(), given.columns[0].to_pylist(), strict=True))


VERSIONS = rows((b"a", 9, b"9"), (b"a", 7, None), (b"a", 5, b"5"), (b"b", 8, None), (b"b", 3, b"3"), (b"c", 1, b"1"))


@pytest.mark.parametrize(
    ("watermark", "kept"),
    [
        (0, [(b"a", 7, 9), (b"a", 5, 7), (b"b", 3, 8)]),
        (7, [(b"a", 7, 9), (b"b", 3, 8)]),
        (8, [(b"a", 7, 9)]),
        (9, []),
    ],
)
def test_the_newest_version_stays_and_the_others_are_for_readers_before_it(
    watermark: int, kept: list[tuple[bytes, int, int]]
) -> None:
    """What no reader at the watermark or later sees goes for good."""
    parted = part_rows(VERSIONS, watermark, bottom=False)
    assert shown(parted.live) == [(b"a", 9, b"9"), (b"b", 8, None), (b"c", 1, b"1")]
    assert past(parted.history) == kept


@pytest.mark.parametrize(("watermark", "kept"), [(7, [(b"b", 8, 8), (b"b", 3, 8)]), (8, [])])
def test_a_delete_at_the_bottom_vanishes_until_its_own_epoch(
    watermark: int, kept: list[tuple[bytes, int, int]]
) -> None:
    """Its changes are asked for from epochs before it; a delete that is not the newest is as any row."""
    parted = part_rows(VERSIONS, watermark, bottom=True)
    assert shown(parted.live) == [(b"a", 9, b"9"), (b"c", 1, b"1")]
    assert [row for row in past(parted.history) if row[0] == b"b"] == kept


@pytest.mark.parametrize("bottom", [False, True])
def test_of_two_rows_of_one_epoch_the_first_counts(bottom: bool) -> None:
    """The other goes for good, and what is older is for readers before their epoch."""
    parted = part_rows(rows((b"a", 9, b"x"), (b"a", 9, b"y"), (b"a", 4, b"z")), 0, bottom=bottom)
    assert shown(parted.live) == [(b"a", 9, b"x")]
    assert past(parted.history) == [(b"a", 4, 9)]


def test_a_key_may_go_on_in_the_next_batch() -> None:
    """However the versions are cut into batches, the result is the same."""
    chance = random.Random(5)
    for _ in range(200):
        given: list[Row] = []
        for key in (b"a", b"b", b"c"):
            epochs = sorted((chance.randint(1, 9) for _ in range(chance.randint(0, 6))), reverse=True)
            given += [(key, epoch, chance.choice([None, b"v"])) for epoch in epochs]
        if not given:
            continue
        watermark, bottom = chance.randint(0, 9), chance.random() < 0.5
        whole = part_rows(rows(*given), watermark, bottom=bottom)
        live, history, before = [], [], None
        for row in given:
            parted = part_rows(rows(row), watermark, bottom=bottom, before=before)
            live += shown(parted.live)
            history += past(parted.history)
            before = row[:2]
        assert (live, history) == (shown(whole.live), past(whole.history))


def test_a_merge_of_history_drops_what_expired_and_what_stands_twice() -> None:
    """Of one key and epoch the first row stays, also where the batch before ended with it."""
    parted = part_rows(VERSIONS, 0, bottom=False).history
    assert past(unexpired(parted, 7)) == [(b"a", 7, 9), (b"b", 3, 8)]
    doubled = Rows.concat([parted.slice(0, 1), parted.slice(0, 1)]).with_epochs(parted.epoch_array()[[0, 0]])
    assert past(unexpired(doubled, 0)) == [(b"a", 7, 9)]
    assert past(unexpired(doubled, 0, before=(b"a", 7))) == []
