"""What a stream is, in words: kept with its rows, so that rows of another operator are not taken for its own.

A definition is a dict of short texts, such as `{"is": "filter", "condition": "(v > 3)", ...}`. Two are of the same
operator if they are equal. Long texts are cut, and end with a digest of the whole.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Definition", "changes_of", "definition", "of_code"]

Definition: TypeAlias = Mapping[str, str]

CODE = "a stream of records as they come, or of a function"
"""Of the code itself nothing is kept: whether a function does the same as before cannot be told."""

TEXT_MAX = 200
_ELIDED = "..."


def definition(kind: str, reads: Sequence[str], key: Sequence[str], schema: pa.Schema, **parts: Any) -> Definition:
    """Of an operator: `kind` and `parts` are what its call has, `reads` the names of its sources."""
    found = {"is": kind, "reads": ", ".join(reads), "key": ", ".join(key), "columns": _columns(schema)}
    return {name: _cut(text) for name, text in [*found.items(), *((name, _text(one)) for name, one in parts.items())]}


def of_code(reads: Sequence[str], key: Sequence[str], schema: pa.Schema) -> Definition:
    """Of a stream that is no operator."""
    return {**definition(CODE, (), key, schema), "reads": ", ".join(reads)}


def changes_of(was: Definition, now: Definition) -> str:
    """What differs, for people; empty if nothing does. What a function reads more of comes as insertions."""
    if was["is"] == now["is"] == CODE and was["reads"] and _names(was) <= _names(now):
        was = {**was, "reads": now["reads"]}
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    if "is" in names:
        return f"it was {was['is']!r} and is {now['is']!r}"
    return "; ".join(f"{name} was {was.get(name) or 'none'}, and is {now.get(name) or 'none'}" for name in names)


def _names(one: Definition) -> set[str]:
    return set(one["reads"].split(", "))


def _columns(schema: pa.Schema) -> str:
    """Names, types and nulls of columns."""
    return ", ".join(f"{one.name} {one.type}{'' if one.nullable else ' not null'}" for one in schema)


def _text(value: Any) -> str:
    """The same for the same value, also of another process."""
    if isinstance(value, pc.Expression):
        text = " ".join(str(value).split())
        # Arrow leaves out the middle of long lists of values.
        return f"{text} {_digest(_bytes_of(value))}" if _ELIDED in text else text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "a function" if callable(value) else str(value)


def _bytes_of(expression: pc.Expression) -> bytes:
    # As it is pickled: a function, and one buffer as its argument.
    return bytes(expression.__reduce__()[1][0])


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} ... {_digest(text.encode(errors='backslashreplace'))}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()[:16]}"
