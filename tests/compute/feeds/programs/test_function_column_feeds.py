"""Rows of a table and of Kafka for batch functions: each runs once, in columns, and has its reply."""

import datetime as dt
import json
import os
import signal
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.feeds.broker import KafkaBroker
from support.feeds.fed_bank import START, TRANSFER, balances_of, fed_bank, left_by
from support.feeds.sums import rows_of
from support.feeds.transfers import answers, commit, table_of, transfer
from support.functions.accounts import BALANCE, column_accounts
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore

SECONDS = 60


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_are_columns_once(store: StateStore, workers: int) -> None:
    """Those that are there at the first start, that come while it runs, and while it is away; callers send between."""
    table_of(store)
    commit(store, *map(transfer, range(50)))
    feed = fn.TableFeed("transfers")
    with fed_bank(store, feed, "answers", by_columns=True, workers=workers, epoch_max=20) as bank:
        bank.drain(SECONDS)
        assert bank.stats()["batched"] == 50
        # Three parts of the first batch, and a mark behind it.
        assert bank.stats()["epochs"] <= 5
        commit(store, transfer(50), transfer(51, 10_000))
        bank.drain(SECONDS)
        mine = {"payee": ["p1"], "amount": [100]}
        assert bank.send_many("account", "transfer", ["p0"], mine)["reply"].to_pylist()[0] < START
        assert bank.stats()["feeds"]["transfers"]["rows"] == 52
    commit(store, transfer(52))
    with fed_bank(store, feed, "answers", by_columns=True) as bank:
        bank.drain(SECONDS)
        assert bank.stats()["feeds"]["transfers"]["rows"] == 1
    found = answers(store)
    assert set(found) == {str(number) for number in range(53)}
    assert found["51"] == (None, "not enough credit")
    # One after the other, in whatever order the table gave them.
    assert {int(found[str(number)][0] or "") for number in range(0, 50, 3)} == set(range(START - 17, START))
    sent = {"id": "mine", "payer": "p0", "payee": "p1", "amount": 100}
    assert balances_of(store) == left_by([*map(transfer, range(51)), transfer(52), sent], set())


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_function_raises_is_the_reply_of_each_row(store: StateStore, workers: int) -> None:
    """Of those that it got together: they leave nothing, the others run, and no start tries them again."""
    table_of(store)
    commit(store, *[transfer(number, -1 if number == 7 else 1) for number in range(20)])
    feed = fn.TableFeed("transfers")
    first = fed_bank(store, feed, "answers", by_columns=True, workers=workers, epoch_max=5, checkpoint=3600)
    first.start()
    eventually(lambda: first.stats()["batched"] + first.stats()["aborted"] >= 20)
    first.query("account", "p0")
    assert (first.stats()["commits"], first.stats()["aborted"]) == (0, 5)
    # The second replays what the first one has run.
    with fed_bank(store, feed, "answers", by_columns=True) as second:
        second.drain(SECONDS)
        assert (second.stats()["batched"], second.stats()["aborted"]) == (15, 5)
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    found = answers(store)
    failed = {number for number, (_, error) in found.items() if error is not None}
    assert {found[number] for number in failed} == {(None, "an amount is negative")}
    assert (len(found), len(failed), "7" in failed) == (20, 5, True)
    assert balances_of(store) == left_by(map(transfer, range(20)), failed)


def test_a_batch_goes_on_within_itself(store: StateStore) -> None:
    """Another runner takes over when a part of it has run; each epoch is a commit."""
    table_of(store)
    commit(store, *map(transfer, range(100)))
    feed = fn.TableFeed("transfers")
    options: dict[str, Any] = {"by_columns": True, "epoch_max": 10, "checkpoint": 0}
    first = fed_bank(store, feed, "answers", **options)
    first.start()
    while not first.stats()["commits"]:
        pass
    with fed_bank(store, feed, "answers", **options) as second:
        second.drain(SECONDS)
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    assert set(answers(store)) == {str(number) for number in range(100)}
    assert balances_of(store) == left_by(map(transfer, range(100)), set())


def test_columns_run_once_when_a_worker_is_killed(store: StateStore) -> None:
    """Those that no commit has run again in the workers, those that failed do not; replies stay what they were."""
    table_of(store)
    commit(store, *[transfer(number, -1 if number == 7 else 1) for number in range(40)])
    feed = fn.TableFeed("transfers")
    with fed_bank(store, feed, "answers", by_columns=True, workers=2, epoch_max=5, checkpoint=3600) as bank:
        for kill in range(2):
            eventually(lambda: bank.stats()["aborted"] + bank.stats()["batched"] >= 40)
            os.kill(bank.worker_processes()[kill], signal.SIGKILL)
            commit(store, *map(transfer, range(40 + 10 * kill, 50 + 10 * kill)))
            bank.drain(SECONDS)
    found = answers(store)
    failed = {number for number, (_, error) in found.items() if error is not None}
    assert (set(found), len(failed)) == ({str(number) for number in range(60)}, 5)
    assert balances_of(store) == left_by(map(transfer, range(60)), failed)


def test_an_id_that_came_before_is_no_row(store: StateStore, kafka: KafkaBroker) -> None:
    """In one batch, later, and in the next run: at-least-once producers do no harm."""
    topic = kafka.topic()
    feed = fn.KafkaFeed(kafka.servers, topic, TRANSFER)
    replies = fn.KafkaTopic(kafka.servers, kafka.topic(), key="request_id")
    for _ in range(2):
        with fed_bank(store, feed, replies, by_columns=True) as bank:
            kafka.put(topic, [json.dumps(transfer(number)).encode() for number in (1, 1, 2, 3)])
            bank.drain(SECONDS)
            kafka.put(topic, [json.dumps(transfer(number)).encode() for number in (2, 3)])
            bank.drain(SECONDS)
    found = [json.loads(message.value()) for message in kafka.messages(replies.topic)]
    assert sorted(one["request_id"] for one in found) == ["1", "2", "3"]
    assert balances_of(store) == left_by(map(transfer, range(1, 4)), set())


def test_what_is_no_row_of_columns_is_a_dead_letter(store: StateStore) -> None:
    """A key or a touched one that is null, one that is too long; the others of the same batch run."""
    table_of(store)
    rows = [*map(transfer, range(4)), transfer(8, payee=None), transfer(9, payer="x" * 5000), transfer(10, payer=None)]
    commit(store, *rows)
    for _ in range(2):
        with fed_bank(store, fn.TableFeed("transfers", on_bad="skip"), "answers", by_columns=True) as bank:
            bank.drain(SECONDS)
    letters = rows_of(store.table("bank.dead_letters"))
    assert [letter["number"] for letter in letters] == [1, 2, 3]
    data = [pa.ipc.open_stream(letter["data"]).read_all().column("id").to_pylist() for letter in letters]
    assert sorted(data) == [[8], [9], [10]]
    assert all("no key of operator 'account'" in letter["cause"] for letter in letters)
    assert set(answers(store)) == {"0", "1", "2", "3"}
    commit(store, transfer(20, payee=None))
    with fed_bank(store, fn.TableFeed("transfers", on_bad="skip"), "answers", by_columns=True) as bank:
        bank.drain(SECONDS)
    assert len(rows_of(store.table("bank.dead_letters"))) == 4


def test_what_is_no_row_of_columns_stops_the_program(store: StateStore) -> None:
    """By default; what came before it has run, and the next start meets it again."""
    table_of(store)
    commit(store, transfer(1), transfer(2, payee=None), transfer(3))
    bank = fed_bank(store, fn.TableFeed("transfers"), "answers", by_columns=True)
    for _ in range(2):
        with pytest.raises(fn.BadInput, match=r"feed .transfers. of program .bank.: row \d of 3"), bank:
            bank.drain(SECONDS)
    commit(store, transfer(2))
    with fed_bank(store, fn.TableFeed("transfers", on_bad="skip"), "answers", by_columns=True) as mended:
        mended.drain(SECONDS)
    assert set(answers(store)) == {"1", "2", "3"}
    assert balances_of(store) == left_by(map(transfer, range(1, 4)), set())


def test_replies_that_are_no_plain_values_are_text(store: StateStore) -> None:
    """In the table as JSON, and for a caller who asks with the id of a row."""
    table_of(store)
    commit(store, transfer(1, 5), transfer(2))
    account = fn.Operator("account", schema=BALANCE)

    @account.register_batch
    def price(batch: fn.FunctionBatch) -> Any:
        cents = pc.cast(batch["amount"], pa.decimal128(21, 2))
        times = pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * batch.num_rows)
        return pa.StructArray.from_arrays([cents, times], ["price", "at"])

    @account.register
    async def begin(ctx: fn.FunctionContext) -> None:
        ctx.put({"balance": START})

    runtime = fn.Runtime(store, "shop", [account])
    runtime.feed("account", "price", fn.TableFeed("transfers"), key="payer", request_id="id", replies="answers")
    with runtime:
        runtime.drain(SECONDS)
        kept = runtime.send("account", "p1", "begin", request_id="1").result(SECONDS)
        assert Decimal(kept["price"]) == 5
        assert runtime.query("account", "p1") is None
    assert json.loads(answers(store)["1"][0] or "") == {"price": "5.00", "at": "2026-01-01T00:00:00Z"}


def test_column_feeds_that_cannot_be(store: StateStore) -> None:
    """Each by its name, before anything runs."""
    store.create_table("lists", pa.schema([*TRANSFER, ("many", pa.list_(pa.int64()))]), primary_key=["id"])
    table_of(store)
    for table, arguments, error, text in (
        ("transfers", ["amount", "amount"], InvalidOption, "each column once"),
        ("transfers", ["amount"], SchemaMismatch, r"touches the keys in \['payee'\]"),
        ("transfers", ["payee", "nothing"], SchemaMismatch, "nothing"),
        ("lists", None, SchemaMismatch, r"columns \['many'\] are of nested"),
    ):
        runtime = fn.Runtime(store, "other", [column_accounts()])

        def begin(runtime: fn.Runtime = runtime, table: str = table, arguments: Any = arguments) -> None:
            runtime.feed("account", "transfer", fn.TableFeed(table), key="payer", arguments=arguments)
            runtime.start()

        with pytest.raises(error, match=text):
            begin()


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_on_which_a_function_raises_are_a_dead_letter(store: StateStore, workers: int) -> None:
    """Story: without a table of replies they were gone, and nothing said so. A replay has the same letters."""
    table_of(store)
    commit(store, *[transfer(number, -1 if number == 7 else 1) for number in range(20)])
    feed = fn.TableFeed("transfers", on_bad="skip")
    first = fed_bank(store, feed, by_columns=True, workers=workers, epoch_max=5, checkpoint=3600)
    first.start()
    eventually(lambda: first.stats()["batched"] + first.stats()["aborted"] >= 20)
    with fed_bank(store, feed, by_columns=True, checkpoint=0) as second:
        second.drain(SECONDS)
        assert (second.stats()["batched"], second.stats()["aborted"]) == (15, 5)
        # The letter is given again: none of its rows has run, so none of their ids is known.
        (letter,) = rows_of(store.table("bank.dead_letters"))
        rows = pa.ipc.open_stream(letter["data"]).read_all()
        commit(store, *[{**row, "amount": abs(row["amount"])} for row in rows.to_pylist()])
        second.drain(SECONDS)
        assert second.stats()["batched"] == 20
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    assert letter["cause"].startswith("ValueError: an amount is negative (")
    assert letter["origin"].startswith("5 rows up to row ")
    assert (letter["feed"], rows.num_rows, 7 in rows["id"].to_pylist()) == ("transfers", 5, True)
    assert balances_of(store) == left_by(map(transfer, range(20)), set())


def test_a_batch_that_fails_stops_the_program(store: StateStore) -> None:
    """Where nobody gets replies, and nothing else is said: the next start meets the rows again."""
    table_of(store)
    commit(store, *[transfer(number, -1 if number == 7 else 1) for number in range(20)])
    told = r"raised ValueError: an amount is negative \(.*accounts.py:\d+\); .*on_bad"
    with (
        pytest.raises(fn.BadInput, match=told),
        fed_bank(store, fn.TableFeed("transfers"), by_columns=True) as bank,
    ):
        bank.drain(SECONDS)
    assert sum(balances_of(store).values()) == START * len(balances_of(store))
    with fed_bank(store, fn.TableFeed("transfers"), "answers", by_columns=True) as bank:
        bank.drain(SECONDS)
    assert len(answers(store)) == 20


def test_a_feed_whose_newest_batch_failed_is_a_trouble(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line with the place, and the status tells until a batch of the feed has a result."""
    table_of(store)
    with fed_bank(store, fn.TableFeed("transfers"), "answers", by_columns=True) as bank:
        for number in range(3):
            commit(store, transfer(number, -1))
            bank.drain(SECONDS)
        (trouble,) = bank.status()["trouble"]
        assert trouble["what"] == "feed transfers"
        assert "ValueError: an amount is negative (" in str(trouble["error"])
        commit(store, transfer(3))
        bank.drain(SECONDS)
        assert bank.status()["trouble"] == []
    lines = [one for one in caplog.records if one.levelname == "ERROR"]
    assert [(one.tussock["event"], one.tussock["kind"]) for one in lines] == [
        ("a batch of a feed failed", "ValueError")
    ]
    assert "accounts.py" in lines[0].tussock["stack"]
