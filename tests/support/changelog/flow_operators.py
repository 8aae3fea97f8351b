"""The operators of random flows, two of which hold back what they cannot compute; and what they have to be."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from support.changelog.put_oracle import Rows, apply_published
from tussock.compute import changelog as cl

__all__ = ["check_operators", "operators"]

SUM = 150
"""The sum beyond which an aggregate holds back what comes."""
LARGE = ((1 << 63) - 1) // SUM


def thirds(row: cl.ChangeRecord) -> int:
    """Of a projection, which holds back what has a row of which this cannot be told."""
    if not _has_third(row):
        raise ValueError(f"no {row['v']}")
    return int(row["k"] % 3)


def _has_third(row: Mapping[str, Any]) -> bool:
    return bool(row["v"] % 7)


def operators(first: cl.Stream, second: cl.Stream) -> list[cl.Stream]:
    """`shown` of the first source, `sums` of that, and `pairs` of both sources."""
    large = pc.multiply(pc.field("v"), pc.scalar(LARGE))
    columns = {"k": "k", "v": "v", "large": large, "third": (thirds, pa.int64())}
    shown = cl.project("shown", first, columns, required=["third"])
    values = {"n": ("count",), "sum": ("sum", "large"), "most": ("max", "v"), "last": ("last", "k", "v")}
    sums = cl.aggregate("sums", shown, "third", values)
    return [shown, sums, cl.join("pairs", first, second, "k", "left", right_prefix="other_")]


def check_operators(
    out: Mapping[str, Sequence[cl.StreamTransaction]], bad: Mapping[str, Sequence[cl.BadRecord]]
) -> None:
    """By stream what was published, and what is bad: each is what its rows come to, after each transaction.

    Or it is as before, and says so. Raises `AssertionError`.
    """
    rows: Rows = {}
    good: list[Rows] = []
    is_behind = False
    for one in out["first"]:
        apply_published(rows, one)
        # What is held back counts as a whole, and a transaction alone with all of its records.
        asked = rows.values() if is_behind else [record for record in one if record.op != "DELETE"]
        is_behind = not all(_has_third(row) for row in asked)
        if not is_behind:
            good.append({k: _shown(row) for k, row in rows.items()})
    states = _states(out["shown"])
    assert states == good, f"shown: {states}, and its source comes to {good}"
    assert len(bad["shown"]) == is_behind, f"shown: {bad['shown']}"
    sums = [_sums(one) for one in good]
    fitting = [one for one in sums if _fits(one)]
    assert _states(out["sums"], "third") == fitting, f"sums: {_states(out['sums'], 'third')} of {fitting}"
    assert len(bad["sums"]) == (bool(sums) and not _fits(sums[-1])), f"sums: {bad['sums']}"
    sides = [(_states(out[name]) or [{}])[-1] for name in ("first", "second")]
    pairs = (_states(out["pairs"]) or [{}])[-1]
    assert pairs == _pairs(*sides), f"pairs: {pairs} of {sides}"


def _states(out: list[cl.StreamTransaction], key: str = "k") -> list[Rows]:
    """The rows after each transaction."""
    rows: Rows = {}
    found = []
    for one in out:
        apply_published(rows, one, key)
        found.append(dict(rows))
    return found


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"k": row["k"], "v": row["v"], "large": row["v"] * LARGE, "third": row["k"] % 3}


def _fits(sums: Rows) -> bool:
    return all(row["sum"] <= SUM * LARGE for row in sums.values())


def _sums(rows: Rows) -> Rows:
    found: Rows = {}
    for third in {row["third"] for row in rows.values()}:
        values = [row["v"] for row in rows.values() if row["third"] == third]
        last = min((-row["v"], row["k"]) for row in rows.values() if row["third"] == third)[1]
        total = sum(values) * LARGE
        found[third] = {"third": third, "n": len(values), "sum": total, "most": max(values), "last": last}
    return found


def _pairs(left: Rows, right: Rows) -> Rows:
    nothing = {"v": None, "t": None}
    others = {k: right.get(k, nothing) for k in left}
    return {k: {**row, "other_v": others[k]["v"], "other_t": others[k]["t"]} for k, row in left.items()}
