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


def test_a_flood_that_comes_at_once_does_not_leave_at_once() -> None:
    """What keeps the service from being busy with all of its refusals at one moment."""
    held = HeldRefusals()
    leaves = [held.enter(FLOOD, 50, 100.0) or 0.0 for _ in range(256)]
    assert leaves[0] == pytest.approx(0.05)
    assert min(after - before for before, after in pairwise(leaves)) >= SPACING_SECONDS * 0.999
    assert leaves[-1] < HELD_SECONDS_MAX + 256 * SPACING_SECONDS


def test_another_caller_does_not_wait_behind_a_flood() -> None:
    held = HeldRefusals()
    for _ in range(256):
        held.enter(FLOOD, 50, 100.0)
    assert held.enter(OTHER, 50, 100.0) == pytest.approx(0.05)


def test_who_has_left_is_forgotten() -> None:
    held = HeldRefusals()
    for _ in range(10):
        held.enter(FLOOD, 50, 100.0)
    for _ in range(10):
        held.leave(FLOOD)
    assert held.enter(FLOOD, 50, 100.0) == pytest.approx(0.05)


def test_a_long_wait_that_a_refusal_names_is_cut_short() -> None:
    assert HeldRefusals().enter(FLOOD, 3_600_000, 0.0) == HELD_SECONDS_MAX


def test_no_more_are_held_than_the_limits_say() -> None:
    held = HeldRefusals()
    assert [held.enter(FLOOD, 1, 0.0) for _ in range(HOST_HELD_MAX + 1)].count(None) == 1
    others = [("", f"ipv4:10.0.1.{number}") for number in range(HELD_MAX)]
    assert [held.enter(who, 1, 0.0) for who in others].count(None) == HOST_HELD_MAX
