"""How long refused calls wait: behind each other, apart from each other, and not without end."""

from itertools import pairwise

import pytest

from tussock.meta.server.wire.held_refusals import (
    HELD_MAX,
    HELD_SECONDS_MAX,
    HOST_HELD_MAX,
    SPACING_SECONDS,
    HeldRefusals,
)

FLOOD = ("reader", "ipv4:10.0.0.7")
OTHER = ("writer", "ipv4:10.0.0.8")


def waits(held: HeldRefusals, count: int) -> list[float]:
    """How long each of `count` calls waits that come at once and name 50 ms."""
    found = [held.enter(FLOOD, 50) for _ in range(count)]
    return [seconds for seconds in found if seconds is not None]


def test_a_flood_that_comes_at_once_does_not_leave_at_once() -> None:
    """What keeps the service from being busy with all of its refusals at one moment."""
    leaves = waits(HeldRefusals(), 256)
    assert leaves[0] == pytest.approx(0.05)
    assert min(after - before for before, after in pairwise(leaves)) >= SPACING_SECONDS * 0.999
    assert leaves[-1] < HELD_SECONDS_MAX + 256 * SPACING_SECONDS


def test_another_caller_does_not_wait_behind_a_flood() -> None:
    held = HeldRefusals()
    waits(held, 256)
    assert held.enter(OTHER, 50) == pytest.approx(0.05)


def test_calls_that_were_given_up_keep_nobody_waiting() -> None:
    """Thousands that come and go, beside ten that wait: the next one waits behind these ten alone."""
    held = HeldRefusals()
    waits(held, 10)
    for _ in range(10_000):
        held.enter(FLOOD, 50)
        held.leave(FLOOD)
    assert waits(held, 1) == [pytest.approx(11 * 0.05 + 10 * SPACING_SECONDS)]


def test_a_long_wait_that_a_refusal_names_is_cut_short() -> None:
    assert HeldRefusals().enter(FLOOD, 3_600_000) == HELD_SECONDS_MAX


def test_no_more_are_held_than_the_limits_say() -> None:
    held = HeldRefusals()
    assert len(waits(held, HOST_HELD_MAX + 1)) == HOST_HELD_MAX
    others = [("", f"ipv4:10.0.1.{number}") for number in range(HELD_MAX)]
    assert [held.enter(who, 1) for who in others].count(None) == HOST_HELD_MAX
