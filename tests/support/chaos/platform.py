"""A platform of processes that are killed: two replicas of the meta service and a compactor, on a bucket of MinIO."""

import time

from support.buckets.minio import free_port
from support.chaos.processes import COMMAND, Actor, Stage
from tussock.meta.log.format import sequence_of
from tussock.meta.log.leases import decode_lease
from tussock.statestore.buckets import open_bucket

__all__ = ["KilledPlatform"]

ELECTION_SECONDS_MAX = 120
BACK_SECONDS = (0.1, 2.0)
"""After which another process takes the place of one that was killed."""


class KilledPlatform:
    """The processes of the service, and their roles at present."""

    def __init__(self, stage: Stage, store_url: str) -> None:
        """The store's options are those of its first client."""
        self._stage = stage
        self.store_url = store_url
        self._bucket = open_bucket(store_url)
        self.replicas = {port: self._replica(port) for port in (free_port(), free_port())}
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.replicas)
        self.url = f"tussock://{addresses}"
        self.compactor = stage.add(
            "compactor", *COMMAND, "compactor", "--meta", addresses, begun='"event": "compacting"'
        )

    def _replica(self, port: int) -> Actor:
        settings = {
            "store": self.store_url,
            "listen": f"127.0.0.1:{port}",
            "http-listen": "",
            "session.lease-seconds": "6",
            "vacuum.interval-seconds": "4",
            "compaction.l0-merge-min": "4",
        }
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return self._stage.add(f"meta-{port}", *COMMAND, "meta", "serve", *flags, begun='"event": "serving"')

    @property
    def leader(self) -> Actor:
        """The process that holds the newest lease in the bucket; waits while no lease is valid."""
        deadline = time.monotonic() + ELECTION_SECONDS_MAX
        while True:
            # Beside the leases there are the marks of standbys.
            terms = {sequence_of(info.path): info.path for info in self._bucket.list("leader/")}
            term = max(term for term in terms if term is not None)
            newest = terms[term]
            lease = decode_lease(newest, term, self._bucket.get(newest))
            actor = self.replicas[int(lease.address.rpartition(":")[2])]
            if f":{actor.pid}:" in lease.holder and not lease.resigned:
                return actor
            assert time.monotonic() < deadline, f"no new leader after {ELECTION_SECONDS_MAX} s: {lease}"
            time.sleep(0.05)

    @property
    def follower(self) -> Actor:
        """The replica that does not lead."""
        leader = self.leader
        return next(replica for replica in self.replicas.values() if replica is not leader)

    def kill(self, actor: Actor, role: str = "") -> None:
        """Send `kill -9`, and start another process in its place after a while."""
        self._stage.say(f"kill -9 {f'{role} {actor.name}'.strip()}")
        actor.kill()
        time.sleep(self._stage.chance.uniform(*BACK_SECONDS))
        actor.start()

    def stop(self) -> None:
        """End all in order."""
        assert self.compactor.stop() == 0
        for replica in self.replicas.values():
            assert replica.stop() == 0
