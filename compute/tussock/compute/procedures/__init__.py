"""Transactional stored procedures over streams and windows, after S-Store (Meehan et al., PVLDB 8(13), 2015).

`App` is the public face; see `docs/procedures.md`.
"""

from typing import TYPE_CHECKING, Any

from tussock.compute.applications.errors import (
    ApplicationFenced,
    ApplicationStopped,
    BadInput,
    Full,
    InputLost,
    NotDeterministic,
    OutcomeUnknown,
    OutputLost,
    ProcedureError,
    ServiceUnavailable,
    TablesChanged,
)
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.applications.kafka.kafka_feed import KafkaFeed
from tussock.compute.applications.kafka.kafka_topic import KafkaTopic
from tussock.compute.procedures.app import App
from tussock.compute.procedures.context import ProcedureContext
from tussock.compute.procedures.definitions import TupleStream, Window
from tussock.statestore.errors import InvalidBatch, SchemaMismatch

if TYPE_CHECKING:
    from tussock.compute.procedures.remote.client import Client

__all__ = [
    "App",
    "ApplicationFenced",
    "ApplicationStopped",
    "BadInput",
    "Client",
    "Full",
    "InputLost",
    "InvalidBatch",
    "KafkaFeed",
    "KafkaTopic",
    "NotDeterministic",
    "OutcomeUnknown",
    "OutputLost",
    "ProcedureContext",
    "ProcedureError",
    "SchemaMismatch",
    "ServiceUnavailable",
    "TableFeed",
    "TablesChanged",
    "TupleStream",
    "Window",
]


def __getattr__(name: str) -> Any:
    """`Client` needs gRPC (extra `platform`), which nobody else here does: it is imported when it is asked for."""
    if name == "Client":
        from tussock.compute.procedures.remote.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to use, `Client` too."""
    return list(__all__)
