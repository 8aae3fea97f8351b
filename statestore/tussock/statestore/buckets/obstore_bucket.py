"""Buckets that the library obstore reaches: memory, S3 and what speaks its protocol, Google Cloud Storage, Azure.

All of them have a conditional create (`If-None-Match: *` on S3). Requests are repeated inside obstore, with growing
pauses. One trap follows from that: a `create` whose answer was lost is repeated, meets the object that it has itself
created, and returns `False`. A caller that must know reads the object back; the version log does, and knows its
own entry by the entry's id.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore as LibraryStore

from tussock.statestore.base.system import System
from tussock.statestore.buckets.failures import DENIED, NO_BUCKET, is_past_end, is_timeout, translate
from tussock.statestore.buckets.paths import check_path, check_prefix, is_path
from tussock.statestore.contract.object_store import ObjectInfo, check_size
from tussock.statestore.errors import InvalidOption, ObjectStoreUnavailable, TussockError

if TYPE_CHECKING:
    from obstore import ObjectMeta

__all__ = ["ObstoreBucket"]

MULTIPART_BYTES = 8 << 20
"""Objects above this go up in parts of this size, several at once; below, joining the buffers costs less than the
two more requests that a multipart upload takes."""

_PARTS_AT_ONCE = 4  # bounds the memory of one upload at four parts
_LIST_CHUNK = 1000  # what S3 answers per page
_CREATE_ATTEMPTS = 5
_LIST_ATTEMPTS = 4
_PAUSE_SECONDS = 0.05
_BREAK_SECONDS = 1.0

P = ParamSpec("P")
T = TypeVar("T")


class ObstoreBucket:
    """A bucket, or a prefix in one, behind obstore; safe for many threads."""

    def __init__(
        self,
        current: Callable[[], LibraryStore],
        url: str,
        system: System,
        *,
        endpoint: str = "",
        any_names: bool = False,
    ) -> None:
        """`current` is called for each request, and returns another store when credentials were replaced.

        `url` names the bucket, and `endpoint` the server where it is not implied, in messages. `any_names`: objects of
        others are read.
        """
        self._any_names = any_names
        self._current = current
        self._url = url
        self._where = f"{url} at {endpoint}" if endpoint else url
        self._system = system

    @property
    def _store(self) -> LibraryStore:
        return self._current()

    @property
    def url(self) -> str:
        """Where this is, without credentials."""
        return self._url

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write an object whole and durably, replacing one of that path; it appears when all parts are there."""
        parts = [memoryview(part).cast("B") for part in ([data] if isinstance(data, bytes) else data)]
        self._run("put", path, self._put, check_path(path), parts)

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if none has that path; `False` if one has, which may be this very call's (see above)."""
        return self._run("create", path, self._create, check_path(path), data)

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        """The whole object; `CorruptObject` if it has more than `bytes_max` bytes."""
        return self._run("get", path, self._get, self._readable(path), bytes_max)

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        """`length` bytes from `start`; fewer if the object ends before."""
        if start < 0 or length < 0:
            raise InvalidOption(f"cannot read {length} bytes from {start} of {path}: neither may be negative")
        return self._run("get_range", path, self._get_range, self._readable(path), start, length)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose path starts with `prefix`, by path ascending, those after `after`; a request per 1,000."""
        folder = check_prefix(prefix, any_names=self._any_names).rpartition("/")[0]
        return self._list(folder, prefix, after)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error."""
        checked = [check_path(path) for path in paths]
        if checked:
            what = checked[0] if len(checked) == 1 else f"{checked[0]} and {len(checked) - 1} more"
            self._run("delete", what, obstore.delete, self._store, checked)

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:  # noqa: ARG002 - the same call as FileBucket's
        """None: unfinished uploads are not objects here; a lifecycle rule of the bucket clears them."""
        return []

    def close(self) -> None:
        """Nothing to do: connections end when the last reference to this bucket does."""

    def _readable(self, path: str) -> str:
        return check_path(path, any_names=self._any_names)

    def _put(self, path: str, parts: Sequence[memoryview]) -> None:
        if sum(map(len, parts)) > MULTIPART_BYTES:
            obstore.put(self._store, path, parts, chunk_size=MULTIPART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        else:
            # A memory store keeps the very buffer it is given: only one that nobody can write to is handed over.
            alone = len(parts) == 1 and parts[0].readonly
            obstore.put(self._store, path, parts[0] if alone else b"".join(parts), use_multipart=False)

    def _create(self, path: str, data: bytes) -> bool:
        # S3 answers 409 when a create meets another request for the same path, and the library says "already exists"
        # to that too, though nothing may be there yet. So the object itself is asked, and the create repeated if it
        # is absent.
        refused: AlreadyExistsError | None = None
        has_hung = False
        for attempt in range(_CREATE_ATTEMPTS):
            if refused:
                self._system.sleep(_PAUSE_SECONDS * 2**attempt)
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
                return True
            except AlreadyExistsError as error:
                refused = error
            except BaseError as error:
                # The library repeats other requests whose answer never came, and not this one, which may have
                # happened. Callers know that it may have, as with those that it repeats.
                if has_hung or not is_timeout(error):
                    raise
                has_hung = True
                continue
            if self._exists(path):
                return False
        assert refused
        raise refused

    def _exists(self, path: str) -> bool:
        try:
            obstore.head(self._store, path)
        except FileNotFoundError:
            return False
        return True

    def _get(self, path: str, bytes_max: int | None) -> bytes:
        found = obstore.get(self._store, path)
        # Said by the headers of the answer: nothing of the object has come yet.
        check_size(path, found.meta["size"], bytes_max)
        return bytes(found.bytes())

    def _get_range(self, path: str, start: int, length: int) -> memoryview:
        if length == 0:
            obstore.head(self._store, path)
            return memoryview(b"")
        try:
            return memoryview(obstore.get_range(self._store, path, start=start, length=length))
        except BaseError as error:
            if is_past_end(error):
                return memoryview(b"")
            raise

    def _list(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        for page in self._pages(folder, prefix, after):
            for found in page:
                if found["path"].startswith(prefix) and is_path(found["path"], any_names=self._any_names):
                    modified_ms = int(found["last_modified"].timestamp() * 1000)
                    yield ObjectInfo(found["path"], found["size"], modified_ms)

    def _pages(self, folder: str, prefix: str, after: str) -> Iterator[Sequence["ObjectMeta"]]:
        """Pages of a listing. The library repeats requests, but no answer that broke off: that page is asked for."""
        failures = 0
        while True:
            chunks = obstore.list(self._store, folder or None, offset=after or None, chunk_size=_LIST_CHUNK)
            began = self._system.monotonic()
            try:
                while chunk := self._run("list", prefix, next, chunks, None):
                    yield chunk
                    after, began = chunk[-1]["path"], self._system.monotonic()
                return
            except ObjectStoreUnavailable as error:
                failures += 1
                is_final = NO_BUCKET in str(error) or DENIED in str(error)
                # What took long was repeated, or has hung.
                if is_final or failures == _LIST_ATTEMPTS or self._system.monotonic() - began > _BREAK_SECONDS:
                    raise
                self._system.sleep(_PAUSE_SECONDS * 2**failures)

    def _run(self, operation: str, path: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do `work`, with the library's errors turned into the store's."""
        started = self._system.monotonic()
        try:
            return work(*args, **kwargs)
        except TussockError:
            # Raised by the credentials' source. Some are errors of the system as well, and translated already.
            raise
        except (BaseError, OSError) as error:
            failure = translate(error, operation, path, self._where, self._system.monotonic() - started)
        # Raised outside the handler, so that the library's error, whose text may hold secrets, does not ride along
        # as the context: the cause is its cleaned copy.
        raise failure from failure.__cause__
