"""Cases of `functions_bench.py`, run by `measure.py`: the workloads of `examples/functions`, in this process or in two.

Each case takes an empty folder and a number, of requests unless it says another. It returns requests a second, how long
replies took, and how long a request kept the processor busy, the client's part included. It ends with an error if the
workload's checker finds that a reply or a table is wrong.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from functions.movie import Movie
from functions.tpcc_checker import Tpcc
from functions.travel import Travel
from functions.workload import Reply, Request, Workload, load, tables_of
from functions.ycsb_t import YcsbT

SEED = 7
OUTSTANDING = 2_000
"""Requests that are under way at any time, where the next ones wait for replies."""
WARM, WARM_TPCC = 2_000, 10_000
"""Requests before the clock starts; TPC-C has many more entities to read first."""
CHUNK, CHUNKS = 10_000, 8
"""Requests of one call of a batch function, and calls under way."""
OPEN_SECONDS, OPEN_WARM_SECONDS = 10, 2
LATE_SECONDS = 3.0
"""A rate at which requests are sent that much too late is not held."""
MANY = 1_000_000
LOADED = 1_000_000
"""Accounts of one commit, as they are loaded."""
BEFORE_KILL = 20_000

Sample = dict[str, Any]


def uniform(folder: Path, count: int) -> Sample:
    """Transfers between 10,000 accounts, both drawn evenly."""
    return _closed(folder, YcsbT(), count)


def two_workers(folder: Path, count: int) -> Sample:
    """The same in two workers; the processor's time is that of this process, which passes requests on."""
    return _closed(folder, YcsbT(), count, workers=2)


def two_workers_zipf(folder: Path, count: int) -> Sample:
    """The same with creditors drawn by Zipf, 0.99."""
    return _closed(folder, YcsbT(skew=0.99), count, workers=2)


def zipf(folder: Path, count: int) -> Sample:
    """Transfers in this process with creditors drawn by Zipf, 0.999."""
    return _closed(folder, YcsbT(skew=0.999), count)


def many_keys(folder: Path, count: int) -> Sample:
    """Transfers between a million accounts, with a commit each second."""
    return _closed(folder, YcsbT(MANY), count, checkpoint=1.0)


def many_keys_uncommitted(folder: Path, count: int) -> Sample:
    """The same without commits while the clock runs."""
    return _closed(folder, YcsbT(MANY), count, checkpoint=3600.0)


def travel(folder: Path, count: int) -> Sample:
    """Deathstar's travel service."""
    return _closed(folder, Travel(), count)


def movie(folder: Path, count: int) -> Sample:
    """Deathstar's movie service."""
    return _closed(folder, Movie(), count)


def tpcc_1(folder: Path, count: int) -> Sample:
    """NewOrder and Payment with one warehouse."""
    return _closed(folder, Tpcc(1), count, WARM_TPCC)


def tpcc_10(folder: Path, count: int) -> Sample:
    """NewOrder and Payment with ten warehouses."""
    return _closed(folder, Tpcc(10), count, WARM_TPCC)


def batches(folder: Path, count: int) -> Sample:
    """The transfers of `uniform` by the batch function, some calls under way at any time."""
    workload = YcsbT()
    requests = workload.requests(count, SEED)
    keys, columns = workload.columns(count, SEED)
    tables, futures = [], deque()
    with connect(folder.as_uri()) as store:
        with _runtime(store, workload) as runtime:
            began = time.perf_counter()
            for start in range(0, count, CHUNK):
                if len(futures) >= CHUNKS:
                    tables.append(futures.popleft().result())
                part = (keys[start : start + CHUNK], columns.slice(start, CHUNK))
                futures.append(runtime.send_many_async("account", "transfers", *part))
            tables += [future.result() for future in futures]
            seconds = time.perf_counter() - began
        replies = [
            Reply(*pair)
            for table in tables
            for pair in zip(table["reply"].to_pylist(), table["error"].to_pylist(), strict=True)
        ]
        _check(store, workload, requests, replies)
    return {"rate": count / seconds}


def offered(folder: Path, rate: int) -> Sample:
    """Transfers between 10,000 accounts that come at a rate, a second, whether or not replies do.

    How long a reply took counts from when its request was due. The client keeps no futures of replies that have come,
    as clients do: Python's collector would look at all of them again and again.
    """
    workload = YcsbT()
    requests = workload.requests(rate * (OPEN_WARM_SECONDS + OPEN_SECONDS), SEED)
    sent, futures = 0, deque[Any]()
    values, errors = [None] * len(requests), [None] * len(requests)
    ends = np.zeros(len(requests))

    def take(waiting: int) -> None:
        while len(futures) > waiting and (waiting == 0 or futures[0].done()):
            at = sent - len(futures)
            values[at], errors[at] = _reply(futures.popleft())

    with connect(folder.as_uri()) as store:
        with _runtime(store, workload) as runtime:
            began = time.perf_counter()
            is_held = True
            while sent < len(requests) and is_held:
                now = time.perf_counter() - began
                due = min(int(now * rate), len(requests))
                futures.extend([_send(runtime, requests[at], at, ends) for at in range(sent, due)])
                sent = due
                is_held = time.perf_counter() - began - sent / rate < LATE_SECONDS
                time.sleep(0.0005)
                take(1)
            take(0)
            seconds = time.perf_counter() - began
        replies = list(map(Reply, values[:sent], errors[:sent]))
        _check(store, workload, requests[:sent], replies)
    taken = ends[:sent] - began - np.arange(sent) / rate
    return {"rate": sent / seconds, "is_held": is_held, **_taken(taken[OPEN_WARM_SECONDS * rate :])}


def recovery(folder: Path, keys: int) -> Sample:
    """`kill -9` of a process with that many accounts, amid transfers, until its successor has replied to a new one."""
    with connect(folder.as_uri()) as store:
        workload = YcsbT(keys)
        _load(fn.Runtime(store, "bank", workload.operators), store, workload)
    command = [sys.executable, __file__, folder.as_uri(), str(keys)]
    with subprocess.Popen([*command, "serve"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
        process.wait()
    # Known before, as it is to who asks: 200,000 requests take long to make.
    asked = json.dumps(workload.requests(10 * BEFORE_KILL, SEED)[BEFORE_KILL])
    began = time.perf_counter()
    with subprocess.Popen([*command, "follow", last, asked], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = process.stdout.readline().split()
        seconds = time.perf_counter() - began
        if process.wait() or not found:
            raise SystemExit("the successor did not get the first reply again")
    with connect(folder.as_uri()) as store:
        total = sum(sum(batch["balance"].to_pylist()) for batch in store.table("account").read(["balance"]))
    if total != keys * workload.balance:
        raise SystemExit(f"all accounts have {total:,}, expected {keys * workload.balance:,}")
    return {"seconds": round(seconds, 3), "start_seconds": float(found[0])}


def worker_lost(folder: Path, keys: int) -> Sample:
    """`kill -9` of one of two workers with that many accounts, amid transfers, until there is a new reply."""
    workload = YcsbT(keys)
    requests = workload.requests(2 * OUTSTANDING, SEED)
    with connect(folder.as_uri()) as store:
        with _runtime(store, workload, workers=2) as runtime:
            warm, under_way = requests[:OUTSTANDING], requests[OUTSTANDING:]
            ends = np.zeros(len(requests))
            replies = [_reply(one) for one in [_send(runtime, request, at, ends) for at, request in enumerate(warm)]]
            futures = [_send(runtime, request, OUTSTANDING + at, ends) for at, request in enumerate(under_way)]
            began = time.perf_counter()
            os.kill(runtime.worker_processes()[0], signal.SIGKILL)
            again = under_way[0]
            runtime.send(again.operator, again.key, again.function, *again.arguments).result(120)
            seconds = time.perf_counter() - began
            replies += [_reply(future) for future in futures]
            replies.append(Reply(0, None))
        _check_balances(store, workload, [*requests, again], replies)
    return {"seconds": round(seconds, 3)}


# --- What they share -------------------------------------------------------------------------------------------------


def _runtime(store: StateStore, workload: Workload, **options: Any) -> fn.Runtime:
    runtime = fn.Runtime(store, "bench", workload.operators, **options)
    if isinstance(workload, YcsbT):
        _load(runtime, store, workload)
    else:
        load(runtime, workload)
    return runtime


def _load(runtime: fn.Runtime, store: StateStore, workload: YcsbT) -> None:
    """All accounts, some at a time, and as one run."""
    table = workload.table()
    for start in range(0, len(table), LOADED):
        runtime.load("account", table.slice(start, LOADED))
    store.compact("account")


def _closed(folder: Path, workload: Workload, count: int, warm: int = WARM, **options: Any) -> Sample:
    requests = workload.requests(count + warm, SEED)
    begins, ends = np.zeros(len(requests)), np.zeros(len(requests))
    futures: deque[Any] = deque()
    replies: list[Reply] = []
    with connect(folder.as_uri()) as store:
        with _runtime(store, workload, **options) as runtime:
            for at, request in enumerate(requests):
                if at == warm:
                    busy = time.process_time()
                if len(futures) >= OUTSTANDING:
                    replies.append(_reply(futures.popleft()))
                begins[at] = time.perf_counter()
                futures.append(_send(runtime, request, at, ends))
            replies += [_reply(future) for future in futures]
            busy = time.process_time() - busy
            stats = runtime.stats()
        _check(store, workload, requests, replies)
    kept = {name: stats[name] for name in ("epochs", "lock_free", "locked", "aborted", "deferrals", "commits")}
    rate = count / (ends.max() - begins[warm])
    return {"rate": rate, "busy_us": round(busy / count * 1e6, 1), **_taken((ends - begins)[warm:]), **kept}


def _send(runtime: fn.Runtime, request: Request, at: int, ends: Any) -> Any:
    future = runtime.send(request.operator, request.key, request.function, *request.arguments)
    future.add_done_callback(lambda _: ends.__setitem__(at, time.perf_counter()))
    return future


def _reply(future: Any) -> Reply:
    error = future.exception(120)
    if error is None:
        return Reply(future.result(), None)
    if isinstance(error, fn.TransactionAborted):
        return Reply(None, str(error))
    raise error


def _taken(seconds: Any) -> Sample:
    if not len(seconds):
        return {}
    half, most = np.percentile(seconds, [50, 99]) * 1000
    return {"p50_ms": round(half, 1), "p99_ms": round(most, 1)}


def _check(store: StateStore, workload: Workload, requests: Sequence[Request], replies: Sequence[Reply]) -> None:
    wrong = workload.check(requests, replies, tables_of(store, workload))
    if wrong:
        raise SystemExit("\n".join(wrong[:20]))


def _check_balances(store: StateStore, workload: YcsbT, requests: Sequence[Request], replies: Sequence[Reply]) -> None:
    """The ledger, on columns, as the workload's checker would make a dict of each of many accounts."""
    expected = np.full(workload.accounts, workload.balance)
    for request, reply in zip(requests, replies, strict=True):
        if reply.error is None:
            to, amount = request.arguments
            expected[int(request.key)] -= amount
            expected[to] += amount
    found = np.full(workload.accounts, -1)
    for batch in store.table("account").read(["key", "balance"]):
        found[batch["key"].to_numpy()] = batch["balance"].to_numpy()
    if differing := np.flatnonzero(found != expected).tolist():
        raise SystemExit(f"accounts {differing[:5]} differ from the ledger, {len(differing):,} in all")


# --- The processes of `recovery` -------------------------------------------------------------------------------------


def _serve(url: str, keys: int) -> None:
    """Says its last reply when it has given enough of them, and goes on until it is killed."""
    workload = YcsbT(keys)
    requests = workload.requests(10 * BEFORE_KILL, SEED)
    runtime = fn.Runtime(connect(url), "bank", workload.operators)
    runtime.start()
    futures: deque[Any] = deque()
    for at, (_, key, function, arguments) in enumerate(requests):
        if len(futures) >= OUTSTANDING:
            reply = futures.popleft().result()
            if at == BEFORE_KILL + OUTSTANDING:
                print(reply, flush=True)
        futures.append(runtime.send("account", key, function, *arguments, request_id=f"transfer {at}"))
    time.sleep(600)


def _follow(url: str, keys: int, last: str, asked: str) -> None:
    """The reply that its predecessor gave last, to that request, and one to a new one; says how long the start took."""
    workload = YcsbT(keys)
    runtime = fn.Runtime(connect(url), "bank", workload.operators)
    began = time.perf_counter()
    runtime.start()
    seconds = time.perf_counter() - began
    _, key, function, arguments = json.loads(asked)
    again = runtime.send("account", key, function, *arguments, request_id=f"transfer {BEFORE_KILL}").result()
    runtime.send("account", key, function, *arguments).result()
    if str(again) != last:
        os._exit(1)
    print(round(seconds, 3), flush=True)
    runtime.stop()


if __name__ == "__main__":
    if sys.argv[3] == "serve":
        _serve(sys.argv[1], int(sys.argv[2]))
    else:
        _follow(sys.argv[1], int(sys.argv[2]), sys.argv[4], sys.argv[5])
