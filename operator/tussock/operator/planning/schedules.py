"""Cron schedules in time zones: computes when a run was last due, and when the next one is.

A schedule follows the clock on the wall, and twice a year that clock is put forward or back:

| what the clock does | a schedule of fixed hours (`30 2 * * *`) | one of every hour (`*/15 * * * *`) |
|---|---|---|
| it skips the time | runs later by the skipped time, so no day lacks its run | has nothing to run at |
| it shows the time twice | runs at the first of the two | runs at both, so no hour lacks its run |

`croniter` finds times on a calendar without zones, and this module places them in the zone, since a step of an hour on
the wall is not always an hour. Missed runs, for whatever reason, are made up for once, however many there were:
`latest_time` returns only the newest time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

from tussock.operator.resources.common import InvalidResource

__all__ = ["Schedule", "parse_schedule"]

_SHIFT_MAX = timedelta(hours=3)
"""No zone changes its clock by more at once: Lord Howe Island by half an hour, most zones by one, some by two."""


class Schedule:
    """A cron expression in a zone. Make it by `parse_schedule`."""

    def __init__(self, text: str, zone: ZoneInfo) -> None:
        self._text = text
        self._zone = zone
        hours = croniter(text).expanded[1]
        self._is_hourly = hours == ["*"] or len(hours) == 24

    def latest_time(self, now: datetime) -> datetime:
        """The newest time of the schedule that is not after `now`; both in UTC."""
        best: datetime | None = None
        for wall in self._walls(now, -1):
            for moment in self._moments(wall):
                if moment <= now and (best is None or moment > best):
                    best = moment
            if best is not None and wall < self._wall(best) - _SHIFT_MAX:
                break
        assert best is not None  # `parse_schedule` has found one, and they recur
        return best

    def next_time(self, now: datetime) -> datetime:
        """The first time of the schedule after `now`; both in UTC."""
        best: datetime | None = None
        for wall in self._walls(now, +1):
            for moment in self._moments(wall):
                if moment > now and (best is None or moment < best):
                    best = moment
            if best is not None and wall > self._wall(best) + _SHIFT_MAX:
                break
        assert best is not None
        return best

    def _walls(self, now: datetime, direction: int) -> Iterator[datetime]:
        """Times on the wall that fit the expression, starting some hours on the other side of now."""
        found = croniter(self._text, self._wall(now) - direction * _SHIFT_MAX)
        while True:
            yield found.get_next(datetime) if direction > 0 else found.get_prev(datetime)

    def _moments(self, wall: datetime) -> tuple[datetime, ...]:
        """The moments when the wall shows a time: one, two or none; the runs of that time."""
        first, second = (wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if self._wall(first) != wall:
            # Skipped: `first` uses the offset from before the change, so it is later by the skipped time.
            return () if self._is_hourly else (first,)
        return (first, second) if self._is_hourly and first != second else (first,)

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None, fold=0)


def parse_schedule(text: str, zone: str) -> Schedule:
    """The schedule of a cron expression of five fields; `InvalidResource` says what is wrong with it or the zone."""
    try:
        place = ZoneInfo(zone or "UTC")
    except (KeyError, ValueError, OSError) as error:
        # OSError: a name that is a folder of the database, such as `Europe`.
        raise InvalidResource(
            f"spec.timeZone: {zone!r} is not in the time zone database; give one like Europe/Berlin"
        ) from error
    try:
        found = croniter(text, datetime(2024, 1, 1)).get_next(datetime)  # noqa: DTZ001 - a calendar without zones
        assert found
        return Schedule(text, place)
    except CroniterBadDateError as error:
        raise InvalidResource(
            f"spec.schedule: {text!r} never comes, since no month has such a day; give another one"
        ) from error
    except (CroniterError, ValueError, KeyError) as error:
        raise InvalidResource(
            f"spec.schedule: {text!r} is no cron expression ({error}); give five fields, such as 30 2 * * *"
        ) from error
