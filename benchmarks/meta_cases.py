"""The cases of `make bench-meta`, each run in a new process: prints one line of JSON.

python benchmarks/meta_cases.py CASE FOLDER
"""

import itertools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from meta_processes import Worker, minio, platform
from meta_workers import VALUE, rows

from tussock.statestore import connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import stored_bytes

WRITERS = 16
WRITER_PROCESSES = 4
COMMIT_SECONDS = 10.0
NO_STALL = ("--compaction.l0_stall_runs", "1000000")
LATENCY_COMMITS = 600
WARM_COMMITS = 20
SUBSCRIBERS = 100
SUBSCRIBER_PROCESSES = 4
PUSHES = 200
PUSH_PAUSE_SECONDS = 0.03
COMPACTED_ROWS = 2_000_000
COMPACTED_RUNS = 4


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` percent of them do not exceed."""
    return float(np.percentile(np.asarray(values), percent))


def commits(folder: Path, slots: int = 0) -> dict[str, Any]:
    """Epochs a second of 16 writers in four processes; latency from `new_epoch` until `commit_epoch` returns."""
    with minio(folder) as server:
        return _commits(folder, server.fresh_url(), slots, server.cpu_seconds)


def commits_in_folder(folder: Path) -> dict[str, Any]:
    """The same with a folder as the bucket: what the service and its clients cost without a bucket's server."""
    return _commits(folder, (folder / "bucket").as_uri(), 0, lambda: 0.0)


def _commits(folder: Path, url: str, slots: int, bucket_seconds: Callable[[], float]) -> dict[str, Any]:
    with platform(folder, url, settings=() if slots else NO_STALL, slots=slots) as service:
        tables = [f"writer-{number:02d}" for number in range(WRITERS)]
        with connect(f"tussock://{service.addresses}") as store:
            for name in tables:
                store.create_table(name)
        workers = [
            Worker("write", addresses=service.addresses, tables=tables[part::WRITER_PROCESSES], seconds=COMMIT_SECONDS)
            for part in range(WRITER_PROCESSES)
        ]
        for worker in workers:
            worker.ready()
        before, used = service.status(), (bucket_seconds(), service.cpu_seconds())
        for worker in workers:
            worker.go()
        answers = [worker.answer() for worker in workers]
        after, used_after = service.status(), (bucket_seconds(), service.cpu_seconds())
    assert before is not None
    assert after is not None
    took = [tuple(one) for answer in answers for one in answer["commits"]]
    first, last = min(began for began, _ in took), max(began + lasted for began, lasted in took)
    latencies = [lasted for _, lasted in took]
    return {
        "rate": len(took) / (last - first),
        "p50_ms": 1000 * percentile(latencies, 50),
        "p99_ms": 1000 * percentile(latencies, 99),
        "epochs": len(took),
        "log_entries": after["version"]["seq"] - before["version"]["seq"],
        "l0_runs_max": max(table["l0_runs"] for table in after["tables"]),
        # What a busy machine does not change much: together below 2 ms a core allow 500 epochs/s.
        "cpu_ms_per_epoch": {
            "minio": 1000 * (used_after[0] - used[0]) / len(took),
            "meta": 1000 * (used_after[1] - used[1]) / len(took),
            "writers": 1000 * sum(answer["cpu_seconds"] for answer in answers) / len(took),
        },
    }


def commits_compacted(folder: Path) -> dict[str, Any]:
    """The same, with a compactor of one slot on the same machine, and the stalls that it is there to prevent."""
    return commits(folder, slots=1)


def latency(folder: Path) -> dict[str, Any]:
    """One writer: a commit, then a PUT of as many bytes as its SST has, in turn."""
    with minio(folder) as server:
        url = server.fresh_url()
        with platform(folder, url, settings=NO_STALL) as service:
            bucket = open_bucket(url)
            commit_ms: list[float] = []
            put_ms: list[float] = []
            with connect(f"tussock://{service.addresses}") as store:
                table = store.create_table("kv")
                size = 0
                for batch in range(WARM_COMMITS + LATENCY_COMMITS):
                    epoch = store.new_epoch()
                    table.ingest_batch(rows(batch), epoch)
                    began = time.perf_counter()
                    store.commit_epoch(epoch, writer="one", batch_id=batch)
                    committed = time.perf_counter()
                    if not size:
                        size = stored_bytes(store.version().find_table("kv").levels.ssts()[0])
                    payload = os.urandom(size)
                    sent = time.perf_counter()
                    bucket.put(f"bench/{batch}", payload)
                    put = time.perf_counter()
                    if batch >= WARM_COMMITS:
                        commit_ms.append(1000 * (committed - began))
                        put_ms.append(1000 * (put - sent))
            bucket.close()
    told = {
        f"{what}_p{percent}_ms": percentile(values, percent)
        for what, values in (("commit", commit_ms), ("put", put_ms))
        for percent in (50, 99)
    }
    ratios = {f"p{percent}_ratio": told[f"commit_p{percent}_ms"] / told[f"put_p{percent}_ms"] for percent in (50, 99)}
    return {"bytes": size, **told, **ratios}


def push(folder: Path) -> dict[str, Any]:
    """100 subscribed sessions in four processes, and one writer: how late each has each entry of the log."""
    with minio(folder) as server, platform(folder, server.fresh_url(), settings=NO_STALL) as service:
        each = SUBSCRIBERS // SUBSCRIBER_PROCESSES
        with connect(f"tussock://{service.addresses}") as store:
            table = store.create_table("kv")
            workers = [
                Worker("subscribe", addresses=service.addresses, clients=each, seconds=PUSHES * 0.1 + 2)
                for _ in range(SUBSCRIBER_PROCESSES)
            ]
            for worker in workers:
                worker.ready()
            for worker in workers:
                worker.go()
            sent: dict[int, tuple[float, float]] = {}
            for batch in range(PUSHES):
                epoch = store.new_epoch()
                table.ingest_batch(rows(batch), epoch)
                began = time.monotonic()
                store.commit_epoch(epoch)
                sent[store.version().seq] = (began, time.monotonic())
                time.sleep(PUSH_PAUSE_SECONDS)
            came = [tuple(one) for worker in workers for one in worker.answer()["came"]]
    known = [(seq, at) for seq, at in came if seq in sent]
    after_answer = [1000 * (at - sent[seq][1]) for seq, at in known]
    after_begin = [1000 * (at - sent[seq][0]) for seq, at in known]
    return {
        "pushes": len(known),
        "expected": SUBSCRIBERS * len(sent),
        "after_answer_p50_ms": percentile(after_answer, 50),
        "after_answer_p99_ms": percentile(after_answer, 99),
        "after_begin_p50_ms": percentile(after_begin, 50),
        "after_begin_p99_ms": percentile(after_begin, 99),
    }


def failover(folder: Path) -> dict[str, Any]:
    """Three replicas, one writer that never stops; the leader is killed: from the last commit before to the next."""
    with minio(folder) as server, platform(folder, server.fresh_url(), replicas=3, settings=NO_STALL) as service:
        answered: list[float] = []
        stopping = threading.Event()
        failed: list[BaseException] = []
        with connect(f"tussock://{service.addresses}") as store:
            table = store.create_table("kv")

            def keep_writing() -> None:
                batch = 0
                try:
                    while not stopping.is_set():
                        epoch = store.new_epoch()
                        table.ingest_batch(rows(batch), epoch)
                        store.commit_epoch(epoch, writer="one", batch_id=batch)
                        answered.append(time.monotonic())
                        batch += 1
                except BaseException as error:
                    failed.append(error)

            writer = threading.Thread(target=keep_writing)
            leader = service.leader()
            writer.start()
            time.sleep(2)
            killed = time.monotonic()
            service.replicas.pop(leader).kill()
            while not failed and (not answered or answered[-1] < killed + 0.05):
                time.sleep(0.005)
            time.sleep(1)
            stopping.set()
            writer.join()
        if failed:
            raise failed[0]
    before = max(at for at in answered if at <= killed)
    after = min(at for at in answered if at > killed)
    # An answer that was on its way when the leader died may come a moment after; the gap is the longest silence.
    gaps = [later - earlier for earlier, later in itertools.pairwise(answered) if later > killed - 0.5]
    return {"seconds": max(gaps), "first_after_kill_s": after - before, "commits": len(answered)}


def compaction(folder: Path) -> dict[str, Any]:
    """A whole table compacted by a node with one slot and by one with two, in turn; the bucket is a folder."""
    source = folder / "source"
    with connect(source.as_uri(), compaction=False) as store:
        table = store.create_table("kv")
        keys = np.random.default_rng(7).permutation(COMPACTED_ROWS)
        for part in np.array_split(keys, COMPACTED_RUNS):
            text = pa.array([b"%012d" % key for key in np.sort(part)], pa.binary())
            batch = pa.table({"key": text, "value": pa.array([VALUE] * len(part), pa.binary())})
            epoch = store.new_epoch()
            table.ingest_batch(batch, epoch)
            store.commit_epoch(epoch)
    seconds = {slots: _compaction_seconds(folder, source, slots) for slots in (1, 2)}
    return {"one_slot_s": seconds[1], "two_slots_s": seconds[2], "ratio": seconds[1] / seconds[2]}


def _compaction_seconds(folder: Path, source: Path, slots: int) -> float:
    copy = folder / f"slots-{slots}"
    shutil.copytree(source, copy)
    # Compacted when asked for only, so that nothing is done before the clock runs.
    idle = (
        "--compaction.l0_merge_min",
        "1000",
        "--compaction.l0_merge_max",
        "1000",
        "--compaction.l0_runs_max",
        "1000",
    )
    with (
        platform(folder / f"logs-{slots}", copy.as_uri(), settings=(*NO_STALL, *idle), slots=slots) as service,
        connect(f"tussock://{service.addresses}") as store,
    ):
        # A first task, so that everything is loaded on both sides.
        warm = store.create_table("warm")
        for _ in range(2):
            epoch = store.new_epoch()
            warm.ingest_batch(rows(0), epoch)
            store.commit_epoch(epoch)
        store.compact("warm")
        began = time.perf_counter()
        store.compact("kv")
        took = time.perf_counter() - began
        version: Any = store.version()
        assert len(version.find_table("kv").levels.runs()) == 1
    shutil.rmtree(copy)
    return took


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "commits": commits,
    "commits_compacted": commits_compacted,
    "commits_in_folder": commits_in_folder,
    "latency": latency,
    "push": push,
    "failover": failover,
    "compaction": compaction,
}


def main() -> None:
    case, folder = sys.argv[1:]
    place = Path(folder)
    place.mkdir(parents=True)
    print(json.dumps(CASES[case](place)))


if __name__ == "__main__":
    main()
