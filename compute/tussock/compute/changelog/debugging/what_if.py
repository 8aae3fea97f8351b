"""A transaction computed and put once more, into a copy of the rows that it touches: nothing comes of it.

Of a transaction of the history these rows are as they were before it. They follow from what was published since: of
each key the first change from then on has what was there before, and a key without one is as it is now. A bad
transaction meets the rows as they are.

An operator writes tables that it keeps. It may, in a savepoint which is given up afterwards; of a transaction of the
history what it has taken since is taken back there first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from tussock.compute.applications.errors import HistoryGone
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.computations import Computation
from tussock.compute.changelog.debugging.taken_back import RECORDS_MAX, inverse, taken_since
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.loop.location import Location
from tussock.compute.changelog.loop.put_rules import PutFault, put_records
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.statestore.errors import InvalidOption

__all__ = ["WhatIf", "try_bad", "try_taken"]

Row = Mapping[str, Any]


class WhatIf(NamedTuple):
    """What a transaction would come to."""

    taken: StreamTransaction
    """What came in."""
    computed: list[ChangeRecord]
    published: list[ChangeRecord]
    """INSERT, UPDATE_BLOCK and DELETE; empty if it is bad."""
    was: list[ChangeRecord] | None
    """What it has published; `None` of one that was bad."""
    row: int | None
    """If it is bad: the record that is to blame, as in a `BadRecord`."""
    location: Location | None
    """If it is bad: COMPUTE or PUT."""
    error: str
    """Empty if it is good."""


def try_taken(engine: FlowEngine, name: str, seq: int, computation: Computation | None) -> WhatIf:
    """One of the history of what a stream has taken; between two transactions.

    Raises `HistoryGone`, and `InvalidOption` for what cannot be tried.
    """
    stream = engine.streams[name]
    known = stream.taken_history.taken(seq)
    if known is None:
        raise InvalidOption(
            f"stream {name!r}: transaction {seq} is not in the history of what it has taken; in_history() lists them, "
            "and those that were bad have other numbers"
        )
    taken, published = known
    if published < stream.history.oldest:
        raise HistoryGone(
            f"stream {name!r}: what it has published since its transaction {seq} is not all kept, so the rows before "
            "it are not known; let the stream keep more history",
            stream.history.oldest,
        )
    since = _since(stream, published)
    was = stream.history.find(published)
    before = _rows_before(stream, since)
    # What stands in for an operator keeps nothing.
    undone = taken_since(stream, seq) if computation is None and stream.plan.computation.tables() else ()

    def find(key: Any) -> Row | None:
        return before[key] if key in before else engine.row(name, key)

    return _tried(engine, stream, taken, computation, find, None if was is None else was.records, undone)


def try_bad(engine: FlowEngine, number: int, computation: Computation | None) -> tuple[str, WhatIf]:
    """A bad transaction, and the stream that it is of; between two transactions. Raises `InvalidOption`."""
    stream, seq, changes = engine.retries.find(number)
    taken = StreamTransaction(seq, changes)
    name = stream.plan.name
    return name, _tried(engine, stream, taken, computation, lambda key: engine.row(name, key), None)


def _tried(
    engine: FlowEngine,
    stream: RunningStream,
    taken: StreamTransaction,
    computation: Computation | None,
    find: Callable[[Any], Row | None],
    was: list[ChangeRecord] | None,
    undone: Sequence[Changes] = (),
) -> WhatIf:
    """`undone`: what the stream has taken since, the transaction too, as its tables are to be as before it."""
    name = stream.plan.name
    if len(taken) > RECORDS_MAX:
        raise InvalidOption(
            f"stream {name!r}: transaction {taken.seq} has {len(taken):,} records; at most {RECORDS_MAX:,} are tried"
        )
    computation = stream.plan.computation if computation is None else computation
    try:
        with engine.work.aside() if computation.tables() else nullcontext():
            _take_back(engine, name, computation, undone)
            computed = engine.work.computed(computation, taken.changes)
    except ComputeFault as fault:
        row, cause = fault.args
        return WhatIf(taken, [], [], was, row, Location.COMPUTE, cause)
    records = list(computed.records)
    try:
        published = put_records(stream.plan.shape, Changes(stream.plan.shape, records, None, taken.time), find).changes
    except PutFault as fault:
        row, cause = fault.args
        return WhatIf(taken, records, [], was, row, Location.PUT, cause)
    return WhatIf(taken, records, list(published.records), was, None, None, "")


def _take_back(engine: FlowEngine, name: str, computation: Computation, undone: Sequence[Changes]) -> None:
    try:
        for one in undone:
            engine.work.computed(computation, inverse(one))
    except ComputeFault as fault:
        raise InvalidOption(
            f"stream {name!r}: what it has taken since cannot be taken back: {fault.args[1]}; try a newer transaction"
        ) from fault


def _since(stream: RunningStream, seq: int) -> list[StreamTransaction]:
    found: list[StreamTransaction] = []
    count = 0
    for number in range(seq, stream.history.seq + 1):
        one = stream.history.find(number)
        assert one is not None, "what follows a transaction that is kept is kept"
        count += len(one)
        if count > RECORDS_MAX:
            raise InvalidOption(
                f"stream {stream.plan.name!r}: it has published more than {RECORDS_MAX:,} records since then; try a "
                "newer transaction"
            )
        found.append(one)
    return found


def _rows_before(stream: RunningStream, since: Iterable[StreamTransaction]) -> dict[Any, Row | None]:
    """What was there under each key that has changed."""
    key_of = stream.plan.shape.key_of
    found: dict[Any, Row | None] = {}
    for one in since:
        for record in one.changes.records:
            old = record.old if record.op is Op.UPDATE_BLOCK else record if record.op is Op.DELETE else None
            found.setdefault(key_of(record), None if old is None else old.values_by_column)
    return found
