"""The workloads of examples/functions: replies and tables are what their checkers say, also after restarts."""

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from functions import movie, tpcc, travel, ycsb_t
from functions.movie import Movie
from functions.tpcc_checker import Tpcc
from functions.travel import Travel
from functions.workload import Reply, Workload, load, play, tables_of
from functions.ycsb_t import YcsbT
from functions.zipf import zipf

from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

SMALL: dict[str, tuple[Callable[[], Workload], int]] = {
    "ycsb_t": (lambda: YcsbT(60, 5, skew=0.9), 900),
    "travel": (lambda: Travel(2, reserve=0.5), 600),
    "movie": (Movie, 240),
    "tpcc": (lambda: Tpcc(2, customers=30, items=40), 240),
}
"""With the number of requests."""
ERRORS = {
    "ycsb_t": ycsb_t.NO_CREDIT,
    "travel": "no room left: hotel ",
    "movie": f"no user user{movie.USERS}",
    "tpcc": tpcc.NO_ITEM,
}
"""One with which some of these requests end."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param({}, id="serializable"),
        pytest.param({"conflicts": "reorder"}, id="reorder"),
        pytest.param({"lock_phase": False}, id="no lock phase"),
        pytest.param({"workers": 2}, id="workers"),
    ],
)
@pytest.mark.parametrize("name", SMALL)
def test_replies_and_tables_are_the_checkers(store: StateStore, name: str, rules: dict[str, Any]) -> None:
    """A third and a stop; a third of which the store has nothing when another runtime takes over; and the last one."""
    make, count = SMALL[name]
    workload = make()
    requests = workload.requests(count, 3)
    third = count // 3
    options: dict[str, Any] = {"epoch_max": 50, **rules}
    first = fn.Runtime(store, name, workload.operators, **options)
    load(first, workload)
    with first:
        replies = play(first, requests[:third], ids="a")
    second = fn.Runtime(store, name, make().operators, checkpoint=3600, **options)
    second.start()
    replies += play(second, requests[third : 2 * third], ids="b")
    with fn.Runtime(store, name, make().operators, **options) as last:
        replies += play(last, requests[2 * third :], ids="c")
        assert play(last, requests[:third], ids="a") == replies[:third]
        assert play(last, requests[third : 2 * third], ids="b") == replies[third : 2 * third]
    assert workload.check(requests, replies, tables_of(store, workload)) == []
    assert any((reply.error or "").startswith(ERRORS[name]) for reply in replies)
    with pytest.raises(fn.ApplicationFenced):
        second.stop()


@pytest.mark.parametrize("name", SMALL)
def test_a_checker_finds_what_is_wrong(store: StateStore, name: str) -> None:
    """Any table that lacks an entity, or has another number in one, and any reply that was an abort, is found."""
    make, count = SMALL[name]
    workload = make()
    requests = workload.requests(count, 3)
    runtime = fn.Runtime(store, name, workload.operators)
    load(runtime, workload)
    with runtime:
        replies = play(runtime, requests)
    tables = tables_of(store, workload)
    assert workload.check(requests, replies, tables) == []
    for operator, column in DAMAGE[name]:
        damaged = copy.deepcopy(tables)
        key = sorted(damaged[operator])[-1]
        damaged[operator][key][column] += 1
        assert workload.check(requests, replies, damaged), (operator, column)
    at = next(at for at, reply in enumerate(replies) if reply.error is None)
    other = [*replies[:at], Reply(None, "lost"), *replies[at + 1 :]]
    assert workload.check(requests, other, tables)


DAMAGE = {
    "ycsb_t": [("account", "balance")],
    "travel": [("hotel", "free"), ("flight", "free"), ("order", "hotel")],
    "movie": [("compose_review", "movie_id"), ("compose_review", "rating")],
    "tpcc": [
        ("warehouse", "ytd"),
        ("district", "ytd"),
        ("district", "next_o_id"),
        ("customer", "balance"),
        ("stock", "quantity"),
        ("stock", "ytd"),
        ("order", "o_id"),
        ("order", "ol_cnt"),
        ("new_orders", "o_id"),
        ("order_line", "quantity"),
        ("history", "amount"),
    ],
}


def test_transfers_on_columns_keep_the_ledger(store: StateStore) -> None:
    """Requests that share accounts with many others; in three batches, with a restart after each."""
    workload = YcsbT(60, 5, skew=0.9)
    requests, replies = workload.requests(900, 4), []
    keys, columns = workload.columns(900, 4)
    assert keys.to_pylist() == [request.key for request in requests]
    load(fn.Runtime(store, "bank", workload.operators), workload)
    for start in range(0, 900, 300):
        with fn.Runtime(store, "bank", workload.operators, checkpoint=3600) as runtime:
            table = runtime.send_many("account", "transfers", keys[start : start + 300], columns.slice(start, 300))
            pairs = zip(table["reply"].to_pylist(), table["error"].to_pylist(), strict=True)
            replies += [Reply(*pair) for pair in pairs]
    assert workload.check(requests, replies, tables_of(store, workload)) == []
    assert any(reply.error for reply in replies)


@pytest.mark.parametrize("across", [0.0, 0.2, 0.5, 1.0])
def test_shares_over_partitions_are_as_asked(across: float) -> None:
    debtors, creditors = YcsbT(1000, across=across, partitions=4, skew=0.5).pairs(20_000, 1)
    assert abs((debtors % 4 != creditors % 4).mean() - across) < 0.02
    assert (debtors != creditors).all()


@pytest.mark.parametrize("skew", [0.0, 0.5, 0.9, 0.99, 0.999])
def test_numbers_are_as_frequent_as_zipf_says(skew: float) -> None:
    """The two most frequent are exact; of the others Gray's generator is an approximation."""
    drawn = zipf(np.random.default_rng(5), 1000, skew, 200_000)
    weights = 1 / np.arange(1, 1001) ** skew
    expected = weights / weights.sum()
    found = np.bincount(drawn, minlength=1000) / len(drawn)
    assert np.abs(found[:2] - expected[:2]).max() < 0.005
    assert abs(found[:100].sum() - expected[:100].sum()) < 0.02
    assert drawn.max() < 1000


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_requests(name: str) -> None:
    make, count = SMALL[name]
    assert make().requests(count, 7) == make().requests(count, 7)
    assert make().requests(count, 7) != make().requests(count, 8)


def test_a_compose_is_ten_functions_of_which_five_are_on_one_key(store: StateStore) -> None:
    workload = Movie()
    runtime = fn.Runtime(store, "movie", workload.operators)
    load(runtime, workload)
    with runtime:
        play(runtime, workload.requests(1, 1), ids="one")
        graph = runtime.call_graph("one0")
    assert graph is not None
    assert len(graph["calls"]) == 10
    assert sum(call["operator"] == "compose_review" for call in graph["calls"]) == 5


def test_the_mix_is_that_of_the_papers() -> None:
    found = [request.function for request in Travel().requests(20_000, 1)]
    shares = {"search": 0.6, "recommend": 0.39, "login": 0.005, "reserve": 0.005}
    assert all(abs(found.count(name) / 20_000 - share) < 0.01 for name, share in shares.items())
    assert found.count("reserve") > 50
    orders = Tpcc(10, customers=10, items=10).requests(5_000, 1)
    assert abs(sum(one.operator == "order" for one in orders) / 5_000 - 0.51) < 0.03


def test_the_demo_checks_itself(tmp_path: Path) -> None:
    """Two short workloads, with their input logs in another folder than their stores."""
    program = Path(travel.__file__).parent / "demo.py"
    folders = ["--store", str(tmp_path / "store"), "--input", str(tmp_path / "log")]
    command = [sys.executable, str(program), "ycsb_t_batch", "travel", "--requests", "500", *folders]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("checked: replies and tables agree") == 2
    assert (tmp_path / "log" / "travel").is_dir()
