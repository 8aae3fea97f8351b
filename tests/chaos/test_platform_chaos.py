"""A platform of real processes: each role in turn is killed and stopped while writers commit and a reader reads."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer, free_port
from support.chaos.child import FENCED, TABLE
from support.chaos.processes import COMMAND, Actor, Stage, problems_in_bucket
from support.chaos.verdict import is_telling, judge, longest_pause
from tussock.meta.log.format import decode_lease, sequence_of
from tussock.statestore import StateStore, connect
from tussock.statestore.buckets import open_bucket

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.long]

SECONDS = 12.0
REST = (0.3, 1.2)
ELECTION_SECONDS_MAX = 120


class PlatformStage:
    """Two replicas of the meta service, a compactor, two writers and a reader, on one bucket."""

    def __init__(self, stage: Stage, minio: MinioServer) -> None:
        self.stage = stage
        self.minio = minio
        self.store_url = minio.fresh_url()
        self._bucket = open_bucket(self.store_url)
        self.replicas = {port: self._replica(port) for port in (free_port(), free_port())}
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.replicas)
        self.url = f"tussock://{addresses}"
        with self.connect() as store:
            store.create_table(TABLE)
        self.compactor = stage.add(
            "compactor", *COMMAND, "compactor", "--meta", addresses, begun='"event": "compacting"'
        )
        self.writers = [stage.client("write", self.url, f"writer-{number}") for number in range(2)]
        self.reader = stage.client("read", self.url, "reader-0")
        for actor in (*self.writers, self.reader):
            actor.wait_until_begun()

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
        return self.stage.add(f"meta-{port}", *COMMAND, "meta", "serve", *flags, begun='"event": "serving"')

    def connect(self) -> StateStore:
        return connect(self.url, retention=3600, gc_grace=8, deadline=30.0)

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
        self.stage.say(f"kill -9 {f'{role} {actor.name}'.strip()}")
        actor.kill()
        time.sleep(self.stage.chance.uniform(0.1, 2.0))
        actor.start()

    def terminate(self, actor: Actor, role: str = "") -> None:
        """Send SIGTERM, and start another process in its place."""
        self.stage.say(f"SIGTERM {f'{role} {actor.name}'.strip()}")
        assert actor.stop() == 0
        actor.start()

    def pause_bucket(self) -> None:
        """Stop MinIO for a while: all requests hang."""
        seconds = self.stage.chance.uniform(0.5, 4.0)
        self.stage.say(f"SIGSTOP MinIO for {seconds:.2f} s")
        self.minio.pause()
        try:
            time.sleep(seconds)
        finally:
            self.minio.resume()

    def writer(self) -> Actor:
        return self.stage.chance.choice(self.writers)

    def actions(self, role: str) -> list[Callable[[], None]]:
        """What is done to a role. A leader that stands still for longer than its lease is replaced meanwhile."""
        return {
            "leader": [
                lambda: self.kill(self.leader, "leader"),
                lambda: self.stage.pause(self.leader, 0.5, 6.0, "leader"),
                lambda: self.terminate(self.leader, "leader"),
            ],
            "follower": [
                lambda: self.kill(self.follower, "follower"),
                lambda: self.stage.pause(self.follower, 0.5, 4.0, "follower"),
            ],
            "compactor": [
                lambda: self.kill(self.compactor),
                lambda: self.stage.pause(self.compactor, 0.5, 4.0),
                lambda: self.terminate(self.compactor),
            ],
            "writer": [
                lambda: self.stage.kill_client(self.writer()),
                lambda: self.stage.replace_client(self.writer()),
                lambda: self.stage.pause(self.writer(), 0.5, 4.0),
            ],
            "reader": [
                lambda: self.stage.kill_client(self.reader),
                lambda: self.stage.pause(self.reader, 0.5, 4.0),
            ],
            "bucket": [self.pause_bucket],
        }[role]

    def everything(self) -> list[Callable[[], None]]:
        """Each action of each role."""
        return [action for role in ROLES for action in self.actions(role)]


ROLES = ("leader", "follower", "compactor", "writer", "reader", "bucket")


@pytest.mark.parametrize(("role", "seed"), [(role, seed) for seed, role in enumerate(ROLES, start=1)])
def test_nothing_is_lost_when_a_role_dies(minio: MinioServer, tmp_path: Path, role: str, seed: int) -> None:
    """Acknowledged commits are there, whole and once; the history is linearizable, and the bucket is sound."""
    run(minio, tmp_path, seed, lambda platform: platform.actions(role), SECONDS)


def test_nothing_is_lost_when_everything_dies(minio: MinioServer, tmp_path: Path) -> None:
    """Each role is disturbed in each way, one soon after the other."""
    run(minio, tmp_path, 7, PlatformStage.everything, 2 * SECONDS)


def run(
    minio: MinioServer,
    folder: Path,
    seed: int,
    actions: Callable[[PlatformStage], list[Callable[[], None]]],
    seconds: float,
) -> None:
    """Start a platform, disturb it for `seconds`, and judge what its clients saw."""
    with Stage(folder, seed) as stage:
        platform = PlatformStage(stage, minio)
        stage.disturb(seconds, actions(platform), rest=REST)
        stage.let_work(is_telling)
        clients = (*platform.writers, platform.reader)
        assert [actor.stop() for actor in clients] == [0] * len(clients)
        for writer in platform.writers:
            assert set(writer.elder_codes()) <= {FENCED}, "a writer that was replaced stops"
        lines = stage.histories()
        with platform.connect() as store:
            verdict = judge(lines, store)
            store.compact(TABLE)
            assert judge(lines, store) == verdict, "the compactor that is left does its work, and changes no answer"
            state = store.version().find_table(TABLE)
        stage.say(f"{verdict}; the longest pause between two answers to commits was {longest_pause(lines):.2f} s")
        assert verdict.commits > 20
        assert verdict.snapshots > 10
        assert state is not None
        assert all(sst.epoch == 0 for sst in state.levels.ssts()), "all rows have gone through a compaction"
        assert platform.compactor.stop() == 0
        for replica in platform.replicas.values():
            assert replica.stop() == 0
        assert problems_in_bucket(platform.store_url) == []
