"""Uploads SSTs: the objects of each in parallel, the next SST being encoded meanwhile, or the same one.

Used by commits, spills, compaction and Spark's tasks. What was uploaded is invisible until a version names it; what
never gets named is deleted by vacuum.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tussock.statestore.base.pools import Pending, StorePool
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, data_path
from tussock.statestore.sst.encoded_sst import EncodedSst, GrowingBytes
from tussock.statestore.write.sst_ids import new_sst_id

__all__ = ["Payloads", "Uploader"]

_IN_FLIGHT = 2
"""SSTs that are being uploaded while the next one is encoded: bounds memory to three SSTs.

SSTs that still grow count as well, but are not waited for, as it is their maker that would wait here.
"""


class Payloads:
    """Small SSTs of one commit that go along with it, and lie in its log entry, instead of becoming objects.

    Processes that read on in the log read them, too, so they are bounded: what has no room becomes an object.
    """

    def __init__(self, by_id: dict[str, bytes], sst_bytes_max: int, bytes_max: int) -> None:
        """`by_id` has those of an earlier call. `sst_bytes_max` is of one SST, `bytes_max` of all of them together."""
        self._by_id = by_id
        self._sst_bytes_max = sst_bytes_max
        self._room = bytes_max - sum(map(len, by_id.values()))

    def take(self, info: SstInfo, objects: Mapping[str, Sequence[bytes]]) -> bool:
        """Take the SST along if it is one object, small, and there is room for it."""
        size = info.data_bytes + info.meta_bytes
        if not info.meta_in_data or size > min(self._sst_bytes_max, self._room):
            return False
        self._by_id[info.id] = b"".join(part for parts in objects.values() for part in parts)
        self._room -= size
        return True


class _Upload:
    """An SST on its way."""

    def __init__(self, sst: EncodedSst, sst_id: str) -> None:
        self.sst = sst
        self.id = sst_id
        self.info: SstInfo | Pending[SstInfo] | None = None
        """There once all its objects are on their way."""
        self.puts: list[Pending[None]] = []


class Uploader:
    """Puts SSTs into a bucket; safe to use from several threads."""

    def __init__(self, bucket: ObjectStore, system: System, horizon: Callable[[], str] = lambda: "") -> None:
        """`horizon` returns the newest garbage horizon known: ids are minted above it, whatever the clock says."""
        self._bucket = bucket
        self._system = system
        self._horizon = horizon
        closed = "the store was closed while it uploaded, or the interpreter ends; nothing of this was committed"
        self._pool = StorePool(system, "tussock-upload", 2 * _IN_FLIGHT, closed)

    def upload(
        self,
        ssts: Iterable[EncodedSst],
        payloads: Payloads | None = None,
        waited: Callable[[float], object] | None = None,
    ) -> tuple[SstInfo, ...]:
        """Upload all of a sorted run, in order; when this returns, every object is durable.

        Those that `payloads` takes are not.
        `waited` is told each time that the caller had to wait for the bucket, in seconds.
        """
        done: list[SstInfo] = []
        flying: list[_Upload] = []
        try:
            for sst in ssts:
                self._put_whole(flying, payloads)
                if len(flying) >= _IN_FLIGHT and flying[0].info is not None:
                    done.append(self._await(flying[0], flying[0].info, waited))
                    del flying[0]
                flying.append(self._begin(sst))
                self._put_whole(flying, payloads)
            self._put_whole(flying, payloads)
            done.extend(self._await(one, one.info, waited) for one in flying if one.info is not None)
        finally:
            # After a failure: nothing may still be running when the caller repeats or gives up.
            for one in flying:
                if one.sst.growing is not None:
                    one.sst.growing.give_up()
                for put in one.puts:
                    put.end()
                if isinstance(one.info, Pending):
                    one.info.end()
        return tuple(done)

    def grow(self) -> GrowingBytes:
        """What takes the data of an SST that is uploaded while it is made."""
        return GrowingBytes(self._system)

    def _begin(self, sst: EncodedSst) -> _Upload:
        upload = _Upload(sst, new_sst_id(self._system, self._horizon()))
        if sst.growing is not None:
            upload.puts.append(self._pool.submit(self._put_growing, data_path(upload.id), sst.growing))
        return upload

    def _put_growing(self, path: str, growing: GrowingBytes) -> None:
        try:
            self._bucket.put(path, growing)
        finally:
            growing.give_up()

    def _put_whole(self, flying: Sequence[_Upload], payloads: Payloads | None) -> None:
        """Put the objects of SSTs that are not on their way yet, and whole."""
        for upload in flying:
            if upload.info is not None or not upload.sst.is_whole:
                continue
            if upload.sst.growing is not None:
                # The next SST is made while the filter of this one is.
                upload.info = self._pool.submit(self._put_meta, upload)
                continue
            info, objects = upload.sst.objects(upload.id)
            if payloads is None or not payloads.take(info, objects):
                upload.puts = [self._pool.submit(self._bucket.put, path, parts) for path, parts in objects.items()]
            upload.info = info

    def _put_meta(self, upload: _Upload) -> SstInfo:
        info, objects = upload.sst.objects(upload.id)
        for path, parts in objects.items():
            self._bucket.put(path, parts)
        return info

    def _await(
        self, upload: _Upload, info: SstInfo | Pending[SstInfo], waited: Callable[[float], object] | None
    ) -> SstInfo:
        began = self._system.monotonic()
        for put in upload.puts:
            put.result()
        found = info.result() if isinstance(info, Pending) else info
        if waited is not None:
            waited(self._system.monotonic() - began)
        return found

    def close(self) -> None:
        """Stop the upload threads."""
        self._pool.close()
