"""What a table lacks of the columns that are declared for it, by name, or why it cannot have them.

A stream's columns are known by their names: a table that was altered has its new ones at the end, wherever the stream
declares them.
"""

from typing import NamedTuple

import pyarrow as pa

from tussock.statestore.format.schema_changes import is_wider

__all__ = ["Growth", "difference", "growth_of"]


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


def _typed(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
