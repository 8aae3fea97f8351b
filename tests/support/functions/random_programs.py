"""Random call trees, for entities with one number each, and plain Python that does the same one after the other."""

import json
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from tussock.compute import functions as fn

__all__ = ["Interpreter", "Touched", "make_request", "things"]

KEYS = tuple(f"e{number}" for number in range(8))
Steps = list[list[Any]]
READERS = ("get", "add", "follow", "fail above")
"""Steps that look at the entity."""


def things() -> fn.Operator:
    """`act(steps)` does what `make_request` has drawn."""
    thing = fn.Operator("thing", partitions=8)

    @thing.register
    async def act(ctx: fn.FunctionContext, steps: Steps | str) -> list[Any]:
        seen: list[Any] = []
        # Rows of a table have them as text.
        for what, *rest in json.loads(steps) if isinstance(steps, str) else steps:
            state = ctx.get() if what in READERS else None
            value = None if state is None else state["v"]
            if what == "get":
                seen.append(value)
            elif what == "put":
                ctx.put({"v": rest[0]})
            elif what == "add":
                ctx.put({"v": (value or 0) + rest[0]})
            elif what == "delete":
                ctx.delete()
            elif what == "draw":
                drawn = int(ctx.random() * 1000)
                ctx.put({"v": drawn})
                seen.append(["drawn", drawn])
            elif what == "send":
                ctx.call_async("thing", rest[0], "act", rest[1])
            elif what == "call":
                seen.append(await ctx.call("thing", rest[0], "act", rest[1]))
            elif what == "follow":
                seen.append(await ctx.call("thing", KEYS[(value or 0) % len(KEYS)], "act", rest[0]))
            elif (value or 0) > rest[0]:
                raise ValueError(f"{ctx.key} is above {rest[0]}")
        return seen

    return thing


def make_request(chance: random.Random) -> tuple[str, Steps]:
    """A key, and steps with calls below calls."""
    steps = _steps(chance, 0)
    if chance.random() < 0.2:
        steps.insert(chance.randrange(len(steps) + 1), ["draw"])
    return chance.choice(KEYS), steps


def _steps(chance: random.Random, depth: int) -> Steps:
    steps: Steps = []
    for _ in range(chance.randint(1, 3)):
        what = chance.choice(("get", "put", "add", "add", "delete", "send", "call", "follow", "fail above"))
        if what in ("send", "call", "follow") and depth < 2:
            below = _steps(chance, depth + 1)
            steps.append([what, below] if what == "follow" else [what, chance.choice(KEYS), below])
        elif what in ("put", "add"):
            steps.append([what, chance.randint(1, 9)])
        elif what == "fail above":
            steps.append([what, chance.randint(5, 40)])
        elif what in ("get", "delete"):
            steps.append([what])
    return steps


class Touched(dict[str, int]):
    """States by key, which notes what was read and what was written."""

    def __init__(self, states: dict[str, int]) -> None:
        super().__init__(states)
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.reads.add(key)
        return super().get(key, default)

    def __setitem__(self, key: str, value: int) -> None:
        self.writes.add(key)
        super().__setitem__(key, value)

    def pop(self, key: str, default: Any = None) -> Any:
        self.writes.add(key)
        return super().pop(key, default)


class Interpreter:
    """A dict, and one request after the other."""

    def __init__(self) -> None:
        self.state: dict[str, int] = {}

    def look(self, key: str, steps: Steps, reply: Any) -> tuple[list[Any] | str, Touched]:
        """What the request answers on the present state, which stays as it is, and what it leaves and has touched."""
        other = Interpreter()
        found = other.state = Touched(self.state)
        return other.run(key, steps, reply), found

    def take(self, found: Touched) -> None:
        """What a look would have left is there from now on."""
        for key in found.writes:
            self.state.pop(key, None)
            if key in found:
                self.state[key] = found[key]

    def run(self, key: str, steps: Steps, reply: Any) -> list[Any] | str:
        """What the request answers, or the text of its failure; `reply` says what it had drawn."""
        before = dict(self.state)
        drawn = iter(
            [one[1] for one in reply if isinstance(one, list) and one[:1] == ["drawn"]]
            if isinstance(reply, list)
            else []
        )
        waiting: deque[tuple[str, Steps]] = deque()
        try:
            value = self._act(key, steps, waiting, drawn)
            while waiting:
                self._act(*waiting.popleft(), waiting, drawn)
            return value
        except ValueError as error:
            self.state = before
            return str(error)

    def _act(self, key: str, steps: Steps, waiting: deque[tuple[str, Steps]], drawn: Iterator[int]) -> list[Any]:
        seen: list[Any] = []
        sent: list[tuple[str, Steps]] = []
        for what, *rest in steps:
            value = self.state.get(key) if what in READERS else None
            if what == "get":
                seen.append(value)
            elif what == "put":
                self.state[key] = rest[0]
            elif what == "add":
                self.state[key] = (value or 0) + rest[0]
            elif what == "delete":
                self.state.pop(key, None)
            elif what == "draw":
                number = next(drawn, -1)
                self.state[key] = number
                seen.append(["drawn", number])
            elif what == "send":
                sent.append((rest[0], rest[1]))
            elif what == "call":
                seen.append(self._act(rest[0], rest[1], waiting, drawn))
            elif what == "follow":
                seen.append(self._act(KEYS[(value or 0) % len(KEYS)], rest[0], waiting, drawn))
            elif (value or 0) > rest[0]:
                raise ValueError(f"{key} is above {rest[0]}")
        waiting.extend(sent)
        return seen
