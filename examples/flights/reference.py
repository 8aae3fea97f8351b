"""The same figures as the store is asked for, computed from the timetable alone: no events, no epochs, no Spark.

Each function takes the moment up to which it looks; a flight is then in the state that its times say.
"""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import polars as pl
from flights.timetable import HOME, KEY

__all__ = [
    "carrier_totals",
    "changed_flights",
    "end_of_day",
    "event_count",
    "flights_at",
    "origin_hours",
    "status_counts",
]


def end_of_day(day: date) -> datetime:
    """The midnight in New York that ends `day`."""
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), ZoneInfo(HOME)).astimezone(UTC)


def flights_at(timetable: pl.DataFrame, moment: datetime) -> pl.DataFrame:
    """Every flight that is on the board by then, in its state of then."""
    departed, arrived, cancelled = (
        _happened("departed_at", moment),
        _happened("arrived_at", moment),
        _happened("cancelled_at", moment),
    )
    known = timetable.filter(_happened("listed_at", moment))
    return known.select(
        *KEY,
        "dest",
        "tailnum",
        "distance",
        "hour_at",
        status=pl.when(arrived)
        .then(pl.lit("arrived"))
        .when(departed)
        .then(pl.lit("departed"))
        .when(cancelled)
        .then(pl.lit("cancelled"))
        .otherwise(pl.lit("scheduled")),
        scheduled_at="scheduled_at",
        departed_at=pl.when(departed).then("departed_at"),
        arrived_at=pl.when(arrived).then("arrived_at"),
        dep_delay=pl.when(departed).then("dep_delay"),
        arr_delay=pl.when(arrived).then("arr_delay"),
    )


def status_counts(timetable: pl.DataFrame, moment: datetime) -> pl.DataFrame:
    """`status`, `flights`: how many flights are in which state."""
    return flights_at(timetable, moment).group_by("status").agg(flights=pl.len().cast(pl.Int64))


def carrier_totals(timetable: pl.DataFrame, moment: datetime) -> pl.DataFrame:
    """What each carrier's flights came to by then; columns as the table `carrier_totals`."""
    board = flights_at(timetable, moment)
    return board.group_by("carrier").agg(
        scheduled=pl.len().cast(pl.Int64),
        departed=pl.col("departed_at").count().cast(pl.Int64),
        arrived=pl.col("arrived_at").count().cast(pl.Int64),
        cancelled=(pl.col("status") == "cancelled").sum().cast(pl.Int64),
        dep_delay=pl.col("dep_delay").sum().cast(pl.Int64),
        arr_delay=pl.col("arr_delay").sum().cast(pl.Int64),
        miles=pl.col("distance").filter(pl.col("arrived_at").is_not_null()).sum().cast(pl.Int64),
        worst_delay=pl.col("dep_delay").max(),
    )


def origin_hours(timetable: pl.DataFrame, moment: datetime) -> pl.DataFrame:
    """Per airport and scheduled hour; columns as the table `origin_hours`."""
    board = flights_at(timetable, moment)
    return board.group_by("origin", "hour_at").agg(
        scheduled=pl.len().cast(pl.Int64),
        departed=pl.col("departed_at").count().cast(pl.Int64),
        cancelled=(pl.col("status") == "cancelled").sum().cast(pl.Int64),
        dep_delay=pl.col("dep_delay").sum().cast(pl.Int64),
    )


def event_count(timetable: pl.DataFrame, moment: datetime) -> int:
    """How many events there were by then."""
    columns = ("listed_at", "departed_at", "arrived_at", "cancelled_at")
    return int(timetable.select(pl.sum_horizontal(_happened(name, moment).sum() for name in columns)).item())


def changed_flights(timetable: pl.DataFrame, after: date, upto: date, ends: list[date]) -> pl.DataFrame:
    """`status`, `changes`: what the feed of `flights` says between the ends of two days.

    A flight that changes several times within one of the files that end at `ends` is one change, to its last state
    there.
    """
    edges = [after, *(end for end in ends if after < end <= upto)]
    parts = []
    for start, end in pairwise(edges):
        low, high = end_of_day(start), end_of_day(end)
        columns = ("listed_at", "departed_at", "arrived_at", "cancelled_at")
        touched = timetable.filter(pl.any_horizontal(_happened(name, high) & ~_happened(name, low) for name in columns))
        parts.append(status_counts(touched, high))
    return pl.concat(parts).group_by("status").agg(changes=pl.col("flights").sum())


def _happened(column: str, moment: datetime) -> pl.Expr:
    return pl.col(column).is_not_null() & (pl.col(column) < moment).fill_null(value=False)
