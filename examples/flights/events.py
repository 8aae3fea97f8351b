"""The timetable as a stream of change events in the order in which they happened, cut into files for Spark.

An event is what a change feed of a flight board would say: what happened (`kind`), when, and the state of the flight
after it. Files are cut at midnight in New York, so that the state at the end of a day is the state at the end of a
file, hence of a micro-batch, hence of an epoch.
"""

import os
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
from flights.timetable import HOME, KEY

__all__ = ["KINDS", "build_events", "slice_ends", "write_files"]

KINDS = ("scheduled", "departed", "arrived", "cancelled")
"""What can happen to a flight; at one instant in this order."""

_AT = {"scheduled": "listed_at", "departed": "departed_at", "arrived": "arrived_at", "cancelled": "cancelled_at"}

_KNOWN_AFTER = {"departed_at": ("departed", "arrived"), "arrived_at": ("arrived",)}
"""From which kinds of event on a column's value is known."""


def build_events(timetable: pl.DataFrame) -> pl.DataFrame:
    """All events, oldest first: `seq` from 0, `kind`, `event_at`, `event_day` (New York), and the flight after it."""
    kinds = []
    for rank, kind in enumerate(KINDS):
        departed, arrived = kind in _KNOWN_AFTER["departed_at"], kind in _KNOWN_AFTER["arrived_at"]
        kinds.append(
            timetable.filter(pl.col(_AT[kind]).is_not_null()).select(
                pl.lit(kind).alias("kind"),
                pl.col(_AT[kind]).alias("event_at"),
                pl.col(_AT[kind]).dt.convert_time_zone(HOME).dt.date().alias("event_day"),
                pl.lit(rank).alias("rank"),
                *KEY,
                "dest",
                "tailnum",
                "distance",
                "hour_at",
                "scheduled_at",
                _if(departed, "departed_at"),
                _if(arrived, "arrived_at"),
                _if(departed, "dep_delay"),
                _if(arrived, "arr_delay"),
            )
        )
    events = pl.concat(kinds, how="vertical_relaxed").sort("event_at", "rank", *KEY).drop("rank")
    return events.with_row_index("seq").with_columns(pl.col("seq").cast(pl.Int64))


def slice_ends(first: date, last: date, days: int) -> list[date]:
    """The last day of each file: every `days` days of a month, and each month's last; the last file ends at `last`.

    Months are cut alike, so that the end of every month is the end of a file.
    """
    wanted = pl.date_range(first, last, eager=True).to_frame("day")
    is_end = (pl.col("day").dt.day() % days == 0) & (pl.col("day").dt.days_in_month() - pl.col("day").dt.day() >= days)
    month_end = pl.col("day") == pl.col("day").dt.month_end()
    ends: list[date] = wanted.filter(is_end | month_end)["day"].to_list()
    return ends if ends and ends[-1] == last else [*ends, last]


def write_files(events: pl.DataFrame, folder: Path, ends: list[date]) -> int:
    """Write one Parquet file for the days up to each of `ends`, in order; returns how many have events.

    Spark takes files by their time of modification, so each is given one a minute after the one before.
    """
    folder.mkdir(parents=True)
    edges = pl.Series("end", ends)
    numbered = events.with_columns(file=edges.search_sorted(events["event_day"], side="left"))
    base = datetime(2014, 1, 1, tzinfo=UTC).timestamp()
    parts = numbered.partition_by("file", maintain_order=True, include_key=False)
    for number, part in enumerate(parts):
        path = folder / f"{part['event_day'][0]}_to_{part['event_day'][-1]}.parquet"
        part.write_parquet(path)
        os.utime(path, (base + 60 * number,) * 2)
    return len(parts)


def _if(known: bool, column: str) -> pl.Expr:
    return pl.col(column) if known else pl.lit(None).alias(column)
