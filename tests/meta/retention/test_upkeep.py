"""Due times of upkeep: intervals with some chance in them, and sooner after a failure."""

import pytest

from support.store.versions import FakeSystem
from tussock.meta.retention.recurring import JITTER_PARTS, RETRY_SECONDS_MIN, Recurring

INTERVAL = 300.0


class Dice(FakeSystem):
    """Entropy that the test chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.roll = b"\x80"

    def random_bytes(self, count: int) -> bytes:
        return self.roll + bytes(count - 1)


@pytest.fixture
def system() -> Dice:
    return Dice()


def wait(system: Dice, schedule: Recurring) -> float:
    """Seconds until the upkeep is due, found by moving the clock a second at a time."""
    waited = 0
    while not schedule.is_due:
        system.forward(1)
        waited += 1
        assert waited < 100_000
    return waited


def test_upkeep_is_due_after_each_interval(system: Dice) -> None:
    """Measured from the end of the last run, so that long work does not follow upon itself."""
    schedule = Recurring(system, lambda: INTERVAL)
    assert wait(system, schedule) == INTERVAL
    system.forward(1000)
    assert schedule.is_due
    schedule.note_success()
    assert wait(system, schedule) == INTERVAL


@pytest.mark.parametrize(("roll", "sign"), [(b"\x00", -1), (b"\xff", 1)])
def test_chance_moves_upkeep_by_a_tenth(system: Dice, roll: bytes, sign: int) -> None:
    """Processes which began together do not all list the bucket together."""
    system.roll = roll
    due = wait(system, Recurring(system, lambda: INTERVAL))
    assert due == pytest.approx(INTERVAL * (1 + sign / JITTER_PARTS), abs=1.5)


def test_failed_upkeep_is_tried_again_soon_and_then_less_often(system: Dice) -> None:
    """Never less often than the interval; one success forgets all failures."""
    schedule = Recurring(system, lambda: INTERVAL, first_seconds=0)
    assert schedule.is_due
    waits = []
    for _ in range(8):
        schedule.note_failure()
        waits.append(wait(system, schedule))
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    schedule.note_success()
    assert wait(system, schedule) == INTERVAL
    schedule.note_failure()
    assert wait(system, schedule) == RETRY_SECONDS_MIN


def test_an_interval_of_zero_switches_upkeep_off(system: Dice) -> None:
    """A changed interval counts from the next time on."""
    interval = [0.0]
    schedule = Recurring(system, lambda: interval[0])
    system.forward(1_000_000)
    assert not schedule.is_due
    assert schedule.due_ms == 0
    interval[0] = INTERVAL
    assert schedule.is_due
    schedule.note_success()
    assert schedule.due_ms == system.now_ms() + INTERVAL * 1000
    system.forward(2 * INTERVAL)
    assert schedule.due_ms == system.now_ms(), "overdue is due now"
