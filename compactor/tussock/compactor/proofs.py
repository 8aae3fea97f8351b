"""Proof that the SSTs which a commit names were uploaded to this store, for the table that the commit says."""

from tussock.meta.version.version import Version
from tussock.statestore.base.pools import StorePool
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptSst, InvalidBatch, ObjectNotFound
from tussock.statestore.sst.proof import prove_meta

__all__ = ["UploadProver"]

_PROOFS_AT_ONCE = 16
"""Metas of uploads that one commit reads at once: a commit of Spark has some for each task and table."""


class UploadProver:
    """Reads the metas of uploads, several at once."""

    def __init__(self, bucket: ObjectStore, system: System) -> None:
        closed = "the store was closed by another thread before it committed; nothing was committed"
        self._bucket = bucket
        self._pool = StorePool(system, "tussock-prove", _PROOFS_AT_ONCE, closed)

    def check(self, version: Version, request: CommitRequest) -> None:
        """Raise `InvalidBatch` unless all SSTs of the commit are there, and of their tables; one request for each."""
        uploads = [
            (version.tables[table], sst)
            for table, runs in request.tables.items()
            if table in version.tables  # else the stamp refuses it, with the better error
            for run in runs
            for sst in run.ssts
            if sst.id >= version.gc_horizon  # likewise
            and sst.id not in request.payloads  # this process has made it, and brings it along
        ]
        proofs = [self._pool.submit(prove_meta, self._bucket, sst, state.spec) for state, sst in uploads]
        try:
            for (state, sst), proof in zip(uploads, proofs, strict=True):
                try:
                    proof.result()
                except (CorruptSst, ObjectNotFound) as error:
                    raise InvalidBatch(
                        f"epoch {request.epoch} names an SST for table {state.spec.name!r} that cannot be committed: "
                        f"{error}; nothing was committed: name what that table's upload() returned, in this store",
                        sst.id,
                    ) from error
        finally:
            for proof in proofs:
                proof.give_up()

    def close(self) -> None:
        """Stop its threads."""
        self._pool.close()
