"""The loggers of all rooms: structlog's key-value events on top of the standard library's loggers.

A library does not decide where its lines go. They are records of `tussock.<room>` loggers, so an application sends
them wherever it likes with `logging`; if it does nothing, warnings and errors go to standard error. A record's
message is the whole event as text. The record's attribute `tussock` has its parts.

What `structlog.contextvars` holds at the time, such as the id of the request that is worked on, is in every event.
"""

import logging
from typing import Any

import structlog
from structlog.typing import EventDict

__all__ = ["FIELDS", "get_logger"]

FIELDS = "tussock"
"""The attribute of a record that holds the event (under `event`) and what it was told with, as a dictionary."""

_TEXT = structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False)


def _to_logging(_: object, __: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of the standard library's method: it renders traces, and brings no fields."""
    trace = event.pop("exc_info", None)
    fields = {key: value for key, value in event.items() if value is not None}
    passed: dict[str, Any] = {"extra": {FIELDS: fields}}
    if trace:
        passed["exc_info"] = trace
    return (str(_TEXT(None, "", dict(event))),), passed


_PROCESSORS = (
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    _to_logging,
)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose events are lines of `key=value` pairs, the event first."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name), processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger
    )
    return logger
