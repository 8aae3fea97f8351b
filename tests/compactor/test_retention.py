"""Which versions compaction keeps: the rules of `retention.py`, one by one and against every reader."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.ssts import Put, newest, sort_puts, to_puts, to_rows
from tussock.compactor.retention import retained_rows
from tussock.statestore.rows.rows import Rows


def retain(text: str, watermark: int, *, bottom: bool) -> str:
    """The versions that stay of a key, written as the input is: `a:3,2x,1` is key `a` put at 3 and 1, deleted at 2."""
    puts = [
        Put(key.encode(), int(version.rstrip("x")), None if version.endswith("x") else version.encode())
        for key, versions in (entry.split(":") for entry in text.split())
        for version in versions.split(",")
    ]
    left: dict[str, list[str]] = {}
    for put in to_puts(retained_rows(to_rows(puts), watermark, bottom=bottom)):
        left.setdefault(put.key.decode(), []).append(f"{put.epoch}{'' if put.value else 'x'}")
    return " ".join(f"{key}:{','.join(versions)}" for key, versions in left.items())


@pytest.mark.parametrize("bottom", [False, True])
def test_all_versions_above_the_watermark_stay(bottom: bool) -> None:
    """Deletes stay, too, also at the bottom: a reader may be between any two of them."""
    assert retain("a:9,8x,7 b:6x", 5, bottom=bottom) == "a:9,8x,7 b:6x"
    assert retain("a:9,8x,7 b:6x", 0, bottom=bottom) == "a:9,8x,7 b:6x"


@pytest.mark.parametrize("bottom", [False, True])
@pytest.mark.parametrize(
    ("watermark", "left"),
    [
        (0, "a:9,7,5,3"),
        (3, "a:9,7,5,3"),
        (4, "a:9,7,5,3"),
        (5, "a:9,7,5"),
        (6, "a:9,7,5"),
        (7, "a:9,7"),
        (8, "a:9,7"),
        (9, "a:9"),
        (99, "a:9"),
    ],
)
def test_of_the_versions_up_to_the_watermark_the_newest_stays(bottom: bool, watermark: int, left: str) -> None:
    """A reader at the watermark sees exactly that version, so one at the watermark counts as below."""
    assert retain("a:9,7,5,3", watermark, bottom=bottom) == left


@pytest.mark.parametrize(
    ("text", "watermark", "inside", "bottom"),
    [
        ("a:5x", 5, "a:5x", ""),
        ("a:5x", 4, "a:5x", "a:5x"),
        ("a:5x,4,3", 5, "a:5x", ""),
        ("a:5,4x,3", 5, "a:5", "a:5"),
        ("a:5,4x,3", 4, "a:5,4x", "a:5"),
        ("a:5x,4,3", 4, "a:5x,4", "a:5x,4"),
        ("a:7,5x,4x,3", 6, "a:7,5x", "a:7"),
        ("a:5x b:5 c:5x,1 d:1x", 5, "a:5x b:5 c:5x d:1x", "b:5"),
    ],
)
def test_a_delete_up_to_the_watermark_goes_only_at_the_bottom(
    text: str, watermark: int, inside: str, bottom: str
) -> None:
    """Elsewhere it has to hide what may lie below; versions that it hides within the task go in both cases."""
    assert retain(text, watermark, bottom=False) == inside
    assert retain(text, watermark, bottom=True) == bottom


@pytest.mark.parametrize("bottom", [False, True])
@pytest.mark.parametrize("watermark", [0, 4, 5, 6])
@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_of_two_rows_of_one_key_and_epoch_the_newer_runs_stays(deleted: int, watermark: int, bottom: bool) -> None:
    """Above and below the watermark; if that row is a delete that may vanish, the older one does not come back."""
    values = [None if deleted == at else b"%d" % at for at in range(3)]
    puts = [Put(b"a", 5, value) for value in values] + [Put(b"b", 5, b"b")]
    vanishes = bottom and deleted == 0 and watermark >= 5
    left = to_puts(retained_rows(to_rows(puts), watermark, bottom=bottom))
    assert left == ([] if vanishes else [puts[0]]) + [puts[3]]


def test_each_key_is_judged_by_itself() -> None:
    """A key's first version is judged by itself, whatever the last version of the key before was."""
    assert retain("a:9 b:4 c:9,4 d:4,3", 5, bottom=True) == "a:9 b:4 c:9,4 d:4"


def test_batches_of_one_epoch_and_empty_ones() -> None:
    """Rows that share an epoch, as in a commit, and batches without rows."""
    rows = to_rows([Put(b"a", 5, b"1"), Put(b"b", 5, None)], epoch=5)
    assert [put.key for put in to_puts(retained_rows(rows, 5, bottom=True))] == [b"a"]
    assert len(retained_rows(rows, 5, bottom=False)) == len(retained_rows(rows, 4, bottom=True)) == 2
    assert len(retained_rows(to_rows([]), 5, bottom=True)) == 0


@st.composite
def runs(draw: st.DrawFn) -> list[list[Put]]:
    """Sorted runs, newest first; now and then a key has the same epoch in two neighbouring runs."""
    found: list[list[Put]] = []
    floor: dict[bytes, int] = {}
    for number in range(draw(st.integers(1, 4))):
        puts = []
        for key in draw(st.sets(st.sampled_from([b"", b"a", b"ab", b"b"]), min_size=1)):
            low = floor.get(key, 1)
            epochs = draw(st.sets(st.integers(low, low + 4), min_size=1, max_size=4))
            puts += [Put(key, epoch, None if draw(st.booleans()) else b"%d/%d" % (number, epoch)) for epoch in epochs]
            floor[key] = max(epochs) + draw(st.integers(0, 2))
        found.insert(0, sort_puts(puts))
    return found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(runs(), st.integers(0, 25), st.data())
def test_no_reader_at_or_above_the_watermark_sees_a_difference(
    found: list[list[Put]], watermark: int, data: st.DataObject
) -> None:
    """Any neighbouring runs are compacted; readers at each epoch from the watermark on see what they saw."""
    first = data.draw(st.integers(0, len(found) - 1), "first run")
    last = data.draw(st.integers(first + 1, len(found)), "after the last run")
    bottom = last == len(found) and data.draw(st.booleans(), "bottom")
    merged = Rows.merge([to_rows(run) for run in found[first:last]])
    left = to_puts(retained_rows(merged, watermark, bottom=bottom))
    after = [*found[:first], left, *found[last:]]
    for epoch in range(watermark, 30):
        before_it = {key: put.value for key, put in newest(found, epoch).items() if put.value is not None}
        after_it = {key: put.value for key, put in newest(after, epoch).items() if put.value is not None}
        assert after_it == before_it
    # Nothing is kept that no reader can see: per key at most one version up to the watermark, none twice.
    assert len({(put.key, put.epoch) for put in left}) == len(left)
    below = [put.key for put in left if put.epoch <= watermark]
    assert len(set(below)) == len(below)
    if bottom:
        assert all(put.value is not None for put in left if put.epoch <= watermark)
