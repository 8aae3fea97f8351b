"""`tussock meta serve` as a process of its own, and what it wrote to its log."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

TUSSOCK = Path(sys.executable).with_name("tussock")
WAIT_SECONDS_MAX = 60

Line = dict[str, Any]


class MetaProcess:
    """A replica. Ports are free ones unless the settings say otherwise."""

    def __init__(self, store: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TUSSOCK_")}
        self.process = subprocess.Popen(
            [
                *(TUSSOCK, "meta", "serve", "--store", store),
                *("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", *arguments),
            ],
            env={**environ, **(environment or {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[Line] = []
        self.raw: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        """Where its gRPC port is, once it serves."""
        return str(self.wait_for(event="serving")["address"])

    @property
    def url(self) -> str:
        return f"tussock://{self.address}"

    @property
    def http(self) -> str:
        """Where its HTTP port is: `host:port`."""
        return str(self.wait_for(event="serving")["http"])

    def wait_until_it_leads(self) -> "MetaProcess":
        self.wait_for(event="leading")
        return self

    def wait_for(self, when: Callable[[Line], bool] = lambda _: True, **fields: object) -> Line:
        """The first line of the log with these fields; waits for it."""

        def found() -> Line | None:
            return next((line for line in self.lines if line.items() >= fields.items() and when(line)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or self._ended, WAIT_SECONDS_MAX)
            line = found()
        assert line is not None, f"no line with {fields} in\n" + "\n".join(self.raw)
        return line

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code; its log is complete then."""
        code = self.process.wait(WAIT_SECONDS_MAX)
        self._reader.join(WAIT_SECONDS_MAX)
        return code

    def __enter__(self) -> "MetaProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for text in stream:
                with self._changed:
                    self.raw.append(text.rstrip("\n"))
                    if text.startswith("{"):
                        self.lines.append(json.loads(text))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
