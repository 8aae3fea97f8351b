"""The loggers of all rooms: structlog's key-value events on top of the standard library's loggers.

A library does not decide where its lines go. They are records of `tussock.<room>` loggers, so an application sends
them wherever it likes with `logging`; if it does nothing, warnings and errors go to standard error.
"""

import logging

import structlog
from structlog.typing import EventDict

__all__ = ["get_logger"]


def _leave_trace_to_logging(_: object, __: str, event: EventDict) -> EventDict:
    event.pop("exc_info", None)
    return event


_PROCESSORS = (
    structlog.stdlib.filter_by_level,
    _leave_trace_to_logging,
    structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False),
)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose events are lines of `key=value` pairs, the event first."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name), processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger
    )
    return logger
