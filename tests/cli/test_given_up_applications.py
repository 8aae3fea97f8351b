"""`tussock repair application`: what a log has that cannot be run again is given up, and an application forgotten."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.procedures.procedure_story import Story, batch
from support.store.command import Tussock
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


Repair = Callable[..., dict[str, Any]]


@pytest.fixture
def repair(tmp_path: Path, tussock: Tussock) -> Repair:
    """The command's answer."""

    def run(*options: str) -> dict[str, Any]:
        ran = tussock("repair", "application", *options, "--json", "--store", (tmp_path / "store").as_uri())
        assert ran.code == 0, ran.err
        found: dict[str, Any] = ran.json()
        return found

    return run


def commit_of_another(store: StateStore, table: str, row: dict[str, Any]) -> None:
    with store.transaction() as tx:
        tx.table(table).upsert([row])


def bank(store: StateStore, name: str = "bank") -> fn.Runtime:
    account = fn.Operator("account", schema=pa.schema([("balance", pa.int64())]))

    @account.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        balance = (ctx.get() or {"balance": 0})["balance"] + amount
        ctx.put({"balance": balance})
        return int(balance)

    return fn.Runtime(store, name, [account], checkpoint=3600)


def add(runtime: fn.Runtime, amount: int, request_id: str | None = None) -> int:
    return int(runtime.send("account", "k", "add", amount, request_id=request_id).result(SECONDS))


def given_up(store: StateStore, table: str) -> list[dict[str, Any]]:
    return [row for part in store.table(table).read() for row in part.to_pylist()]


def test_what_the_log_has_is_given_up_and_kept(store: StateStore, repair: Repair) -> None:
    """Nothing is lost without a word, and a client that asks again by its id is served."""
    runtime = bank(store)
    runtime.start()
    assert add(runtime, 3, "one") == 3
    assert add(runtime, 4, "two") == 7
    commit_of_another(store, "account", {"key": "k", "balance": 100})
    with pytest.raises(fn.ApplicationFenced):
        runtime.stop()
    done = repair("bank", "--give-up")
    assert (done["records"], done["table"], done["forgotten"]) == (2, "bank.given_up", False)
    kept = given_up(store, "bank.given_up")
    assert [(row["seq"], row["kind"], row["text"]) for row in kept] == [
        (1, "epoch", '[["account","k","add",[3],"one"]]'),
        (2, "epoch", '[["account","k","add",[4],"two"]]'),
    ]
    assert repair("bank", "--give-up")["records"] == 0
    for expected in (103, 103):
        with bank(store) as again:
            assert add(again, 3, "one") == expected
    runtime = bank(store)
    runtime.start()
    assert add(runtime, 1) == 104
    store.wait_epoch(repair("bank", "--give-up")["epoch"])
    with pytest.raises(fn.ApplicationFenced):
        eventually(lambda: add(runtime, 1) < 0)
    kept = given_up(store, "bank.given_up")
    assert [row["seq"] for row in kept] == [1, 2, 4]


def test_batches_and_changes_are_given_up(store: StateStore, repair: Repair) -> None:
    """Of procedures and of flows: the runner is the same."""
    story = Story(store)
    story.app.start()
    assert story.app.submit("SP1", batch(1), batch_id=7).result(SECONDS) == 4
    commit_of_another(store, "sum", {"k": 0, "v": 1000})
    with pytest.raises(ps.ApplicationFenced):
        story.app.stop()
    with pytest.raises(ps.TablesChanged, match="'sum'"):
        Story(store).app.start()
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def flow() -> cl.Flow:
        return cl.Flow(store, [cl.Stream(store, "s", schema=schema, key=["k"])], checkpoint=3600)

    running = flow()
    running.start()
    running.streams["s"].push([cl.insert(k="a", v=1)]).result(SECONDS)
    commit_of_another(store, "s", {"k": "a", "v": 5})
    with pytest.raises(cl.ApplicationFenced):
        running.stop()
    with pytest.raises(cl.TablesChanged, match="'s'"):
        flow().start()
    assert (repair("story", "--give-up")["records"], repair("s", "--give-up")["records"]) == (1, 1)
    assert [row["text"] for row in given_up(store, "story.given_up")] == ['[{"x":1}]']
    assert [row["kind"] for row in given_up(store, "s.given_up")] == ["changes"]
    with Story(store).app as app:
        assert app.submit("SP1", batch(1), batch_id=7).result(SECONDS) == 1004
    with flow() as again:
        again.streams["s"].push([cl.upsert(k="a", v=2)]).result(SECONDS)
        assert again.streams["s"].get("a") == {"k": "a", "v": 2}


def test_a_forgotten_program_leaves_its_tables_to_others(store: StateStore, repair: Repair, tussock: Tussock) -> None:
    """Its name stays used; rows are taken over by `load`."""
    with bank(store) as runtime:
        add(runtime, 1)
    done = repair("bank", "--forget")
    assert (done["records"], done["table"], done["forgotten"]) == (0, None, True)
    with pytest.raises(InvalidOption, match="Give the application another name"):
        bank(store).start()
    shop = bank(store, "shop")
    shop.load("account", [])
    with shop:
        assert add(shop, 1) == 2
    url = store.url
    ran = tussock("repair", "application", "bank", "--give-up", "--store", url)
    assert (ran.code, "no application 'bank'; there are ['shop']" in ran.err) == (1, True)
    assert tussock("repair", "application", "shop", "--store", url).code == 2
    assert "Gave up 0 records" in tussock("repair", "application", "shop", "--give-up", "--store", url).out
