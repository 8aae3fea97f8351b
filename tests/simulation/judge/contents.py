"""The rows of an SST, read straight from the bucket's objects: no request, no fault, no cache of a node."""

from collections.abc import Iterator
from typing import Any

from support.store.stores import InlineExecutor
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.sst.reader import Sstables

__all__ = ["Row", "SstContents"]

Row = tuple[bytes, int, bytes | None]
"""Key, epoch, and the value or `None` for a delete."""


class _InlineSystem(RealSystem):
    def pool(self, name: str, workers: int) -> InlineExecutor:
        return InlineExecutor()


class _Objects:
    """The reading half of `ObjectStore` on a dictionary."""

    url = "sim://"

    def __init__(self, objects: dict[str, tuple[bytes, int]]) -> None:
        self._objects = objects

    def get(self, path: str, bytes_max: int | None = None) -> bytes:
        return self._objects[path][0]

    def get_range(self, path: str, start: int, length: int) -> memoryview:
        return memoryview(self._objects[path][0])[start : start + length]


class SstContents:
    """Decoded SSTs of raw tables; each is decoded once."""

    def __init__(self, objects: dict[str, tuple[bytes, int]]) -> None:
        bucket: Any = _Objects(objects)
        self._sstables = Sstables(bucket, 1 << 20, _InlineSystem())
        self._rows: dict[str, list[tuple[bytes, int | None, bytes | None]]] = {}
        self._untils: dict[str, list[int]] = {}

    def rows(self, sst: SstInfo) -> list[Row]:
        """All rows, by key, newest first within a key."""
        if sst.id not in self._rows:
            self._rows[sst.id] = list(self._decode(sst))
        return [(key, sst.epoch or epoch or 0, value) for key, epoch, value in self._rows[sst.id]]

    def _decode(self, sst: SstInfo) -> Iterator[tuple[bytes, int | None, bytes | None]]:
        meta = self._sstables.meta(sst)
        for first, last in zip(meta.segments, meta.segments[1:], strict=False):
            rows = self._sstables.read(sst, meta, first, last, fill=False)
            values = rows.columns[-1].to_pylist()
            for key, epoch, gone, value in zip(
                rows.keys.to_pylist(), rows.epoch_array().tolist(), rows.delete_array().tolist(), values, strict=True
            ):
                yield key, epoch, None if gone else value

    def untils(self, sst: SstInfo) -> list[int]:
        """Of an SST of history until when each row is for, in their order."""
        if sst.id not in self._untils:
            meta = self._sstables.meta(sst)
            self._untils[sst.id] = [
                until
                for first, last in zip(meta.segments, meta.segments[1:], strict=False)
                for until in self._sstables.read(sst, meta, first, last, fill=False).columns[0].to_pylist()
            ]
        return self._untils[sst.id]
