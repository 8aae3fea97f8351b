"""A tar archive of bounded size that appears whole or not at all, and replaces nothing."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tussock.operator.plugin.kubectl import KubectlFailed

__all__ = ["Archive", "ReportBounds", "new_archive"]


class ReportBounds(NamedTuple):
    """How large a report may be."""

    bytes_max: int = 64 << 20
    """Of all files together, before they are compressed."""
    file_bytes_max: int = 4 << 20
    """Of one file; what is longer is cut."""
    files_max: int = 5_000


BOUNDS = ReportBounds()


class Archive:
    """Takes files while they fit, and notes what does not."""

    def __init__(self, tar: tarfile.TarFile, folder: str, now_ms: int, bounds: ReportBounds) -> None:
        self._tar = tar
        self._bounds = bounds
        self._folder = folder
        self._seconds = now_ms // 1000
        self._bytes = self._files = 0
        self.left_out: list[str] = []

    def add(self, path: str, text: str) -> None:
        """Add a file; if it is too long only its end, and nothing of it once the archive is full."""
        data, bounds = text.encode(errors="replace"), self._bounds
        if len(data) > bounds.file_bytes_max:
            self.left_out.append(f"{path}: all but the last {bounds.file_bytes_max} of {len(data)} bytes")
            data = data[-bounds.file_bytes_max :]
        if self._bytes + len(data) > bounds.bytes_max or self._files >= bounds.files_max:
            self.left_out.append(f"{path}: the report is full")
            return
        self._write(path, data)

    def close_with(self, path: str, text: str) -> None:
        """Add the last file, which there is always room for."""
        self._write(path, text.encode(errors="replace"))

    def _write(self, path: str, data: bytes) -> None:
        self._bytes += len(data)
        self._files += 1
        about = tarfile.TarInfo(f"{self._folder}/{path}")
        about.size, about.mtime, about.mode = len(data), self._seconds, 0o600
        self._tar.addfile(about, io.BytesIO(data))


@contextmanager
def new_archive(path: Path, folder: str, now_ms: int, bounds: ReportBounds = BOUNDS) -> Iterator[Archive]:
    """An archive at `path`, which only its owner may read, of files in one folder.

    `KubectlFailed` if there is something at the path already. If the context fails, nothing is there.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    if os.path.lexists(path):
        raise KubectlFailed(f"{path} exists, and is not overwritten; name another file with --output")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            with (
                gzip.GzipFile("", "wb", fileobj=file, mtime=now_ms // 1000) as compressed,
                tarfile.open(fileobj=compressed, mode="w|") as tar,
            ):
                yield Archive(tar, folder, now_ms, bounds)
            os.fsync(file.fileno())
        # Unlike a rename, a link fails if somebody else has made the file meanwhile.
        try:
            os.link(partial, path)
        except FileExistsError:
            raise KubectlFailed(f"{path} exists, and is not overwritten; name another file with --output") from None
    finally:
        partial.unlink(missing_ok=True)
