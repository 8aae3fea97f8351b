"""Cron schedules: time zones, clocks that are put forward and back, and wrong schedules."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.operator.planning.schedules import parse_schedule
from tussock.operator.resources.common import InvalidResource


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def upcoming(text: str, zone: str, start: str, count: int) -> list[str]:
    """The next times after `start`, in UTC."""
    schedule, moment, found = parse_schedule(text, zone), utc(start), []
    for _ in range(count):
        moment = schedule.next_time(moment)
        found.append(moment.strftime("%Y-%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-11-21T02:59", ["2026-11-21T03:00", "2026-11-22T03:00"]),
        # Strictly after: the time itself is over.
        ("0 3 * * *", "UTC", "2026-11-21T03:00", ["2026-11-22T03:00"]),
        ("0 3 * * *", "Asia/Tokyo", "2026-11-21T00:00", ["2026-11-21T18:00", "2026-11-22T18:00"]),
        ("30 9 * * 1-5", "America/New_York", "2026-11-21T00:00", ["2026-11-23T14:30", "2026-11-24T14:30"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00"]),
        ("@hourly", "UTC", "2026-11-21T12:00", ["2026-11-21T13:00"]),
        # A day of the month or one of the week, as in every cron.
        ("0 0 1 * 0", "UTC", "2026-11-21T00:00", ["2026-11-22T00:00", "2026-11-29T00:00", "2026-12-01T00:00"]),
        # Berlin, 29 March 2026: 02:00 becomes 03:00. The run of 02:30 is an hour later that day, and none is lacking.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00",
            ["2026-03-28T01:30", "2026-03-29T01:30", "2026-03-30T00:30"],
        ),
        # ... and every quarter of an hour goes on without a gap or a double.
        (
            "*/15 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:30",
            ["2026-03-29T00:45", "2026-03-29T01:00", "2026-03-29T01:15"],
        ),
        # Berlin, 25 October 2026: 02:30 comes twice; a fixed hour runs at the first.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00",
            ["2026-10-25T00:30", "2026-10-26T01:30"],
        ),
        # ... and one of every hour runs in both.
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-24T23:45",
            ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
        ),
        # Lord Howe Island moves its clock by half an hour only: 4 October 2026, 02:00 becomes 02:30.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", ["2026-10-03T15:45", "2026-10-04T15:15"]),
    ],
)
def test_the_next_times_of_a_schedule(text: str, zone: str, start: str, expected: list[str]) -> None:
    assert upcoming(text, zone, start, len(expected)) == expected


def test_of_times_that_were_missed_the_newest_counts() -> None:
    """After four days without an operator there is one run to make up for."""
    schedule = parse_schedule("0 3 * * *", "Europe/Berlin")
    assert schedule.latest_time(utc("2026-11-21T12:00")) == utc("2026-11-21T02:00")
    # The time itself counts: the run is due from that second on.
    assert schedule.latest_time(utc("2026-11-21T02:00")) == utc("2026-11-21T02:00")
    assert schedule.latest_time(utc("2026-11-21T01:59")) == utc("2026-11-20T02:00")


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")
TEXTS = ("*/7 * * * *", "30 2 * * *", "0 0 * * 0", "15 1-3 * * *", "@hourly", "59 23 31 12 *")


@settings(deadline=None, max_examples=60)
@given(
    text=st.sampled_from(TEXTS),
    zone=st.sampled_from(ZONES),
    minutes=st.integers(0, 3 * 365 * 24 * 60),
)
def test_the_latest_and_the_next_time_agree(text: str, zone: str, minutes: int) -> None:
    """No time lies between the latest and the next one, and a run that has begun counts as the latest."""
    schedule = parse_schedule(text, zone)
    now = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    latest, following = schedule.latest_time(now), schedule.next_time(now)
    assert latest <= now < following
    assert schedule.next_time(latest) == following
    assert schedule.latest_time(following) == following
    assert schedule.latest_time(following - timedelta(seconds=1)) == latest


@pytest.mark.parametrize(
    ("text", "zone", "says"),
    [
        ("0 3 * * *", "Europe/Atlantis", "spec.timeZone: 'Europe/Atlantis'"),
        ("0 3 * * *", "Europe", "spec.timeZone: 'Europe'"),
        ("0 3 * * *", "../etc/passwd", "spec.timeZone"),
        ("61 3 * * *", "UTC", r"spec\.schedule: '61 3 \* \* \*' is no cron expression"),
        ("every day", "UTC", "no cron expression"),
        ("0 0 31 2 *", "UTC", "never comes"),
    ],
)
def test_a_wrong_schedule_is_refused(text: str, zone: str, says: str) -> None:
    with pytest.raises(InvalidResource, match=says):
        parse_schedule(text, zone)
