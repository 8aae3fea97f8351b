"""The processes of a platform, started for a benchmark: MinIO, replicas of the meta service, compactor nodes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.buckets.minio import MinioServer, build_binary, find_binary, free_port  # noqa: E402

TUSSOCK = str(Path(sys.executable).parent / "tussock")
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30


def cpu_seconds_of(pid: int) -> float:
    """Processor time that a process has used, its ended children's included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


class Minio(MinioServer):
    """The server of the tests, whose processor time can be asked for."""

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        assert self._process is not None
        return cpu_seconds_of(self._process.pid)


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[Minio]:
    """A running MinIO whose environment is this process's, so that `s3://` URLs reach it."""
    (folder / "minio").mkdir(parents=True)
    server = Minio(find_binary() or build_binary(), folder / "minio")
    server.start()
    os.environ.update(server.environment)
    try:
        yield server
    finally:
        server.stop()


class Process:
    """One of our processes; its log goes to a file."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self) -> None:
        """As the kernel would, without a word to it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def pid(self) -> int:
        """As the kernel knows it."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        return cpu_seconds_of(self.pid)

    def check(self) -> None:
        """Raise if it has ended."""
        if self._process.poll() is not None:
            raise SystemExit(f"{self._log.name} ended: {self._log.read_text(errors='replace')[-2000:]}")


class Platform:
    """Replicas on one store, and compactors, each a process."""

    def __init__(self, folder: Path, store: str, replicas: int = 1, settings: Sequence[str] = ()) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.replicas: dict[str, Process] = {}
        self._compactors: list[Process] = []
        for number in range(replicas):
            address = f"127.0.0.1:{free_port()}"
            self.replicas[address] = Process(
                folder / f"meta-{number}.log",
                TUSSOCK,
                "meta",
                "serve",
                "--store",
                store,
                "--listen",
                address,
                "--http_listen",
                f"127.0.0.1:{free_port()}",
                *settings,
            )
        self.addresses = ",".join(self.replicas)
        self.leader()

    def status(self) -> dict[str, Any] | None:
        """The leader's status, or a follower's, or `None` while nobody answers."""
        command = [TUSSOCK, "status", "--json", "--meta", self.addresses]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def leader(self) -> str:
        """Wait until a replica leads; its address."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and status["replica"]["role"] == "leader":
                return str(status["replica"]["address"])
            for process in self.replicas.values():
                process.check()
        raise SystemExit(f"no replica led within {START_SECONDS_MAX} s")

    def cpu_seconds(self) -> float:
        """What all replicas have used so far."""
        return sum(process.cpu_seconds() for process in self.replicas.values())

    def compactor(self, slots: int) -> Process:
        """Start a compactor node, and wait until the leader knows it."""
        number = len(self._compactors)
        node = Process(
            self._folder / f"compactor-{number}.log",
            TUSSOCK,
            "compactor",
            "--meta",
            self.addresses,
            "--slots",
            str(slots),
            "--name",
            f"compactor-{number}",
        )
        self._compactors.append(node)
        while (status := self.status()) is None or status["compaction"]["slots"] < slots:
            node.check()
        return node

    def stop(self) -> None:
        """End all of them."""
        for process in (*self._compactors, *self.replicas.values()):
            process.stop()


@contextlib.contextmanager
def platform(
    folder: Path, store: str, replicas: int = 1, settings: Sequence[str] = (), slots: int = 0
) -> Iterator[Platform]:
    """A platform with a leader and, if `slots`, a compactor node."""
    started = Platform(folder, store, replicas, settings)
    try:
        if slots:
            started.compactor(slots)
        yield started
    finally:
        started.stop()


class Worker:
    """A process that runs a function of `meta_workers.py`: says `ready`, begins when told, prints its answer."""

    def __init__(self, function: str, **arguments: Any) -> None:
        command = [sys.executable, str(HERE / "meta_workers.py"), function, json.dumps(arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ready(self) -> None:
        """Wait until it is."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != "ready":
            raise SystemExit(f"a worker of the benchmark failed: {line}{self._process.stdout.read()}")

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What it found."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit(f"a worker of the benchmark failed with code {self._process.returncode}")
        return json.loads(output.splitlines()[-1])
