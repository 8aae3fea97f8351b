"""`StoreParts`: what an open store is put together from; the client, its tables, snapshots and checkpoints share it."""

from tussock.statestore.base.process.lifetime import Lifetime
from tussock.statestore.base.system import System
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.contract.backend import Backend
from tussock.statestore.contract.known_tables import KnownTables
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import InvalidOption
from tussock.statestore.read.views import Views
from tussock.statestore.settings import StoreSettings
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.uploader import Uploader
from tussock.statestore.write.writes import Writes

__all__ = ["StoreParts"]


class StoreParts:
    """The parts of one open store; what each does is with it."""

    def __init__(
        self,
        settings: StoreSettings,
        system: System,
        bucket: ObjectStore,
        requests: RequestCounts,
        backend: Backend,
    ) -> None:
        self.settings = settings
        self.system = system
        self.bucket = bucket
        self.requests = requests
        self.sstables = Sstables(
            requests.for_purpose("read"), settings.cache_bytes, system, requests.opener("read"), settings.limits
        )
        self.backend = backend
        self.known = KnownTables()
        self.lifetime = Lifetime(settings.url)
        uploader = Uploader(requests.for_purpose("flush"), system, backend.upload_horizon)
        self.writes = Writes(self.lifetime, settings, system, backend, self.sstables, uploader)
        self.views = Views(self.lifetime, settings.url, system, backend, self.writes.buffer)

    def __reduce__(self) -> str:
        raise InvalidOption(
            f"the store at {self.settings.url} cannot be pickled or copied, nor can its tables and snapshots: they "
            "belong to this process; pass the URL on and connect there"
        )

    def close(self) -> None:
        """Stop all background work; rows that were not committed are gone."""
        if not self.lifetime.closed:
            self.lifetime.closed = True
            self.backend.close()
            self.writes.uploader.close()
            self.sstables.close()
            self.bucket.close()
