"""Options of the data source: those that are accepted, and the messages about others."""

import re

import pytest

from tussock.compute.spark.options.options import PLAN_OPTION, StoreAddress, parse_read, parse_write
from tussock.compute.spark.options.where import where_json, where_tests
from tussock.statestore.errors import InvalidOption

BASE = {"store": "file:///somewhere", "path": "t"}


def test_names_ignore_case_and_underscores() -> None:
    """Spark lower-cases names, so every spelling of a name is the same option."""
    for name in ("opColumn", "opcolumn", "OP_COLUMN"):
        assert parse_write({**BASE, name: "op"}).op_column == "op"


def test_read_change_feed_may_be_false() -> None:
    """The default may be set, too."""
    assert parse_read({**BASE, "readChangeFeed": "false"}) == parse_read(BASE)


def test_options_that_spark_adds_are_accepted() -> None:
    """Spark adds path, query name and checkpoint."""
    options = parse_write({**BASE, "checkpointlocation": "/c", "queryname": "q"})
    assert (options.table, options.address) == ("t", StoreAddress("file:///somewhere"))


@pytest.mark.parametrize("parse", [parse_read, parse_write])
def test_unknown_option_is_named(parse: object) -> None:
    """A misspelt option is refused by name, with a list of all options but internal ones."""
    with pytest.raises(InvalidOption, match=r"unknown options \['tabel'\].*gcGrace") as caught:
        parse({**BASE, "tabel": "x"})  # type: ignore[operator]
    assert PLAN_OPTION not in str(caught.value)


@pytest.mark.parametrize("name", ["epoch", "timestamp", "columns"])
def test_read_options_are_refused_in_a_write(name: str) -> None:
    """An option without effect is an error, not a silent surprise."""
    with pytest.raises(InvalidOption, match=rf"unknown options \['{name}'\] of a write"):
        parse_write({**BASE, name: "1"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "t"}, "option store is missing"),
        ({"store": "file:///s"}, "no table is named"),
        ({"store": "file:///s", "path": "a", "table": "b"}, "'b' in option table and as 'a'"),
        ({"store": "memory://x", "path": "t"}, "in the memory of one process"),
        ({**BASE, "retention": "-1"}, "retention is '-1'; expected seconds"),
        ({**BASE, "retention": "long"}, "retention is 'long'; expected seconds"),
        ({**BASE, "bufferBytes": "1e6"}, "bufferBytes is '1e6'; expected an integer"),
        ({**BASE, "epoch": "0"}, "epoch is '0'; expected an integer from 1"),
        ({**BASE, "epoch": "1", "timestamp": "1"}, "give one of them"),
        ({**BASE, "timestamp": "yesterday"}, "expected milliseconds since 1970 or ISO 8601"),
        ({**BASE, "columns": "a,,b"}, "names without repetition"),
        ({**BASE, "columns": "a,a"}, "names without repetition"),
        ({**BASE, "columns": "[1]"}, "names without repetition"),
        ({**BASE, "columns": "["}, "a JSON list"),
        ({**BASE, "where": "id = 1"}, "where is 'id = 1'; expected a JSON object"),
        ({**BASE, "where": "[1]"}, "expected a JSON object"),
        ({**BASE, "where": '{"id": null}'}, "null is no value"),
        ({**BASE, "where": '{"id": {"<": null}}'}, "null is no value"),
        ({**BASE, "where": '{"id": {"in": 3}}'}, "null is no value"),
        ({**BASE, "where": '{"id": NaN}'}, "NaN and infinity are no values"),
        ({**BASE, "where": '{"id": {"like": "a%"}}'}, "column 'id' is tested for ['like']"),
        ({**BASE, "where": '{"id": {}}'}, "an object needs a test"),
        ({**BASE, "asOfEpoch": "x"}, "asOfEpoch is 'x'; expected an integer from 1"),
        ({**BASE, "asOfEpoch": "1", "epoch": "1"}, "options asOfEpoch and epoch: give one of them"),
        ({**BASE, "asOfTimestamp": "1", "as_of_epoch": "1"}, "options asOfEpoch and asOfTimestamp: give one of them"),
        ({**BASE, "asOfTimestamp": "now"}, "asOfTimestamp is 'now'; expected milliseconds"),
        ({**BASE, "pushdown": "yes"}, "pushdown is 'yes'; expected true or false"),
        ({**BASE, "maxSplitBytes": "0"}, "maxSplitBytes is '0'; expected an integer from 1"),
    ],
)
def test_bad_read_options_say_what_is_expected(given: dict[str, str], message: str) -> None:
    """The message names the option, what was found and what is expected."""
    with pytest.raises(InvalidOption, match=re.escape(message)):
        parse_read(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "append"}, "mode is 'append'; expected 'upsert'"),
        ({"mode": "delete", "opColumn": "op"}, "give one of them"),
        ({"writerVersion": "-1"}, "writerVersion is '-1'"),
    ],
)
def test_bad_write_options_say_what_is_expected(given: dict[str, str], message: str) -> None:
    """The message names the option, what was found and what is expected."""
    with pytest.raises(InvalidOption, match=message):
        parse_write({**BASE, **given})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1372550400000", 1372550400000),
        ("2013-06-30", 1372550400000),
        ("2013-06-30T00:00:00", 1372550400000),
        ("2013-06-30T02:00:00+02:00", 1372550400000),
        ("2013-06-30T00:00:00.999Z", 1372550400999),
        ("0", 0),
    ],
)
def test_timestamps_are_utc_without_an_offset(text: str, ms: int) -> None:
    """ISO 8601 or milliseconds; the last millisecond is not lost to rounding."""
    assert parse_read({**BASE, "timestamp": text}).timestamp_ms == ms


def test_options_for_a_moment_have_two_names() -> None:
    """`asOfEpoch` and `asOfTimestamp`, and shorter names from earlier releases."""
    assert parse_read({**BASE, "asOfEpoch": "7"}) == parse_read({**BASE, "epoch": "7"})
    assert parse_read({**BASE, "asOfTimestamp": "7"}) == parse_read({**BASE, "timestamp": "7"})


def test_where_takes_values_lists_and_tests() -> None:
    """A value, a list, and an object of tests; `where_json` writes what `where_tests` reads."""
    text = '{"a": 1, "b": ["x", "y"], "c": {">=": 1.5, "<": 2}, "d": {"prefix": "S"}}'
    tests = parse_read({**BASE, "where": text}).where
    assert tests == (("a", "in", [1]), ("b", "in", ["x", "y"]), ("c", ">=", 1.5), ("c", "<", 2), ("d", "prefix", "S"))
    assert where_tests(where_json(tests)) == tests
    assert where_tests(where_json([("a", ">", 1), ("a", ">", 2)])) == (("a", ">", 1),)


def test_columns_may_be_a_json_list() -> None:
    """A JSON list can name a column that has a comma."""
    assert parse_read({**BASE, "columns": '["a,b", "c"]'}).columns == ("a,b", "c")
    assert parse_read({**BASE, "columns": "a, c"}).columns == ("a", "c")


def test_settings_become_arguments_of_connect() -> None:
    """Seconds and bytes are passed on under the names of `connect`."""
    options = parse_read({**BASE, "retention": "60", "gcGrace": "5", "cacheBytes": "1000", "deadline": "2.5"})
    assert dict(options.address.settings) == {
        "retention": 60.0,
        "gc_grace": 5.0,
        "deadline": 2.5,
        "cache_bytes": 1000,
    }
