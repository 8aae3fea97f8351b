"""Replies of batch functions over 1 MiB, which no other function may give: here, and over a network."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from support.applications.served_replies import books
from support.feeds.sums import rows_of
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import connect
from tussock.statestore.errors import MessageTooLarge

SECONDS = 60
MIB = 1 << 20
APP = "support.applications.served_replies:books"


def copied(program: Any, *sizes: int) -> list[int]:
    """How long the replies are to requests for that many characters, each of another book."""
    keys = [f"b{at}" for at in range(len(sizes))]
    table = program.send_many("book", "copies", keys, pa.table({"size": pa.array(sizes, pa.int64())}))
    assert table["error"].null_count == len(sizes)
    assert table.schema.field("reply").type == pa.large_string()
    return [len(reply) for reply in table["reply"].to_pylist()]


def test_a_reply_of_a_batch_function_may_be_large_and_another_one_may_not(tmp_path: Path) -> None:
    """The same here and by a node with the limits that it has by default, until a message is full."""
    with connect((tmp_path / "local").as_uri()) as store, books(store) as runtime:
        _replies_up_to_a_message(runtime)
        assert copied(runtime, 20 * MIB) == [20 * MIB]
    with ServeProcess((tmp_path / "served").as_uri(), app=APP) as node, fn.Client(node.address) as client:
        _replies_up_to_a_message(client)


def _replies_up_to_a_message(program: Any) -> None:
    assert copied(program, 3 * MIB, 0, 5 * MIB, 7 * MIB) == [3 * MIB, 0, 5 * MIB, 7 * MIB]
    with pytest.raises(fn.TransactionAborted, match=r"what function book\.copy returned takes .* at most 1 MiB fit"):
        program.send("book", "b0", "copy", MIB).result(SECONDS)


def test_replies_that_no_message_has_room_for_have_been_made_once(tmp_path: Path) -> None:
    """The error says so: requests that are sent again run twice. The connection goes on."""
    with ServeProcess((tmp_path / "store").as_uri(), app=APP) as node, fn.Client(node.address) as client:
        with pytest.raises(MessageTooLarge, match=r"has been done.*limits\.message_bytes") as caught:
            copied(client, 20 * MIB, 1)
        assert caught.value.args[1] > 20 * MIB
        assert caught.value.args[2] < 16 * MIB
        assert [client.query("book", key) for key in ("b0", "b1")] == [{"copies": 1}, {"copies": 1}]
        assert copied(client, 3 * MIB) == [3 * MIB]


def test_a_node_may_be_given_room_for_larger_replies(tmp_path: Path) -> None:
    """As the documentation says."""
    room = ("--limits.message_bytes", str(64 * MIB))
    with (
        ServeProcess((tmp_path / "store").as_uri(), *room, app=APP) as node,
        fn.Client(node.address) as client,
    ):
        assert copied(client, 20 * MIB, 20 * MIB) == [20 * MIB] * 2


def test_large_replies_of_feeds_are_kept_and_given_again(tmp_path: Path) -> None:
    """In the table of replies, and to a client that asks by the id of a row, also after a restart."""
    url, orders = (tmp_path / "store").as_uri(), [{"id": at, "key": f"b{at}", "size": 3 * MIB} for at in range(3)]
    with connect(url) as store, books(store) as runtime:
        with store.transaction() as tx:
            tx.table("orders").upsert(orders)
        runtime.drain(SECONDS)
    with connect(url) as store:
        assert [len(row["reply"]) for row in rows_of(store.table("answers"))] == [3 * MIB + 2] * 3
    with ServeProcess(url, app=APP) as node, fn.Client(node.address) as client:
        assert len(client.send("book", "b1", "copy", 1, request_id="1").result(SECONDS)) == 3 * MIB
        eventually(lambda: client.query("book", "b1") == {"copies": 1})
