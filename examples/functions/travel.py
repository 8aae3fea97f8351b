"""Deathstar's travel service: searches, recommendations, logins, and reservations of a hotel together with a flight.

A reservation is one transaction over three entities: the order, the hotel and the flight. Rooms and seats count down,
so that a hotel which is sold out ends the whole order, and the seat on the flight stays free.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from functions.workload import Reply, Request, Tables

from tussock.compute import functions as fn

__all__ = ["Travel"]

SEARCH, RECOMMEND, LOGIN = 0.60, 0.39, 0.005
"""Shares of the requests; the rest, 0.5 %, are reservations."""
HOTELS = FLIGHTS = 100
CELLS, HOTELS_A_CELL = 16, 5
"""Of the map, on which 80 hotels can be searched for."""
USERS = 501
RESULTS = 5
WRONG_PASSWORD = 0.1
CRITERIA = ("price", "rating")


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _hash(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _make_readers() -> list[fn.Operator]:
    """Operators that only read: the map, prices, recommendations and users."""
    geo = fn.Operator("geo", 4, schema=pa.schema([_field("hotels", pa.list_(pa.int64()))]), key=pa.int64())
    rate = fn.Operator("rate", 4, schema=pa.schema([_field("price", pa.int64())]), key=pa.int64())
    recommendation = fn.Operator("recommendation")
    user = fn.Operator("user", 4, schema=pa.schema([_field("password", pa.string())]))

    @geo.register
    async def search(ctx: fn.FunctionContext) -> list[list[int]]:
        """Pairs of price and hotel, the cheapest first."""
        state = ctx.get() or {"hotels": []}
        return sorted([[await ctx.call("rate", hotel, "price"), hotel] for hotel in state["hotels"]])

    @rate.register
    async def price(ctx: fn.FunctionContext) -> int:
        state = ctx.get()
        if state is None:
            raise LookupError(f"no rate of hotel {ctx.key}")
        return int(state["price"])

    @recommendation.register
    async def recommend(ctx: fn.FunctionContext) -> list[int]:
        state = ctx.get() or {"hotels": []}
        return list(state["hotels"])

    @user.register
    async def login(ctx: fn.FunctionContext, password: str) -> bool:
        state = ctx.get()
        return state is not None and state["password"] == _hash(password)

    return [geo, rate, recommendation, user]


def _make_stock(name: str, what: str) -> fn.Operator:
    """Hotels or flights: `reserve` takes one place."""
    operator = fn.Operator(name, 4, schema=pa.schema([_field("free", pa.int64())]), key=pa.int64())

    @operator.register
    async def reserve(ctx: fn.FunctionContext) -> None:
        state = ctx.get()
        if state is None or not state["free"]:
            raise ValueError(f"no {what} left: {name} {ctx.key}")
        ctx.put({"free": state["free"] - 1})

    return operator


def _make_order() -> fn.Operator:
    schema = pa.schema([_field("user", pa.string()), _field("hotel", pa.int64()), _field("flight", pa.int64())])
    order = fn.Operator("order", 4, schema=schema, key=pa.int64())

    @order.register
    async def reserve(ctx: fn.FunctionContext, user: str, hotel: int, flight: int) -> int:
        if ctx.get() is not None:
            raise ValueError(f"order {ctx.key} is there")
        ctx.put({"user": user, "hotel": hotel, "flight": flight})
        ctx.call_async("hotel", hotel, "reserve")
        ctx.call_async("flight", flight, "reserve")
        return int(ctx.key)

    return order


class Travel:
    """`capacity` of each hotel and flight; `reserve`: the share of reservations, in whose place others are fewer."""

    def __init__(self, capacity: int = 10, *, reserve: float = 0.005) -> None:
        self.capacity = capacity
        self._reserve = reserve
        self.operators = [*_make_readers(), _make_stock("hotel", "room"), _make_stock("flight", "seat"), _make_order()]

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Hotels, flights, users and what is read of them."""
        ranked = {"price": sorted(range(HOTELS), key=_price_of), "rating": sorted(range(HOTELS), key=_rating_of)}
        return {
            "geo": [{"key": cell, "hotels": _hotels_in(cell)} for cell in range(CELLS)],
            "rate": [{"key": hotel, "price": _price_of(hotel)} for hotel in range(HOTELS)],
            "recommendation": [{"key": name, "hotels": ranked[name][:RESULTS]} for name in CRITERIA],
            "user": [{"key": f"user{at}", "password": _hash(f"password{at}")} for at in range(USERS)],
            "hotel": [{"key": hotel, "free": self.capacity} for hotel in range(HOTELS)],
            "flight": [{"key": flight, "free": self.capacity} for flight in range(FLIGHTS)],
        }

    def requests(self, count: int, seed: int) -> list[Request]:
        """All four kinds, evenly over what there is; the order of a reservation has the request's number."""
        random = np.random.default_rng(seed)
        rest = 1 - self._reserve
        shares = np.array([SEARCH, RECOMMEND, LOGIN]) / (SEARCH + RECOMMEND + LOGIN) * rest
        kinds = np.searchsorted(shares.cumsum(), random.random(count), side="right").tolist()
        users = random.integers(0, USERS, count).tolist()
        cells = random.integers(0, CELLS, count).tolist()
        hotels, flights = (random.integers(0, most, count).tolist() for most in (HOTELS, FLIGHTS))
        is_wrong = (random.random(count) < WRONG_PASSWORD).tolist()
        found = []
        for at, kind in enumerate(kinds):
            user = f"user{users[at]}"
            if kind == 0:
                found.append(Request("geo", cells[at], "search"))
            elif kind == 1:
                found.append(Request("recommendation", CRITERIA[at % 2], "recommend"))
            elif kind == 2:
                password = "wrong" if is_wrong[at] else f"password{users[at]}"
                found.append(Request("user", user, "login", (password,)))
            else:
                found.append(Request("order", at, "reserve", (user, hotels[at], flights[at])))
        return found

    def check(self, requests: Sequence[Request], replies: Sequence[Reply], tables: Tables) -> list[str]:
        """No place is sold twice, none is lost, and there is an order for each reservation that was confirmed."""
        wrong = []
        orders: dict[Any, dict[str, Any]] = {}
        free = {name: dict.fromkeys(range(most), self.capacity) for name, most in _STOCK}
        refused = []
        for request, reply in zip(requests, replies, strict=True):
            if request.function != "reserve":
                if reply != Reply(_expected(request), None):
                    wrong.append(f"{request}: {reply}, expected {_expected(request)}")
            elif reply.error is None:
                user, hotel, flight = request.arguments
                orders[request.key] = {"user": user, "hotel": hotel, "flight": flight}
                free["hotel"][hotel] -= 1
                free["flight"][flight] -= 1
            else:
                refused.append((request, reply.error))
        for name, _ in _STOCK:
            found = {key: state["free"] for key, state in tables[name].items()}
            wrong += [f"{name} {key} has {left} places" for key, left in found.items() if left < 0]
            if found != free[name]:
                wrong.append(f"the {name}s have {found}, expected {free[name]}")
        if tables["order"] != orders:
            wrong.append(f"{len(tables['order'])} orders, expected {len(orders)}, or others")
        for request, error in refused:
            # Places are never given back: what was sold out then is so at the end.
            _, hotel, flight = request.arguments
            known = {f"no room left: hotel {hotel}": free["hotel"][hotel]}
            known[f"no seat left: flight {flight}"] = free["flight"][flight]
            if known.get(error, 1):
                wrong.append(f"{request} was refused without need: {error}")
        return wrong


_STOCK = (("hotel", HOTELS), ("flight", FLIGHTS))


def _hotels_in(cell: int) -> list[int]:
    return list(range(cell * HOTELS_A_CELL, (cell + 1) * HOTELS_A_CELL))


def _price_of(hotel: int) -> int:
    """In cents; no two are the same."""
    return 5000 + hotel * 37 % HOTELS * 100


def _rating_of(hotel: int) -> int:
    return hotel * 61 % HOTELS


def _expected(request: Request) -> Any:
    if request.function == "search":
        return sorted([_price_of(hotel), hotel] for hotel in _hotels_in(int(request.key)))
    if request.function == "recommend":
        key = _price_of if request.key == "price" else _rating_of
        return sorted(range(HOTELS), key=key)[:RESULTS]
    return request.arguments[0] == str(request.key).replace("user", "password")
