"""Uploads SSTs: the objects of each in parallel, the next SST being encoded meanwhile.

Used by commits, spills, compaction and Spark's tasks. What was uploaded is invisible until a version names it; what
never gets named is deleted by vacuum.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tussock.statestore.base.pools import Pending, StorePool
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.sst.writer import EncodedSst
from tussock.statestore.write.sst_ids import new_sst_id

__all__ = ["Payloads", "Uploader"]

_IN_FLIGHT = 2
"""SSTs that are being uploaded while the next one is encoded: bounds memory to three SSTs."""


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
        flying: list[tuple[SstInfo, list[Pending[None]]]] = []
        try:
            for sst in ssts:
                if len(flying) == _IN_FLIGHT:
                    done.append(self._await_puts(*flying[0], waited))
                    del flying[0]
                started = self._start(sst, payloads)
                flying.append(started)
            done.extend(self._await_puts(*one, waited) for one in flying)
        finally:
            # After a failure: nothing may still be running when the caller repeats or gives up.
            for _, puts in flying:
                for put in puts:
                    put.end()
        return tuple(done)

    def _start(self, sst: EncodedSst, payloads: Payloads | None) -> tuple[SstInfo, list[Pending[None]]]:
        sst_id = new_sst_id(self._system, self._horizon())
        info, objects = sst.objects(sst_id)
        if payloads is not None and payloads.take(info, objects):
            return info, []
        return info, [self._pool.submit(self._bucket.put, path, parts) for path, parts in objects.items()]

    def _await_puts(
        self, info: SstInfo, puts: list[Pending[None]], waited: Callable[[float], object] | None
    ) -> SstInfo:
        began = self._system.monotonic()
        for put in puts:
            put.result()
        if waited is not None:
            waited(self._system.monotonic() - began)
        return info

    def close(self) -> None:
        """Stop the upload threads."""
        self._pool.close()
