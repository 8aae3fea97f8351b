"""What an application does when somebody else commits to its tables: the tables that it has read are its own, too."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.procedures.procedure_story import Story, batch
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.statestore import StateStore, connect

BALANCE = pa.schema([("balance", pa.int64())])
SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def commit_of_another(folder: Path, table: str, row: dict[str, Any]) -> int | None:
    with connect((folder / "store").as_uri(), compaction=False) as other:
        with other.transaction() as tx:
            tx.table(table).upsert([row])
        return tx.epoch


def audited() -> list[fn.Operator]:
    """Accounts, and copies of their balances."""
    account, audit = fn.Operator("account", schema=BALANCE), fn.Operator("audit", schema=BALANCE)

    @account.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        balance = (ctx.get() or {"balance": 0})["balance"] + amount
        ctx.put({"balance": balance})
        return int(balance)

    @account.register
    async def balance(ctx: fn.FunctionContext) -> int:
        return int((ctx.get() or {"balance": 0})["balance"])

    @audit.register
    async def copy(ctx: fn.FunctionContext, of: str) -> int:
        found = await ctx.call("account", of, "balance")
        ctx.put({"balance": found})
        return int(found)

    return [account, audit]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_commit_to_a_table_that_functions_only_read(store: StateStore, tmp_path: Path, workers: int) -> None:
    """Story: a program copied the balance that it remembered for ever, as its commits wrote to the copies only."""
    with fn.Runtime(store, "bank", audited()) as first:
        first.send("account", "k", "add", 1).result(SECONDS)
    runtime = fn.Runtime(store, "bank", audited(), checkpoint=0.05, workers=workers)
    runtime.start()
    assert runtime.send("audit", "x", "copy", "k").result(SECONDS) == 1
    eventually(lambda: store.table("audit").get("x"))
    commit_of_another(tmp_path, "account", {"key": "k", "balance": 100})
    with pytest.raises(fn.ApplicationFenced, match=r"'account'.* committed to it since"):
        eventually(lambda: runtime.send("audit", "x", "copy", "k").result(SECONDS) == 100)
    with suppress(fn.ApplicationFenced):
        runtime.stop()
    assert store.table("audit").get("x") == {"key": "x", "balance": 1}


def test_a_commit_to_a_table_of_a_program_that_only_answers(store: StateStore, tmp_path: Path) -> None:
    """Nothing is committed by which it would be told, and what it answers from memory is old."""
    runtime = fn.Runtime(store, "bank", audited(), checkpoint=0.05)
    runtime.start()
    runtime.send("account", "k", "add", 1).result(SECONDS)
    eventually(lambda: store.table("account").get("k"))
    commit_of_another(tmp_path, "account", {"key": "k", "balance": 100})
    with pytest.raises(fn.ApplicationFenced, match=r"'account'.* committed to it since"):
        eventually(lambda: runtime.query("account", "k") == {"balance": 100})
    with pytest.raises(fn.ApplicationFenced):
        runtime.stop()
    with fn.Runtime(store, "bank", audited()) as again:
        assert again.query("account", "k") == {"balance": 100}


def test_a_commit_to_a_table_that_procedures_only_read(store: StateStore, tmp_path: Path) -> None:
    """And one to a table that none of its procedures has opened is nothing to it."""
    store.create_table("rate", pa.schema([("k", pa.int64()), ("v", pa.int64())]), primary_key=["k"])
    store.create_table("other", pa.schema([("k", pa.int64()), ("v", pa.int64())]), primary_key=["k"])
    story = Story(store, checkpoint=0.05)
    story.app.table("rate")

    @story.app.call_procedure("rate")
    def rate(tx: Any) -> Any:
        return tx.table("rate").get(0)

    story.app.start()
    assert story.app.call("rate") is None
    commit_of_another(tmp_path, "other", {"k": 0, "v": 7})
    story.go_on_for(10)
    commit_of_another(tmp_path, "rate", {"k": 0, "v": 7})
    with pytest.raises(ps.ApplicationFenced, match=r"'rate'.* committed to it since"):
        eventually(lambda: story.app.submit("SP1", batch(1)).result(SECONDS) < 0)
    with pytest.raises(ps.ApplicationFenced):
        story.app.stop()


def program_of_functions(store: StateStore) -> fn.Runtime:
    return fn.Runtime(store, "bank", audited(), checkpoint=3600)


def add(runtime: fn.Runtime, amount: int, request_id: str | None = None) -> int:
    return int(runtime.send("account", "k", "add", amount, request_id=request_id).result(SECONDS))


def test_a_start_after_rows_of_others_says_who_wrote_them(store: StateStore, tmp_path: Path) -> None:
    """Story: functions were told to be at fault, and nothing but the old rows would let the program start again."""
    with program_of_functions(store) as earlier:
        add(earlier, 1)
    runtime = program_of_functions(store)
    runtime.start()
    assert add(runtime, 1, "one") == 2
    assert add(runtime, 2, "two") == 4
    epoch = commit_of_another(tmp_path, "account", {"key": "k", "balance": 100})
    with pytest.raises(fn.ApplicationFenced):
        runtime.stop()
    for _ in range(2):
        with pytest.raises(fn.TablesChanged, match=r"'account' at epoch .*--give-up.*'bank.given_up'") as caught:
            program_of_functions(store).start()
        assert caught.value.args[1:] == ("account", epoch)
    # The rows that it had are what it needs.
    commit_of_another(tmp_path, "account", {"key": "k", "balance": 1})
    with program_of_functions(store) as again:
        assert again.query("account", "k") == {"balance": 4}


def test_rows_of_others_that_make_no_difference(store: StateStore, tmp_path: Path) -> None:
    """What the log has is run again over them."""
    runtime = program_of_functions(store)
    runtime.start()
    assert add(runtime, 3) == 3
    commit_of_another(tmp_path, "account", {"key": "other", "balance": 100})
    with pytest.raises(fn.ApplicationFenced):
        runtime.stop()
    with program_of_functions(store) as again:
        assert again.query("account", "k") == {"balance": 3}
        assert again.query("account", "other") == {"balance": 100}
