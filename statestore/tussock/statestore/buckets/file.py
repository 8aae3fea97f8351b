"""A folder as a bucket: atomic, create-only and durable by the means of a POSIX file system.

Every object is first written to a temporary file in its own folder and synced; only then does it get its name, by
`rename` (put) or by `link` (create, which fails if the name is taken); then the folder is synced. So a crash at any
point leaves either the whole object or none, plus perhaps a file named `.tmp-...`, which `leftovers` finds. The file
of a create has no name before its own where the file system can do that (`O_TMPFILE`): two changes of the folder less,
and nothing is left over.

The folder must be on a file system with hard links and honest fsync: any local Linux file system, not a FUSE mount of
a bucket.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import ParamSpec, TypeVar

from tussock.statestore.base.system import System
from tussock.statestore.buckets.folders import (
    FOLDER_FLAGS,
    folders_in,
    identity_of,
    make_and_sync,
    other_than_file,
    sorted_names,
    sync_folder,
)
from tussock.statestore.buckets.paths import check_path, check_prefix
from tussock.statestore.buckets.synced_writes import write_synced
from tussock.statestore.contract.object_store import ObjectInfo, check_size
from tussock.statestore.errors import CorruptObject, InvalidOption, ObjectNotFound, ObjectStoreUnavailable

__all__ = ["FileBucket", "unavailable"]

TEMPORARY = ".tmp-"
_TEMPORARY_NAME = re.compile(r"\.tmp-[0-9a-f]{24}")
_BYTES_PER_CALL = 1 << 30  # Linux reads and writes a little less than 2 GiB a call

_NO_UNNAMED_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EXDEV}
"""What file systems and kernels answer that have none, or cannot name them; open(2), linkat(2)."""

_ADVICE = {
    errno.ENOSPC: "the disk is full; make room (vacuum deletes the store's garbage), then repeat the call",
    errno.EDQUOT: "the disk quota is used up; make room (vacuum deletes the store's garbage), then repeat the call",
    errno.EIO: "the disk failed; check the device and the system's log",
    errno.EROFS: "the file system is read-only; mount it for writing",
    errno.EACCES: "this user has no permission; check the folder's owner and mode",
    errno.EPERM: "it is not permitted; check the folder's owner, and that its file system has hard links",
    errno.EOPNOTSUPP: "the file system lacks hard links or fsync, which the store needs; use another one",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.EEXIST: "a file is where a folder of the store, or one above it, should be; take another path",
    errno.ENAMETOOLONG: "the file system takes no names as long as this; take a shorter path",
}

P = ParamSpec("P")
T = TypeVar("T")


class FileBucket:
    """A bucket in a folder of a local file system; safe for many threads and processes at once."""

    def __init__(self, root: Path, system: System, *, make_folder: bool = True, any_names: bool = False) -> None:
        """`system` names the temporary files; `any_names`: those of others are read.

        If `root` is not there it is created, with its parents: now, or at the first write unless `make_folder`.
        """
        self._root = root
        self._root_text = str(root)
        self._any_names = any_names
        self._system = system
        self._synced_folders: set[Path] = set()
        self._seen = folders_in(root)
        """Folders that were there once: what is missing of them is not made again, as their objects are gone too."""
        self._identity = identity_of(root)
        """Of the folder itself, once it is there: another one of its name is another bucket."""
        # What has no name is linked by its descriptor.
        self._makes_unnamed = hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir()
        if make_folder:
            self._run("open", "", self._make_folder, root)

    @cached_property
    def url(self) -> str:
        """`file:///...`."""
        return self._root.as_uri()

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write an object whole and durably, replacing one of that path."""
        self._run("put", path, self._put, path, self._root / check_path(path), data)

    def create(self, path: str, data: bytes) -> bool:
        """Write an object durably if none has that path; `False` if one has."""
        return self._run("create", path, self._create, path, self._root / check_path(path), data)

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        """The whole object; `CorruptObject` if it has more than `bytes_max` bytes."""
        return self._run("get", path, _read, self._readable(path), 0, None, bytes_max)

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        """`length` bytes from `start`; fewer if the object ends before."""
        if start < 0 or length < 0:
            raise InvalidOption(f"cannot read {length} bytes from {start} of {path}: neither may be negative")
        return memoryview(self._run("get_range", path, _read, self._readable(path), start, length))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose path starts with `prefix`, by path ascending, those after `after`; unfinished files never."""
        folder, slash, _ = check_prefix(prefix, any_names=self._any_names).rpartition("/")
        return self._walk(folder + slash, prefix, after)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects and leftovers; those that are not there are no error.

        Folders are not synced: an object that a power failure brings back is garbage that vacuum finds again.
        """
        for path in paths:
            folder, slash, name = path.rpartition("/")
            check_path(folder + slash + name[1:] if name.startswith(TEMPORARY) else path)
        for path in paths:
            self._run("delete", path, _unlink_if_there, self._root / path)

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        """Unfinished files last written before that time (Unix milliseconds), for `delete`.

        A crash in the middle of a `put` or `create` leaves one. The caller gives a time so far back that no writer
        can still be busy with such a file.
        """
        return self._run("list", "", self._leftovers, before_ms)

    def close(self) -> None:
        """Nothing to release: no file stays open between calls."""

    def _readable(self, path: str) -> str:
        # Of a checked path this is what `Path` would make, in a tenth of the time.
        return f"{self._root_text}/{check_path(path, any_names=self._any_names)}"

    def _put(self, path: str, target: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
        try:
            temporary = self._write_temporary(target.parent, data)
            try:
                temporary.rename(target)
            except OSError:
                temporary.unlink()
                raise
        except ObjectStoreUnavailable:
            raise
        except OSError as error:
            raise self._unwritten("put", path, error) from error
        sync_folder(target.parent)

    def _create(self, path: str, target: Path, data: bytes) -> bool:
        created, folder = False, -1
        self._check_root()
        try:
            try:
                self._make_folder(target.parent)
                folder = os.open(target.parent, FOLDER_FLAGS)
                unnamed = self._link_unnamed(folder, target.name, data)
                if unnamed is None:
                    temporary = self._write_temporary(target.parent, data)
                    try:
                        created = _link(temporary, target)
                    finally:
                        temporary.unlink()
                else:
                    created = unnamed
            except ObjectStoreUnavailable:
                raise
            except OSError as error:
                raise self._unwritten("create", path, error, not created) from error
            if not created and (what := other_than_file(target)):
                raise CorruptObject(
                    f"{self.url}/{path}: {what} lies there, which no store makes; nothing was written: remove it"
                )
            # Also after losing: what the caller does next rests on the winner's object, which the winner may not have
            # synced yet.
            os.fsync(folder)
            return created
        finally:
            if folder >= 0:
                os.close(folder)

    def _unwritten(
        self, operation: str, path: str, error: OSError, nothing_written: bool = True
    ) -> ObjectStoreUnavailable:
        """The failure of a write that has not given the object its name: without that there is no object."""
        self._synced_folders.clear()  # someone may have removed a folder: the next call looks again
        failure = unavailable(operation, path, self.url, error)
        failure.nothing_written = nothing_written
        return failure

    def _link_unnamed(self, folder: int, name: str, data: bytes) -> bool | None:
        """Write a file without a name, sync it and name it; `False` if the name is taken.

        `None`: the file system cannot do that, and nothing has happened.
        """
        if not self._makes_unnamed:
            return None
        descriptor = -1
        try:
            descriptor = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666, dir_fd=folder)
            write_synced(descriptor, data)
            return _link(f"/proc/self/fd/{descriptor}", name, folder)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
            self._makes_unnamed = False
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _write_temporary(self, folder: Path, data: bytes | Iterable[bytes | memoryview]) -> Path:
        """A new file in `folder` with `data`, synced; on any failure it is removed again."""
        self._check_root()
        self._make_folder(folder)
        temporary = folder / (TEMPORARY + self._system.random_bytes(12).hex())
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            try:
                write_synced(descriptor, data)
            finally:
                os.close(descriptor)
        except BaseException:
            temporary.unlink()
            raise
        return temporary

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, each synced into its own parent before it is relied on.

        A folder inside the bucket that is there already is synced once too: the process that created it may have died
        before doing so.
        """
        if folder in self._synced_folders:
            return
        if folder in self._seen and not folder.is_dir():
            raise self._gone(folder)
        if folder != self._root:
            self._make_folder(folder.parent)
            make_and_sync(folder)
        else:
            absent = []
            while not folder.is_dir():
                absent.append(folder)
                folder = folder.parent
            for folder in reversed(absent):
                make_and_sync(folder)
            self._identity = self._identity or identity_of(self._root)
        self._synced_folders.add(folder)
        self._seen.add(folder)

    def _check_root(self) -> None:
        """Raise if the folder is no longer the one that was opened: a commit into another one is lost."""
        if self._identity is not None and identity_of(self._root) != self._identity:
            raise self._gone(self._root)

    def _gone(self, folder: Path) -> ObjectStoreUnavailable:
        failure = ObjectStoreUnavailable(
            f"the folder {folder} is no longer the one that was opened: it was removed or moved, or its disk is away; "
            f"nothing was written to {self.url}: put it back and repeat the call, or open the store anew"
        )
        failure.nothing_written = True
        return failure

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Objects below `folder` (empty, or ending in `/`), by path, without looking into folders ruled out."""
        for name in self._run("list", folder, sorted_names, self._root / folder, self._any_names):
            path = folder + name
            # The second half lets a folder on the way to the prefix be entered.
            if not (path.startswith(prefix) or prefix.startswith(path)):
                continue
            if name.endswith("/"):
                if path > after or after.startswith(path):
                    yield from self._walk(path, prefix, after)
            elif path > after and path.startswith(prefix):
                found = self._run("list", path, _stat_if_there, self._root / path)
                if found is not None:
                    yield ObjectInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def _leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        found = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                if _TEMPORARY_NAME.fullmatch(name):
                    file = Path(folder, name)
                    status = _stat_if_there(file)
                    if status is not None and status.st_mtime_ns // 1_000_000 < before_ms:
                        path = file.relative_to(self._root).as_posix()
                        found.append(ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000))
        return found

    def _run(self, operation: str, path: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do `work`, with the file system's errors turned into the store's: the one place where that happens."""
        try:
            return work(*args, **kwargs)
        except ObjectStoreUnavailable:
            raise  # told by the work itself
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            if operation in ("get", "get_range"):
                away = "" if self._root.is_dir() else ", where no store is: not even the folder is (is its disk there?)"
                raise ObjectNotFound(f"there is no object {path} in {self.url}{away}") from error
            self._synced_folders.clear()  # someone removed a folder: the next call looks again
            raise unavailable(operation, path, self.url, error) from error
        except OSError as error:
            raise unavailable(operation, path, self.url, error) from error


def unavailable(operation: str, path: str, url: str, error: OSError) -> ObjectStoreUnavailable:
    """What a file system's error means to the store at `url`, with what to do; `path` is empty for the folder."""
    advice = _ADVICE.get(error.errno or 0, "check the folder and repeat the call")
    what = f"{operation} of {path}" if path else operation
    return ObjectStoreUnavailable(f"{what} in {url} failed: {advice} ({error.strerror or error})")


def _link(source: str | Path, target: str | Path, folder: int | None = None) -> bool:
    """Give a file a name, in `folder` if that is given; `False` if the name is taken."""
    try:
        # With a folder Python follows the link that an entry in /proc is.
        os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    return True


def _read(file: str, start: int, length: int | None, bytes_max: int | None = None) -> bytes:
    # A pipe, which nobody may write to, is not waited for.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is no file", file)
        check_size(file, found.st_size, bytes_max)
        # `pread` reserves as much as it is asked for, so an absurd length is cut to what is there.
        size = found.st_size
        end = size if length is None else min(start + length, size)
        parts = []
        while start < end:
            part = os.pread(descriptor, min(end - start, _BYTES_PER_CALL), start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)


def _stat_if_there(file: Path) -> os.stat_result | None:
    """Of a file; `None` for what is none, such as a pipe, or a link that leads nowhere."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    return found if stat.S_ISREG(found.st_mode) else None


def _unlink_if_there(file: Path) -> None:
    try:
        file.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
