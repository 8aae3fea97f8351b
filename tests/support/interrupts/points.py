"""Interrupts of the main thread at each point at which Python may run a signal's handler.

Python looks for signals after a call, as a function begins, and as a loop goes back (`CHECK_EVAL_BREAKER` in CPython's
`ceval.c`). What a handler raises comes up there. So a trace of the steps counts these points, and raises at a given
one, in the project's code and in the standard library's that it calls: each of them is tried, without chance.
"""

import dis
import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from support.depth import DEPTH

__all__ = ["Interrupt", "interrupted_at", "points_of", "some_points"]

ALL = ("tussock", "threading", "concurrent", "queue", "contextlib")
_LOOKS = frozenset(
    dis.opmap[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD") if name in dis.opmap
)


class Interrupt(BaseException):
    """What a signal's handler raises."""


class _Trace:
    def __init__(self, at: int, within: tuple[str, ...]) -> None:
        self.at, self.within = at, within
        self.seen = 0
        self._last: dict[FrameType, int] = {}

    def begin(self, frame: FrameType, _event: str, _arg: object) -> "Callable[..., Any] | None":
        if not str(frame.f_globals.get("__name__")).startswith(self.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._point()
        return self.step

    def step(self, frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        if event == "return":
            self._last.pop(frame, None)
        elif event == "opcode":
            code, here = frame.f_code, frame.f_lasti
            before = self._last.get(frame)
            self._last[frame] = here
            # What comes up after a call belongs to the call; a trace can only raise at the step after it.
            if before is not None and code.co_code[before] in _LOOKS and _handler(code, before) == _handler(code, here):
                self._point()
        return self.step

    def _point(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            raise Interrupt


@functools.cache
def _entries(code: CodeType) -> list[Any]:
    return dis._parse_exception_table(code)  # type: ignore[attr-defined]


def _handler(code: CodeType, at: int) -> int | None:
    """Where an error that comes up there goes on, if anywhere."""
    return next((entry.target for entry in reversed(_entries(code)) if entry.start <= at < entry.end), None)


def interrupted_at(point: int, work: Callable[[], object], within: tuple[str, ...] = ALL) -> int:
    """Do `work`, and raise `Interrupt` at that point of it, counted within these modules; returns how many came.

    `work` may answer the interrupt as it likes; an `Interrupt` that comes out of it is dropped.
    """
    assert threading.current_thread() is threading.main_thread(), "only the main thread is interrupted"
    trace, before = _Trace(point, within), sys.gettrace()
    sys.settrace(trace.begin)
    try:
        work()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    return trace.seen


def points_of(work: Callable[[], object], within: tuple[str, ...] = ALL) -> int:
    """How many such points a call of `work` has."""
    return interrupted_at(0, work, within)


def some_points(count: int, seed: str, most: int = 40) -> Iterator[int]:
    """Some of the points 1 to `count`, which a seed draws, or all."""
    chosen = random.Random(seed).sample(range(1, count + 1), min(count, most * DEPTH))
    yield from sorted(chosen)
