"""`TypedTable.read(between=...)`: rows from one key, or beginning of a key, to another."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import InvalidOption, SchemaMismatch, connect

SCHEMA = pa.schema([("a", pa.string()), ("n", pa.int32()), ("s", pa.string()), ("v", pa.int64())])
WORDS = ["", "a", "a\0", "a\0b", "ab", "b", "grüße", "\U0010ffff"]


def rows_of(seed: int) -> list[dict[str, Any]]:
    """Rows with few distinct values in each column, so that ends of intervals are met exactly now and then."""
    chance = random.Random(seed)
    keys = {(chance.choice(WORDS), chance.randrange(-3, 4), chance.choice(WORDS)) for _ in range(150)}
    return [{"a": a, "n": n, "s": s, "v": at} for at, (a, n, s) in enumerate(sorted(keys))]


@pytest.mark.parametrize("distribution", [["a"], ["a", "n", "s"]])
def test_rows_between_two_ends_are_those_of_a_filter(distribution: list[str]) -> None:
    """Both ends are inclusive and may be any number of leading values, none for open."""
    chance = random.Random(6)
    with connect("memory://") as store:
        table = store.create_table("t", SCHEMA, ["a", "n", "s"], distribution_key=distribution, vnodes=8)
        rows = rows_of(5)
        epoch = store.new_epoch()
        table.upsert(rows, epoch)
        store.commit_epoch(epoch)
        for _ in range(300):
            ends = []
            for _ in range(2):
                whole = (chance.choice(WORDS), chance.randrange(-3, 4), chance.choice(WORDS))
                ends.append(whole[: chance.randrange(4)])
            low, high = ends
            if low and high and chance.random() < 0.5:
                high = low[:1] + high[1:]
            expected = {
                row["v"]
                for row in rows
                if (row["a"], row["n"], row["s"])[: len(low)] >= low
                and (row["a"], row["n"], row["s"])[: len(high)] <= high
            }
            found = [value for batch in table.read(["v"], between=(low, high)) for value in batch["v"].to_pylist()]
            assert len(found) == len(set(found))
            assert set(found) == expected, (low, high)
            halves = [table.read(["v"], between=(low, high), vnodes=half) for half in ((0, 3), (3, 8))]
            assert {value for half in halves for batch in half for value in batch["v"].to_pylist()} == expected


def test_an_interval_reads_only_its_blocks(tmp_path: Path) -> None:
    """A hundredth of the keys costs a fraction of the bytes of all keys."""
    with connect((tmp_path / "store").as_uri()) as store:
        schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
        table = store.create_table("t", schema, ["n"], vnodes=2, compression="none")
        epoch = store.new_epoch()
        table.upsert(pa.table({"n": range(100_000), "text": [f"text number {at}" for at in range(100_000)]}), epoch)
        store.commit_epoch(epoch)

    def cost(**wanted: Any) -> tuple[int, int]:
        with connect((tmp_path / "store").as_uri()) as fresh:
            rows = sum(batch.num_rows for batch in fresh.table("t").read(["text"], **wanted))
            return rows, sum(size for _, size in fresh.requests()["read"].values())

    (few, few_bytes), (every, all_bytes) = cost(between=((50_000,), (50_999,))), cost()
    assert (few, every) == (1000, 100_000)
    assert few_bytes < all_bytes / 5


def test_wrong_ends_of_an_interval_are_refused() -> None:
    """Ends that are no tuples, values of another type, too many values, and a prefix beside an interval."""
    with connect("memory://") as store:
        table = store.create_table("t", SCHEMA, ["a", "n", "s"])
        with pytest.raises(InvalidOption, match="expected two tuples of leading key values"):
            table.read(between=("a", "b"))  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="a prefix alone"):
            table.read(prefix=("a",), between=(("a",), ("b",)))
        with pytest.raises(SchemaMismatch, match="key column 'n': expected int32, found 'x'"):
            table.read(between=(("a", "x"), ()))
        with pytest.raises(SchemaMismatch, match="4 values"):
            table.read(between=((), ("a", 1, "b", 2)))
