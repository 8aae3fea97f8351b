"""What a user declares: operators, which are kinds of entities, and the functions that work on one entity each."""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.values import are_free, copy_of, is_text
from tussock.statestore import InvalidOption

__all__ = ["Function", "Operator"]

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
"""Names with `_` in front are those of the system's tables."""
PARTITIONS_MAX = 256
"""As many as a table has virtual nodes."""
FUNCTIONS_MAX = 1000
_KEY_CLASSES: dict[pa.DataType, type] = {pa.string(): str, pa.int64(): int, pa.binary(): bytes}
_CHECKED = {"int": int, "str": str, "float": float, "bool": bool, "bytes": bytes, "dict": dict, "list": list}


class Function(NamedTuple):
    """A registered function."""

    operator: str
    name: str
    code: Callable[..., Any]
    is_batch: bool
    least: int
    """Arguments that it has to get, the context left out."""
    most: int | None
    """`None`: as many as there are."""
    types: tuple[tuple[str, type | None], ...]
    """Name and class of each parameter, if any has one of the plain classes as its annotation."""
    touches: tuple[tuple[str, str], ...] = ()
    """Of a batch function: columns that name further entities, and their operators."""
    names: tuple[str, ...] = ()
    """Of the parameters behind the context."""

    def arguments(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as the function gets them; `FunctionFault` if it does not take these."""
        self.check_number(len(given))
        for (name, kind), value in zip(self.types, given, strict=False):
            if kind is not None and type(value) is not kind and not (kind is float and type(value) is int):
                raise FunctionFault(f"{self.title}: {name} is {value!r:.100}; expected {kind.__name__}")
        return given if are_free(given) else tuple(copy_of(list(given), f"an argument of {self.title}"))

    def check_number(self, given: int) -> None:
        """`FunctionFault` if the function does not take that many arguments."""
        if given < self.least or (self.most is not None and given > self.most):
            most = "more" if self.most is None else self.most
            wanted = str(self.least) if self.least == self.most else f"{self.least} to {most}"
            noun = "argument" if wanted == "1" else "arguments"
            raise FunctionFault(f"{self.title} takes {wanted} {noun} behind the context, found {given}")

    def ordered(self, columns: Sequence[str]) -> list[str]:
        """Columns by the parameters that they are named after; as they come, if it takes any number of arguments.

        `FunctionFault` names those that do not fit.
        """
        if len(set(columns)) < len(columns):
            raise FunctionFault(f"{self.title}: the columns {list(columns)!r:.200} have one name twice")
        if self.most is None:
            return list(columns)
        if other := [name for name in columns if name not in self.names]:
            raise FunctionFault(
                f"{self.title} has no parameters {other!r:.200}: columns are named after its parameters, which are "
                f"{list(self.names)!r:.200}"
            )
        # Arguments go by position, so none is left out before another one.
        taken = self.names[: max(len(columns), self.least)]
        if missing := [name for name in taken if name not in columns]:
            raise FunctionFault(
                f"{self.title}: a column for {missing!r:.200} is missing; there are {list(columns)!r:.200}"
            )
        return list(taken)

    @property
    def title(self) -> str:
        """For messages."""
        return f"function {self.operator}.{self.name}"


class Operator:
    """A kind of entities: its name is that of the table that has them, one row an entity."""

    def __init__(
        self,
        name: str,
        partitions: int = 1,
        *,
        schema: pa.Schema | None = None,
        key: pa.DataType | None = None,
    ) -> None:
        """`schema`: the columns of an entity's state; without one it is a dict of plain values.

        `partitions`: into how many parts its keys are divided, 1 to 256. `key`: the type of the keys, `pa.string()`
        unless given, or `pa.int64()` or `pa.binary()`. Raises `InvalidOption`.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOption(
                f"an operator is named {name!r:.120}; expected at most 100 letters, digits, '_' and '-', beginning "
                "with a letter"
            )
        if type(partitions) is not int or not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidOption(f"operator {name!r}: partitions={partitions!r:.100}; expected 1 to {PARTITIONS_MAX}")
        if schema is not None and (not isinstance(schema, pa.Schema) or not schema.names or "key" in schema.names):
            raise InvalidOption(
                f"operator {name!r}: schema={schema!r:.100}; expected a pyarrow.Schema of the state's columns, "
                "without one named 'key', which the table has for the entity's"
            )
        indexed = [field.name for field in schema or () if pa.types.is_dictionary(field.type)]
        if indexed:
            raise InvalidOption(
                f"operator {name!r}: columns {indexed[:20]} are of a dictionary type, which a state does not keep as "
                "it was declared: give the type of their values"
            )
        kind = pa.string() if key is None else key
        if kind not in _KEY_CLASSES:
            raise InvalidOption(f"operator {name!r}: key={key!r:.100}; expected pa.string(), pa.int64() or pa.binary()")
        self.name = str.__str__(name)
        self.partitions = partitions
        self.schema = schema
        self.key_type = kind
        self.key_class = _KEY_CLASSES[kind]
        self.functions: dict[str, Function] = {}
        """By name."""
        self._is_fixed = False

    def fix(self) -> None:
        """A program with the operator starts: workers have its functions, and they are the same everywhere."""
        self._is_fixed = True

    def register(self, code: F) -> F:
        """Let callers call a coroutine function by its name: it gets a `FunctionContext`, then what the caller gave.

        An ordinary function may be registered, too; it cannot wait for others. Raises `InvalidOption`, also once a
        program with the operator has started.
        """
        least, most, parameters = self._parameters(code)
        types = parameters if any(kind for _, kind in parameters) else ()
        names = tuple(name for name, _ in parameters)
        self._add(Function(self.name, code.__name__, code, False, least, most, types, names=names))
        return code

    def register_batch(self, code: F | None = None, *, touches: dict[str, str] | None = None) -> Any:
        """Let callers call a function of many requests at a time: it gets a `FunctionBatch`, and `send_many` calls it.

        `touches`: for each column that holds keys of further entities the name of their operator. Used as a decorator
        with or without `touches`. Raises `InvalidOption`.
        """
        if code is None:
            return lambda code: self.register_batch(code, touches=touches)
        least, most, _ = self._parameters(code)
        if (least, most) != (0, 0) or inspect.iscoroutinefunction(code):
            raise InvalidOption(
                f"operator {self.name!r}: batch function {code.__name__!r} takes one argument, the batch, and is no "
                "coroutine function"
            )
        pairs = tuple((touches or {}).items())
        self._add(Function(self.name, code.__name__, code, True, 0, None, (), pairs))
        return code

    def _parameters(self, code: Any) -> tuple[int, int | None, tuple[tuple[str, type | None], ...]]:
        if not inspect.isfunction(code) or inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            raise InvalidOption(f"operator {self.name!r}: {code!r:.100} is no function, or a generator")
        parameters = list(inspect.signature(code).parameters.values())
        ordinary = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        if not ordinary or any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
            raise InvalidOption(
                f"operator {self.name!r}: function {code.__name__!r} takes its context first, and then what callers "
                "give by position"
            )
        rest = ordinary[1:]
        takes_all = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        named = tuple((one.name, _class_of(one.annotation)) for one in rest)
        return sum(one.default is one.empty for one in rest), None if takes_all else len(rest), named

    def _add(self, function: Function) -> None:
        if self._is_fixed:
            raise InvalidOption(
                f"operator {self.name!r} is in a program that has started: register function {function.name!r} before, "
                "or on a new operator"
            )
        if type(function.name) is not str or not is_text(function.name):
            raise InvalidOption(f"operator {self.name!r}: a function is named {function.name!r:.100}; expected text")
        if function.name in self.functions:
            raise InvalidOption(f"operator {self.name!r} has a function {function.name!r} already")
        if len(self.functions) >= FUNCTIONS_MAX:
            raise InvalidOption(f"operator {self.name!r} has {FUNCTIONS_MAX:,} functions, and may not have more")
        self.functions[function.name] = function


def _class_of(annotation: Any) -> type | None:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return _CHECKED.get(name)
