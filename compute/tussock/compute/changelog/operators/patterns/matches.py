"""Where rows in order match a sequence of steps: of each row that can begin a match, the earliest end.

A match begins at a row that fulfils the first step. Each further step is the first row behind that of the step before
which fulfils it ("any"), or the very next row, which has to ("next"). To take the first is right: a match
that takes a later one ends no earlier. The last row is no more than `within` after the first, by the time of both.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Contiguity", "Ordered", "match_from", "matches", "reached"]

Contiguity = Literal["any", "next"]

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


class Ordered(NamedTuple):
    """Rows of groups, group by group, and in a group in their order."""

    groups: Places
    """The number of the group of each."""
    times: Places
    """Ascending in a group."""
    steps: Places
    """Which steps each fulfils, by bits."""


def match_from(
    start: int, times: Sequence[int], steps: Sequence[int], count: int, within: int, contiguity: Contiguity
) -> list[int] | None:
    """The places of the match of `count` steps that begins at a row of one group; `None` if there is none."""
    found = [start]
    at = start
    for step in range(1, count):
        at += 1
        while (
            at < len(times) and contiguity == "any" and times[at] - times[start] <= within and not steps[at] >> step & 1
        ):
            at += 1
        if at >= len(times) or times[at] - times[start] > within or not steps[at] >> step & 1:
            return None
        found.append(at)
    return found


def matches(
    rows: Ordered, starts: Places, count: int, within: int, contiguity: Contiguity
) -> tuple[Flags, list[Places]]:
    """Which of the rows at `starts` begin a match, and for each step the places of its rows, of all starts.

    What is said of a start without a match means nothing.
    """
    total = len(rows.times)
    at = starts
    is_match = (rows.steps[starts] & 1) == 1
    found = [starts]
    for step in range(1, count):
        holds = (rows.steps >> step & 1) == 1
        at = np.minimum(at + 1, total)
        if contiguity == "any":
            at = _next_true(holds)[at]
        is_match &= at < total
        inside = np.minimum(at, total - 1)
        is_match &= holds[inside] & (rows.groups[inside] == rows.groups[starts])
        is_match &= _is_within(rows.times[starts], rows.times[inside], within)
        found.append(inside)
    return is_match, found


def reached(rows: Ordered, groups: Places, times: Places, within: int) -> Flags:
    """Which rows have one of some moments of their group in reach: it is no more than `within` later."""
    total = len(rows.times)
    # Rows before moments of the same time, so that the moment of a change to the row itself is behind it, too.
    is_moment = np.repeat([False, True], [total, len(times)])
    all_groups, all_times = np.concatenate([rows.groups, groups]), np.concatenate([rows.times, times])
    order = np.lexsort((is_moment, all_times, all_groups))
    following = _next_true(is_moment[order])[:-1]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moment = following[place[:total]]
    has_one = moment < len(order)
    at = order[np.minimum(moment, len(order) - 1)] if len(order) else moment
    return has_one & (all_groups[at] == rows.groups) & _is_within(rows.times, all_times[at], within)


def _next_true(flags: Flags) -> Places:
    """For each place, and the one behind the last, the first from there on that is true; the number of places: none."""
    count = len(flags)
    places = np.where(flags, np.arange(count), count)
    found: Places = np.append(np.minimum.accumulate(places[::-1])[::-1], count)
    return found


def _is_within(first: Places, last: Places, within: int) -> Flags:
    """Whether it is `within` later, or less; a difference of 64 bits needs them all."""
    later = last.astype(np.uint64) - first.astype(np.uint64)
    return (last >= first) & (later <= np.uint64(within))
