"""`tussock meta serve` and `tussock compactor` as separate processes, and what they wrote to their logs."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TUSSOCK = Path(sys.executable).with_name("tussock")
WAIT_SECONDS_MAX = 120

Line = dict[str, Any]


class ServiceProcess:
    """A `tussock` command that runs until it is told to stop."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        # A shell starts it, and not this process, whose clients have set how much their gRPC says.
        left_out = ("TUSSOCK_", "GRPC_VERBOSITY")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self.process = subprocess.Popen(
            [TUSSOCK, *arguments],
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

    def wait_for(self, when: Callable[[Line], bool] = lambda _: True, **fields: object) -> Line:
        """Wait for a line of the log with these fields; returns the first one."""

        def find_line() -> Line | None:
            return next((line for line in self.lines if line.items() >= fields.items() and when(line)), None)

        with self._changed:
            self._changed.wait_for(lambda: find_line() or self._ended, WAIT_SECONDS_MAX)
            line = find_line()
        assert line is not None, f"no line with {fields} in\n" + "\n".join(self.raw)
        return line

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for its end; returns its exit code, and its log is complete then."""
        code = self.process.wait(WAIT_SECONDS_MAX)
        self._reader.join(WAIT_SECONDS_MAX)
        return code

    def __enter__(self) -> Self:
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


class MetaProcess(ServiceProcess):
    """A replica. Its ports are free ones unless the settings name some."""

    def __init__(self, store: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(
            *("meta", "serve", "--store", store),
            *("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", *arguments),
            environment=environment,
        )

    @property
    def address(self) -> str:
        """The address of its gRPC port, once it serves."""
        return str(self.wait_for(event="serving")["address"])

    @property
    def url(self) -> str:
        return f"tussock://{self.address}"

    @property
    def http(self) -> str:
        """The address of its HTTP port, `host:port`."""
        return str(self.wait_for(event="serving")["http"])

    def wait_until_it_leads(self) -> Self:
        self.wait_for(event="leading")
        return self


class CompactorProcess(ServiceProcess):
    """A compactor node at that service."""

    def __init__(
        self, meta: MetaProcess, name: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """With the name "" the node chooses its name."""
        super().__init__("compactor", "--meta", meta.address, "--name", name, *arguments, environment=environment)

    def wait_until_connected(self) -> Self:
        self.wait_for(event="compacting")
        return self

    def slots(self) -> list[int]:
        """Process ids of its slots that have run tasks."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
        named = [(int(pid), Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in children]
        # Python's spawn starts a process that looks after shared resources, too.
        return [pid for pid, command in named if b"spawn_main" in command]
