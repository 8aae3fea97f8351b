"""Writes the rows of an outbox into files, so that each transaction is in one of them, once.

A file is named by its first transaction, and created only if there is none of that name: so what a file begins with is
in no other one. Which transactions follow in it, it says itself. After a crash, and beside a runner that was replaced,
a sender that finds the name taken goes on behind what that file has.
"""

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tussock.compute.applications.borders.output import POSITION, SEQUENCE
from tussock.compute.applications.borders.sender import Outbox
from tussock.compute.applications.errors import OutputLost
from tussock.compute.applications.replies import failure_of
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import ObjectNotFound, ObjectStoreUnavailable

__all__ = ["FileSender"]

log = get_logger("tussock.compute.changelog")

ROWS_MAX = 100_000
"""Of a file, unless one transaction has more."""
IDLE_SECONDS = 0.02
RETRY_SECONDS = 0.5
_META = b"tussock"
_FILE = re.compile(r"\d{20}\.parquet")


class FileSender:
    """The thread of one output."""

    def __init__(
        self,
        system: System,
        bucket: ObjectStore,
        owner: str,
        name: str,
        sent: int,
        begun: int,
        transactions: int,
        seconds: float,
    ) -> None:
        """`owner` tells this application from all others; `sent` is what its state knows to be in files.

        `begun`: the newest sequence when the run began, up to which files may be there that the state does not know of.
        """
        self._system = system
        self._bucket = bucket
        self._owner = owner
        self._name = name
        self.sent = sent
        self.trouble = ""
        self._begun = begun
        self._transactions = transactions
        self._seconds = seconds
        self._hurries = False
        self._waits_since: float | None = None
        self._is_stopping = False
        self._task: Any = None

    def check(self) -> None:
        """`OutputLost` if the folder has files of another output, also where no name of theirs is in the way."""
        try:
            there = next((one for one in self._bucket.list("") if _FILE.fullmatch(one.path)), None)
        except ObjectStoreUnavailable:
            return  # it may pass; a file that is in the way is told of later
        if there is not None:
            self._said(there.path, int(there.path.partition(".")[0]))

    def start(self, outbox: Outbox) -> None:
        """Begin to write, in a thread."""
        self._outbox = outbox
        self._task = self._system.spawn(f"tussock output {self._name}", self._work)

    def hurry(self) -> None:
        """Write what there is, however little."""
        self._hurries = True

    def stop(self) -> None:
        """Write no more."""
        self._is_stopping = True
        if self._task is not None:
            self._task.join()

    def _work(self) -> None:
        try:
            while not self._is_stopping:
                try:
                    if not self._step():
                        self._system.sleep(IDLE_SECONDS)
                    self.trouble = ""
                except ObjectStoreUnavailable as error:
                    if not self.trouble:
                        log.warning("an output waits for its bucket", output=self._name, error=str(error))
                    self.trouble = str(error)
                    self._system.sleep(RETRY_SECONDS)
        except BaseException as error:  # noqa: BLE001 - the application ends with it
            self._outbox.halt(failure_of(error))
        finally:
            self._bucket.close()

    def _step(self) -> bool:
        """Write a file, if it is time for one; whether it was."""
        newest = self._outbox.newest()
        if self.sent >= newest:
            self._hurries, self._waits_since = False, None
            return False
        now = self._system.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        is_due = self._hurries or now - self._waits_since >= self._seconds
        if not is_due and newest - self.sent < self._transactions:
            return False
        parts = self._parts()
        if not parts:
            return False  # no commit has them yet
        self._write(parts)
        self._waits_since = None
        return True

    def _parts(self) -> list[tuple[int, pa.Table]]:
        found: list[tuple[int, pa.Table]] = []
        rows = 0
        while rows < ROWS_MAX and len(found) < self._transactions:
            more = list(self._outbox.read(found[-1][0] if found else self.sent))
            if not more:
                break
            found += more
            rows += sum(part.num_rows for _, part in more)
        return found[: self._transactions]

    def _write(self, parts: list[tuple[int, pa.Table]]) -> None:
        first, last = parts[0][0], parts[-1][0]
        tables = []
        for sequence, rows in parts:
            numbers = [
                pa.repeat(pa.scalar(sequence, pa.int64()), rows.num_rows),
                pa.array(range(rows.num_rows), pa.int64()),
            ]
            names = [SEQUENCE, POSITION, *rows.schema.names]
            tables.append(pa.Table.from_arrays([*numbers, *rows.columns], names=names))
        said = json.dumps({"owner": self._owner, "first": first, "last": last}).encode()
        table = pa.concat_tables(tables).replace_schema_metadata({_META: said})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        path = f"{first:020d}.parquet"
        if not self._bucket.create(path, sink.getvalue().to_pybytes()):
            last = self._there(path, first)
        self.sent = last
        self._outbox.sent(last)

    def _there(self, path: str, first: int) -> int:
        """The last transaction of the file that has the name."""
        last = self._said(path, first)
        if last > max(self._outbox.newest(), self._begun):
            raise self._lost(
                f"file {path} has transactions up to {last}, and the flow has published up to {self._outbox.newest()}: "
                "its store was put back to an earlier state"
            )
        return last

    def _said(self, path: str, first: int) -> int:
        """The same, of any file that this output has written."""
        try:
            data = self._bucket.get(path)
            said = json.loads((pq.read_schema(pa.BufferReader(data)).metadata or {})[_META])
            owner, begins, last = said["owner"], said["first"], said["last"]
        except (pa.ArrowException, ObjectNotFound) as error:
            raise self._lost(f"file {path} is there, and is none of such an output ({error})") from error
        except (KeyError, TypeError, ValueError) as error:
            raise self._lost(
                f"file {path} is there, and is none of such an output (it does not say of which output it is)"
            ) from error
        if owner != self._owner or begins != first or type(last) is not int or last < first:
            raise self._lost(f"file {path} is of another output ({owner!r:.200})")
        return int(last)

    def _lost(self, why: str) -> OutputLost:
        return OutputLost(
            f"output {self._name} at {self._bucket.url}: {why}; so nothing more is written. Take the file away, or "
            "declare another folder",
            self._bucket.url,
        )
