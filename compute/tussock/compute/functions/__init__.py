"""Transactional functions: entities that call each other, each request one serializable transaction."""

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
    ServiceUnavailable,
    TablesChanged,
    WorkerFault,
)
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.applications.kafka.kafka_feed import KafkaFeed
from tussock.compute.applications.kafka.kafka_topic import KafkaTopic
from tussock.compute.functions.batches.batch import FunctionBatch
from tussock.compute.functions.errors import FunctionFault, OutsideCallFailed, TransactionAborted
from tussock.compute.functions.program.context import FunctionContext
from tussock.compute.functions.program.operators import Operator
from tussock.compute.functions.runtime import Runtime

if TYPE_CHECKING:
    from tussock.compute.functions.remote.client import FunctionClient as Client

__all__ = [
    "ApplicationFenced",
    "ApplicationStopped",
    "BadInput",
    "Client",
    "Full",
    "FunctionBatch",
    "FunctionContext",
    "FunctionFault",
    "InputLost",
    "KafkaFeed",
    "KafkaTopic",
    "NotDeterministic",
    "Operator",
    "OutcomeUnknown",
    "OutputLost",
    "OutsideCallFailed",
    "Runtime",
    "ServiceUnavailable",
    "TableFeed",
    "TablesChanged",
    "TransactionAborted",
    "WorkerFault",
]


def __getattr__(name: str) -> Any:
    """`Client` needs gRPC (extra `platform`), which nobody else here does: it is imported when it is asked for."""
    if name == "Client":
        from tussock.compute.functions.remote.client import FunctionClient

        return FunctionClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to use, `Client` too."""
    return list(__all__)
