"""Killed drivers, workers, executors and meta services leave each micro-batch in the store exactly once.

One program runs the sink, `write_epoch` with `upsert`, `stateful`, and an application with a transaction after it as
four streams, so each kill hits all of them.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer, free_port
from support.chaos.processes import COMMAND, Actor, Stage, problems_in_bucket
from support.depth import DEPTH
from support.spark.truth import POINTS, check_exact, create_tables
from support.spark.victim import CLUSTER, LOCAL, STREAMS, Victim
from support.times import note
from tussock.statestore import connect

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000 * DEPTH)]

REST_SECONDS = (0.0, 1.0)


@dataclass(frozen=True)
class Life:
    """One run of the driver: where its tasks run, what is killed meanwhile, and how it ends."""

    master: str
    kills: tuple[str, ...]
    end: str


# "driver" is killed with all its processes at a random moment, or, as "commit", right after a commit to the store that
# Spark has not noted yet; "python" is any Python worker, also those that plan and commit.
KILLS = {LOCAL: ("python", "python"), CLUSTER: ("executor", "python", "executor")}
"""A driver takes long to start, so each sees several kills."""
ENDS = ("commit", "driver")
META_KILLS_PER_LIFE = 2


class Replicas:
    """Two processes of the meta service on one bucket, and a compactor, so that writes are not held back."""

    def __init__(self, stage: Stage, store_url: str) -> None:
        self._stage = stage
        self._replicas = [self._start(store_url, free_port()) for _ in range(2)]
        for replica in self._replicas:
            replica.wait_until_begun()
        addresses = [replica.name.removeprefix("meta ") for replica in self._replicas]
        self.url = f"tussock://{','.join(addresses)}"
        stage.add("compactor", *COMMAND, "compactor", "--meta", ",".join(addresses), begun='"event": "compacting"')

    def _start(self, store_url: str, port: int) -> Actor:
        name = f"127.0.0.1:{port}"
        command = [*COMMAND, "meta", "serve", "--store", store_url, "--listen", name, "--http-listen", ""]
        return self._stage.add(f"meta {name}", *command, begun='"event": "serving"')

    def kill_one(self) -> None:
        """`kill -9` of either, leader or not, and another process in its place."""
        replica = self._stage.chance.choice(self._replicas)
        self._stage.say(f"kill -9 {replica.name}")
        replica.kill()
        replica.start()


@dataclass(frozen=True)
class Run:
    """A store, the program that streams into it, and what of the platform can be killed."""

    stage: Stage
    url: str
    victim: Victim
    kill_meta: Callable[[], None] | None

    def live(self, lives: list[Life]) -> Counter[str]:
        """Kill as the lives say, in random order, and compare after each; returns the number of kills of each kind."""
        killed: Counter[str] = Counter()
        for life in lives:
            kills = list(life.kills)
            self.stage.chance.shuffle(kills)
            meta = self.stage.chance.sample(range(len(kills) + 1), META_KILLS_PER_LIFE) if self.kill_meta else []
            self.victim.start(life.master)
            for at, kind in enumerate([*kills, life.end]):
                self._rest()
                if at in meta:
                    # The next kill comes while the service is away, or elects a leader.
                    self.kill_meta()
                    killed["meta"] += 1
                    self._rest()
                self._kill(kind)
                killed[kind] += 1
            self.check()
        self.victim.start(LOCAL)
        self.victim.stop()
        self.check()
        return killed

    def _rest(self) -> None:
        time.sleep(self.stage.chance.uniform(*REST_SECONDS))

    def _kill(self, kind: str) -> None:
        if kind == "driver":
            self.victim.kill_all()
        elif kind == "commit":
            self.victim.kill_after_commit(self.stage.chance.choice(POINTS))
        else:
            self.victim.kill_one(kind)
            # Tasks run again, or a query fails and is started again.
            self.victim.wait_for_batches()

    def check(self) -> None:
        """Assert that every table holds exactly the store's batches, and that Spark has noted the same ones."""
        noted = self.victim.noted_batches()
        with connect(self.url, compaction=False) as store:
            batches = check_exact(store)
        self.stage.say(f"exact: {batches}")
        # Of each stream Spark has noted all batches in the store, or all but the newest.
        assert all(batches[writer] - noted[STREAMS[writer]] in (1, 2) for writer in POINTS)


def run(folder: Path, seed: int, lives: list[Life], store_url: str, *, meta: bool = False) -> Counter[str]:
    """Kill the program, and maybe the service, while it streams into the store; returns the kills of each kind."""
    began = time.monotonic()
    with Stage(folder, seed) as stage:
        replicas = Replicas(stage, store_url) if meta else None
        url = store_url if replicas is None else replicas.url
        with connect(url, compaction=False) as store:
            create_tables(store)
        victim = Victim(stage, url, folder)
        try:
            killed = Run(stage, url, victim, None if replicas is None else replicas.kill_one).live(lives)
        finally:
            victim.end()
        failures = victim.failures()
        stage.say(f"seed {stage.seed}: {killed.total()} kills, {dict(killed)}; {len(failures)} queries ended by it")
    assert problems_in_bucket(store_url) == []
    note(f"{killed.total()} kills of a stream into {url.partition(':')[0]}://", time.monotonic() - began)
    return killed


def lives_in(master: str, end: str) -> list[Life]:
    """One that ends like this; with more depth one of each kind."""
    kinds = [(master, end)] if DEPTH == 1 else itertools.product(KILLS, ENDS)
    return [Life(where, KILLS[where] * DEPTH, how) for where, how in kinds]


def kills_of(lives: list[Life]) -> int:
    """How many kills they hold, their ends included."""
    return sum(len(life.kills) + 1 for life in lives)


# Streams whose processes commit by themselves are also killed by the tests of changes, right after a commit.
@pytest.mark.long
@pytest.mark.minio
@pytest.mark.skipif(DEPTH == 1, reason="three minutes of kills like those with a platform: set TUSSOCK_DEPTH=2")
@pytest.mark.parametrize("place", ["s3", "file"])
def test_kills_at_random_points_lose_and_repeat_nothing(minio: MinioServer, tmp_path: Path, place: str) -> None:
    """Drivers and Python workers, where each process commits by itself, on MinIO."""
    lives = lives_in(LOCAL, "commit")
    store_url = minio.fresh_url() if place == "s3" else (tmp_path / "store").as_uri()
    assert run(tmp_path, 20130701, lives, store_url).total() == kills_of(lives)


@pytest.mark.long
@pytest.mark.minio
def test_kills_at_random_points_with_a_platform(minio: MinioServer, tmp_path: Path) -> None:
    """Executors, too, through a meta service, whose replicas are killed shortly before other processes."""
    lives = lives_in(CLUSTER, "driver")
    killed = run(tmp_path, 20130702, lives, minio.fresh_url(), meta=True)
    assert killed.total() == kills_of(lives) + killed["meta"]
    assert killed["meta"] == META_KILLS_PER_LIFE * len(lives)
