"""The status of a real store, from a simulated replica."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.log.format import decode_entry, entry_path
from tussock.meta.log.log import VersionLog
from tussock.meta.server.status.document import (
    CompactionStatus,
    PeerStatus,
    RatesStatus,
    ReplicaStatus,
    ServiceStatus,
    VersionStatus,
)
from tussock.meta.server.status.problems import with_problems
from tussock.meta.server.status.rates import Rates
from tussock.meta.server.status.version_parts import (
    LevelSums,
    loss_statuses,
    table_statuses,
    task_statuses,
    version_status,
)
from tussock.meta.version.version import Version
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

__all__ = ["StoreStatus", "bare_status"]

ADDRESS = "meta-0:7420"


def bare_status(**fields: Any) -> ServiceStatus:
    """The status of a healthy leader of an empty store, without a compactor; `fields` replace parts of it."""
    bare = ServiceStatus(
        now_ms=1_800_000_000_000,
        software="tussock 0.1.0",
        store_url="memory://bare",
        replica=ReplicaStatus(
            address=ADDRESS, role="leader", term=3, leader=ADDRESS, started_ms=1_799_999_000_000, ready=True
        ),
        replicas=(PeerStatus(address=ADDRESS, role="leader"),),
        version=version_status(Version(), 0),
        tables=(),
        rates=RatesStatus(end_ms=1_800_000_000_000, epochs=(0,) * 300, commits=(0,) * 300, bytes=(0,) * 300),
    )
    return replace(bare, **fields)


class StoreStatus:
    """Follows the log of the store at `url` as a replica does; tests change `fields` to set other parts."""

    def __init__(self, url: str) -> None:
        self._system = RealSystem()
        self._bucket = open_bucket(url)
        self._log = VersionLog(self._bucket, self._system, owner="status")
        self._sums = LevelSums()
        self._rates = Rates()
        self._log.subscribe(self._learn)
        self.config = PickerConfig()
        self.stalls: Mapping[int, str] = {}
        self.fields: dict[str, Any] = {}

    def __call__(self) -> ServiceStatus:
        """The status now, as a leading replica would return it."""
        version = self._log.refresh()
        now_ms = self._system.now_ms()
        status = bare_status(
            now_ms=now_ms,
            store_url=self._bucket.url,
            version=self.version(),
            tables=table_statuses(version, self.config, self.stalls, self._sums),
            losses=loss_statuses(version),
            rates=self._rates.status(self._system.monotonic(), now_ms),
            compaction=CompactionStatus(compactors=1, slots=2, tasks=task_statuses(version, {})),
        )
        return with_problems(replace(status, **self.fields))

    def version(self) -> VersionStatus:
        """The version's own facts."""
        return version_status(self._log.version, 0)

    def close(self) -> None:
        """Close the bucket."""
        self._bucket.close()

    def _learn(self, entry: bytes | None, version: Version) -> None:
        if entry is not None:
            decoded = decode_entry(entry_path(version.seq), version.seq, entry)
            self._rates.count(decoded.deltas, self._system.monotonic())
