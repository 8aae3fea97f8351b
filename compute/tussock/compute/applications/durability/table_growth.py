"""Tables that lack columns which an application declares for them now: what they are to get, and when they get it.

Columns are known by their names: a table that was altered has its new ones at the end, wherever they are declared.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.progress import APPLICATIONS, progress_of, read_progress
from tussock.statestore import StateStore, TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.buckets.opening import open_bucket
from tussock.statestore.format.schema_changes import is_wider

__all__ = ["Growth", "check_in_order", "difference", "grow_tables", "growth_of", "other_columns"]

log = get_logger("tussock.compute.applications.table_growth")


class Growth(NamedTuple):
    """What `alter_table` is to do."""

    add: dict[str, pa.DataType]
    widen: dict[str, pa.DataType]

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.add or self.widen)


def difference(found: pa.Schema, wanted: pa.Schema) -> str:
    """What is first wrong with the columns of a table; empty if it has those that are wanted, in whatever order."""
    for name in wanted.names:
        if name not in found.names:
            return f"has no column {name!r}"
        if not found.field(name).equals(wanted.field(name), check_metadata=False):
            return f"its column {name!r} is {_typed(found.field(name))}; expected {_typed(wanted.field(name))}"
    others = [name for name in found.names if name not in wanted.names]
    return f"has the column {others[0]!r} ({_typed(found.field(others[0]))}), too" if others else ""


def growth_of(found: pa.Schema, wanted: pa.Schema, key: tuple[str, ...]) -> Growth | str:
    """What the table is to get; or, in words, which column it cannot have, and which types were there and are wanted.

    A table takes new nullable columns, and wider types for columns that are not of its key.
    """
    grows = Growth({}, {})
    for one in found:
        if one.name not in wanted.names:
            return f"column {one.name!r} was {_typed(one)}, and is gone: no column can be dropped"
        now = wanted.field(one.name)
        told = f"column {one.name!r} was {_typed(one)}, and is {_typed(now)}"
        if one.nullable != now.nullable:
            return f"{told}: whether a column may be null never changes"
        if one.type == now.type:
            continue
        if one.name in key:
            return f"{told}: a column of the key never changes"
        if not is_wider(one.type, now.type):
            return f"{told}: a column only takes a type that has all values of the former one"
        grows.widen[one.name] = now.type
    for now in wanted:
        if now.name not in found.names:
            if not now.nullable:
                return (
                    f"column {now.name!r} was none, and is {_typed(now)}: a new one is null in the rows that are there"
                )
            grows.add[now.name] = now.type
    return grows


def other_columns(found: pa.Schema, wanted: pa.Schema) -> str:
    """Both schemas, for messages."""
    return f"it has {_shown(found)}; declared are {_shown(wanted)}"


def check_in_order(store: StateStore, application: str, place: str | None, refusal: Callable[[], TussockError]) -> None:
    """Raise `refusal` if the input log has what no commit holds; nobody is shut out. `place`: of the input log.

    That is of the columns as they were: what it wrote then would be other rows now.
    """
    row = store.table(APPLICATIONS).get(application)
    if row is None:
        return
    known = progress_of(row)
    delta = store.delta(application)
    try:
        bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
        groups = InputLog(bucket, application, known.uid, 0, known.takeovers).read(known.next_object)
        if any(group.records for group in groups):
            raise refusal()
    finally:
        delta.close()


def grow_tables(
    store: StateStore,
    application: str,
    growths: Mapping[str, Growth],
    *,
    place: str | None,
    refusal: Callable[[], TussockError],
) -> None:
    """Alter tables, by name, once nobody else runs the application: one that does is shut out.

    So no run of the former columns can write records that this one would have to replay; if it has written some since
    it was looked, `refusal`, and nothing is altered. A start that dies in between does the rest again.
    """
    if not any(growths.values()):
        return
    if store.table(APPLICATIONS).get(application) is not None:
        _shut_out(store, application, place, refusal)
    for name, growth in growths.items():
        if growth:
            store.alter_table(name, add=growth.add, widen=growth.widen)
            log.info(
                "table follows its declaration",
                application=application,
                table=name,
                added=sorted(growth.add),
                widened=sorted(growth.widen),
            )


def _shut_out(store: StateStore, application: str, place: str | None, refusal: Callable[[], TussockError]) -> None:
    delta = store.delta(application, generation=(generation := store.open_writer(application)))
    try:
        known = read_progress(store, delta, application)
        bucket = delta.bucket if place is None else open_bucket(place, system=delta.system)
        taken = InputLog(bucket, application, known.uid, generation, known.takeovers)
        # Read to its end, as only then the log is this one's.
        records = [len(group.records) for group in taken.take_over(known.next_object)]
        if any(records):
            raise refusal()
    finally:
        delta.close()


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_typed(field)}" for field in schema)


def _typed(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
