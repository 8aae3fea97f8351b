"""A real MinIO server for the tests: found, or built once with Go; started on a free port with its own credentials."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from itertools import count
from pathlib import Path

from cluster.binaries import PROGRAMS, NoCluster, build, search_path

BUCKET = "tussock-tests"
START_SECONDS_MAX = 120
# Below the ports that Linux and macOS give to programs that connect or ask for any: until the server has started, only
# another draw could take the port away.
PORTS = range(20_000, 30_000)


class NoMinio(Exception):
    """There is no MinIO here and none can be built; the text says why."""


def find_binary() -> Path | None:
    """The server's binary from `$MINIO_BIN`, the PATH or an earlier build; `None` if it would have to be built."""
    named = os.environ.get("MINIO_BIN")
    if named and not os.access(named, os.X_OK):
        raise NoMinio(f"$MINIO_BIN names {named}, which is not an executable file")
    found = named or shutil.which("minio", path=search_path())
    return Path(found) if found else None


def build_binary() -> Path:
    """Build the server with Go, which takes some minutes the first time; of several processes, one builds."""
    try:
        build(("minio",))
    except NoCluster as error:
        raise NoMinio(f"no MinIO: set $MINIO_BIN or put minio on the PATH, since it can't be built: {error}") from error
    return PROGRAMS["minio"].path


class MinioServer:
    """One server with one bucket, in one folder. `environment` is that of its clients."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._prefixes = count(1)
        self.port = free_port()
        self.user = "user" + secrets.token_hex(4)
        self.password = secrets.token_hex(16)
        # A server with a single drive takes each folder in it for a bucket.
        (folder / "data" / BUCKET).mkdir(parents=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": self.password,
        }

    def fresh_url(self) -> str:
        """An empty place in the bucket."""
        return f"s3://{BUCKET}/{next(self._prefixes)}"

    def start(self) -> None:
        """Start the server, also again after `stop`, on the same port and data; returns when it answers."""
        log = self._folder / "minio.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self.binary, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", self._folder / "data"],
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "HOME": str(self._folder),
                    "MINIO_ROOT_USER": self.user,
                    "MINIO_ROOT_PASSWORD": self.password,
                    "MINIO_BROWSER": "off",
                },
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"MinIO did not start: {log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server; its data stay."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """`kill -9`; `start` brings it back on its data."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: requests hang, and connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue, with all requests of the meantime."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/minio/health/ready", timeout=2).close()
        except OSError:
            return False
        return True


def free_port() -> int:
    """A TCP port of this machine on which no program listens now, and that no program gets but by its number."""
    for _ in range(1000):
        # Not by `random`, which Hypothesis seeds alike in every process.
        port = secrets.choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port among {PORTS}")
