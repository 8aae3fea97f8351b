"""The demo of the flights: its pure parts, its refusal of a wrong figure, and a run on ten days."""

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import flights_demo
import polars as pl
import pytest
from flights import reference
from flights.events import KINDS, build_events, slice_ends, write_files
from flights.figures import Difference, Figures
from flights.timetable import KEY, load_timetable, timetable

AIRPORTS = pl.DataFrame({"faa": ["LAX", "BOS"], "tzone": ["America/Los_Angeles", "America/New_York"]})


def flight(number: int, dest: str, sched: int, dep_delay: int | None, arr_time: int | None) -> dict[str, object]:
    """A row of the CSV on 15 January 2013, scheduled at `sched` o'clock in New York."""
    return {
        "year": 2013,
        "month": 1,
        "day": 15,
        "carrier": "ZZ",
        "flight": number,
        "origin": "JFK",
        "dest": dest,
        "tailnum": None,
        "distance": 100 * number,
        "hour": sched,
        "minute": 30,
        "time_hour": f"2013-01-{15 if sched < 19 else 16}T{(sched + 5) % 24:02d}:00:00Z",
        "dep_delay": dep_delay,
        "arr_time": arr_time,
        "arr_delay": None if arr_time is None else 7,
    }


ROWS = [
    flight(1, "BOS", 8, 10, 940),  # an hour in one zone
    flight(2, "LAX", 9, 0, 1230),  # six hours, three of which the clock takes back
    flight(3, "SJU", 22, 60, 415),  # past midnight; an airport that the list lacks, an hour ahead
    flight(4, "BOS", 10, None, None),  # cancelled
    flight(5, "BOS", 11, 5, None),  # never arrived
]


@pytest.fixture
def day() -> pl.DataFrame:
    """The timetable of five flights."""
    types = {"tailnum": pl.String, "dep_delay": pl.Int64, "arr_time": pl.Int64, "arr_delay": pl.Int64}
    return timetable(pl.DataFrame(ROWS, schema_overrides=types), AIRPORTS).sort("flight")


@pytest.fixture(scope="module")
def three_days() -> pl.DataFrame:
    """The first days of the real year."""
    return load_timetable(3)


def at(hour: int, minute: int, on: int = 15) -> datetime:
    """A moment in UTC."""
    return datetime(2013, 1, on, hour, minute, tzinfo=UTC)


def test_clocks_become_moments(day: pl.DataFrame) -> None:
    """Departure is schedule and delay; arrival is what the destination's clock moved on."""
    assert day["departed_at"].to_list() == [at(13, 40), at(14, 30), at(4, 30, on=16), None, at(16, 35)]
    assert day["arrived_at"].to_list() == [at(14, 40), at(20, 30), at(8, 15, on=16), None, None]
    assert day["cancelled_at"].to_list() == [None, None, None, at(15, 30), None]
    assert day["listed_at"].unique().to_list() == [at(5, 0)]


def test_real_flights_take_longer_than_their_time_in_the_air(three_days: pl.DataFrame) -> None:
    """The zones are right: no flight arrives before it could have, and none takes a day."""
    minutes = (three_days["arrived_at"] - three_days["departed_at"]).dt.total_minutes()
    miles = three_days["distance"]
    assert ((minutes > miles / 11) | minutes.is_null()).all()
    assert minutes.max() < 16 * 60  # type: ignore[operator]
    assert (three_days["departed_at"] >= three_days["listed_at"]).all()


def test_events_are_ordered_and_carry_the_state(day: pl.DataFrame) -> None:
    """Every event comes at its time, with what is known of the flight then and nothing more."""
    events = build_events(day)
    assert events["seq"].to_list() == list(range(len(events)))
    assert events["event_at"].is_sorted()
    told = [(row["kind"], row["flight"]) for row in events.iter_rows(named=True)]
    assert told == [
        *(("scheduled", number) for number in range(1, 6)),
        ("departed", 1),
        ("departed", 2),
        ("arrived", 1),
        ("cancelled", 4),
        ("departed", 5),
        ("arrived", 2),
        ("departed", 3),
        ("arrived", 3),
    ]
    departed, arrived = events.row(5, named=True), events.row(7, named=True)
    assert (departed["dep_delay"], departed["arrived_at"], departed["arr_delay"]) == (10, None, None)
    assert (arrived["dep_delay"], arrived["arrived_at"], arrived["arr_delay"]) == (10, at(14, 40), 7)
    assert events["event_day"].to_list()[-1] == date(2013, 1, 16)


def test_the_last_event_of_a_flight_is_its_state(three_days: pl.DataFrame) -> None:
    """Replaying the events up to a moment gives what the reference says without them."""
    events = build_events(three_days)
    assert set(events["kind"]) == set(KINDS)
    for moment in (at(5, 0, on=1), at(17, 17, on=2), at(5, 0, on=3), at(23, 59, on=4)):
        seen = events.filter(pl.col("event_at") < moment)
        replayed = seen.sort("seq").group_by(KEY).last().rename({"kind": "status"})
        board = reference.flights_at(three_days, moment)
        Figures().same_frame("board", replayed.select(board.columns), board, KEY)
        assert len(seen) == reference.event_count(three_days, moment)


def test_reference_totals_of_five_flights(day: pl.DataFrame) -> None:
    """The figures of a day that can be reckoned by hand."""
    (total,) = reference.carrier_totals(day, reference.end_of_day(date(2013, 1, 15))).rows(named=True)
    assert total == {
        "carrier": "ZZ",
        "scheduled": 5,
        "departed": 4,
        "arrived": 2,
        "cancelled": 1,
        "dep_delay": 75,
        "arr_delay": 14,
        "miles": 300,
        "worst_delay": 60,
    }
    hours = reference.origin_hours(day, at(15, 0))
    assert sum(hours["scheduled"]) == 5
    assert sum(hours["departed"]) == 2
    counts = dict(reference.status_counts(day, at(16, 0)).rows())
    assert counts == {"arrived": 1, "departed": 1, "cancelled": 1, "scheduled": 2}


def test_changes_count_each_flight_once_a_file(day: pl.DataFrame) -> None:
    """What happens to a flight within one file is one change, to its last state there."""
    ends = [date(2013, 1, 14), date(2013, 1, 15), date(2013, 1, 16)]
    both = reference.changed_flights(day, ends[0], ends[2], ends)
    assert dict(both.rows()) == {"arrived": 3, "departed": 2, "cancelled": 1}


def test_files_end_with_months() -> None:
    """Every month is cut alike, its last file is not a stub, and the last file ends with the events."""
    ends = slice_ends(date(2013, 1, 1), date(2013, 3, 2), 10)
    assert [str(end)[5:] for end in ends] == ["01-10", "01-20", "01-31", "02-10", "02-28", "03-02"]
    assert date(2013, 6, 30) in slice_ends(date(2013, 1, 1), date(2014, 1, 1), 10)


def test_files_are_in_order_of_time(three_days: pl.DataFrame, tmp_path: Path) -> None:
    """Spark orders files by their time of modification; in that order they give the events back."""
    events = build_events(three_days)
    ends = slice_ends(date(2013, 1, 1), date(2013, 1, 4), 1)
    assert write_files(events, tmp_path / "events", ends) == 4
    paths = sorted((tmp_path / "events").iterdir(), key=lambda path: path.stat().st_mtime)
    assert paths == sorted(paths)
    assert pl.concat(pl.read_parquet(path) for path in paths).equals(events)


def test_a_wrong_figure_is_named() -> None:
    """A difference says which figure, what the store says and what the CSV says."""
    figures = Figures()
    right = pl.DataFrame({"carrier": ["AA", "UA"], "arrived": [1, 2]})
    figures.same_frame("totals", right.reverse(), right, ["carrier"])
    assert figures.compared == 5
    with pytest.raises(Difference, match=r"totals\[UA\].arrived: the store says 3, the CSV 2"):
        figures.same_frame("totals", right.with_columns(arrived=pl.Series([1, 3])), right, ["carrier"])
    with pytest.raises(Difference, match=r"lacks the row .*'UA'"):
        figures.same_frame("totals", right.head(1), right, ["carrier"])
    with pytest.raises(Difference, match=r"has not.*'UA'"):
        figures.same_frame("totals", right, right.head(1), ["carrier"])
    with pytest.raises(Difference, match="number of rows"):
        figures.same_frame("totals", pl.concat([right, right]), right, ["carrier"])


def test_a_wrong_figure_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo ends with exit code 1 and the figure's name."""
    monkeypatch.setattr(reference, "event_count", lambda *_: 7)
    options = ["--days", "1", "--as-of", "2013-01-01", "--batch-days", "1"]
    folders = ["--store", str(tmp_path / "store"), "--scratch", str(tmp_path / "scratch")]
    assert flights_demo.main([*options, *folders]) == 1
    assert "WRONG FIGURE: number of events" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_days_end_to_end(tmp_path: Path) -> None:
    """Ten days through Spark: all figures equal, and the commands that the demo prints work on its store."""
    options = ["--days", "10", "--batch-days", "5", "--as-of", "2013-01-05"]
    folders = ["--store", str(tmp_path / "store"), "--scratch", str(tmp_path / "scratch")]
    demo = subprocess.run(
        [sys.executable, flights_demo.__file__, *options, *folders], capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "26,444 events" in demo.stdout
    assert "All equal" in demo.stdout
    _, _, listed = demo.stdout.partition("export TUSSOCK_STORE=")
    url, *commands = listed.split("\n")
    assert url == (tmp_path / "store").as_uri()
    ran = [line.split()[1:] for line in commands if line]
    assert len(ran) == 10
    script = Path(sys.executable).with_name("tussock")
    for arguments in ran:
        done = subprocess.run([script, *arguments, "--store", url], capture_output=True, text=True, check=False)
        assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
