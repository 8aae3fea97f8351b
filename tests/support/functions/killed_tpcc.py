"""Processes that play TPC-C and are killed at random moments, and its conditions at the end and on the way."""

import random
from collections.abc import Sequence
from pathlib import Path

from functions.tpcc_checker import Tpcc
from functions.workload import Reply, Request, load, tables_of

from support.functions import tpcc_process
from support.functions.killed_lives import Lives
from support.functions.tpcc_process import make_tpcc, written
from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

__all__ = ["kill_tpcc"]

REQUESTS_A_LIFE = 160
EPOCHS_MAX = 12
"""At which the conditions are looked at."""


def kill_tpcc(folder: Path, seed: int, kills: int, workers_max: int = 0) -> None:
    """The conditions of TPC-C hold at the end, and at committed epochs for the orders and payments that are there."""
    url = (folder / "store").as_uri()
    workload = make_tpcc()
    requests = workload.requests((kills + 1) * REQUESTS_A_LIFE, seed)
    with connect(url, compaction=False) as store:
        load(fn.Runtime(store, "tpcc", workload.operators), workload)
        began = store.committed_epoch
    lives = Lives(folder, tpcc_process.__file__, url, seed, len(requests), REQUESTS_A_LIFE, workers_max)
    for _ in range(kills):
        lives.live_and_die()
    lives.live()
    known: dict[int, Reply] = {}
    for number, reply in written(lives.journal):
        assert known.setdefault(number, reply) == reply, (number, lives.kills)
    assert sorted(known) == list(range(len(requests))), lives.kills
    replies = [known[number] for number in range(len(requests))]
    with connect(url, compaction=False) as store:
        assert workload.check(requests, replies, tables_of(store, workload)) == [], lives.kills
        epochs = store.table("district").change_epochs(began)
        assert epochs, lives.kills
        for epoch in random.Random(seed).sample(epochs, min(EPOCHS_MAX, len(epochs))):
            _check_epoch(store, workload, requests, replies, epoch)


def _check_epoch(
    store: StateStore, workload: Tpcc, requests: Sequence[Request], replies: Sequence[Reply], epoch: int
) -> None:
    tables = tables_of(store, workload, epoch)
    done = {*tables["order"], *tables["history"]}
    there = [pair for pair in zip(requests, replies, strict=True) if pair[1].error or pair[0].key in done]
    assert workload.check([request for request, _ in there], [reply for _, reply in there], tables) == [], epoch
