"""For random schemas and random values, also nested: a table returns accepted values exactly, and refuses the rest.

The oracle knows nothing of the conversions: it says what a value means, in numbers and texts, from its own class or
from its own Arrow type, and compares the meaning of what was given with the meaning of what is read.
"""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore import SchemaMismatch, StateStore, TussockError, connect

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "D": 86_400 * 10**9, "h": 3600 * 10**9}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LEAVES = [
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.uint16(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.timestamp("s"),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "Europe/Berlin"),
    pa.duration("s"),
    pa.duration("us"),
    pa.duration("ns"),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(2),
    pa.null(),
]
KEYS = [kind for kind in LEAVES if kind not in (pa.float16(), pa.null())]


def field_of(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable or pa.types.is_null(kind))


def nest(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(
        st.builds(field_of, st.sampled_from("abc"), inner, st.booleans()), max_size=3, unique_by=lambda f: f.name
    )
    return st.one_of(
        inner.map(pa.list_),
        fields.map(pa.struct),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int64(), pa.timestamp("s")]), inner),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), nest, max_leaves=4)


# --- Random values ------------------------------------------------------------------------------------------------

_TEXT = st.sampled_from(["", "a", "é", "1", "\x00", "\x1b[2J", "12"])
_BYTES = st.sampled_from([b"", b"a", b"ab", b"\xff\xfe", b"12"])
_WHOLE = st.sampled_from([0, 1, -1, 127, 128, 300, 2049, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1])
_REAL = st.sampled_from([0.0, -0.0, 0.5, 0.1, 1.0, 1e300, 65504.0, float("nan"), float("inf")])
_MOMENT = st.sampled_from(
    [datetime(2020, 1, 1), datetime(2020, 1, 1, 23, 0, 0, 1), datetime(1, 1, 1), datetime(9999, 12, 31)]
)
_ZONED = st.sampled_from(
    [
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2020, 1, 1, microsecond=1000, tzinfo=timezone(timedelta(hours=2))),
        datetime(2020, 1, 1, tzinfo=timezone(timedelta(microseconds=7))),
    ]
)
_DAY = st.sampled_from([date(2020, 1, 1), date(1, 1, 1), date(9999, 12, 31)])
_CLOCK = st.sampled_from([time(), time(23, 59, 59, 999_999), time(1, 0, 0, 1000), time(1, tzinfo=UTC)])
_SPAN = st.sampled_from([timedelta(), timedelta(1), timedelta(microseconds=-1), timedelta(milliseconds=5)])
_EXACT = st.sampled_from([Decimal("1.25"), Decimal("1.255"), Decimal(10**6), Decimal("-0"), Decimal("NaN")])
_NUMPY = st.sampled_from(
    [
        np.int8(5),
        np.int64(2**24 + 1),
        np.uint64(2**64 - 1),
        np.float32(0.1),
        np.bool_(True),
        np.str_("a"),
        np.datetime64("2020-01-01"),
        np.datetime64("2020-01-01T23", "h"),
        np.datetime64("2020-01-01T00:00:00.000000001"),
        np.timedelta64(5, "ms"),
        np.timedelta64(1, "ns"),
    ]
)
_ARROW = st.sampled_from(
    [pa.scalar(5, pa.int8()), pa.scalar("a"), pa.scalar(1, pa.timestamp("ns")), pa.scalar([1]), pa.scalar({"a": 1})]
)
ANY_LEAF = st.one_of(
    st.none(), st.booleans(), _WHOLE, _REAL, _TEXT, _BYTES, _MOMENT, _ZONED, _DAY, _CLOCK, _SPAN, _EXACT, _NUMPY, _ARROW
)
ANY = st.recursive(
    ANY_LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from("abz"), inner, max_size=3),
        st.lists(st.tuples(inner, inner), max_size=2),
        st.just(np.array([1.5, 2.0])),
        st.just(np.array([1, 2])),
    ),
    max_leaves=4,
)


def fitting(kind: Any) -> st.SearchStrategy[Any]:
    """Python values, most of which are of that kind, though they may not fit."""
    if pa.types.is_list(kind):
        return st.none() | st.lists(fitting(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        return st.none() | st.lists(st.tuples(fitting(kind.key_type), fitting(kind.item_type)), max_size=2)
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: fitting(field.type) for field in kind})
    for test, values in (
        (pa.types.is_boolean, st.booleans()),
        (pa.types.is_integer, _WHOLE),
        (pa.types.is_floating, _REAL | _WHOLE),
        (pa.types.is_decimal, _EXACT),
        (pa.types.is_date, _DAY),
        (pa.types.is_time, _CLOCK),
        (pa.types.is_duration, _SPAN),
        (pa.types.is_timestamp, _ZONED if pa.types.is_timestamp(kind) and kind.tz else _MOMENT),
    ):
        if test(kind):
            return st.none() | values
    return st.none() | (_TEXT if pa.types.is_string(kind) or pa.types.is_large_string(kind) else _BYTES)


# --- What a value means --------------------------------------------------------------------------------------------


def meaning(scalar: Any) -> Any:
    """The meaning of an Arrow scalar."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_list(kind):
        return [meaning(item) for item in scalar.values]
    if pa.types.is_map(kind):
        return [[meaning(pair["key"]), meaning(pair["value"])] for pair in scalar.values]
    if pa.types.is_struct(kind):
        return {name: meaning(item) for name, item in scalar.items()}
    if pa.types.is_temporal(kind):
        number = scalar.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py()
        unit = "D" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None
        return str(kind).split("[")[0].rstrip("3264"), number * NANOSECONDS[unit], zoned
    if pa.types.is_floating(kind):
        return "real", number_text(scalar.as_py())
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return "text", scalar.as_py()
    if pa.types.is_boolean(kind):
        return "bool", scalar.as_py()
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return ("integer" if pa.types.is_integer(kind) else "decimal"), Decimal(scalar.as_py())
    return "bytes", scalar.as_py()


def number_text(value: Any) -> str:
    return repr(float(value))


def meaning_of(value: Any, kind: Any) -> Any:
    """The meaning of a Python value that a column of that type accepted; equivalent shapes have one meaning."""
    if value is None:
        return None
    if isinstance(value, pa.Scalar):
        return narrow(meaning(value), kind)
    if isinstance(value, np.ndarray | list | tuple | dict):
        return _said_nested(value, kind)
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit, size = np.datetime_data(value.dtype)
        nanoseconds = int(value.astype(np.int64)) * size * NANOSECONDS[unit]
        name = "duration" if isinstance(value, np.timedelta64) else "date" if pa.types.is_date(kind) else "timestamp"
        return name, nanoseconds, False
    if isinstance(value, bool | np.bool_):
        return "bool", bool(value)
    if isinstance(value, int | np.integer):
        if pa.types.is_floating(kind):
            found = narrow(("real", number_text(value)), kind)
            assert float(found[1]) == int(value), "another integer"
            return found
        return ("decimal" if pa.types.is_decimal(kind) else "integer"), Decimal(int(value))
    if isinstance(value, float | np.floating):
        return narrow(("real", number_text(value)), kind)
    if isinstance(value, Decimal):
        return "decimal", value + 0
    if isinstance(value, datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH
        return "timestamp", since // timedelta(microseconds=1) * 1000, value.tzinfo is not None
    if isinstance(value, date):
        return "date", (value - EPOCH.date()).days * NANOSECONDS["D"], False
    if isinstance(value, time):
        assert value.tzinfo is None, "a zone would be lost"
        microseconds = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
        return "time", microseconds * 1000, False
    if isinstance(value, timedelta):
        return "duration", value // timedelta(microseconds=1) * 1000, False
    return ("text", value) if isinstance(value, str) else ("bytes", value)


def _said_nested(value: Any, kind: Any) -> Any:
    if pa.types.is_list(kind):
        assert not isinstance(value, dict)
        return [meaning_of(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [[meaning_of(key, kind.key_type), meaning_of(item, kind.item_type)] for key, item in pairs]
    assert pa.types.is_struct(kind)
    names = [field.name for field in kind]
    assert set(value) <= set(names), "a field would be lost"
    return {field.name: meaning_of(value.get(field.name), field.type) for field in kind}


def narrow(found: Any, kind: Any) -> Any:
    """The one exception: a narrower float is the nearest that there is, never infinity for a finite one."""
    if isinstance(found, tuple) and found[0] == "real" and pa.types.is_floating(kind):
        value = float(found[1])
        with np.errstate(over="ignore"):
            near = {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width](value)
        assert math.isinf(near) == math.isinf(value), "infinity for a finite number"
        return "real", number_text(near)
    return found


def given_by(scalar: Any, kind: Any) -> Any:
    """The meaning, in a column of `kind`, of an accepted Arrow value of another type."""
    if not scalar.is_valid:
        return None
    found = scalar.type
    if pa.types.is_dictionary(found):
        return given_by(scalar.value, kind)
    if pa.types.is_list(kind):
        return [given_by(item, kind.value_type) for item in scalar.values]
    if pa.types.is_map(kind):
        return [[given_by(p["key"], kind.key_type), given_by(p["value"], kind.item_type)] for p in scalar.values]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        assert {field.name for field in found} <= set(names), "a field would be lost"
        there = dict(scalar.items())
        return {field.name: given_by(there[field.name], field.type) if field.name in there else None for field in kind}
    return narrow(meaning(scalar), kind)


# --- The rule -----------------------------------------------------------------------------------------------------

_NUMBERS: Iterator[int] = count()


@pytest.fixture(scope="module")
def store() -> Iterator[StateStore]:
    with connect("memory://", compaction=False) as opened:
        yield opened


def store_and_read(store: StateStore, kind: pa.DataType, rows: Any, *, commit: bool) -> list[Any] | None:
    """The column `v` after the rows were written, in the order of `k`; `None` if they were refused, whole."""
    name = f"t{next(_NUMBERS)}"
    table = store.create_table(name, pa.schema([("k", pa.int64()), ("v", kind)]), ["k"], vnodes=1)
    epoch = store.new_epoch()
    try:
        table.upsert(rows, epoch)
    except SchemaMismatch:
        assert list(table.read()) == []
        return None
    if commit:
        store.commit_epoch(epoch)
    read = pa.Table.from_batches(table.read(), table.schema)
    assert (
        table.multi_get(read.select(["k"])).field("v").to_pylist().__repr__() == read.column("v").to_pylist().__repr__()
    )
    store.drop_table(name)
    return list(read.column("v").combine_chunks())


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=KINDS, commit=st.booleans())
def test_python_values_are_stored_exactly_or_refused(
    store: StateStore, data: st.DataObject, kind: Any, commit: bool
) -> None:
    """For any schema and any values."""
    values = data.draw(st.lists(st.one_of(fitting(kind), fitting(kind), ANY), min_size=1, max_size=3))
    found = store_and_read(store, kind, [{"k": at, "v": value} for at, value in enumerate(values)], commit=commit)
    if found is not None:
        assert [meaning(value) for value in found] == [meaning_of(value, kind) for value in values]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=KINDS, other=KINDS, commit=st.booleans())
def test_arrow_data_of_any_type_is_stored_exactly_or_refused(
    store: StateStore, data: st.DataObject, kind: Any, other: Any, commit: bool
) -> None:
    """Data of the column's type, of a similar one and of an unrelated one; slices, too."""
    given_kind = data.draw(st.sampled_from([kind, other]) | likes(kind))
    values = data.draw(st.lists(fitting(given_kind), min_size=2, max_size=4))
    try:
        array = pa.array(values, given_kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return
    array = array.slice(data.draw(st.integers(0, 1)))
    found = store_and_read(store, kind, pa.table({"k": range(len(array)), "v": array}), commit=commit)
    if found is not None:
        assert [meaning(value) for value in found] == [given_by(value, kind) for value in array]
    elif given_kind == kind:
        assert has_null_where_none_may_be(kind), f"{kind} refuses values of this type"


def likes(kind: Any) -> st.SearchStrategy[Any]:
    """Types similar to `kind`: another width, unit or zone, fields that were added, renamed or removed."""
    if pa.types.is_list(kind):
        return likes(kind.value_type).flatmap(lambda k: st.sampled_from([pa.list_(k), pa.large_list(k)]))
    if pa.types.is_map(kind):
        return likes(kind.item_type).map(lambda k: pa.map_(kind.key_type, k))
    if pa.types.is_struct(kind):
        fields = st.tuples(*(likes(field.type).map(field.with_type) for field in kind))
        changed = st.sampled_from(["as it is", "other order", "added", "renamed", "taken out"])
        return st.builds(_changed_struct, fields, changed)
    return st.sampled_from([kind, *(leaf for leaf in LEAVES if str(leaf)[:4] == str(kind)[:4]), *LEAVES[:3]])


def _changed_struct(fields: tuple[pa.Field, ...], change: str) -> pa.DataType:
    changed = list(fields)
    if change == "other order":
        changed.reverse()
    elif change == "added":
        changed.append(pa.field("zzz", pa.int64()))
    elif change == "renamed" and changed:
        changed[0] = changed[0].with_name("yyy")
    elif change == "taken out":
        changed = changed[1:]
    return pa.struct(changed)


def has_null_where_none_may_be(kind: Any) -> bool:
    """Whether an inner field is not nullable, in a type whose random values have nulls everywhere."""
    inner = [kind.field(at) for at in range(kind.num_fields)]
    return any(not field.nullable or has_null_where_none_may_be(field.type) for field in inner)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=st.sampled_from(KEYS))
def test_a_key_is_the_same_key_in_every_call_or_refused_by_each(
    store: StateStore, data: st.DataObject, kind: Any
) -> None:
    """`upsert`, `get`, `multi_get`, `prefix`, `between` and `delete` agree about what a value is."""
    value = data.draw(st.one_of(fitting(kind), ANY_LEAF))
    name = f"t{next(_NUMBERS)}"
    table = store.create_table(name, pa.schema([("k", kind), ("v", pa.int64())]), ["k"], vnodes=4)
    epoch = store.new_epoch()

    def is_refused(call: Any) -> bool:
        try:
            call()
        except SchemaMismatch:
            return True
        return False

    calls = [
        lambda: table.get(value),
        lambda: table.multi_get([value]),
        lambda: table.read(prefix=(value,)),
        lambda: table.read(between=((value,), (value,))),
        lambda: table.delete([value], epoch),
    ]
    no = is_refused(lambda: table.upsert([{"k": value, "v": 1}], epoch))
    assert [is_refused(call) for call in calls[:4]] == [no] * 4
    if not no:
        assert table.get(value) is not None
        assert table.multi_get([value]).null_count == 0
        assert sum(batch.num_rows for batch in table.read(prefix=(value,))) == 1
        assert sum(batch.num_rows for batch in table.read(between=((value,), (value,)))) == 1
        if value == value:  # all NaN are one key
            (key,) = next(iter(table.read())).column("k")
            zero = isinstance(value, float) and value == 0.0
            assert meaning(key) == meaning_of(0.0 if zero else value, kind)
    assert is_refused(calls[4]) == no
    assert list(table.read()) == []
    store.drop_table(name)


def test_the_oracle_notices_every_loss() -> None:
    """A cut time, a dropped field, infinity for a finite number, another kind."""
    assert meaning_of(timedelta(microseconds=1), pa.duration("s")) != meaning(pa.scalar(0, pa.duration("s")))
    assert meaning_of(datetime(2020, 1, 1, 23), pa.date32()) != meaning(pa.scalar(date(2020, 1, 1)))
    assert meaning_of(True, pa.int64()) != meaning(pa.scalar(1))
    assert given_by(pa.scalar(["12"]), pa.list_(pa.int64())) != meaning(pa.scalar([12]))
    for lost in (
        lambda: meaning_of({"a": 1, "z": 2}, pa.struct([("a", pa.int64())])),
        lambda: meaning_of(1e300, pa.float32()),
        lambda: meaning_of(2**24 + 1, pa.float32()),
        lambda: meaning_of(2**53 + 1, pa.float64()),
        lambda: given_by(pa.scalar({"b": 1}), pa.struct([("a", pa.int64())])),
    ):
        with pytest.raises(AssertionError):
            lost()
    assert issubclass(SchemaMismatch, TussockError)
