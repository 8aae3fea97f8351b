"""`kill -9` of a flow and of its broker: each message has one effect; topic and files have what was published once."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.changelog.fed_files import rows_in_order
from support.depth import DEPTH
from support.feeds import transfers_flow
from support.feeds.broker import KafkaBroker
from support.feeds.serving import Serving, rows_in
from support.feeds.transfers_flow import NUMBER, START, Accounts
from tussock.statestore import connect

KILLS = 2 * DEPTH
TRANSFERS_A_LIFE = 200
MORE_TRANSFERS = 20
"""Once a broker is back."""


def options(chance: random.Random) -> dict[str, Any]:
    return {"checkpoint": chance.choice((0.02, 0.1, 0.5)), "group_commit": chance.choice((None, 0.01))}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_transfers_through_a_flow_have_one_effect_whatever_is_killed(tmp_path: Path, kafka: KafkaBroker) -> None:
    """Flow and broker; from one topic to another, and no published state has half of a transfer."""
    chance = random.Random(19)
    accounts = Accounts(chance)
    prefix = kafka.topic()
    source, ends = kafka.topic(3, f"{prefix}.bank.accounts"), kafka.topic(1, f"{prefix}.transaction")
    target, url = kafka.topic(2), (tmp_path / "store").as_uri()
    given = {
        "kafka": {"servers": kafka.servers, "topic": source, "transactions": ends, "batch_rows": 10},
        "topic": {"servers": kafka.servers, "topic": target},
        "files": {"url": (tmp_path / "files").as_uri(), "transactions": 7, "seconds": 0.05},
    }
    serving = Serving(transfers_flow.__file__, tmp_path, url, given)
    kafka.put(source, [json.dumps(one).encode() for one in accounts.snapshot()])

    def write(count: int) -> None:
        """Events of an account in one partition, those of a transfer in two, and where each transfer ends."""
        parts: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        told = []
        for _ in range(count):
            _, events, end = accounts.transfer()
            told.append(json.dumps(end).encode())
            for one in events:
                parts[one["after"]["id"] % 3].append(json.dumps(one).encode())
        for partition, values in parts.items():
            kafka.put(source, values, partition)
        kafka.put(ends, told)

    with connect(url, compaction=False) as store:

        def put_out() -> int:
            return rows_in(store, "account_changes")

        for kill in range(KILLS):
            serving.start(**options(chance))
            if kill == 0:
                # Nothing of the snapshot, which is in one partition, may come behind what follows.
                serving.await_more(put_out, NUMBER)
            write(TRANSFERS_A_LIFE)
            serving.await_more(put_out, chance.randint(1, TRANSFERS_A_LIFE))
            what = ("both", "program", "broker")[kill % 3]
            if what != "program":
                kafka.kill()
            if what == "broker":
                # The flow goes on without it for a moment, and then with it.
                kafka.start()
                write(MORE_TRANSFERS)
                serving.await_more(put_out, 1)
            serving.kill()
            if what == "both":
                kafka.start()
        serving.end()
        changes = rows_in_order(store, "account_changes")
        table = {row["id"]: row["balance"] for row in rows_in_order(store, "accounts")}
        rich = {row["id"]: row["balance"] for row in rows_in_order(store, "rich")}
    check_changes(changes, accounts)
    files = [pq.read_table(path) for path in sorted((tmp_path / "files").glob("*.parquet"))]
    written = [row for rows in files for row in rows.to_pylist()]
    assert [(row["_sequence"], row["id"], row["balance"]) for row in written] == [
        (row["_sequence"], row["id"], row["balance"]) for row in changes
    ]
    assert len(files) > KILLS
    assert table == accounts.balances
    assert rich == {number: balance for number, balance in table.items() if balance > START}
    sent = check_messages([message for message in kafka.messages(target) if message.value() is not None])
    assert sent == rich


def check_changes(changes: list[dict[str, Any]], accounts: Accounts) -> None:
    """Each change once, in the order of the accounts, and whole transfers only."""
    now: dict[int, int] = {}
    steps = 0
    for at, row in enumerate(changes):
        assert (row["_op"] == "INSERT") == (row["id"] not in now)
        now[row["id"]] = row["balance"]
        steps += row["_op"] == "UPDATE"
        is_last = at + 1 == len(changes) or changes[at + 1]["_sequence"] != row["_sequence"]
        if is_last and len(now) == NUMBER:
            assert sum(now.values()) == NUMBER * START, row
    assert now == accounts.balances
    assert steps == 2 * accounts.transfers


def check_messages(messages: list[Any]) -> dict[int, int]:
    """Each change of a row follows on the one before; returns the rows."""
    now: dict[int, int] = {}
    seen = set()
    for message in messages:
        payload = json.loads(message.value())["payload"]
        place = payload["source"]["sequence"]
        assert place not in seen
        seen.add(place)
        before, after = payload["before"], payload["after"]
        number = (before or after)["id"]
        assert now.get(number) == (before["balance"] if before else None)
        now.pop(number, None)
        if after is not None:
            now[number] = after["balance"]
    return now
