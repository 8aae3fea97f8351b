"""`kill -9` of an application and of its broker, at random moments: each item is in the output once, in order."""

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.depth import DEPTH
from support.feeds import sums
from support.feeds.broker import KafkaBroker
from support.feeds.serving import Serving, rows_in
from support.feeds.sums import ITEM, rows_of, sums_of
from tussock.statestore import connect

KILLS = 2 * DEPTH
ITEMS_A_LIFE = 300
KEYS = 7


def options(chance: random.Random) -> dict[str, Any]:
    return {
        "recovery": chance.choice(("weak", "strong")),
        "group_commit": chance.choice((None, 0.002, 0.01)),
        "checkpoint": chance.choice((0.02, 0.1, 0.5)),
    }


def numbered(chance: random.Random) -> Iterator[dict[str, int]]:
    number = 0
    while True:
        yield {"id": number, "key": chance.randrange(KEYS), "value": chance.randrange(100)}
        number += 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_from_kafka_to_kafka_exactly_once(tmp_path: Path, kafka: KafkaBroker) -> None:
    """Application and broker are killed; a reader with `read_committed` gets what a serial computation emits."""
    chance = random.Random(15)
    source, target = kafka.topic(3), kafka.topic(2)
    given = {
        "kafka": {"servers": kafka.servers, "topic": source, "batch_rows": 20, "on_bad": "stop"},
        "topic": {"servers": kafka.servers, "topic": target, "key": "key"},
    }
    serving = Serving(sums.__file__, tmp_path, (tmp_path / "store").as_uri(), given)
    items, making = [], numbered(chance)
    for kill in range(KILLS):
        fresh = [next(making) for _ in range(ITEMS_A_LIFE)]
        items += fresh
        for partition in range(3):
            values = [json.dumps(one).encode() for one in fresh if one["key"] % 3 == partition]
            kafka.put(source, values, partition)
        serving.start(**options(chance))
        if chance.random() < 0.8:
            serving.await_more(lambda: sum(kafka.ends(target).values()), chance.randint(1, ITEMS_A_LIFE // 2))
        else:
            time.sleep(chance.uniform(0.5, 1.5))
        # The first is both, so that every run has each.
        what = ("both", "broker", "application")[kill % 3]
        if what != "application":
            kafka.kill()
        if what == "broker":
            # The application goes on without it for a moment, and then with it.
            time.sleep(chance.uniform(0, 1))
            kafka.start()
            serving.await_more(lambda: sum(kafka.ends(target).values()), 1)
        serving.kill()
        if what == "both":
            kafka.start()
    serving.end()
    found: dict[int, list[tuple[int, int]]] = {}
    for message in kafka.messages(target):
        row = json.loads(message.value())
        found.setdefault(row["key"], []).append((row["id"], row["total"]))
    assert found == sums_of(items)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_from_a_table_to_a_table_exactly_once(tmp_path: Path) -> None:
    """Another process writes the table meanwhile; the epochs come in their order, each once."""
    chance = random.Random(16)
    url = (tmp_path / "store").as_uri()
    serving = Serving(sums.__file__, tmp_path, url, {})
    items: list[dict[str, int]] = []
    making = numbered(chance)
    is_over = threading.Event()
    with connect(url, compaction=False) as store:
        store.create_table("items", ITEM, primary_key=["id"])

        def write() -> None:
            while not is_over.is_set():
                # An epoch has each key once at most: within one, the order is the table's.
                fresh = {one["key"]: one for one in (next(making) for _ in range(chance.randint(1, 4)))}
                epoch = store.new_epoch()
                store.table("items").upsert(list(fresh.values()), epoch)
                store.commit_epoch(epoch)
                items.extend(fresh.values())

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(KILLS):
                serving.start(**options(chance))
                serving.await_more(lambda: rows_in(store, "emitted"), chance.randint(1, 40))
                serving.kill()
        finally:
            is_over.set()
            writer.join()
        serving.end()
        rows = rows_of(store.table("emitted"))
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append((row["id"], row["total"]))
    assert found == sums_of(items)
    assert [row["_sequence"] for row in rows] == sorted(row["_sequence"] for row in rows)
