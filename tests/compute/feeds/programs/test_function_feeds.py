"""Requests of transactional functions from a table and from Kafka: each runs once, with one reply, in one sequence."""

import json
import threading
from typing import Any

import pyarrow as pa
import pytest

from support.feeds.broker import KafkaBroker
from support.feeds.fed_bank import START, TRANSFER, balances_of, fed_bank, left_by
from support.feeds.sums import rows_of
from support.feeds.transfers import answers, commit, table_of, transfer
from support.functions.accounts import accounts, cells
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TableNotFound, WaitTimeout

SECONDS = 60


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_of_a_table_are_requests_once(store: StateStore, workers: int) -> None:
    """Those that are there at the first start, that come while it runs, and while it is away; callers send between."""
    table_of(store)
    commit(store, *map(transfer, range(5)))
    feed = fn.TableFeed("transfers")
    with fed_bank(store, feed, "answers", workers=workers) as bank:
        commit(store, transfer(5), transfer(6, 10_000))
        bank.drain(SECONDS)
        assert bank.send("account", "p0", "transfer", "p1", 100, request_id="mine").result(SECONDS) < START
        assert bank.stats()["feeds"]["transfers"]["rows"] == 7
    commit(store, transfer(7))
    with fed_bank(store, feed, "answers") as bank:
        bank.drain(SECONDS)
        assert bank.stats()["feeds"]["transfers"]["rows"] == 1
    found = answers(store)
    assert set(found) == {str(number) for number in range(8)}
    assert found["0"] == ("999", None)
    assert found["6"] == (None, "not enough credit: p0")
    mine = {"id": "mine", "payer": "p0", "payee": "p1", "amount": 100}
    assert balances_of(store) == left_by([*map(transfer, range(6)), transfer(7), mine], set())


@pytest.mark.parametrize("is_outside", [False, True])
def test_a_batch_larger_than_an_epoch_goes_on_within_itself(store: StateStore, is_outside: bool) -> None:
    """Another runner takes over while the batch has run in part, or asks outside: what has run does not run again."""
    table_of(store)
    commit(store, *map(transfer, range(100)))
    begun, gate = threading.Event(), threading.Event()

    def wait(is_first: bool) -> None:
        if is_first:
            begun.set()
            gate.wait(SECONDS)

    def program(is_first: bool) -> fn.Runtime:
        account = fn.Operator("account")

        @account.register
        async def pay(ctx: fn.FunctionContext, row: int) -> int:
            if is_outside and row == 60:
                ctx.call_external("60", lambda _: wait(is_first))
            elif not is_outside and row == 60:
                wait(is_first)
            state = ctx.get() or {"rows": []}
            ctx.put({"rows": [*state["rows"], row]})
            return row

        # Each epoch is a commit.
        runtime = fn.Runtime(store, "parts", [account], epoch_max=7, checkpoint=0)
        feed = fn.TableFeed("transfers")
        runtime.feed("account", "pay", feed, key="payer", arguments=["id"], request_id="id", replies="answers")
        return runtime

    first = program(True)
    first.start()
    assert begun.wait(SECONDS)
    with program(False) as second:
        second.drain(SECONDS)
        # Those that came first are of the former runner: 100 rows, and a mark, are 15 epochs.
        assert 0 < second.stats()["epochs"] < 15
        gate.set()
        with pytest.raises(fn.ApplicationFenced):
            first.stop()
    assert set(answers(store)) == {str(number) for number in range(100)}
    states = [row for batch in store.table("account").read() for row in batch.to_pylist()]
    rows = {row["key"]: json.loads(row["state"])["rows"] for row in states}
    assert {key: sorted(found) for key, found in rows.items()} == {
        f"p{key}": list(range(key, 100, 3)) for key in range(3)
    }


@pytest.mark.parametrize(("by_columns", "figure", "count"), [(False, "function_calls", 40), (True, "batched", 20)])
def test_a_replay_needs_no_source(
    store: StateStore, kafka: KafkaBroker, by_columns: bool, figure: str, count: int
) -> None:
    """The log has them, or their columns: the next runner replays what no commit has, though the topic has no more."""
    topic = kafka.topic()
    kafka.put(topic, [json.dumps(transfer(number)).encode() for number in range(20)])
    feed = fn.KafkaFeed(kafka.servers, topic, TRANSFER)
    first = fed_bank(store, feed, "answers", by_columns=by_columns, checkpoint=3600)
    first.start()
    eventually(lambda: first.stats()[figure] >= count)
    # A look waits for the records before it.
    first.query("account", "p0")
    assert first.stats()["commits"] == 0
    kafka.delete_before(topic, 20)
    with fed_bank(store, feed, "answers", by_columns=by_columns) as second:
        second.drain(SECONDS)
        assert second.stats()["feeds"]["transfers"]["rows"] == 0
    with pytest.raises(fn.ApplicationFenced):
        first.stop()
    assert len(answers(store)) == 20
    assert balances_of(store) == left_by(map(transfer, range(20)), set())


def test_an_id_that_came_before_does_not_run(store: StateStore, kafka: KafkaBroker) -> None:
    """In one batch, later, and where a caller has sent it: at-least-once producers do no harm."""
    topic = kafka.topic()
    feed = fn.KafkaFeed(kafka.servers, topic, TRANSFER)
    with fed_bank(store, feed, "answers") as bank:
        bank.send("account", "p0", "transfer", "p3", 1, request_id="3").result(SECONDS)
        kafka.put(topic, [json.dumps(transfer(number)).encode() for number in (1, 1, 2, 3)])
        bank.drain(SECONDS)
        kafka.put(topic, [json.dumps(transfer(2)).encode()])
        bank.drain(SECONDS)
        assert bank.send("account", "p1", "transfer", "p4", 1, request_id="1").result(SECONDS) == START - 1
        graph = bank.call_graph("2")
        assert graph is not None
        assert [call["function"] for call in graph["calls"]] == ["transfer", "credit"]
    assert set(answers(store)) == {"1", "2"}
    assert balances_of(store) == left_by(map(transfer, range(1, 4)), set())


def test_replies_go_to_kafka_once(store: StateStore, kafka: KafkaBroker) -> None:
    """With their ids; also those that were not sent when the program ended."""
    source, target = kafka.topic(), kafka.topic()
    feed = fn.KafkaFeed(kafka.servers, source, TRANSFER)
    replies = fn.KafkaTopic(kafka.servers, target, key="request_id")
    for numbers in ((1, 2), (3, 4)):
        kafka.put(source, [json.dumps(transfer(number, 600)).encode() for number in numbers])
        with fed_bank(store, feed, replies) as bank:
            bank.drain(SECONDS)
            assert bank.stats()["outputs"][f"bank.{target}.outbox"]["trouble"] == ""
    found = [json.loads(message.value()) for message in kafka.messages(target)]
    assert sorted((one["request_id"], one["reply"], one["error"]) for one in found) == [
        ("1", "400", None),
        ("2", "400", None),
        ("3", "400", None),
        ("4", None, "not enough credit: p1"),
    ]


def test_a_drain_ends_in_time_while_requests_wait(store: StateStore, kafka: KafkaBroker) -> None:
    """Callers may send for ever: the drain tells of its timeout, and the program works on."""
    source, target = kafka.topic(), kafka.topic()
    feed = fn.KafkaFeed(kafka.servers, source, TRANSFER)
    with fed_bank(store, feed, fn.KafkaTopic(kafka.servers, target, key="request_id")) as bank:
        bank.drain(SECONDS)
        bank.pause()
        kept = bank.send("account", "p0", "transfer", "p1", 10)
        # A drain that looked at no clock would hang here.
        resuming = threading.Timer(5, bank.resume)
        resuming.start()
        # On a busy machine the time is over before the broker has said that there are no more messages.
        with pytest.raises(WaitTimeout, match=r"requests wait|feed 'transfers' has more"):
            bank.drain(0.1)
        resuming.cancel()
        bank.resume()
        assert kept.result(SECONDS) == START - 10
        bank.drain(SECONDS)


def test_what_is_no_request_is_a_dead_letter(store: StateStore, kafka: KafkaBroker) -> None:
    """A message that is no row, a row that the function does not take; the others run, and each is kept once."""
    topic = kafka.topic()
    good = [json.dumps(transfer(number)).encode() for number in range(3)]
    no_amount = json.dumps(transfer(8, payee=None)).encode()
    kafka.put(topic, [good[0], b"{", no_amount, good[1], json.dumps(transfer(9, payer="x" * 5000)).encode(), good[2]])
    feed = fn.KafkaFeed(kafka.servers, topic, TRANSFER, on_bad="skip")
    for _ in range(2):
        with fed_bank(store, feed, "answers") as bank:
            bank.drain(SECONDS)
    letters = rows_of(store.table("bank.dead_letters"))
    assert [letter["number"] for letter in letters] == [1, 2, 3]
    assert {letter["feed"] for letter in letters} == {"transfers"}
    assert letters[0]["data"] == b"{"
    assert ["payee" in letters[1]["cause"] or "to is" in letters[1]["cause"], "key" in letters[2]["cause"]] == [
        True
    ] * 2
    with pa.ipc.open_stream(letters[1]["data"]) as reader:
        assert reader.read_all().column("amount").to_pylist() == [1]
    assert set(answers(store)) == {"0", "1", "2"}


def test_what_is_no_request_stops_the_program(store: StateStore) -> None:
    """By default; it names the row, and the next start meets it again, behind those before it."""
    table_of(store)
    commit(store, transfer(1), transfer(2, payee=None), transfer(3))
    where = r"row \d of 3 of table 'transfers' in epoch \d{9,}, key 'p\d+', cannot"
    bank = fed_bank(store, fn.TableFeed("transfers"), "answers")
    for _ in range(2):
        with pytest.raises(fn.BadInput, match=rf"feed .transfers. of program .bank.: {where}"), bank:
            bank.drain(SECONDS)
    commit(store, transfer(2))
    with fed_bank(store, fn.TableFeed("transfers", on_bad="skip"), "answers") as mended:
        mended.drain(SECONDS)
    assert set(answers(store)) == {"1", "2", "3"}


def test_feeds_that_cannot_be(store: StateStore) -> None:
    """Each by its name, before anything is stored."""
    table_of(store)
    feed = fn.TableFeed("transfers")
    with fed_bank(store, feed) as running, pytest.raises(InvalidOption, match="runs"):
        running.feed("account", "begin", feed, name="other")
    for options, error, text in (
        ({"function": "nothing"}, fn.FunctionFault, "no function"),
        ({"feed": "transfers"}, InvalidOption, "expected a TableFeed"),
        ({"name": "a/b"}, InvalidOption, "name="),
        ({"key": ""}, InvalidOption, "key="),
        ({"arguments": "amount"}, InvalidOption, "arguments="),
        ({"replies": "answers"}, InvalidOption, "request_id="),
        ({"replies": 7, "request_id": "id"}, InvalidOption, "replies=7"),
        ({"replies": "account", "request_id": "id"}, InvalidOption, "own"),
        ({"replies": "answers", "request_id": "id", "keep_rows": 0}, InvalidOption, "keep_rows"),
    ):
        runtime = fn.Runtime(store, "bank", [accounts()])
        given: dict[str, Any] = {"function": "begin", "feed": feed, **options}
        with pytest.raises(error, match=text):
            runtime.feed("account", given.pop("function"), given.pop("feed"), **given)
    runtime.feed("account", "begin", feed, key="payer", arguments=["nothing"])
    with pytest.raises(InvalidOption, match="another name="):
        runtime.feed("account", "begin", feed)
    with pytest.raises(SchemaMismatch, match="nothing"):
        runtime.start()
    unnamed = fn.Runtime(store, "bank", [accounts()])
    unnamed.feed("account", "transfer", feed, key="payer")
    with pytest.raises(SchemaMismatch, match=r"no parameters \['id', 'payee'\].*arguments="):
        unnamed.start()
    absent = fn.Runtime(store, "bank", [accounts()])
    absent.feed("account", "begin", fn.TableFeed("nowhere"))
    with pytest.raises(TableNotFound):
        absent.start()
    with pytest.raises(fn.ApplicationStopped):
        absent.drain()


def test_columns_are_arguments_by_name(store: StateStore) -> None:
    """Without `arguments`, in whatever order the table has them."""
    schema = pa.schema([("amount", pa.int64()), ("id", pa.int64()), ("payer", pa.string()), ("to", pa.string())])
    store.create_table("payments", schema, primary_key=["id"])
    with store.transaction() as tx:
        tx.table("payments").upsert([{"id": 1, "payer": "p0", "to": "p1", "amount": 30}])
    runtime = fn.Runtime(store, "bank", [accounts()])
    runtime.load("account", [{"key": "p0", "balance": START}])
    runtime.feed("account", "transfer", fn.TableFeed("payments"), key="payer", request_id="id")
    with runtime:
        runtime.drain(SECONDS)
        assert runtime.query("account", "p1") == {"balance": 30}


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32(), pa.decimal128(9, 2), pa.list_(pa.date32())])
def test_a_column_that_is_no_argument_is_found_at_the_start(store: StateStore, kind: pa.DataType) -> None:
    """Story: it was found at the first row, and with `skip` each row was a dead letter."""
    store.create_table("timed", pa.schema([("key", pa.string()), ("value", kind)]), primary_key=["key"])
    for arguments in (None, ["value"]):
        runtime = fn.Runtime(store, "p", [cells()])
        runtime.feed("cell", "write", fn.TableFeed("timed", on_bad="skip"), arguments=arguments)
        with pytest.raises(SchemaMismatch, match=r"column 'value' is of type .*arguments="):
            runtime.start()


@pytest.mark.parametrize("arguments", [[], ["value", "value"]])
def test_other_numbers_of_arguments_are_found_at_the_start(store: StateStore, arguments: list[str]) -> None:
    """Story: they were found at the first row, and with `skip` each row was a dead letter."""
    store.create_table("values", pa.schema([("key", pa.string()), ("value", pa.int64())]), primary_key=["key"])
    runtime = fn.Runtime(store, "p", [cells()])
    runtime.feed("cell", "write", fn.TableFeed("values", on_bad="skip"), arguments=arguments)
    with pytest.raises(SchemaMismatch, match=f"cell.write takes 1 argument behind the context, found {len(arguments)}"):
        runtime.start()
