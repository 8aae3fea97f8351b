"""The law of incremental views: after each transaction a stream is what its operator gives for the rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.changelog.random_transactions import SOURCE_SCHEMA, RandomTransactions, as_arrow
from support.changelog.view_checks import apply, comparable, exact_sum, table_rows
from support.depth import DEPTH
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

Frame = pl.DataFrame
Recompute = Callable[[Frame], Frame]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect(f"memory://{tmp_path.name}", compaction=False) as opened:
        yield opened


def source(store: StateStore, name: str = "s") -> cl.Stream:
    return cl.Stream(store, name, schema=SOURCE_SCHEMA, key=["k", "part"])


# --- Each operator, and what Polars makes of the same rows -----------------------------------------------------------


def filtered(s: cl.Stream) -> cl.Stream:
    return cl.filter("view", s, (pc.field("v") > 0) | pc.field("flag"))


def filtered_by_polars(rows: Frame) -> Frame:
    # Of NaN Arrow says that it is not above 0, and Polars that it is.
    return rows.filter(((pl.col("v") > 0) & pl.col("v").is_not_nan()) | pl.col("flag"))


def filtered_by_function(s: cl.Stream) -> cl.Stream:
    return cl.filter("view", s, lambda row: row["small"] is not None and row["small"] > 0)


def projected(s: cl.Stream) -> cl.Stream:
    columns = {
        "number": "k",
        "part": "part",
        "twice": pc.field("small") * 2,
        "label": (lambda row: f"{row['g']}:{row['text']}", pa.string()),
        "money": "money",
    }
    return cl.project("view", s, columns)


def projected_by_polars(rows: Frame) -> Frame:
    return rows.select(
        number="k",
        part="part",
        twice=pl.col("small") * 2,
        label=pl.format("{}:{}", "g", pl.col("text").fill_null("None")),
        money="money",
    )


def moved(s: cl.Stream) -> cl.Stream:
    columns = {"g": "g", "k": "k", "part": "part", "word": pc.coalesce(pc.field("text"), pc.scalar("-")), "v": "v"}
    return cl.project("view", s, columns, key=["word", "k", "part"])


def moved_by_polars(rows: Frame) -> Frame:
    return rows.select("g", "k", "part", "v", word=pl.col("text").fill_null("-"))


def rekeyed(s: cl.Stream) -> cl.Stream:
    # Text without the key's columns, but as many as there are keys.
    name = pc.binary_join_element_wise(pc.field("k").cast(pa.string()), pc.field("part"), pc.field("word"), "/")
    return cl.project("view", s, {"name": name, "v": "v"}, key="name")


def rekeyed_by_polars(rows: Frame) -> Frame:
    return rows.select("v", name=pl.format("{}/{}/{}", "k", "part", "word"))


def combinations(s: cl.Stream) -> cl.Stream:
    return cl.distinct("view", s, ["word", "g"])


VALUES: dict[str, Any] = {
    "n": ("count",),
    "with_v": ("count", "v"),
    "total": ("sum", "v"),
    "mean": ("avg", "v"),
    "small_sum": ("sum", "small"),
    "small_mean": ("avg", "small"),
    "wide_mean": ("avg", "wide"),
    "money_sum": ("sum", "money"),
    "narrow_sum": ("sum", "narrow"),
    "v_min": ("min", "v"),
    "v_max": ("max", "v"),
    "wide_min": ("min", "wide"),
    "wide_max": ("max", "wide"),
    "text_min": ("min", "text"),
    "text_max": ("max", "text"),
    "money_max": ("max", "money"),
    "flag_min": ("min", "flag"),
    "narrow_max": ("max", "narrow"),
    "at_min": ("min", "at"),
    "first_text": ("first", "text", "at"),
    "last_v": ("last", "v", "at"),
    "first_small": ("first", "small", "v"),
    "last_at": ("last", "at", "text"),
}


def aggregated_by_polars(rows: Frame, by: list[str]) -> Frame:
    key = ["k", "part"]

    def ordered(column: str, order: str, *, last: bool) -> pl.Expr:
        there = pl.col(order).is_not_null()
        # Of -0.0 and 0.0 the first is not less.
        by_order = pl.col(order) + 0.0 if order == "v" else pl.col(order)
        return (
            pl.col(column)
            .filter(there)
            .sort_by(
                [by_order.filter(there), *(pl.col(one).filter(there) for one in key)], descending=[last, False, False]
            )
            .first()
        )

    def exact(column: str) -> pl.Expr:
        return (
            pl.col(column)
            .implode()
            .map_elements(lambda values: exact_sum(values.to_list()), return_dtype=pl.Float64, skip_nulls=False)
            .first()
        )

    def count(column: str) -> pl.Expr:
        return pl.col(column).count()

    def null_without(column: str, value: pl.Expr) -> pl.Expr:
        return pl.when(count(column) > 0).then(value)

    wide = pl.col("wide").cast(pl.Int128).sum().cast(pl.Float64)
    return rows.group_by(by).agg(
        n=pl.len(),
        with_v=count("v"),
        total=exact("v"),
        mean=null_without("v", exact("v") / count("v")),
        small_sum=null_without("small", pl.col("small").sum()),
        small_mean=null_without("small", pl.col("small").sum() / count("small")),
        wide_mean=null_without("wide", wide / count("wide")),
        money_sum=null_without("money", pl.col("money").cast(pl.Decimal(38, 4)).sum()),
        narrow_sum=exact("narrow"),
        v_min=pl.col("v").min(),
        v_max=pl.col("v").max(),
        wide_min=pl.col("wide").min(),
        wide_max=pl.col("wide").max(),
        text_min=pl.col("text").min(),
        text_max=pl.col("text").max(),
        money_max=pl.col("money").max(),
        flag_min=pl.col("flag").min(),
        narrow_max=pl.col("narrow").max(),
        at_min=pl.col("at").min(),
        first_text=ordered("text", "at", last=False),
        last_v=ordered("v", "at", last=True),
        first_small=ordered("small", "v", last=False),
        last_at=ordered("at", "text", last=True),
    )


OPERATORS: dict[str, tuple[Callable[[cl.Stream], cl.Stream], Recompute]] = {
    "filter": (filtered, filtered_by_polars),
    "filter by a function": (filtered_by_function, lambda rows: rows.filter(pl.col("small") > 0)),
    "project": (projected, projected_by_polars),
    "project to a key that moves": (moved, moved_by_polars),
    "project to another key": (rekeyed, rekeyed_by_polars),
    "distinct": (combinations, lambda rows: rows.select("word", "g").unique()),
    "aggregate": (
        lambda s: cl.aggregate("view", s, ["g"], VALUES),
        lambda rows: aggregated_by_polars(rows, ["g"]),
    ),
    "aggregate by two": (
        lambda s: cl.aggregate("view", s, ["word", "g"], VALUES),
        lambda rows: aggregated_by_polars(rows, ["word", "g"]),
    ),
    "aggregate of all": (
        lambda s: cl.aggregate("view", s, [], VALUES),
        lambda rows: aggregated_by_polars(rows.with_columns(_all=True), ["_all"]),
    ),
}


def frame(rows: list[dict[str, Any]]) -> Frame:
    return pl.from_arrow(pa.Table.from_pylist(rows, schema=SOURCE_SCHEMA))  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(DEPTH + 1))
@pytest.mark.parametrize("name", OPERATORS)
def test_after_each_transaction_a_stream_is_what_polars_computes(store: StateStore, name: str, seed: int) -> None:
    """By what it publishes, applied to nothing, and by its table; of few records and many, also after a restart."""
    make, recompute = OPERATORS[name]
    draw = RandomTransactions(seed, keys=[10, 60, 1500][seed])
    most, count = [(80, 20), (600, 12), (5000, 4)][seed]
    rows: dict[Any, dict[str, Any]] = {}
    published = 0
    for run in range(2):
        s = source(store)
        view = make(s)
        flow = cl.Flow(store, [s, view])
        flow.start()
        names = view.schema.names
        with view.subscribe(from_seq=published + 1, timeout=30) as found:
            for _ in range(count):
                records = draw.next(draw.size(most))
                s.push(as_arrow(records) if draw.chance(0.5) else records).result(10)
                apply(rows, next(found), view)
                expected = recompute(frame(list(draw.rows.values()))).to_dicts()
                assert comparable(rows.values(), names) == comparable(expected, names)
            if run:
                s.push([cl.delete(k=key, part=part) for key, part in draw.rows]).result(10)
                apply(rows, next(found), view)
                assert not rows
        published += count
        flow.stop()
        assert comparable(table_rows(store, "view"), names) == comparable(rows.values(), names)
    kept = [one for one in store.tables() if one.startswith("s.view.")]
    assert {one: table_rows(store, one) for one in kept} == {one: [] for one in kept}
