"""The operators of a program, by name and by number."""

from collections.abc import Sequence
from typing import Any

from tussock.compute.functions.errors import FunctionFault
from tussock.compute.functions.program.context import Target
from tussock.compute.functions.program.operators import Function, Operator
from tussock.compute.functions.program.values import Key, check_key
from tussock.statestore import InvalidOption

__all__ = ["Operators"]


class Operators:
    """A program's."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        """`InvalidOption` if there are none, or two of one name."""
        names = [operator.name for operator in operators if isinstance(operator, Operator)]
        if not names or len(set(names)) != len(operators):
            raise InvalidOption(f"operators are {operators!r:.200}; expected a list of operators, each with its name")
        self.all = tuple(operators)
        self._numbers = {name: at for at, name in enumerate(names)}
        self._check_touched()

    def fix(self) -> None:
        """The program starts: nobody may register further functions."""
        for operator in self.all:
            operator.fix()

    def target(self, operator: str, key: Key, function: str, arguments: tuple[Any, ...]) -> Target:
        """What a call runs; `FunctionFault` if there is no such function, or it does not take these arguments."""
        number, found = self.function(operator, function)
        if found.is_batch:
            raise FunctionFault(f"function {operator}.{function} takes batches: call it by send_many")
        self.check_key(number, key)
        return Target(found, (number, key), found.arguments(arguments))

    def function(self, operator: str, function: str) -> tuple[int, Function]:
        """The number of an operator, and its function; `FunctionFault` if there is none."""
        number = self.number(operator)
        found = self.all[number].functions.get(function if type(function) is str else _plain(function))
        if found is None:
            known = sorted(self.all[number].functions)[:20]
            raise FunctionFault(f"operator {operator!r} has no function {function!r:.100}; it has {known}")
        return number, found

    def number(self, operator: str) -> int:
        """The place of an operator; `FunctionFault` if there is none of this name."""
        number = self._numbers.get(operator if type(operator) is str else _plain(operator))
        if number is None:
            raise FunctionFault(f"there is no operator {operator!r:.100}; there are {list(self._numbers)[:20]}")
        return number

    def check_key(self, number: int, key: Any) -> None:
        """`FunctionFault` unless an entity of the operator can have this key."""
        operator = self.all[number]
        check_key(key, operator.name, operator.key_class)

    def _check_touched(self) -> None:
        """`InvalidOption` unless batch functions touch entities of operators that there are."""
        names = [one.name for one in self.all]
        for function in [function for operator in self.all for function in operator.functions.values()]:
            for column, name in function.touches:
                if name not in names:
                    raise InvalidOption(
                        f"{function.title}: touches={{{column!r:.100}: {name!r:.100}}}; expected an operator of the "
                        f"program, one of {names!r:.200}"
                    )

    def picture(self) -> list[dict[str, Any]]:
        """Name, type of the keys, columns and functions of each, as JSON can say it."""
        return [
            {
                "name": one.name,
                "partitions": one.partitions,
                "key": str(one.key_type),
                "columns": [] if one.schema is None else one.schema.names,
                "functions": sorted(one.functions),
            }
            for one in self.all
        ]


def _plain(name: object) -> str:
    """A name of a class of strings, such as a member of an enumeration; of anything else none."""
    return str.__str__(name) if isinstance(name, str) else ""
