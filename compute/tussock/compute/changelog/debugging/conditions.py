"""Conditions of breakpoints as text: `v > 100 and old.v <= 100`. A language, as they come over networks.

Python's parser reads the text, and each kind of node that is let through becomes a function here: nothing is called,
no attribute of an object is read, and arithmetic is of numbers only, so that no value grows beyond what stands there.

| | |
|---|---|
| `v`, `row["v"]` | a column of the record that comes in; null where a delete has only its key |
| `op` | its operation: `"INSERT"`, `"UPDATE_BLOCK"`, ... |
| `old.v`, `old["v"]` | the column before an update; null for other records |
| `out.v`, `out["v"]`, `out.op` | on the output: what it was computed to; one record of these is enough |
| `100`, `-1.5`, `"text"`, `True`, `None` | values; a text beside a date or a moment is one in ISO 8601 |
| `==`, `!=`, `<`, `<=`, `>`, `>=`, `is None`, `in (1, 2)` | with a null only `==`, `!=`, `is` and `in` can hold |
| `+`, `-`, `*`, `/`, `//`, `%`, `and`, `or`, `not`, `( )` | of numbers, and of conditions; with a null null |
"""

import ast
import datetime as dt
import operator
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any

from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.statestore.errors import InvalidOption

__all__ = ["CONDITION_MAX", "TextCondition"]

CONDITION_MAX = 1000
"""Characters of one."""
NODES_MAX, DEPTH_MAX = 300, 40
LITERAL_MAX = 1 << 64
"""Of whole numbers in the text."""

Value = Callable[["Sides"], Any]
Sides = tuple[ChangeRecord, ChangeRecord | None]
"""The record that came in, and one that it was computed to."""

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SAME: dict[type[ast.cmpop], bool] = {ast.Eq: True, ast.NotEq: False, ast.Is: True, ast.IsNot: False}
_OF_RECORD = ("row", "old", "out")


class TextCondition:
    """Of records of a stream; `InvalidOption` says what of a text is none."""

    def __init__(self, text: str, columns: Collection[str], out_columns: Collection[str] | None = None) -> None:
        """`columns` of what comes in; `out_columns` of what is computed, where the condition may ask for that."""
        self.text = text
        self._columns = columns
        self._out_columns = out_columns
        self._asks_out = False
        if not isinstance(text, str) or not text.strip():
            raise InvalidOption(f"a condition is {text!r:.100}; expected text, such as 'v > 100'")
        if len(text) > CONDITION_MAX:
            raise InvalidOption(f"a condition has {len(text):,} characters; expected at most {CONDITION_MAX:,}")
        self._read = text.strip()
        try:
            tree = ast.parse(self._read, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._wrong(f"it cannot be read: {str(error) or type(error).__name__}") from None
        if sum(1 for _ in ast.walk(tree)) > NODES_MAX:
            raise self._wrong(f"it has more than {NODES_MAX} parts")
        self._value = self._compiled(tree.body, 0)

    def holds(self, row: ChangeRecord, out_row: Sequence[ChangeRecord]) -> bool:
        """Whether it does for a record that came in, and what that was computed to.

        Raises `InvalidOption` for values that cannot be compared or computed with each other.
        """
        try:
            if self._asks_out:
                return any(bool(self._value((row, one))) for one in out_row)
            return bool(self._value((row, None)))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self._wrong(f"of {row!r:.200} it cannot be said: {error}") from error

    def holds_alone(self, row: ChangeRecord) -> bool:
        """The same, before it is computed."""
        return self.holds(row, ())

    # --- Reading -----------------------------------------------------------------------------------------------------

    def _compiled(self, node: ast.expr, depth: int) -> Value:
        if depth > DEPTH_MAX:
            raise self._wrong(f"it nests more than {DEPTH_MAX} deep")
        match node:
            case ast.Constant():
                return self._constant(node.value)
            case ast.Name():
                return self._column("row", node.id)
            case ast.Attribute(value=ast.Name(id=side)) if side in _OF_RECORD:
                return self._column(side, node.attr)
            case ast.Subscript(value=ast.Name(id=side), slice=ast.Constant(value=str(name))) if side in _OF_RECORD:
                return self._column(side, name)
            case ast.BoolOp():
                return self._joined(node, depth)
            case ast.UnaryOp():
                return self._signed(node, depth)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                left, right = self._compiled(node.left, depth + 1), self._compiled(node.right, depth + 1)
                act = _ARITHMETIC[type(node.op)]
                return lambda sides: _computed(act, left(sides), right(sides))
            case ast.Compare():
                return self._compared(node, depth)
        raise self._wrong(f"{self._shown(node)!r:.100} is no part of one")

    def _constant(self, value: object) -> Value:
        if value is not None and type(value) not in (bool, int, float, str, bytes):
            raise self._wrong(f"{value!r:.100} is no value of one")
        if type(value) is int and value > LITERAL_MAX:
            raise self._wrong("one of its numbers has more than 64 bits")
        return lambda _: value

    def _column(self, side: str, name: str) -> Value:
        known = self._out_columns if side == "out" else self._columns
        if known is None:
            raise self._wrong("'out' is what a record was computed to, which a breakpoint on the input cannot know")
        if name not in known:
            if name == "op" and side != "old":
                return self._op(side)
            raise self._wrong(f"there is no column {name!r:.100}; expected one of {sorted(known)!r:.500}, or op")
        if side == "row":
            return lambda sides: sides[0].get(name)
        if side == "old":
            return lambda sides: None if sides[0].old is None else sides[0].old.get(name)
        self._asks_out = True
        return lambda sides: None if sides[1] is None else sides[1].get(name)

    def _op(self, side: str) -> Value:
        if side == "row":
            return lambda sides: str(sides[0].op)
        self._asks_out = True
        return lambda sides: None if sides[1] is None else str(sides[1].op)

    def _joined(self, node: ast.BoolOp, depth: int) -> Value:
        parts = [self._compiled(one, depth + 1) for one in node.values]
        join = all if isinstance(node.op, ast.And) else any
        return lambda sides: join(bool(one(sides)) for one in parts)

    def _signed(self, node: ast.UnaryOp, depth: int) -> Value:
        value = self._compiled(node.operand, depth + 1)
        if isinstance(node.op, ast.Not):
            return lambda sides: not value(sides)
        if isinstance(node.op, ast.USub):
            return lambda sides: _computed(operator.sub, 0, value(sides))
        raise self._wrong(f"{self._shown(node)!r:.100} is no part of one")

    def _compared(self, node: ast.Compare, depth: int) -> Value:
        """`a < b < c`, too."""
        values = [self._compiled(node.left, depth + 1)]
        tests: list[Callable[[Any, Any], bool]] = []
        for one, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(one, ast.In | ast.NotIn):
                values.append(self._listed(right, depth))
            else:
                values.append(self._compiled(right, depth + 1))
            tests.append(self._test(one, right))

        def holds(sides: Sides) -> bool:
            left = values[0](sides)
            for test, value in zip(tests, values[1:], strict=True):
                right = value(sides)
                if not test(left, right):
                    return False
                left = right
            return True

        return holds

    def _test(self, one: ast.cmpop, right: ast.expr) -> Callable[[Any, Any], bool]:
        if isinstance(one, ast.In):
            return lambda left, those: any(_is_same(left, other) for other in those)
        if isinstance(one, ast.NotIn):
            return lambda left, those: not any(_is_same(left, other) for other in those)
        if type(one) in _ORDER:
            order = _ORDER[type(one)]
            return lambda left, other: _is_ordered(order, left, other)
        is_none = isinstance(right, ast.Constant) and right.value is None
        if isinstance(one, ast.Is | ast.IsNot) and not is_none:
            raise self._wrong("'is' goes with None only; write ==")
        wanted = _SAME[type(one)]
        return lambda left, other: _is_same(left, other) is wanted

    def _listed(self, node: ast.expr, depth: int) -> Value:
        if not isinstance(node, ast.Tuple | ast.List):
            raise self._wrong(f"'in' goes with a list in brackets, and not with {self._shown(node)!r:.100}")
        parts = [self._compiled(one, depth + 1) for one in node.elts]
        return lambda sides: [one(sides) for one in parts]

    def _shown(self, node: ast.AST) -> str:
        # Not by `ast.unparse`, which goes as deep as the text nests.
        return ast.get_source_segment(self._read, node) or type(node).__name__

    def _wrong(self, why: str) -> InvalidOption:
        return InvalidOption(f"condition {self.text!r:.200}: {why}")


def _computed(act: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise TypeError(f"{value!r:.100} is no number")
    return act(*_numbers(left, right))


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """Of one type: a decimal beside a float is a float."""
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left), right
    if isinstance(left, float) and isinstance(right, Decimal):
        return left, float(right)
    return left, right


def _is_same(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    left, right = _dated(left, right)
    return bool(left == right)


def _is_ordered(order: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    return bool(order(*_dated(left, right)))


def _dated(left: Any, right: Any) -> tuple[Any, Any]:
    """A text beside a date, a moment or a time of day is read as one."""
    if isinstance(right, str) and isinstance(left, dt.date | dt.time):
        return left, _read(right, left)
    if isinstance(left, str) and isinstance(right, dt.date | dt.time):
        return _read(left, right), right
    return left, right


def _read(text: str, like: dt.date | dt.time) -> dt.date | dt.time:
    if not isinstance(like, dt.datetime):
        return type(like).fromisoformat(text)
    found = dt.datetime.fromisoformat(text)
    if like.tzinfo is not None and found.tzinfo is None:
        return found.replace(tzinfo=dt.UTC)
    return found
