"""A platform of real processes: each role in turn is killed and stopped while writers commit and a reader reads."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.chaos.child import FENCED, TABLE
from support.chaos.platform import KilledPlatform
from support.chaos.processes import Actor, Stage, problems_in_bucket
from support.chaos.verdict import is_telling, judge, longest_pause
from support.depth import DEPTH
from tussock.statestore import StateStore, connect

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.long]

SECONDS = 8.0 * DEPTH
REST = (0.3, 1.2)


class PlatformStage:
    """A platform, two writers and a reader, on one bucket."""

    def __init__(self, stage: Stage, minio: MinioServer) -> None:
        self.stage = stage
        self.minio = minio
        self.service = KilledPlatform(stage, minio.fresh_url())
        with self.connect() as store:
            store.create_table(TABLE)
        self.writers = [stage.client("write", self.service.url, f"writer-{number}") for number in range(2)]
        self.reader = stage.client("read", self.service.url, "reader-0")
        for actor in (*self.writers, self.reader):
            actor.wait_until_begun()

    def connect(self) -> StateStore:
        return connect(self.service.url, retention=3600, gc_grace=8, deadline=30.0)

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
        service = self.service
        return {
            "leader": [
                lambda: service.kill(service.leader, "leader"),
                lambda: self.stage.pause(service.leader, 0.5, 6.0, "leader"),
                lambda: self.terminate(service.leader, "leader"),
            ],
            "follower": [
                lambda: service.kill(service.follower, "follower"),
                lambda: self.stage.pause(service.follower, 0.5, 4.0, "follower"),
            ],
            "compactor": [
                lambda: service.kill(service.compactor),
                lambda: self.stage.pause(service.compactor, 0.5, 4.0),
                lambda: self.terminate(service.compactor),
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
        platform.service.stop()
        assert problems_in_bucket(platform.service.store_url) == []
