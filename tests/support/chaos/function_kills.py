"""Everything beneath a program of functions is killed at random moments, and what has to be so then and at the end.

A seeded plan sends `kill -9` to a worker, the program, the leading replica of the meta service, the other one, MinIO
and the compactor. Now and then the next one follows before the last one was got over. Each time a new request has to be
answered, and a new epoch committed, before long.
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from functions.workload import Reply, Request, load, tables_of

from support.buckets.minio import MinioServer
from support.chaos.function_clients import (
    BEGUN,
    PASSING,
    PLAYED,
    PROGRAM,
    Requests,
    lines_of,
    replies_at,
    reply_of,
    send,
    workers_file,
)
from support.chaos.platform import KilledPlatform
from support.chaos.processes import Actor, Stage, problems_in_bucket
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

__all__ = ["kill_everything"]

CLIENTS = Path(__file__).with_name("function_clients.py")
KINDS = {"worker": 5, "program": 3, "meta leader": 3, "MinIO": 3, "compactor": 1, "meta standby": 1}
"""What is killed, and how often beside the others."""
ALWAYS = ("worker", "program", "meta leader", "MinIO")
"""What is killed in each run, however short."""
PROGRESS_SECONDS_MAX = 60
REST_SECONDS = (0.1, 1.0)
AT_ONCE, AT_ONCE_SECONDS = 0.25, (0.0, 1.0)
"""How often the next kill does not wait, and how long it takes to come then."""
AWAY_SECONDS = (0.0, 1.5)
"""How long what was killed stays away; the program comes again at once."""
REFUSED_AMONG = 1000
"""Requests of which one is refused by all chance: of TPC-C's one in two hundred is."""
STORE = {"retention": 5.0, "gc_grace": 8.0}
"""Short, so that epochs that are read would go if their pins did not hold them."""


class _Kill:
    """One of them."""

    def __init__(self, kind: str, *, is_alone: bool) -> None:
        """`is_alone`: what was killed before is got over; and nothing else is killed before this one is."""
        self.kind = kind
        self.is_alone = is_alone
        self.at = time.monotonic_ns()
        self.at_ms = time.time_ns() // 1_000_000
        self.reply_seconds: float | None = None
        """Until the first reply to a request that was sent after it."""
        self.commit_seconds: float | None = None
        """Until the first commit of an epoch that is younger."""

    def until(self, times: Iterable[int]) -> float | None:
        """Seconds until the first of these times, if there is one."""
        first = min(times, default=None)
        return None if first is None else (first - self.at) / 1e9


class _Commits(threading.Thread):
    """Watches a store for commits."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._seen: list[tuple[int, int]] = []
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.02):
            try:
                newest = self._store.recent_version().max_committed_epoch
            except PASSING:
                continue
            if not self._seen or newest > self._seen[-1][0]:
                self._seen.append((newest, time.monotonic_ns()))

    def since(self, ms: int) -> list[int]:
        """When epochs that are younger were seen."""
        return [at for epoch, at in self._seen[-200:] if epoch >> 16 > ms]

    def stop(self) -> None:
        self._is_over.set()
        self.join()


class _Played:
    """A program on a platform, its reader, and what kills them."""

    def __init__(self, stage: Stage, minio: MinioServer, workload: str) -> None:
        self.stage = stage
        self.minio = minio
        self.chance = stage.chance
        self.kills: list[_Kill] = []
        self.journal = stage.folder / "journal"
        self.looks = stage.folder / "looks"
        self.workload = PLAYED[workload].make()
        self.requests = Requests(self.workload, stage.seed)
        self.platform = KilledPlatform(stage, minio.fresh_url())
        self.store = connect(self.platform.url, **STORE)
        load(fn.Runtime(self.store, PROGRAM, self.workload.operators), self.workload)
        self.program = self._client("play", workload, self.journal)
        self.program.wait_until_begun()
        self.reader = self._client("read", workload, self.looks)
        self._offset = 0
        self._known: set[int] = set()
        self._fresh: list[tuple[int, int]] = []
        """When requests were sent that have got a first reply, and when they got it; of those since the last look."""
        self._commits = _Commits(self.store)
        self._commits.start()
        self._gone: list[int] = []
        """Workers whose program was killed."""
        self._is_down = False
        """Something was killed, and there was no progress since."""

    def _client(self, role: str, workload: str, file: Path) -> Actor:
        command = [sys.executable, "-P", CLIENTS, role, self.platform.url, workload, str(self.stage.seed), file]
        return self.stage.add(role, *command, begun=BEGUN)

    # --- What is done ------------------------------------------------------------------------------------------------

    def kill(self, kind: str) -> None:
        """Kill one, and let another one take its place."""
        match kind:
            case "worker":
                self._kill_worker()
            case "MinIO":
                self._note(kind)
                self.minio.kill()
                try:
                    time.sleep(self.chance.uniform(*AWAY_SECONDS))
                    if self.chance.random() < AT_ONCE:
                        self.kill(self.chance.choice(("worker", "program")))
                finally:
                    self.minio.start()
            case _:
                actor = self._actor(kind)
                if actor is self.program:
                    self._gone += self._workers()
                self._note(kind)
                actor.kill()
                if actor is not self.program:
                    time.sleep(self.chance.uniform(*AWAY_SECONDS))
                actor.start()

    def _actor(self, kind: str) -> Actor:
        match kind:
            case "program":
                return self.program
            case "meta leader":
                return self.platform.leader
            case "meta standby":
                return self.platform.follower
            case _:
                return self.platform.compactor

    def _kill_worker(self) -> None:
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while not (workers := self._workers()):
            self._check_running()
            assert time.monotonic() < deadline, f"no worker within {PROGRESS_SECONDS_MAX} s"
            time.sleep(0.02)
        self._note("worker")
        os.kill(self.chance.choice(workers), signal.SIGKILL)

    def _note(self, kind: str) -> None:
        self.stage.say(f"kill -9 {kind}")
        if self._is_down:
            self.kills[-1].is_alone = False
        self.kills.append(_Kill(kind, is_alone=not self._is_down))
        self._is_down = True

    def _workers(self) -> list[int]:
        """Of the present program, as far as it has begun."""
        file = workers_file(self.journal)
        found = json.loads(file.read_text()) if file.exists() else []
        return [pid for pid in found if pid and _parent_of(pid) == self.program.pid]

    # --- What follows ------------------------------------------------------------------------------------------------

    def await_progress(self) -> None:
        """Return when a request that was sent after the last kill is answered, and an epoch committed."""
        kill = self.kills[-1]
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while kill.reply_seconds is None or kill.commit_seconds is None:
            self._check_running()
            assert time.monotonic() < deadline, (
                f"after a kill of {kill.kind} there was no progress within {PROGRESS_SECONDS_MAX} s: "
                f"a reply after {kill.reply_seconds} s, a commit after {kill.commit_seconds} s"
            )
            time.sleep(0.02)
            kill.commit_seconds = kill.until(self._commits.since(kill.at_ms))
            self._read_journal()
            kill.reply_seconds = kill.until(at for sent, at in self._fresh if sent > kill.at)
        self._fresh, self._is_down = [], False
        eventually(lambda: not any(_is_worker(pid) for pid in self._gone))
        self._gone = []

    def _read_journal(self) -> None:
        lines, self._offset = lines_of(self.journal, self._offset)
        for number, _, _, sent, at in lines:
            if number not in self._known:
                self._known.add(number)
                self._fresh.append((sent, at))

    def _check_running(self) -> None:
        assert self.program.is_alive, "the program ended by itself"
        assert self.reader.is_alive, "the reader ended by itself"

    # --- The end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End the clients in order, and compare journal, tables and what requests that come again are answered."""
        self._check_running()
        assert [self.program.stop(), self.reader.stop()] == [0, 0]
        lines = lines_of(self.journal)[0]
        replies: dict[int, Reply] = {}
        for number, value, error, _, _ in lines:
            reply = Reply(value, error)
            assert replies.setdefault(number, reply) == reply, f"request {number} has two replies"
        assert sorted(replies) == list(range(len(replies))), "a request was left out"
        looks = lines_of(self.looks)[0]
        wrong = [look for look in looks if look[2]]
        assert not wrong, f"of {len(looks)} epochs {len(wrong)} are wrong; the first: {wrong[0]}"
        assert looks[-1][1], "the reader saw no reply"
        ordered = [replies[number] for number in range(len(replies))]
        requests = [self.requests[number] for number in range(len(replies))]
        self._check_tables(requests, ordered)
        with fn.Runtime(self.store, PROGRAM, self.workload.operators) as runtime:
            before = runtime.stats()["tid"]
            futures = [send(runtime, self.requests, number) for number in range(len(replies))]
            assert [reply_of(future) for future in futures] == ordered, "what comes again is answered otherwise"
            assert runtime.stats()["tid"] == before, "what comes again has run again"
        self._check_tables(requests, ordered)
        aborted = sum(reply.error is not None for reply in ordered)
        assert aborted or len(ordered) < REFUSED_AMONG, "no request was refused"
        print(
            f"{len(lines):,} replies to {len(replies):,} requests, {aborted:,} of them refused; {len(looks):,} epochs"
        )
        self._commits.stop()
        self.store.close()
        self.platform.stop()
        assert problems_in_bucket(self.platform.store_url) == []

    def _check_tables(self, requests: Sequence[Request], replies: Sequence[Reply]) -> None:
        with self.store.pin_snapshot() as snapshot:
            wrong = self.workload.check(requests, replies, tables_of(snapshot, self.workload))
            assert not wrong, wrong[:5]
            assert replies_at(snapshot) == dict(enumerate(replies)), "the table has other replies than the journal"

    def table(self) -> str:
        """The kills, by kind: medians of those that were got over alone, and the slowest of all that were got over."""
        lines = ["killed | times | alone | s to a new reply | slowest | s to a new commit | slowest"]
        for kind in KINDS:
            ones = [kill for kill in self.kills if kill.kind == kind]
            parts = [kind, str(len(ones)), str(sum(kill.is_alone for kill in ones))]
            for name in ("reply_seconds", "commit_seconds"):
                every = [seconds for kill in ones if (seconds := getattr(kill, name)) is not None]
                alone = [getattr(kill, name) for kill in ones if kill.is_alone]
                parts += [f"{statistics.median(alone):.2f}" if alone else "", f"{max(every):.2f}" if every else ""]
            lines.append(" | ".join(parts))
        return "\n".join(lines)


def kill_everything(folder: Path, minio: MinioServer, workload: str, seed: int, kills: int) -> None:
    """Kill that many times; each request has one reply, and state and replies agree in each epoch that is seen."""
    with Stage(folder, seed) as stage:
        played = _Played(stage, minio, workload)
        due = list(ALWAYS)
        stage.chance.shuffle(due)
        while len(played.kills) < kills:
            played.kill(due.pop() if due else stage.chance.choices([*KINDS], [*KINDS.values()])[0])
            if len(played.kills) < kills and stage.chance.random() < AT_ONCE:
                time.sleep(stage.chance.uniform(*AT_ONCE_SECONDS))
                continue
            played.await_progress()
            time.sleep(stage.chance.uniform(*REST_SECONDS))
        played.end()
        stage.say(f"{len(played.kills)} kills under {workload}\n{played.table()}")


def _parent_of(pid: int) -> int:
    """0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_worker(pid: int) -> bool:
    try:
        return b"functions.workers.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
