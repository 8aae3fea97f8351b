"""The log of the service: one JSON object a line on standard error, or text for people, from every library in it.

| field | |
|---|---|
| `time` | UTC, ISO 8601 with milliseconds |
| `level` | `debug`, `info`, `warning`, `error` |
| `logger` | `tussock.meta` and its siblings, or the library that speaks |
| `event` | what happened, in words that stay the same |
| `request_id`, `caller`, `method` | of the call that is worked on, where there is one |
| `exception` | a trace, where something failed that nobody had thought of |

and whatever else the event was told with.
"""

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

from tussock.statestore.base.logs import FIELDS

__all__ = ["JsonFormatter", "start_logging"]

_THEIRS = ("aiohttp", "asyncio", "grpc", "urllib3")
"""Libraries whose lines below a warning are about themselves."""


class JsonFormatter(logging.Formatter):
    """Renders records as JSON, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        told: dict[str, object] = dict(getattr(record, FIELDS, None) or {"event": record.getMessage()})
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": told.pop("event", ""),
        }
        # What the event tells cannot pass itself off as what the log says of it.
        line.update({f"{key}_" if key in line else key: value for key, value in told.items()})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Renders records as text, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, its trace below."""
        line = f"{_time(record)} {record.levelname.lower():7} {record.name} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def start_logging(level: str, form: str, stream: TextIO) -> None:
    """Send the records of all loggers to `stream`; `form` is `json` or `text`. Replaces what was set up before."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _THEIRS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
