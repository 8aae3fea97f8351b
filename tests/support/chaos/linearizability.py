"""Checks a history of commits and reads: could one store, doing one thing at a time, have answered like that?

A history is *linearizable* if every operation can be given one moment between its call and its answer so that, in the
order of these moments, every answer is right (Herlihy and Wing, "Linearizability", TOPLAS 1990). An operation without
an answer may have had its moment at any time after its call, or none at all.

The search is that of Wing and Gong ("Testing and verifying concurrent objects", 1993) with Lowe's memory of what was
tried ("Testing for linearizability", 2017): take any operation that no other one must precede, see whether its answer
fits the state, go on from there; a set of operations done that was met before in the same state is not tried again.
An epoch writes several keys at once, so the object is the whole store, and a history cannot be cut by keys.

Two shortcuts keep long histories cheap, and neither changes an answer. A read that fits is done at once: where it was
in another order, it can be moved to the front, since it changes nothing. And a commit of unknown outcome of whose
values nobody will see one is left out: in any order it can be taken away.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

CONFIGURATIONS_MAX = 2_000_000

State = tuple[str | None, ...]


class Operation(NamedTuple):
    """One call of a client as a whole: the rows that it saw and those that it wrote, at one moment in between."""

    client: str
    called: int
    """The moment of the call, by a clock that all clients share."""
    returned: int | None
    """The moment of its answer; `None` if it never came."""
    saw: Mapping[str, str | None]
    """The rows of a read, or those that a conditional commit relied on: by key, `None` for an absent key."""
    wrote: Mapping[str, str]
    """The rows of a commit. Values are unique in a history: each shows its writer."""


class Undecided(Exception):
    """The search was given up: too many operations overlap."""


class Violation(NamedTuple):
    """The reason why a history is not linearizable: how far the search came, and the operation that did not fit."""

    state: Mapping[str, str | None]
    done: int
    pending: Sequence[Operation]
    """The operations of which one would have to be next, and none can."""

    def __str__(self) -> str:
        lines = [
            f"not linearizable: after {self.done} operations, in the state {dict(self.state)}, none of these fits:"
        ]
        for operation in self.pending:
            wrong = {key: value for key, value in operation.saw.items() if self.state.get(key) != value}
            what = f"saw {wrong}" if wrong else f"wrote {dict(operation.wrote)}"
            lines.append(f"  {operation.client} {operation.called} .. {operation.returned}: {what}")
        return "\n".join(lines)


class _Step(NamedTuple):
    """A configuration: the operations that were done, and the content of the store then."""

    base: int
    """All known operations before this one are done."""
    done: frozenset[int]
    """Known operations from `base` on that are done."""
    used: frozenset[int]
    """Operations of unknown outcome that took effect."""
    state: State


def check(history: Iterable[Operation], configurations_max: int = CONFIGURATIONS_MAX) -> Violation | None:
    """`None` if the history is linearizable on a store that was empty; otherwise the violation."""
    return _Search(list(history), configurations_max).run()


class _Search:
    def __init__(self, history: list[Operation], configurations_max: int) -> None:
        _check_unique(history)
        self._known = sorted((one for one in history if one.returned is not None), key=lambda one: one.called)
        self._unknown = sorted((one for one in history if one.returned is None), key=lambda one: one.called)
        self._seen_by = [_viewers(one, self._known) for one in self._unknown]
        self._seen_by_unknown = [bool(_viewers(one, self._unknown)) for one in self._unknown]
        self._keys = sorted({key for one in history for key in (*one.saw, *one.wrote)})
        self._place = {key: at for at, key in enumerate(self._keys)}
        self._left = configurations_max

    def run(self) -> Violation | None:
        stack = [self._with_reads(_Step(0, frozenset(), frozenset(), (None,) * len(self._keys)))]
        met: set[_Step] = set(stack)
        furthest = stack[0]
        while stack:
            step = stack.pop()
            if step.base == len(self._known):
                return None
            furthest = max(furthest, step, key=lambda one: one.base + len(one.done))
            self._left -= 1
            if self._left < 0:
                raise Undecided(f"{len(met)} configurations tried, {len(self._known)} operations: too many overlap")
            # The last one pushed is tried first: that which returned first, and unknown ones at the end.
            for following in reversed(self._following(step)):
                following = self._with_reads(following)
                if following not in met:
                    met.add(following)
                    stack.append(following)
        return Violation(
            dict(zip(self._keys, furthest.state, strict=True)),
            furthest.base + len(furthest.done),
            [self._known[at] for at in self._minimal(furthest)[0]],
        )

    def _minimal(self, step: _Step) -> tuple[list[int], int]:
        """Known operations that may be next, and the first answer among all that are not done."""
        first_answer = -1
        found = []
        for at in range(step.base, len(self._known)):
            one = self._known[at]
            if first_answer >= 0 and one.called > first_answer:
                break
            if at in step.done:
                continue
            assert one.returned is not None
            first_answer = one.returned if first_answer < 0 else min(first_answer, one.returned)
            found.append(at)
        # Called at the very moment of an answer is not yet after it.
        return [at for at in found if self._known[at].called <= first_answer], first_answer

    def _following(self, step: _Step) -> list[_Step]:
        minimal, first_answer = self._minimal(step)
        minimal.sort(key=lambda at: self._known[at].returned or 0)
        following = [self._take_step(step, at) for at in minimal if self._fits(self._known[at], step.state)]
        for at, one in enumerate(self._unknown):
            if one.called > first_answer:
                break
            if at not in step.used and self._matters(at, step) and self._fits(one, step.state):
                following.append(step._replace(used=step.used | {at}, state=self._state_after(one, step.state)))
        return following

    def _matters(self, unknown: int, step: _Step) -> bool:
        """Whether an operation that is not done saw a value of that commit."""
        viewers = self._seen_by[unknown]
        return self._seen_by_unknown[unknown] or (bool(viewers) and viewers[-1] >= step.base)

    def _with_reads(self, step: _Step) -> _Step:
        """The configuration after all reads that may be next and fit, repeatedly."""
        while True:
            reads = [
                at
                for at in self._minimal(step)[0]
                if not self._known[at].wrote and self._fits(self._known[at], step.state)
            ]
            if not reads:
                return step
            for at in reads:
                step = self._take_step(step, at)

    def _take_step(self, step: _Step, at: int) -> _Step:
        base, done = step.base, step.done | {at}
        while base in done:
            done -= {base}
            base += 1
        return _Step(base, done, step.used, self._state_after(self._known[at], step.state))

    def _fits(self, one: Operation, state: State) -> bool:
        return all(state[self._place[key]] == value for key, value in one.saw.items())

    def _state_after(self, one: Operation, state: State) -> State:
        if not one.wrote:
            return state
        values = list(state)
        for key, value in one.wrote.items():
            values[self._place[key]] = value
        return tuple(values)


def _viewers(writer: Operation, operations: Sequence[Operation]) -> list[int]:
    """The operations that saw a value of the writer."""
    values = set(writer.wrote.values())
    return [at for at, one in enumerate(operations) if not values.isdisjoint(one.saw.values())]


def _check_unique(history: Sequence[Operation]) -> None:
    writer_of: dict[str, int] = {}
    for at, one in enumerate(history):
        if one.returned is not None and one.returned < one.called:
            raise ValueError(f"operation {at} of {one.client} returned before it was called")
        for value in one.wrote.values():
            if writer_of.setdefault(value, at) != at:
                raise ValueError(f"value {value!r} is written by two operations: nobody could tell which was read")
