"""`kill -9` of a program of functions and of its broker: each transfer happens once, and has one reply."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.depth import DEPTH
from support.feeds import fed_bank
from support.feeds.broker import KafkaBroker
from support.feeds.fed_bank import PEOPLE, TRANSFER, balances_of, left_by
from support.feeds.serving import Serving, rows_in
from support.feeds.sums import rows_of
from tussock.statestore import connect

KILLS = DEPTH
TRANSFERS_A_LIFE = 400


def options(chance: random.Random, kill: int) -> dict[str, Any]:
    return {
        "epoch_max": chance.choice((10, 100)),
        "checkpoint": chance.choice((0.02, 0.1, 0.5)),
        "group_commit": chance.choice((None, 0.01)),
        "workers": 2 * (kill % 2),
    }


def transfers(chance: random.Random, first: int, *, negative: float = 0.0) -> list[dict[str, Any]]:
    """Some of them too large, so that they fail; with that chance one fails all that a batch function gets with it."""
    found = []
    for number in range(first, first + TRANSFERS_A_LIFE):
        payer, payee = chance.sample(range(PEOPLE), 2)
        amount = -1 if negative and chance.random() < negative else chance.choice((1, 5, 50, 2000))
        found.append({"id": number, "payer": f"p{payer}", "payee": f"p{payee}", "amount": amount})
    return found


def check(url: str, items: list[dict[str, Any]], replies: list[dict[str, Any]]) -> None:
    """One reply each, and the sums are exact."""
    assert sorted(int(one["request_id"]) for one in replies) == [one["id"] for one in items]
    failed = {one["request_id"] for one in replies if one["error"]}
    assert 0 < len(failed) < len(items)
    with connect(url, compaction=False) as store:
        assert balances_of(store) == left_by(items, failed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_columns", [False, True])
def test_transfers_from_kafka_happen_once_whatever_is_killed(
    tmp_path: Path, kafka: KafkaBroker, by_columns: bool
) -> None:
    """Program and broker; a reader with `read_committed` gets one reply for each message."""
    chance = random.Random(17)
    source, target, url = kafka.topic(3), kafka.topic(2), (tmp_path / "store").as_uri()
    given = {
        "kafka": {"servers": kafka.servers, "topic": source, "batch_rows": 50},
        "topic": {"servers": kafka.servers, "topic": target, "key": "request_id"},
        "by_columns": by_columns,
    }
    serving = Serving(fed_bank.__file__, tmp_path, url, given)
    items: list[dict[str, Any]] = []
    for kill in range(KILLS):
        fresh = transfers(chance, len(items), negative=0.01 if by_columns else 0)
        items += fresh
        for partition in range(3):
            kafka.put(source, [json.dumps(one).encode() for one in fresh[partition::3]], partition)
        serving.start(**options(chance, kill))
        serving.await_more(lambda: sum(kafka.ends(target).values()), chance.randint(1, TRANSFERS_A_LIFE // 2))
        # The first is both, so that every run has each.
        what = ("both", "program", "broker")[kill % 3]
        if what != "program":
            kafka.kill()
        if what == "broker":
            # The program goes on without it for a moment, and then with it.
            kafka.start()
            serving.await_more(lambda: sum(kafka.ends(target).values()), 1)
        serving.kill()
        if what == "both":
            kafka.start()
    serving.end()
    check(url, items, [json.loads(message.value()) for message in kafka.messages(target)])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_columns", [False, True])
def test_transfers_of_a_table_happen_once_whatever_is_killed(tmp_path: Path, by_columns: bool) -> None:
    """Epochs of a table that are larger than those of the program, so that it dies within them."""
    chance = random.Random(18)
    url = (tmp_path / "store").as_uri()
    serving = Serving(fed_bank.__file__, tmp_path, url, {"by_columns": by_columns})
    items: list[dict[str, Any]] = []
    with connect(url, compaction=False) as store:
        store.create_table("transfers", TRANSFER, primary_key=["id"])

        for kill in range(KILLS):
            fresh = transfers(chance, len(items), negative=0.01 if by_columns else 0)
            items += fresh
            epoch = store.new_epoch()
            store.table("transfers").upsert(fresh, epoch)
            store.commit_epoch(epoch)
            serving.start(**options(chance, kill))
            serving.await_more(lambda: rows_in(store, "answers"), chance.randint(1, TRANSFERS_A_LIFE // 2))
            serving.kill()
        serving.end()
        replies = rows_of(store.table("answers"))
    check(url, items, replies)
