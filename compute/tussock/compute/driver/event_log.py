"""Takes Spark's event log to the store's bucket while a job runs, for a history server to show afterwards.

Spark writes files below a folder of the pod, and begins another one every 10 MiB (`spark.eventLog.rolling`). Its way
into buckets would need Java libraries that the image does not have, and their own credentials. So a thread copies the
files by the job's session with the store: a file that is closed once, the one that Spark writes every five minutes. A
copy that fails is tried again at the next look, and never fails the job.

    applications/JOB/events/eventlog_v2_APP/appstatus_APP[.inprogress]
    applications/JOB/events/eventlog_v2_APP/events_NUMBER_APP.zstd

Both are bounded: the logs of a job by their number, and a log by its bytes. A stream's log loses its oldest files then,
except the first, which says what the job is: its bytes take the place of the newest of these files under the name that
Spark gives to compacted ones, from which its reader begins (`EventLogFileReaders.scala`).
"""

import re
import threading
from collections.abc import Callable
from pathlib import Path

from tussock.statestore import TussockError
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["COMPACT", "EventLog"]

log = get_logger("tussock.compute")

COMPACT = ".compact"
_LOOK_SECONDS = 20.0
_OPEN_SECONDS = 300.0
"""Between two copies of the file that Spark writes: what a killed driver loses of its log at most."""
_END_SECONDS = 10.0
"""How long the end of a driver waits for a copy that goes on."""
_EVENTS = re.compile(r"events_([0-9]{1,9})_[A-Za-z0-9_-]{1,200}(?:\.[a-z0-9]{1,10})?")
_STATUS = re.compile(r"appstatus_[A-Za-z0-9_-]{1,200}")
_RUNS = ".inprogress"


class EventLog:
    """The event logs of one driver: one for each time that its program starts Spark."""

    def __init__(
        self,
        folder: Path,
        place: str,
        open_bucket: Callable[[], ObjectStore],
        system: System,
        *,
        logs_max: int,
        bytes_max: int,
    ) -> None:
        """`folder` is where Spark writes, `place` the folder of the bucket with all logs of the job, with a `/`."""
        self._folder = folder
        self._place = place
        self._open_bucket = open_bucket
        self._system = system
        self._logs_max = logs_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._bucket: ObjectStore | None = None
        self._logs: dict[str, _Log] = {}

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            self._system.sleep(_LOOK_SECONDS)
            with self._lock:
                self.step()

    def finish(self) -> None:
        """Copy what is left; Spark has stopped."""
        if not self._lock.acquire(timeout=_END_SECONDS):
            log.warning("the end of the event log is not copied: the copy before takes too long")
            return
        try:
            self.step(is_over=True)
        finally:
            self._lock.release()

    def step(self, *, is_over: bool = False) -> None:
        """Look once, in one thread at a time; an error of the bucket is logged, and the next look tries again."""
        try:
            for folder in sorted(self._folder.glob("eventlog_v2_*")):
                if folder.name not in self._logs:
                    self._logs[folder.name] = _Log(folder, f"{self._place}{folder.name}/", self._bytes_max)
                found = self._logs[folder.name]
                # Before anything is sent, so that the pod's disk is bounded while the bucket is away.
                found.look(is_over=is_over)
                found.send(self._opened(), self._system.monotonic())
        except (TussockError, OSError) as error:
            log.warning("the event log is not copied, trying again", error=str(error)[:300])

    def _opened(self) -> ObjectStore:
        if self._bucket is None:
            bucket = self._open_bucket()
            self._forget_old_logs(bucket)
            self._bucket = bucket
        return self._bucket

    def _forget_old_logs(self, bucket: ObjectStore) -> None:
        """Delete the oldest logs of the job, so that with the present one there are as many as it may have."""
        newest: dict[str, int] = {}
        paths: dict[str, list[str]] = {}
        for info in bucket.list(self._place):
            name = info.path.removeprefix(self._place).partition("/")[0]
            if name in self._logs:
                continue
            newest[name] = max(newest.get(name, 0), info.modified_ms)
            paths.setdefault(name, []).append(info.path)
        oldest_first = sorted(newest, key=lambda name: (newest[name], name))
        for name in oldest_first[: max(0, len(newest) + 1 - self._logs_max)]:
            bucket.delete(paths[name])


class _Log:
    """The log of one start of Spark."""

    def __init__(self, folder: Path, place: str, bytes_max: int) -> None:
        self._folder = folder
        self._place = place
        self._bytes_max = bytes_max
        self._names: dict[int, str] = {}
        """Closed files by number, also those that are given up."""
        self._sizes: dict[int, int] = {}
        self._sent: set[str] = set()
        self._given_up = 0
        """Files up to this number are; 0: none."""
        self._compacted = 0
        """The same, as the bucket has it."""
        self._open: Path | None = None
        self._open_sent: float | None = None

    def look(self, *, is_over: bool) -> None:
        """Find the files that Spark has closed; beyond the bytes of a log the oldest leave the pod's disk."""
        files = {int(found[1]): path for path in self._folder.iterdir() if (found := _EVENTS.fullmatch(path.name))}
        newest = max(files, default=0)
        self._open = None if is_over else files.get(newest)
        for number, path in files.items():
            if number not in self._names and (is_over or number < newest):
                self._names[number], self._sizes[number] = path.name, path.stat().st_size
        while len(kept := self._kept()) > 1 and self._bytes(kept) > self._bytes_max:
            self._given_up = kept[0]
            if kept[0] != self._first:
                (self._folder / self._names[kept[0]]).unlink(missing_ok=True)

    def send(self, bucket: ObjectStore, now: float) -> None:
        """Bring the bucket to what was found; `now` in seconds of a clock that only grows."""
        self._send_status(bucket)
        for number in self._kept():
            name = self._names[number]
            if name not in self._sent:
                bucket.put(self._place + name, (self._folder / name).read_bytes())
                self._sent.add(name)
                if number != self._first:
                    (self._folder / name).unlink()
        if self._given_up > self._compacted:
            self._compact(bucket)
        if self._open is not None and (self._open_sent is None or now - self._open_sent >= _OPEN_SECONDS):
            bucket.put(self._place + self._open.name, self._open.read_bytes())
            self._open_sent = now

    @property
    def _first(self) -> int:
        return min(self._names)

    def _kept(self) -> list[int]:
        return sorted(number for number in self._names if number > self._given_up)

    def _bytes(self, kept: list[int]) -> int:
        again = self._sizes[self._first] if kept[0] != self._first else 0
        return again + sum(self._sizes[number] for number in kept)

    def _send_status(self, bucket: ObjectStore) -> None:
        """An empty file whose name says whether the job runs; without one a history server shows nothing."""
        for path in self._folder.iterdir():
            if _STATUS.fullmatch(path.name.removesuffix(_RUNS)) and path.name not in self._sent:
                bucket.put(self._place + path.name, b"")
                self._sent.add(path.name)
                if not path.name.endswith(_RUNS):
                    bucket.delete([self._place + path.name + _RUNS])

    def _compact(self, bucket: ObjectStore) -> None:
        """Put the first file in the place of the newest one that was given up, then delete all before it."""
        target = self._place + self._names[self._given_up] + COMPACT
        bucket.put(target, (self._folder / self._names[self._first]).read_bytes())
        old = []
        for info in bucket.list(self._place):
            found = _EVENTS.fullmatch(info.path.removeprefix(self._place).removesuffix(COMPACT))
            if found and int(found[1]) <= self._given_up and info.path != target:
                old.append(info.path)
        bucket.delete(old)
        self._compacted = self._given_up
