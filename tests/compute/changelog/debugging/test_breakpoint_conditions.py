"""Conditions of breakpoints as text: what they say, what they refuse, and that they cannot do anything else."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from tussock.compute import changelog as cl
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.debugging.conditions import CONDITION_MAX, TextCondition
from tussock.statestore import InvalidOption

COLUMNS = ("k", "v", "w", "at", "day", "price", "strange name", "old")


def holds(text: str, _out: tuple[ChangeRecord, ...] = (), _old: ChangeRecord | None = None, **columns: Any) -> bool:
    op = Op.UPSERT if _old is None else Op.UPDATE_BLOCK
    return TextCondition(text, COLUMNS, COLUMNS).holds(ChangeRecord(op, columns, _old), _out)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("v > 100", {"v": 101}),
        ("  v > 100\n", {"v": 101}),
        ("not v > 100", {"v": 100}),
        ("1 < v <= 3", {"v": 3}),
        ("v + 1 == 2 * (w - 3) % 5", {"v": 2, "w": 7}),
        ("-v == 4 and v // 2 == -2 or False", {"v": -4}),
        ("v / 2 == 1.5", {"v": 3}),
        ("k in ('a', 'b') and k not in ['c']", {"k": "b"}),
        ("k == 'a' and op == 'UPSERT'", {"k": "a"}),
        ("v is None and w is not None", {"w": 1}),
        ("v == None", {}),
        ("v != 1", {}),
        ("row['strange name'] > 1", {"strange name": 2}),
        ("row['old'] == 3", {"old": 3}),
        ("price > 1.5", {"price": Decimal("1.50001")}),
        ("price * 2 > 3", {"price": Decimal("1.51")}),
        ("price * 0.5 > 0.7", {"price": Decimal("1.5")}),
        ("day >= '2026-11-23'", {"day": dt.date(2026, 11, 23)}),
        ("'2026-11-23' < at", {"at": dt.datetime(2026, 11, 23, 1)}),
        ("at > '2026-11-23'", {"at": dt.datetime(2026, 11, 23, 1, tzinfo=dt.UTC)}),
    ],
)
def test_conditions_that_hold(text: str, columns: dict[str, Any]) -> None:
    """Columns, values, comparisons, arithmetic, and what joins them."""
    assert holds(text, **columns) is True


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("v > 100", {"v": 100}),
        ("v > 100", {"v": None}),
        ("v < 100", {}),
        ("v + 1 > 0", {"v": None}),
        ("not (v == 1 or v == 2)", {"v": 2}),
        ("v in (1, None)", {"v": 3}),
        ("v == 1", {}),
    ],
)
def test_conditions_that_do_not_hold(text: str, columns: dict[str, Any]) -> None:
    """With a null neither of two orders holds."""
    assert holds(text, **columns) is False


def test_the_old_row_of_an_update_can_be_asked_for() -> None:
    """`old.v` is null for a record that replaces nothing."""
    old = ChangeRecord(Op.DELETE, {"k": "a", "v": 5})
    assert holds("v > 2 * old.v and op == 'UPDATE_BLOCK'", _old=old, v=11)
    assert not holds("v > 2 * old.v", v=11)
    assert holds("old['v'] is None", v=11)


def test_what_was_computed_can_be_asked_for() -> None:
    """It holds if it holds for one of the records."""
    out = (cl.upsert(k="a", v=1), cl.safedelete(k="b"))
    assert holds("out.op == 'SAFEDELETE' and v == 9", out, v=9)
    assert not holds("out.v > 1", out, v=9)
    assert not holds("out.v < 9", (), v=9)
    with pytest.raises(InvalidOption, match="cannot know"):
        TextCondition("out.v > 1", COLUMNS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected text"),
        ("v >", "cannot be read"),
        ("v > 1; v", "cannot be read"),
        ("x > 1", "no column 'x'"),
        ("v.__class__", "no part"),
        ("().__class__.__bases__[0].__subclasses__()", "no part"),
        ("__import__('os').system('true')", "no part"),
        ("old.__class__", "no column"),
        ("row['__class__']", "no column"),
        ("row[k]", "no part"),
        ("row", "no column 'row'"),
        ("(lambda: 1)()", "no part"),
        ("[v for v in (1,)]", "no part"),
        ("v if v else v", "no part"),
        ("f'{v}'", "no part"),
        ("(w := 1) > 0", "no part"),
        ("v ** 99", "no part"),
        ("v << 99999999", "no part"),
        ("~v", "no part"),
        ("v @ w", "no part"),
        ("v is w", "goes with None"),
        ("v in k", "list in brackets"),
        ("v > 99999999999999999999999", "more than 64 bits"),
        ("v > 1j", "no value"),
        ("v > ...", "no value"),
        ("v > 1 " * 200, "characters"),
        ("(" * 400 + "v" + ")" * 400, "cannot be read"),
        ("-" * 900 + "v", "condition"),
        ("not " * 60 + "v", "nests more than"),
        ("+".join(["v"] * 400), "more than 300 parts"),
        ("[" * 150 + "]" * 150, "condition"),
        ("v" + "\0", "cannot be read"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, why: str) -> None:
    """Before it is asked of any record, with what is wrong; Python's own power is not within reach."""
    with pytest.raises(InvalidOption, match=why):
        TextCondition(text, COLUMNS)
    assert len(text) <= CONDITION_MAX or "characters" in why


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("k > 1", {"k": "a"}),
        ("k * 1000000000 == k", {"k": "a"}),
        ("k % 1 == k", {"k": "%1000000000d"}),
        ("v / w > 1", {"v": 1, "w": 0}),
        ("at > 'yesterday'", {"at": dt.datetime(2026, 11, 23)}),
        ("k + k == k", {"k": "a"}),
    ],
)
def test_values_that_do_not_fit_are_told(text: str, columns: dict[str, Any]) -> None:
    """No text is multiplied or formatted, so none becomes large."""
    with pytest.raises(InvalidOption, match="cannot be said"):
        holds(text, **columns)
