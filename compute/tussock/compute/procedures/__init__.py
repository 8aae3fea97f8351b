"""Transactional stored procedures over streams and windows, after S-Store (Meehan et al., PVLDB 8(13), 2015).

`App` is the public face; see `docs/procedures.md`.
"""

from tussock.compute.applications.errors import (
    ApplicationFenced,
    ApplicationStopped,
    BadInput,
    InputLost,
    NotDeterministic,
    OutputLost,
    ProcedureError,
)
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.applications.kafka.kafka_feed import KafkaFeed
from tussock.compute.applications.kafka.kafka_topic import KafkaTopic
from tussock.compute.procedures.app import App
from tussock.compute.procedures.context import ProcedureContext
from tussock.compute.procedures.definitions import Stream, Window

__all__ = [
    "App",
    "ApplicationFenced",
    "ApplicationStopped",
    "BadInput",
    "InputLost",
    "KafkaFeed",
    "KafkaTopic",
    "NotDeterministic",
    "OutputLost",
    "ProcedureContext",
    "ProcedureError",
    "Stream",
    "TableFeed",
    "Window",
]
