"""Reads the files of a folder in the order of their names: forward while the flow runs, and again in a replay.

A position is the name of a file with the row in it. What was read of a file is known by its checksum, so a replay that
would have other rows stops; of a file that was read to its end, size and time of change are looked at once more when
the flow starts.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.errors import BadInput, InputLost
from tussock.compute.applications.feeds.feed import BadMessage, FedBatch, OnBad
from tussock.compute.changelog.feeds.file_parts import FilePart, FileParts
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import CorruptObject, InvalidOption, ObjectNotFound

__all__ = ["FileSource"]

log = get_logger("tussock.compute.changelog")

LOOK_SECONDS = 1.0
"""Between two listings of a folder in which nothing is new."""
AHEAD_MAX = 1000
"""Names that are held of one listing."""
WAIT_SECONDS = 0.05


class _FilePosition(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    name: str = ""
    """The newest file that was read of; empty: none yet."""
    row: int = -1
    """The next one in it; -1: all was read."""
    size: int = 0
    modified_ms: int = 0
    checksum: int = 0


class _FileSpan(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    name: str
    first: int
    size: int
    modified_ms: int
    checksum: int
    next: int
    """The row behind it; -1: it was the file's last."""


class _OpenFile:
    def __init__(self, info: ObjectInfo, checksum: int, row: int, parts: Iterator[FilePart]) -> None:
        self.info = info
        self.checksum = checksum
        self.row = row
        self.parts = parts


class FileSource:
    """One run's reader of a folder."""

    def __init__(
        self,
        bucket: ObjectStore,
        suffix: str,
        parts: FileParts,
        schema: pa.Schema,
        system: System,
        what: str,
        on_bad: OnBad,
        bytes_max: int,
    ) -> None:
        self._bucket = bucket
        self._suffix = suffix
        self._parts = parts
        self.schema = schema
        self._system = system
        self._what = what
        self._on_bad = on_bad
        self._bytes_max = bytes_max
        self.trouble = ""
        self._position = _FilePosition("files")
        self._open: _OpenFile | None = None
        self._part: FilePart | None = None
        self._ahead: list[ObjectInfo] = []
        self._looked_at = -LOOK_SECONDS
        self._unread = ""
        """Which file the newest listing has left out, and why."""

    def begin(self) -> bytes:
        """Before the first file."""
        return _pack_files(_FilePosition("files"))

    def seek(self, position: bytes) -> None:
        """Go on there; `InputLost` if the file there has changed."""
        found = self._unpack(position, _FilePosition)
        if found == self._position:
            return
        self._position, self._open, self._ahead = found, None, []
        info = self._info(found.name) if found.name else None
        if found.row >= 0:
            self._open = self._opened(found.name, info, found.row, found.checksum)
        elif info is not None and (info.size, info.modified_ms) != (found.size, found.modified_ms):
            raise self._changed(found.name, "size or time of change are others")

    def read(self, seconds: float) -> FedBatch | None:
        """The next part of a file."""
        until = self._system.monotonic() + seconds
        while self._open is None:
            if not self._ahead:
                self._look()
            if self._ahead:
                info = self._ahead.pop(0)
                self._open = self._opened(info.path, info, 0, None)
            elif self._system.monotonic() >= until:
                return None
            else:
                self._system.sleep(min(WAIT_SECONDS, max(until - self._system.monotonic(), 0)))
        return self._next(self._open)

    def again(self, span: bytes) -> FedBatch:
        """The same rows as the first time."""
        wanted = self._unpack(span, _FileSpan)
        current = self._open
        if current is None or (current.info.path, current.row) != (wanted.name, wanted.first):
            current = self._opened(wanted.name, self._info(wanted.name), wanted.first, wanted.checksum)
        elif current.checksum != wanted.checksum:
            raise self._changed(wanted.name, "its bytes are others")
        self._open = current
        part = next(current.parts)
        if (-1 if part.is_last else wanted.first + part.rows) != wanted.next:
            raise InvalidOption(
                f"{self._what}: the rows of {wanted.name!r} from {wanted.first + 1} on were a transaction, and now it "
                "has others: start with the former batch_rows=, stop in order, then change it"
            )
        self._advance(current, part)
        return self._batch(span, wanted.name, wanted.first, part)

    def after(self, position: bytes, span: bytes) -> bytes:  # noqa: ARG002 - a span says it alone
        """Behind the span."""
        read = self._unpack(span, _FileSpan)
        return _pack_files(_FilePosition("files", read.name, read.next, read.size, read.modified_ms, read.checksum))

    def standing(self) -> bytes:
        """Behind what was read."""
        return _pack_files(self._position)

    def release(self, position: bytes) -> None:
        """Nothing: the owner of the files deletes them."""

    def newest(self) -> str:
        """The last name that there is."""
        names = [info.path for info in self._listed(self._position.name)]
        return max(names, default=self._position.name)

    def has_reached(self, mark: Any) -> bool:
        """Whether all files up to that name were read."""
        return self._open is None and (not mark or self._position.name >= mark)

    def close(self) -> None:
        """Release connections."""
        self._open = None
        self._bucket.close()

    # --- Within ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._system.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        before, self._unread = self._unread, ""
        for info in self._listed(self._position.name):
            self._ahead.append(info)
            if len(self._ahead) >= AHEAD_MAX:
                return
        self.trouble = self._unread
        if self._unread and self._unread != before:
            log.warning("a feed leaves a file out", feed=self._what, reason=self._unread)
        if not self._ahead:
            self._looked_at = now

    def _listed(self, after: str) -> Iterator[ObjectInfo]:
        for info in self._bucket.list("", after):
            if not info.path.endswith(self._suffix):
                continue
            try:
                info.path.encode()
            except UnicodeEncodeError:
                self._unread = f"file {info.path!r} is not read, as its name is no UTF-8: give it another one"
                continue
            yield info

    def _info(self, name: str) -> ObjectInfo | None:
        return next((info for info in self._bucket.list(name) if info.path == name), None)

    def _opened(self, name: str, info: ObjectInfo | None, row: int, checksum: int | None) -> _OpenFile:
        """With a checksum it was read before."""
        try:
            if info is None:
                raise ObjectNotFound(f"{name} is not there")
            data = self._bucket.get(name, self._bytes_max)
        except ObjectNotFound as error:
            raise InputLost(
                f"{self._what}: file {name!r} is gone, of which rows are to be read: put it back; to begin anew, give "
                "the feed another name=",
                name,
            ) from error
        except CorruptObject as error:
            raise BadInput(
                f"{self._what}: file {name!r} is larger than file_bytes={self._bytes_max:,} allows ({error}); nothing "
                "of it was used: write smaller files, or allow more",
                name,
            ) from error
        found = zlib.crc32(data)
        if checksum is not None and found != checksum:
            raise self._changed(name, "its bytes are others")
        return _OpenFile(info, found, row, self._parts(name, data, row))

    def _next(self, current: _OpenFile) -> FedBatch:
        # A part that could not be taken, as a registry or a user was asked in vain, is the next one still.
        part = self._part = self._part or next(current.parts)
        info, first = current.info, current.row
        behind = -1 if part.is_last else first + part.rows
        span = _FileSpan("files", info.path, first, info.size, info.modified_ms, current.checksum, behind)
        if part.bad and self._on_bad == "stop":
            bad: BadMessage = part.bad[0]
            raise BadInput(
                f"{self._what}: {bad.origin} (file:line or row) is no change: {bad.cause}; nothing of it was used, and "
                "it comes again at the next start: mend the file under another name, or declare the feed with "
                "on_bad='skip'",
                info.path,
                bad.origin,
            )
        batch = self._batch(msgspec.msgpack.encode(span), info.path, first, part)
        self._advance(current, part)
        return batch

    def _advance(self, current: _OpenFile, part: FilePart) -> None:
        self._part = None
        info = current.info
        current.row = -1 if part.is_last else current.row + part.rows
        self._position = _FilePosition("files", info.path, current.row, info.size, info.modified_ms, current.checksum)
        if part.is_last:
            self._open = None

    def _batch(self, span: bytes, name: str, first: int, part: FilePart) -> FedBatch:
        return FedBatch(span, part.changes, part.bad, f"rows {first + 1} and up of file {name!r}")

    def _changed(self, name: str, why: str) -> InputLost:
        return InputLost(
            f"{self._what}: file {name!r} was changed after it was read ({why}): what it had is lost, and files have "
            "to stay as they are; put the former one back, or, to begin anew, give the feed another name=",
            name,
        )

    def _unpack(self, data: bytes, kind: type[Any]) -> Any:
        try:
            found = msgspec.msgpack.decode(data, type=kind)
            is_same = found.kind == "files"
        except UNREADABLE:
            is_same = False
        if not is_same:
            raise InvalidOption(
                f"{self._what}: the flow has read from another kind of source under this name; give the feed another "
                "name="
            )
        return found


def _pack_files(position: _FilePosition) -> bytes:
    return msgspec.msgpack.encode(position)
