"""Changelog streams: keyed streams of changes, each a table that is always right, with a loop to look into."""

from typing import TYPE_CHECKING, Any

from tussock.compute.applications.errors import (
    ApplicationFenced,
    ApplicationStopped,
    BadInput,
    BadRow,
    Full,
    HistoryGone,
    InputLost,
    NotDeterministic,
    OutcomeUnknown,
    OutputLost,
    ServiceUnavailable,
    StreamChanged,
    TablesChanged,
)
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.changelog.bad_rows import BadRecord
from tussock.compute.changelog.borders.changes_topic import ChangesTopic
from tussock.compute.changelog.borders.parquet_files import ParquetFiles
from tussock.compute.changelog.changes.record import ChangeRecord, Op, delete, insert, safedelete, update, upsert
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.debugging.what_if import WhatIf
from tussock.compute.changelog.envelopes.registry import SchemaRegistry
from tussock.compute.changelog.feeds.file_feed import FileFeed
from tussock.compute.changelog.feeds.kafka_changes import KafkaChanges
from tussock.compute.changelog.flow import Flow
from tussock.compute.changelog.loop.breakpoints import Breakpoint
from tussock.compute.changelog.loop.location import Location, PausedAt
from tussock.compute.changelog.operators.filter import filter  # noqa: A004 - the public API's name
from tussock.compute.changelog.operators.groups.aggregate import aggregate
from tussock.compute.changelog.operators.groups.distinct import distinct
from tussock.compute.changelog.operators.joins.join import join
from tussock.compute.changelog.operators.patterns.pattern import pattern
from tussock.compute.changelog.operators.project import project
from tussock.compute.changelog.operators.tops.top import top
from tussock.compute.changelog.operators.union import union
from tussock.compute.changelog.stream import Stream
from tussock.compute.changelog.subscriptions import Subscription

if TYPE_CHECKING:
    from tussock.compute.changelog.remote.client import FlowClient as Client

__all__ = [
    "ApplicationFenced",
    "ApplicationStopped",
    "BadInput",
    "BadRecord",
    "BadRow",
    "Breakpoint",
    "ChangeRecord",
    "ChangesTopic",
    "Client",
    "FileFeed",
    "Flow",
    "Full",
    "HistoryGone",
    "InputLost",
    "KafkaChanges",
    "Location",
    "NotDeterministic",
    "Op",
    "OutcomeUnknown",
    "OutputLost",
    "ParquetFiles",
    "PausedAt",
    "SchemaRegistry",
    "ServiceUnavailable",
    "Stream",
    "StreamChanged",
    "StreamTransaction",
    "Subscription",
    "TableFeed",
    "TablesChanged",
    "WhatIf",
    "aggregate",
    "delete",
    "distinct",
    "filter",
    "insert",
    "join",
    "pattern",
    "project",
    "safedelete",
    "top",
    "union",
    "update",
    "upsert",
]


def __getattr__(name: str) -> Any:
    """`Client` needs gRPC (extra `platform`), which nobody else here does: it is imported when it is asked for."""
    if name == "Client":
        from tussock.compute.changelog.remote.client import FlowClient

        return FlowClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to use, `Client` too."""
    return list(__all__)
