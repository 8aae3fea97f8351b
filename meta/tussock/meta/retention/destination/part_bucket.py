"""The folder of one part as a bucket, so that SSTs in it are read and written as those of a store are."""

from collections.abc import Iterable, Iterator, Sequence

from tussock.meta.retention.destination.records import part_folder
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore

__all__ = ["PartBucket"]


class PartBucket:
    """An `ObjectStore` in the folder of a part."""

    def __init__(self, bucket: ObjectStore, part: int) -> None:
        self._bucket = bucket
        self._folder = part_folder(part)

    @property
    def url(self) -> str:
        """Where the folder is."""
        return f"{self._bucket.url.rstrip('/')}/{self._folder.rstrip('/')}"

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """As `ObjectStore.put`."""
        self._bucket.put(self._folder + path, data)

    def create(self, path: str, data: bytes) -> bool:
        """As `ObjectStore.create`."""
        return self._bucket.create(self._folder + path, data)

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        """As `ObjectStore.get`."""
        return self._bucket.get(self._folder + path, bytes_max)

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        """As `ObjectStore.get_range`."""
        return self._bucket.get_range(self._folder + path, start, length)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`, with paths in the folder."""
        found = self._bucket.list(self._folder + prefix, self._folder + after if after else "")
        return (info._replace(path=info.path.removeprefix(self._folder)) for info in found)

    def delete(self, paths: Sequence[str]) -> None:
        """As `ObjectStore.delete`."""
        self._bucket.delete([self._folder + path for path in paths])

    def leftovers(self, before_ms: int) -> Sequence[ObjectInfo]:
        """As `ObjectStore.leftovers`: those of the whole bucket."""
        return self._bucket.leftovers(before_ms)

    def close(self) -> None:
        """Does nothing: the bucket stays open for other parts."""
