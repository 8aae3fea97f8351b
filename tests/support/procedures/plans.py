"""Random applications of procedures, as plain values: what a program and an interpreter of them are made from."""

import random
from typing import Any, Literal, NamedTuple

__all__ = ["CALLS", "LIMIT", "TABLES", "Plan", "ProcedurePlan", "TriggerPlan", "WindowPlan", "make_plan"]

TABLES = ("left", "right")
"""Of {k: int64, v: int64}, written by procedures and calls."""
CALLS = ("look", "add", "drop", "order")
LIMIT = 1_000_003
"""Values are smaller."""


class ProcedurePlan(NamedTuple):
    """What one procedure does to the numbers that it is given."""

    name: str
    number: int
    border: bool
    has_schema: bool
    consumes: tuple[str, ...]
    emits: tuple[str, ...]
    table: str
    in_bulk: bool
    """One write of all rows, instead of one for each number."""
    refuses: int
    """It raises for a number that has this remainder by 23; none has 99."""
    refuses_state: bool
    """It raises for what it finds in its table, too."""
    refuses_late: bool
    """After it has emitted, not before."""
    asks: bool
    """It calls something outside."""
    draws: bool
    """It writes a random number into table `drawn`."""
    replies: bool


class WindowPlan(NamedTuple):
    """A window on a stream."""

    name: str
    on: str
    size: int
    slide: int
    by_batches: bool
    first: Literal["slide", "full"]


class TriggerPlan(NamedTuple):
    """A trigger, which notes what it sees in table `seen`."""

    number: int
    kind: Literal["stream", "window", "table"]
    on: str
    refuses: int
    """As of a procedure, by 61."""


class Plan(NamedTuple):
    """An application."""

    procedures: tuple[ProcedurePlan, ...]
    """Each after those whose streams it consumes."""
    windows: tuple[WindowPlan, ...]
    triggers: tuple[TriggerPlan, ...]

    @property
    def streams(self) -> list[str]:
        """All streams, in the order of their sources."""
        return [stream for one in self.procedures for stream in one.emits]

    @property
    def borders(self) -> list[str]:
        """Names of the procedures that clients give batches."""
        return [one.name for one in self.procedures if one.border]


def make_plan(chance: random.Random) -> Plan:
    """A graph of one to five procedures with one or two borders: chains, branches and joins, as they come."""
    count = chance.choice((1, 2, 2, 3, 3, 4, 4, 5, 5))
    borders = 2 if count > 1 and chance.random() < 0.4 else 1
    procedures: list[ProcedurePlan] = []
    streams: list[str] = []
    for number in range(count):
        border = number < borders
        if border:
            consumes: tuple[str, ...] = ()
        elif number == borders == 2 and chance.random() < 0.7:
            consumes = ("s0a", "s1a")
        else:
            consumes = tuple(chance.sample(streams, min(len(streams), chance.choice((1, 1, 2, 3)))))
        least = 1 if border and count > borders else 0
        emits = tuple(f"s{number}{letter}" for letter in "ab"[: chance.randint(least, 2)])
        streams += emits
        procedures.append(_procedure(chance, number, border, consumes, emits))
    windows = tuple(_window(chance, f"w{number}", chance.choice(streams)) for number in range(_up_to(chance, streams)))
    kinds: dict[str, list[str]] = {
        "stream": streams,
        "window": [one.name for one in windows],
        "table": list(TABLES),
    }
    triggers = []
    for number in range(chance.randint(0, 4)):
        kind = chance.choice([kind for kind, those in kinds.items() if those])
        triggers.append(_trigger(chance, number, kind, kinds[kind]))
    return Plan(tuple(procedures), windows, tuple(triggers))


def _procedure(
    chance: random.Random, number: int, border: bool, consumes: tuple[str, ...], emits: tuple[str, ...]
) -> ProcedurePlan:
    return ProcedurePlan(
        name=f"p{number}",
        number=number,
        border=border,
        has_schema=chance.random() < 0.5,
        consumes=consumes,
        emits=emits,
        table=chance.choice(TABLES),
        in_bulk=chance.random() < 0.4,
        refuses=chance.randrange(23) if chance.random() < 0.4 else 99,
        refuses_state=chance.random() < 0.2,
        refuses_late=chance.random() < 0.5,
        asks=chance.random() < 0.15,
        draws=chance.random() < 0.2,
        replies=border or chance.random() < 0.6,
    )


def _window(chance: random.Random, name: str, on: str) -> WindowPlan:
    size = chance.choice((chance.randint(1, 5), chance.randint(1, 5), chance.randint(6, 40)))
    by_batches = chance.random() < 0.5
    return WindowPlan(name, on, size, chance.randint(1, min(size, 9)), by_batches, chance.choice(("slide", "full")))


def _trigger(chance: random.Random, number: int, kind: Any, among: list[str]) -> TriggerPlan:
    refuses = chance.randrange(61) if chance.random() < 0.3 else 99
    return TriggerPlan(number, kind, chance.choice(among), refuses)


def _up_to(chance: random.Random, streams: list[str]) -> int:
    return chance.randint(0, 3) if streams else 0
