"""The events of Nexmark: people open accounts, sell things in auctions, and bid; generated, seeded, as Arrow tables.

Proportions, hot keys, prices and lengths of auctions are those of the published generator (https://github.com/nexmark,
after *NEXMark - A Benchmark for Queries over Data Streams*, Tucker et al.), with its default configuration:

- of 50 events one is a new person, three are new auctions, 46 are bids; one event happens every 100 us, unless
  `per_second` says otherwise
- half of the bids go to a hot auction, three of four auctions have a hot seller, three of four bids a hot bidder; a hot
  one is the first (a bidder the second) of the newest hundred, so it changes
- the others are drawn from the newest 100 auctions or 1,000 people and the 10 ids to come, so a bid may come before
  its auction, and an auction before its seller
- a price is 10 to the power of a number between 0 and 6, in cents; an auction lasts up to twice as long as it takes
  until another 100 have opened

What differs: random numbers are NumPy's and drawn by column, so values are not those of the Java generator; and
`extra`, which only fills a row up, is shorter, unless `extra_bytes` says otherwise.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Events", "as_stream", "generate"]

_PEOPLE, _AUCTIONS, _ALL = 1, 3, 50
"""Of `_ALL` events, `_PEOPLE` and `_AUCTIONS` are new people and new auctions; the rest are bids."""
_FIRST_ID = 1000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_IN_FLIGHT, _ACTIVE_PEOPLE, _LEAD = 100, 1000, 10
_HOT_AUCTIONS, _HOT_SELLERS, _HOT_BIDDERS = 2, 4, 4
"""One in this number is not hot."""
_HOT_BATCH = 100
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

_Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """One stretch of the stream; times are microseconds in UTC, prices cents, `event` numbers all events from 0."""

    people: pa.Table
    """event, id, name, email, city, state, time, extra"""
    auctions: pa.Table
    """event, id, item, initial_bid, reserve, time, expires, seller, category, extra"""
    bids: pa.Table
    """event, auction, bidder, price, time, extra"""


def generate(
    first: int, count: int, *, seed: int, per_second: int = 10_000, start_us: int = 0, extra_bytes: int = 16
) -> Events:
    """The events `first` to `first + count - 1`; the same arguments give the same events.

    `per_second`: how many events happen in a second, at most a million; `start_us`: when event 0 happens, as
    microseconds since 1970.
    """
    pace = 1_000_000 // per_second
    random = np.random.default_rng((seed, first, count))
    event = np.arange(first, first + count, dtype=np.int64)
    offset = event % _ALL
    is_person, is_bid = offset < _PEOPLE, offset >= _PEOPLE + _AUCTIONS
    people, auctions, bids = event[is_person], event[~is_person & ~is_bid], event[is_bid]
    return Events(
        _people(people, start_us + people * pace, random, extra_bytes),
        _auctions(auctions, start_us + auctions * pace, pace, random, extra_bytes),
        _bids(bids, start_us + bids * pace, random, extra_bytes),
    )


def _people(event: _Ids, time_us: _Ids, random: np.random.Generator, extra_bytes: int) -> pa.Table:
    count = len(event)
    names = [
        f"{_FIRST_NAMES[first]} {_LAST_NAMES[last]}"
        for first, last in zip(
            random.integers(len(_FIRST_NAMES), size=count), random.integers(len(_LAST_NAMES), size=count), strict=True
        )
    ]
    return pa.table(
        {
            "event": event,
            "id": _last_person(event) + _FIRST_ID,
            "name": pa.array(names, pa.string()),
            "email": pa.array([f"{name.lower().replace(' ', '.')}@example.com" for name in names], pa.string()),
            "city": pa.array(_CITIES).take(pa.array(random.integers(len(_CITIES), size=count))),
            "state": pa.array(_STATES).take(pa.array(random.integers(len(_STATES), size=count))),
            "time": _time(time_us),
            "extra": _extra(count, random, extra_bytes),
        }
    )


def _auctions(event: _Ids, time_us: _Ids, pace: int, random: np.random.Generator, extra_bytes: int) -> pa.Table:
    count = len(event)
    number = _last_auction(event)
    initial = _prices(count, random)
    # Twice the time in which `_IN_FLIGHT` auctions open is the longest, so that time is the average.
    horizon_us = _IN_FLIGHT * _ALL // _AUCTIONS * pace
    lasts_us = 1000 + random.integers(2 * horizon_us, size=count)
    hot = random.integers(_HOT_SELLERS, size=count) > 0
    seller = np.where(hot, _last_person(event) // _HOT_BATCH * _HOT_BATCH, _some_person(event, random))
    return pa.table(
        {
            "event": event,
            "id": number + _FIRST_ID,
            "item": pa.array([f"item {one}" for one in number], pa.string()),
            "initial_bid": initial,
            "reserve": initial + _prices(count, random),
            "time": _time(time_us),
            "expires": _time(time_us + lasts_us),
            "seller": seller + _FIRST_ID,
            "category": _FIRST_CATEGORY + random.integers(_CATEGORIES, size=count),
            "extra": _extra(count, random, extra_bytes),
        }
    )


def _bids(event: _Ids, time_us: _Ids, random: np.random.Generator, extra_bytes: int) -> pa.Table:
    count = len(event)
    last = _last_auction(event)
    oldest = np.maximum(last - _IN_FLIGHT, 0)
    some = oldest + _below(last - oldest + 1 + _LEAD, random)
    auction = np.where(random.integers(_HOT_AUCTIONS, size=count) > 0, last // _HOT_BATCH * _HOT_BATCH, some)
    hot = random.integers(_HOT_BIDDERS, size=count) > 0
    bidder = np.where(hot, _last_person(event) // _HOT_BATCH * _HOT_BATCH + 1, _some_person(event, random))
    return pa.table(
        {
            "event": event,
            "auction": auction + _FIRST_ID,
            "bidder": bidder + _FIRST_ID,
            "price": _prices(count, random),
            "time": _time(time_us),
            "extra": _extra(count, random, extra_bytes),
        }
    )


def _last_person(event: _Ids) -> _Ids:
    """The newest person by then, counted from 0."""
    return event // _ALL * _PEOPLE + np.minimum(event % _ALL, _PEOPLE - 1)


def _last_auction(event: _Ids) -> _Ids:
    """The newest auction by then, counted from 0; -1 before the first."""
    return event // _ALL * _AUCTIONS + np.clip(event % _ALL - _PEOPLE, -1, _AUCTIONS - 1)


def _some_person(event: _Ids, random: np.random.Generator) -> _Ids:
    people = _last_person(event) + 1
    active = np.minimum(people, _ACTIVE_PEOPLE)
    return people - active + _below(active + _LEAD, random)


def _below(limits: _Ids, random: np.random.Generator) -> _Ids:
    """One number from 0 up to, without, each limit."""
    return random.integers(limits, dtype=np.int64)


def _prices(count: int, random: np.random.Generator) -> _Ids:
    return np.rint(10.0 ** random.uniform(0, 6, count) * 100).astype(np.int64)


def _time(time_us: _Ids) -> pa.Array:
    return pa.array(time_us).cast(pa.timestamp("us", "UTC"))


def _extra(count: int, random: np.random.Generator, width: int) -> pa.Array:
    letters = random.integers(ord("a"), ord("z") + 1, size=count * width, dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def as_stream(events: Events) -> pa.Table:
    """All events as one table by number: event, time, and of the columns person, auction and bid the one that it is."""
    parts = [
        _tagged(events.people, "person"),
        _tagged(events.auctions, "auction"),
        _tagged(events.bids, "bid"),
    ]
    return pa.concat_tables(parts, promote_options="default").sort_by("event")


def _tagged(rows: pa.Table, kind: str) -> pa.Table:
    whole = rows.combine_chunks().to_struct_array().combine_chunks()
    return pa.table({"event": rows["event"], "time": rows["time"], kind: whole})
