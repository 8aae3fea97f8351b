"""A transaction of the source database is not split, where its topic of metadata is known."""

import contextlib
import json
import random
from typing import Any

import pytest

from support.changelog.fed_files import rows_in_order
from support.feeds.broker import KafkaBroker
from support.feeds.transfers_flow import ACCOUNT, NUMBER, START, Accounts, balances_after
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, WaitTimeout


class Source:
    """Topics that a connector writes."""

    def __init__(self, kafka: KafkaBroker, partitions: int) -> None:
        self.kafka = kafka
        # Topics are named by the prefix and the table.
        self._prefix = kafka.topic()
        self.topic = kafka.topic(partitions, f"{self._prefix}.bank.accounts")
        self.ends = kafka.topic(1, f"{self._prefix}.transaction")
        self._partitions = partitions

    def events(self, *events: Any) -> None:
        for one in events:
            row = one["after"] or one["before"]
            self.kafka.put(self.topic, [json.dumps(one).encode()], partition=row["id"] % self._partitions)

    def end(self, end: Any, *, is_wrapped: bool = False) -> None:
        begin = {"status": "BEGIN", "id": end["id"], "event_count": None, "data_collections": None}
        values = [{"schema": None, "payload": one} if is_wrapped else one for one in (begin, end)]
        self.kafka.put(self.ends, [json.dumps(one).encode() for one in values])

    def flow(self, store: StateStore, **options: Any) -> tuple[cl.Stream, cl.Flow]:
        stream = cl.Stream(store, "accounts", schema=ACCOUNT, key=["id"], history=100_000)
        flow = cl.Flow(store, [stream], checkpoint=options.pop("checkpoint", 0.1))
        feed = cl.KafkaChanges(self.kafka.servers, self.topic, **{"transactions": self.ends, **options})
        flow.feed(stream, feed)
        return stream, flow


def ids(stream: cl.Stream) -> list[list[int]]:
    return [[one["id"] for one in each] for each in stream.in_history()]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts(random.Random(1))


def test_a_transaction_comes_as_a_whole_once_it_has_ended(
    store: StateStore, kafka: KafkaBroker, accounts: Accounts
) -> None:
    """Whatever partitions it is in, however small batches are; rows of a snapshot do not wait."""
    source = Source(kafka, 3)
    stream, flow = source.flow(store, batch_rows=1)
    with flow:
        source.events(*accounts.snapshot())
        flow.drain(60)
        assert sum(map(len, stream.in_history())) == NUMBER
        _, events, end = accounts.transfer()
        source.events(*events)
        with pytest.raises(WaitTimeout):
            flow.drain(0.5)
        source.end(end, is_wrapped=True)
        flow.drain(60)
        assert sorted(ids(stream)[-1]) == sorted(one["after"]["id"] for one in events)
        _, events, end = accounts.transfer()
        source.end(end)
        source.events(events[0])
        with pytest.raises(WaitTimeout):
            flow.drain(0.5)
        told = "1 of 2 events of transaction 502 are there"
        eventually(lambda: told in flow.stats()["feeds"]["accounts"]["trouble"])
        source.events(events[1])
        flow.drain(60)
        assert len(ids(stream)[-1]) == 2
    rows = rows_in_order(store, "accounts")
    assert {row["id"]: row["balance"] for row in rows} == accounts.balances


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_published_transaction_has_half_of_a_transfer(store: StateStore, kafka: KafkaBroker, seed: int) -> None:
    """Partitions and ends come in any order to each other, and runners replace each other."""
    chance = random.Random(seed)
    accounts = Accounts(chance)
    source = Source(kafka, 3)
    source.events(*accounts.snapshot())
    running = None
    for _ in range(4):
        batch = chance.choice((1, 5, 1000))
        stream, flow = source.flow(store, batch_rows=batch, checkpoint=chance.choice((0.05, 3600)))
        flow.start()
        if running is not None:
            # One that had nothing left to commit does not hear of it.
            with contextlib.suppress(cl.ApplicationFenced):
                running.stop()
        running = flow
        waiting: dict[int, list[Any]] = {0: [], 1: [], 2: [], 3: []}
        for _ in range(25):
            _, events, end = accounts.transfer()
            for one in events:
                waiting[one["after"]["id"] % 3].append(one)
            waiting[3].append(end)
        while any(waiting.values()):
            place = chance.choice([one for one, left in waiting.items() if left])
            one = waiting[place].pop(0)
            (source.end if place == 3 else source.events)(one)
        if chance.random() < 0.5:
            flow.drain(60)
    flow.drain(60)
    for balances in balances_after(stream.out_history()):
        if len(balances) == NUMBER:
            assert sum(balances.values()) == NUMBER * START
    assert len(stream.out_history()) > 3
    flow.stop()
    assert {row["id"]: row["balance"] for row in rows_in_order(store, "accounts")} == accounts.balances


def test_one_whose_end_was_not_told_is_over_when_the_next_one_ends(
    store: StateStore, kafka: KafkaBroker, accounts: Accounts
) -> None:
    """Such as one that ended before the topic of metadata begins."""
    source = Source(kafka, 1)
    stream, flow = source.flow(store)
    with flow:
        source.events(*accounts.transfer()[1])
        with pytest.raises(WaitTimeout):
            flow.drain(0.5)
        _, events, end = accounts.transfer()
        source.events(*events)
        source.end(end)
        flow.drain(60)
        assert sum(map(len, stream.in_history())) == 4


def test_a_transaction_that_waits_stays_whole_while_the_topic_gets_more_partitions(
    store: StateStore, kafka: KafkaBroker, accounts: Accounts
) -> None:
    """What waited is read once more."""
    source = Source(kafka, 1)
    _, events, end = accounts.transfer()
    stream, flow = source.flow(store)
    with flow:
        source.events(events[0])
        with pytest.raises(WaitTimeout):
            flow.drain(0.5)
        kafka.add_partitions(source.topic, 2)
        kafka.put(source.topic, [json.dumps(events[1]).encode()], partition=1)
        source.end(end)
        eventually(lambda: len(stream.in_history()) == 1)
        assert len(ids(stream)[0]) == 2


def test_a_start_goes_on_between_transactions(store: StateStore, kafka: KafkaBroker, accounts: Accounts) -> None:
    """Ends that were told, and whose events had not come, are known again."""
    source = Source(kafka, 1)
    first, second = accounts.transfer(), accounts.transfer()
    stream, flow = source.flow(store)
    with flow:
        source.events(*first[1], second[1][0])
        source.end(first[2])
        source.end(second[2])
        eventually(lambda: len(stream.in_history()) == 1)
    source.events(second[1][1])
    stream, flow = source.flow(store)
    with flow:
        flow.drain(60)
        assert [len(one) for one in ids(stream)] == [2, 2]


def test_a_topic_of_metadata_that_is_not_there_is_told(
    store: StateStore, kafka: KafkaBroker, accounts: Accounts
) -> None:
    source = Source(kafka, 1)
    _, flow = source.flow(store, transactions="no-such-topic")
    with pytest.raises(InvalidOption, match="'no-such-topic' does not exist"):
        flow.start()
