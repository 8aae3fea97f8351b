"""The option `where`: a JSON object with the tests that a row has to pass, by column; parsed, checked, and written.

{"carrier": ["AA", "UA"], "day": {">=": "2013-01-01", "<": "2013-02-01"}, "flight": 1, "dest": {"prefix": "S"}}
"""

import json
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NoReturn

from tussock.compute.spark.options.conditions import OPERATORS
from tussock.statestore.errors import InvalidOption

__all__ = ["json_value", "where_json", "where_tests"]

_EXPECTED = (
    'a JSON object with a value, a list of values or an object of tests per column, such as {"carrier": ["AA", "UA"], '
    '"flight": 1, "day": {">=": "2013-01-01", "<": "2013-02-01"}, "dest": {"prefix": "S"}}; tests are '
    + ", ".join(OPERATORS)
)


def where_tests(text: str) -> tuple[tuple[str, str, Any], ...]:
    """Column, operator and value of each test; for `in` a list of values. `InvalidOption` says what is expected."""
    try:
        wanted = json.loads(text, parse_constant=lambda _: _refuse(text, "; NaN and infinity are no values"))
    except json.JSONDecodeError:
        _refuse(text)
    if not isinstance(wanted, dict):
        _refuse(text)
    tests: list[tuple[str, str, Any]] = []
    for column, test in wanted.items():
        if not isinstance(test, dict):
            tests.append((column, "in", test if isinstance(test, list) else [test]))
            continue
        unknown = [operator for operator in test if operator not in OPERATORS]
        if unknown or not test:
            _refuse(text, f"; column {column!r} is tested for {unknown}" if unknown else "; an object needs a test")
        tests += [(column, operator, value) for operator, value in test.items()]
    for _, operator, value in tests:
        values = value if operator == "in" else [value]
        if not isinstance(values, list) or not all(isinstance(value, str | int | float) for value in values):
            _refuse(text, "; null is no value")
    return tuple(tests)


def where_json(tests: Iterable[tuple[str, str, Any]]) -> str:
    """The option's text for these tests; of several tests with the same operator on a column it has only the first."""
    wanted: dict[str, dict[str, Any]] = {}
    for column, operator, value in tests:
        wanted.setdefault(column, {}).setdefault(operator, value)
    return json.dumps(wanted)


def json_value(value: Any) -> Any:
    """One of Spark's values as JSON, so that `where_tests` and the column's type give it back.

    Raises `ValueError` for a value that has no such form.
    """
    if isinstance(value, str | int):
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode()
    raise ValueError(f"a value of type {type(value).__name__} has no form in JSON")


def _refuse(text: str, more: str = "") -> NoReturn:
    raise InvalidOption(f"option where is {text!r}; expected {_EXPECTED}{more}") from None
