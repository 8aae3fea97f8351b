"""What others have written into a status counts only if it makes sense: all else is as if it were not there."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.operator.computes import conditions
from tussock.operator.planning.words.model import moment_of, stamp
from tussock.operator.planning.words.statuses import sound_status

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-24T12:00:00Z", NOON),
        ("2026-11-24t12:00:00z", NOON),
        ("2026-11-24T13:00:00+01:00", NOON),
        ("2026-11-24T12:00:00", None),  # of no zone
        ("2026-11-24T12:00:00+99:00", None),
        ("0000-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),  # before the first year
        ("soon", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
def test_a_time_is_one_of_the_api_or_none(text: Any, moment: datetime | None) -> None:
    assert moment_of(text) == moment


def test_times_are_written_in_utc_with_four_digits_of_the_year() -> None:
    assert stamp(NOON.replace(year=26)) == "0026-11-24T12:00:00Z"


def test_unreadable_times_are_absent_at_any_depth() -> None:
    status = {
        "lastScheduleTime": "2026-11-24T12:00:00+99:00",
        "nextScheduleTime": "2026-11-24t13:00:00+01:00",
        "backups": [{"name": "b", "time": "0000-01-01T00:00:00Z"}],
        "lastFailure": {"exitCode": 1, "time": "2026-11-24T12:00:00z"},
    }
    assert sound_status(status) == {
        "nextScheduleTime": "2026-11-24T12:00:00Z",
        "backups": [{"name": "b"}],
        "lastFailure": {"exitCode": 1, "time": "2026-11-24T12:00:00Z"},
    }


def test_conditions_count_only_together() -> None:
    """Plans read each of the three."""
    whole = conditions()
    assert sound_status({"conditions": whole})["conditions"] == whole
    for lacking in range(3):
        assert sound_status({"count": 1, "conditions": whole[:lacking] + whole[lacking + 1 :]}) == {"count": 1}
