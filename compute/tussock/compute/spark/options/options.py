"""The options of the data source, checked once, as immutable records that travel to the tasks.

Spark passes options as strings and may lower-case their names, so names are compared without case and underscores:
`opColumn`, `opcolumn` and `op_column` are one. Credentials are not options, because Spark shows options in plans and
logs; they come from the environment of driver and executors.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from tussock.compute.spark.options.where import where_tests
from tussock.statestore.epochs import MAX_EPOCH
from tussock.statestore.errors import InvalidOption

__all__ = [
    "ACCEPTED",
    "FILTER_STAGE_OPTION",
    "MOMENTS",
    "PLAN_OPTION",
    "UPLOADS_OPTION",
    "ChangeOptions",
    "ReadOptions",
    "StoreAddress",
    "WriteOptions",
    "WritePlan",
    "not_committed",
    "option_name",
    "parse_changes",
    "parse_read",
    "parse_write",
    "wants_changes",
]

PLAN_OPTION = "tussockPlan"
"""Carries a `WritePlan` from `write_epoch` to its tasks; not for users."""
FILTER_STAGE_OPTION = "tussockFilterStage"
"""Carries the name of a file from `read_table` to the planning process; not for users."""
UPLOADS_OPTION = "tussockUploads"
"""Carries the name of a file from a transaction to the planning process; not for users."""
_INTERNAL = (PLAN_OPTION, FILTER_STAGE_OPTION, UPLOADS_OPTION)

_ADDRESS = ("store", "table", "retention", "gcGrace", "cacheBytes", "bufferBytes", "deadline")
MOMENTS = ("asOfEpoch", "epoch", "asOfTimestamp", "timestamp")
"""Options that select the moment to read: by epoch, or by time, each under two names."""
_READ = (*_ADDRESS, "readChangeFeed", *MOMENTS, "columns", "where", "pushdown", "maxSplitBytes")
_WRITE = (*_ADDRESS, "mode", "opColumn", "newerThan", "keepDeletes", "writerId", "writerVersion", "mergeSchema")
_STARTS = ("startingEpoch", "startingVersion")
_ENDS = ("endingEpoch", "endingVersion")
"""The ends of a change feed, each under two names: Spark's and Delta's feeds say version."""
_CHANGES = (*_ADDRESS, "readChangeFeed", *_STARTS, "columns", "beforeImages")
_CHANGES_BATCH = (*_CHANGES, *_ENDS)
_CHANGES_STREAM = (*_CHANGES, "maxEpochsPerTrigger", "consumerId", "failOnDataLoss")
ACCEPTED = {
    "read": _READ,
    "write": _WRITE,
    "batch read of changes": _CHANGES_BATCH,
    "stream of changes": _CHANGES_STREAM,
}
"""The options that users may set, by action."""
_FROM_SPARK = ("path", "checkpointLocation", "queryName")
_SECONDS = {"retention": "retention", "gcGrace": "gc_grace", "deadline": "deadline"}
_BYTES = {"cacheBytes": "cache_bytes", "bufferBytes": "buffer_bytes"}


@dataclass(frozen=True)
class StoreAddress:
    """The address of a store and how to open it: the arguments of `connect` as a value to pickle and compare."""

    url: str
    settings: tuple[tuple[str, float | int], ...] = ()


class WritePlan(msgspec.Struct, frozen=True):
    """What `write_epoch` passes to the data source about one table of its epoch."""

    stage: str
    """A file on the driver's machine that takes the uploaded runs, instead of a commit."""
    merge: dict[str, str] | None = None
    """For each value column, how to combine the stored value with the batch's; `None`: the batch's rows replace it."""
    read_epoch: int = 0
    """The epoch at which a merge reads; 0 for an empty store."""


@dataclass(frozen=True)
class ReadOptions:
    """A batch read."""

    address: StoreAddress
    table: str
    epoch: int | None
    timestamp_ms: int | None
    columns: tuple[str, ...] | None
    where: tuple[tuple[str, str, Any], ...]
    """Column, operator, and the value or values from the JSON."""
    pushdown: bool = False
    """Take filters that Spark pushes down."""
    split_bytes: int | None = None
    """Approximate bytes in the bucket that one task reads."""
    filter_stage: str | None = None
    """A file on the driver's machine that takes Spark's filters, for `read_table`; they are not applied then."""
    uploads: str | None = None
    """A file on the driver's machine with the epoch of a transaction, and what of the table it has uploaded."""


@dataclass(frozen=True)
class ChangeOptions:
    """A read of a table's changes, by a batch or a stream."""

    address: StoreAddress
    table: str
    start: int | str
    """The first epoch, or `earliest` or `latest`."""
    end: int | None
    """The last epoch; `None`: the newest."""
    columns: tuple[str, ...] | None
    before_images: bool
    epochs_max: int | None
    """The largest number of epochs in a micro-batch."""
    consumer: str | None
    fail_on_loss: bool
    idle_seconds: float = 60.0
    """The stream moves on this often by an empty batch while only other tables change: else it would hold their
    history. Nobody sets it but tests."""


@dataclass(frozen=True)
class WriteOptions:
    """A batch write or a stream's sink."""

    address: StoreAddress
    table: str
    delete_all: bool
    """Every row deletes its key."""
    op_column: str | None
    writer: str | None
    batch_id: int | None
    plan: WritePlan | None
    merge_schema: bool = False
    """Before the write, give the table the columns that it lacks, and wider types."""
    newer_than: str | None = None
    """A column of versions: only rows whose version is greater than that of what is stored are written."""
    keep_deletes: float | None = None
    """Seconds for which the versions of deletes are kept."""


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read; `InvalidOption` names the invalid one."""
    given = _normalise(options, (*ACCEPTED["read"], FILTER_STAGE_OPTION, UPLOADS_OPTION), "read")
    address, table = _address(given)
    moments = [name for name in MOMENTS if name in given]
    if len(moments) > 1:
        raise InvalidOption(f"options {' and '.join(moments)}: give one of them, each says at which moment to read")
    by_epoch = bool(moments) and moments[0] in ("asOfEpoch", "epoch")
    stage = given.get(FILTER_STAGE_OPTION)
    return ReadOptions(
        address,
        table,
        epoch=_integer(given, moments[0], 1, MAX_EPOCH) if moments and by_epoch else None,
        timestamp_ms=_timestamp_ms(moments[0], given[moments[0]]) if moments and not by_epoch else None,
        columns=_columns(given["columns"]) if "columns" in given else None,
        where=where_tests(given["where"]) if "where" in given else (),
        pushdown=stage is not None or ("pushdown" in given and _flag(given, "pushdown")),
        split_bytes=_integer(given, "maxSplitBytes", 1, 1 << 62) if "maxSplitBytes" in given else None,
        filter_stage=stage,
        uploads=given.get(UPLOADS_OPTION),
    )


def wants_changes(options: Mapping[str, str]) -> bool:
    """Whether a read is one of changes; `InvalidOption` if the value is neither true nor false."""
    given = {_plain(name): value for name, value in options.items()}
    return _flag({"readChangeFeed": given["readchangefeed"]}, "readChangeFeed") if "readchangefeed" in given else False


def parse_changes(options: Mapping[str, str], *, is_stream: bool | None = None) -> ChangeOptions:
    """Check the options of a read of changes; `InvalidOption` names the invalid one.

    `is_stream=None` accepts those of batches and of streams: Spark asks for the columns before it says which it is.
    """
    action = "stream of changes" if is_stream else "batch read of changes"
    known = ACCEPTED[action]
    if is_stream is None:
        known = tuple(dict.fromkeys((*_CHANGES_BATCH, *_CHANGES_STREAM)))
    given = _normalise(options, known, action)
    address, table = _address(given)
    start, end = (_given_name(given, names) for names in (_STARTS, _ENDS))
    word = given[start].strip().lower() if start else "earliest"
    begin = word if start is None or word in ("earliest", "latest") else _epoch(given, start, "earliest, latest")
    return ChangeOptions(
        address,
        table,
        start=begin,
        end=_epoch(given, end, "") if end else None,
        columns=_columns(given["columns"]) if "columns" in given else None,
        before_images=_flag(given, "beforeImages") if "beforeImages" in given else True,
        epochs_max=_integer(given, "maxEpochsPerTrigger", 1, 1 << 31) if "maxEpochsPerTrigger" in given else None,
        consumer=_name(given, "consumerId"),
        fail_on_loss=_flag(given, "failOnDataLoss") if "failOnDataLoss" in given else True,
    )


def _given_name(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The one that is given of two names of one option."""
    there = [name for name in names if name in given]
    if len(there) > 1:
        raise InvalidOption(f"options {' and '.join(there)} mean the same; give one of them")
    return there[0] if there else None


def _epoch(given: Mapping[str, str], name: str, words: str) -> int:
    try:
        return _integer(given, name, 1, MAX_EPOCH)
    except InvalidOption:
        _refuse(name, given[name], f"{words + ' or ' if words else ''}an epoch, an integer from 1 to 2**63-1")


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write; `InvalidOption` names the invalid one."""
    given = _normalise(options, (*ACCEPTED["write"], PLAN_OPTION), "write")
    address, table = _address(given)
    mode = given.get("mode", "upsert").lower()
    if mode not in ("upsert", "delete"):
        raise InvalidOption(
            f"option mode is {given['mode']!r}; expected 'upsert' (rows replace those of their keys) or 'delete' (rows "
            "delete those of their keys); where each row says which, name its column in opColumn"
        )
    if mode == "delete" and "opColumn" in given:
        raise InvalidOption("options mode='delete' and opColumn: give one of them; both say which rows delete")
    keep_deletes = _keep_deletes(given, mode)
    batch_id = _integer(given, "writerVersion", 0, MAX_EPOCH) if "writerVersion" in given else None
    plan = msgspec.json.decode(given[PLAN_OPTION], type=WritePlan) if PLAN_OPTION in given else None
    return WriteOptions(
        address,
        table,
        mode == "delete",
        given.get("opColumn"),
        _name(given, "writerId"),
        batch_id,
        plan,
        merge_schema="mergeSchema" in given and _flag(given, "mergeSchema"),
        newer_than=given.get("newerThan"),
        keep_deletes=keep_deletes,
    )


def _keep_deletes(given: Mapping[str, str], mode: str) -> float | None:
    """The option `keepDeletes`; `InvalidOption` unless it and `newerThan` go with the other options of the write."""
    seconds = _seconds(given, "keepDeletes") if "keepDeletes" in given else None
    if seconds is not None and seconds < 0.001:
        _refuse("keepDeletes", given["keepDeletes"], "seconds, at least 0.001, or no such option")
    column = given.get("newerThan")
    if column is not None and (mode == "delete" or column == given.get("opColumn")):
        raise InvalidOption(
            f"option newerThan is {column!r}, and "
            + ("mode is 'delete'" if mode == "delete" else "opColumn is the same column")
            + "; expected a column of versions, and deletes marked by another one, which opColumn names"
        )
    if seconds is not None and not (column is not None and "opColumn" in given):
        raise InvalidOption(
            f"option keepDeletes is {given['keepDeletes']!r}; it keeps the versions of rows that opColumn marks as "
            "deletes, which newerThan compares: give all three, or leave keepDeletes out"
        )
    return seconds


def _normalise(options: Mapping[str, str], known: tuple[str, ...], action: str) -> dict[str, str]:
    """The options by their documented names; `InvalidOption` for an unknown one."""
    names = {_plain(name): name for name in (*known, *_FROM_SPARK)}
    unknown = sorted(name for name in options if _plain(name) not in names)
    if unknown:
        accepted = ", ".join(name for name in known if name not in _INTERNAL)
        raise InvalidOption(f"unknown options {unknown} of a {action} of format 'tussock'; it takes {accepted}")
    given: dict[str, str] = {}
    for name, value in options.items():
        known_as = names[_plain(name)]
        if given.setdefault(known_as, value) != value:
            raise InvalidOption(
                f"option {known_as} is given twice, as {given[known_as]!r} and as {value!r} ({name}); give it once"
            )
    return given


def option_name(name: str) -> str:
    """The documented name of a read's option, however it is written; an unknown name stays as it is."""
    return next((known for known in _READ if _plain(known) == _plain(name)), name)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _address(given: Mapping[str, str]) -> tuple[StoreAddress, str]:
    url = given.get("store", "")
    if not url:
        raise InvalidOption("option store is missing; expected the URL of a store, such as s3://bucket/prefix")
    table, path = given.get("table"), given.get("path")
    if table and path and table != path:
        raise InvalidOption(f"the table is named twice, as {table!r} in option table and as {path!r}; give it once")
    name = table or path
    if not name:
        raise InvalidOption("no table is named; give it as option table, or as the argument of load, save or start")
    settings: list[tuple[str, float | int]] = []
    settings += [(_SECONDS[key], _seconds(given, key)) for key in _SECONDS if key in given]
    settings += [(_BYTES[key], _integer(given, key, 0, 1 << 62)) for key in _BYTES if key in given]
    return check_shareable(StoreAddress(url, tuple(settings))), name


def check_shareable(address: StoreAddress) -> StoreAddress:
    """The address; raises for a memory store, which lives in one process, while Spark works in several."""
    if address.url.startswith("memory:"):
        raise InvalidOption(
            f"store {address.url!r} is in the memory of one process, and Spark's workers are others; "
            "use file:///..., s3://..., gs://... or az://..."
        )
    return address


def _integer(given: Mapping[str, str], name: str, low: int, high: int) -> int:
    try:
        value = int(given[name])
    except ValueError:
        _refuse(name, given[name], f"an integer from {low} to {high}")
    if not low <= value <= high:
        _refuse(name, given[name], f"an integer from {low} to {high}")
    return value


def _seconds(given: Mapping[str, str], name: str) -> float:
    try:
        value = float(given[name])
    except ValueError:
        _refuse(name, given[name], "seconds, 0 or more")
    if not 0 <= value < float("inf"):
        _refuse(name, given[name], "seconds, 0 or more")
    return value


def _flag(given: Mapping[str, str], name: str) -> bool:
    word = given[name].strip().lower()
    if word not in ("true", "false"):
        _refuse(name, given[name], "true or false")
    return word == "true"


def _name(given: Mapping[str, str], name: str) -> str | None:
    if name in given and not given[name].strip():
        _refuse(name, given[name], "a name that stays the same whenever the job is started again, or no such option")
    return given.get(name)


def _timestamp_ms(name: str, text: str) -> int:
    """Milliseconds since the Unix epoch, from such a number or from ISO 8601; UTC if it has no offset."""
    plain = text.strip()
    if plain.isascii() and plain.isdigit():
        return int(plain)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        _refuse(name, text, "milliseconds since 1970 or ISO 8601, such as 2013-06-30T12:00:00+00:00")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # Computed with integers: a float would round the last millisecond away.
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _columns(text: str) -> tuple[str, ...]:
    """Names from a JSON list, which can hold any name, or from a text separated by commas."""
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            _refuse("columns", text, "a JSON list of names")
    else:
        names = [name.strip() for name in text.split(",")]
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        _refuse("columns", text, "names without repetition, separated by commas, or a JSON list of them")
    return tuple(names)


def not_committed(name: str, epoch: int, newest: int, url: str) -> InvalidOption:
    """The error for an epoch that is not committed yet."""
    return InvalidOption(
        f"{name} {epoch} is not committed in the store at {url}, whose newest committed epoch is {newest}; "
        + ("give that or an older one" if newest else "nothing was committed there yet")
    )


def _refuse(name: str, value: str, expected: str) -> NoReturn:
    raise InvalidOption(f"option {name} is {value!r}; expected {expected}") from None
