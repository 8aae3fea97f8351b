"""The acceptance scenarios of transactional functions: FX1 to FX10."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from support.functions.accounts import accounts, cells, run_together
from tussock.compute import functions as fn
from tussock.compute.functions.epochs.acks import Acks
from tussock.compute.functions.epochs.sequencer import Sequencer, rebalance
from tussock.statestore import StateStore, connect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def bank(store: StateStore, balances: dict[str, int], **options: Any) -> fn.Runtime:
    account = accounts()
    runtime = fn.Runtime(store, "bank", [account], **options)
    runtime.load("account", [{"key": key, "balance": balance} for key, balance in balances.items()])
    return runtime


def values(runtime: fn.Runtime, keys: str) -> dict[str, Any]:
    found = {key: runtime.query("cell", key) for key in keys.split()}
    return {key: state["value"] for key, state in found.items() if state is not None}


def held(runtime: fn.Runtime, keys: str) -> dict[str, int]:
    found = {key: runtime.query("account", key) for key in keys}
    return {key: state["balance"] for key, state in found.items() if state is not None}


def phases(runtime: fn.Runtime, *tids: int) -> list[tuple[str, int]]:
    """Of transactions the phase by which they ended, and the epoch."""
    found = [runtime.call_graph(tid=tid) for tid in tids]
    return [(one["phase"], one["epoch"]) for one in found if one is not None]


def test_fx1_who_meets_nobody_commits_without_locks(store: StateStore) -> None:
    """X5, X15, X21: two transfers between four accounts, in one epoch."""
    with bank(store, dict.fromkeys("ABCD", 100)) as runtime:
        sent = ("account", "A", "transfer", "B", 10), ("account", "C", "transfer", "D", 5)
        assert run_together(runtime, *sent) == [90, 95]
        assert held(runtime, "ABCD") == {"A": 90, "B": 110, "C": 95, "D": 105}
        assert phases(runtime, 1, 2) == [("lock_free", 1), ("lock_free", 1)]


@pytest.mark.parametrize("lock_phase", [True, False])
def test_fx2_losers_run_again_behind_those_who_were_first(store: StateStore, lock_phase: bool) -> None:
    """X18, X22: a loser that beats a third one still blocks it; without a lock phase they keep their numbers."""
    with fn.Runtime(store, "p", [cells()], lock_phase=lock_phase) as runtime:
        sent = [
            ("cell", f"t{at}", "add_to_all", keys) for at, keys in enumerate((["k1", "k2"], ["k2", "k8"], ["k8", "k3"]))
        ]
        run_together(runtime, *sent)
        assert values(runtime, "k1 k2 k8 k3") == {"k1": 1, "k2": 2, "k8": 2, "k3": 1}
        expected = (
            [("lock_free", 1), ("locked", 1), ("locked", 1)] if lock_phase else [("lock_free", at) for at in (1, 2, 3)]
        )
        assert phases(runtime, 1, 2, 3) == expected


def test_fx3_a_loser_may_abort_on_what_the_others_left(store: StateStore) -> None:
    """X6, X22: three times ten from twenty-five."""
    with bank(store, {"A": 25, "B": 0}) as runtime:
        sent = [("account", "A", "transfer", "B", 10)] * 3
        assert run_together(runtime, *sent) == [15, 5, "not enough credit: A"]
        assert held(runtime, "AB") == {"A": 5, "B": 20}
        assert phases(runtime, 1, 2, 3) == [("lock_free", 1), ("locked", 1), ("aborted", 1)]


def test_fx4_an_abort_depends_on_the_cut_of_the_epoch(store: StateStore) -> None:
    """X15: within one epoch all see the snapshot that it began with."""
    chain = ("account", "A", "transfer", "B", 10), ("account", "B", "transfer", "C", 5)
    with bank(store, {"A": 10, "B": 0, "C": 0}) as runtime:
        assert run_together(runtime, *chain) == [0, "not enough credit: B"]
        assert held(runtime, "ABC") == {"A": 0, "B": 10, "C": 0}
    with bank(store, {"A": 10, "B": 0, "C": 0}, epoch_ms=0) as runtime:
        assert [run_together(runtime, one) for one in chain] == [[0], [5]]
        assert held(runtime, "ABC") == {"A": 0, "B": 5, "C": 5}


def test_fx5_what_aborted_stands_in_nobodys_way(store: StateStore) -> None:
    """X20: its reads and writes are gone before conflicts are looked for; the reply is the error's own text."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        run_together(runtime, ("cell", "B", "write", 5))
        sent = ("cell", "B", "write_and_fail", 1), ("cell", "B", "add", 1)
        assert run_together(runtime, *sent) == ["no", 6]
        assert values(runtime, "B") == {"B": 6}
        assert phases(runtime, 2, 3) == [("aborted", 2), ("lock_free", 2)]


def test_fx6_who_needs_other_entities_waits_for_the_next_epoch(store: StateStore) -> None:
    """X23: with its number, and it answers once."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        run_together(runtime, ("cell", "p", "write", "x"), ("cell", "x", "write", 0), ("cell", "y", "write", 0))
        sent = ("cell", "p", "write", "y"), ("cell", "p", "add_to_named")
        assert run_together(runtime, *sent) == [None, 1]
        assert values(runtime, "p x y") == {"p": "y", "x": 0, "y": 1}
        assert phases(runtime, 4, 5) == [("lock_free", 2), ("lock_free", 3)]
        assert runtime.stats()["deferrals"] == 1


def test_fx7_one_function_aborts_all_of_a_transaction(store: StateStore) -> None:
    """X6: a hotel without rooms takes the flight and the order with it."""
    order, hotel, flight = fn.Operator("order"), fn.Operator("hotel"), fn.Operator("flight")

    @order.register
    async def book(ctx: fn.FunctionContext, room: str, seat: str) -> str:
        ctx.put({"room": room, "seat": seat})
        ctx.call_async("flight", seat, "reserve")
        ctx.call_async("hotel", room, "reserve")
        return "booked"

    for operator, what in ((hotel, "rooms in hotel"), (flight, "seats in flight")):

        @operator.register
        async def reserve(ctx: fn.FunctionContext, what: str = what) -> None:
            state = ctx.get()
            assert state is not None
            if not state["cap"]:
                raise RuntimeError(f"No {what}: {ctx.key}")
            ctx.put({"cap": state["cap"] - 1})

    runtime = fn.Runtime(store, "travel", [order, hotel, flight])
    runtime.load("hotel", [{"key": "h1", "cap": 0}, {"key": "h2", "cap": 1}])
    runtime.load("flight", [{"key": "f1", "cap": 1}])
    with runtime:
        assert run_together(runtime, ("order", "o1", "book", "h1", "f1")) == ["No rooms in hotel: h1"]
        assert runtime.query("flight", "f1") == {"cap": 1}
        assert runtime.query("order", "o1") is None
        assert run_together(runtime, ("order", "o1", "book", "h2", "f1")) == ["booked"]
        assert runtime.query("flight", "f1") == {"cap": 0}


def test_fx8_shares_are_exact(store: StateStore) -> None:
    """X16, X17: Fig. 6, and 49 calls with 7 each, whose shares come back in both orders."""
    node = fn.Operator("node")

    @node.register
    async def visit(ctx: fn.FunctionContext, children: list[Any]) -> None:
        for at, below in enumerate(children):
            ctx.call_async("node", f"{ctx.key}.{at}", "visit", below)

    with fn.Runtime(store, "tree", [node]) as runtime:
        runtime.send("node", "r", "visit", [[], [], [[], []]], request_id="fig-6").result(30)
        graph = runtime.call_graph("fig-6")
        assert graph is not None
        calls = graph["calls"]
        leaves = [one["share"] for at, one in enumerate(calls) if all(other["caller"] != at for other in calls)]
        assert leaves == ["1/3", "1/3", "1/6", "1/6"]
        runtime.send("node", "r", "visit", [[[]] * 7] * 49, request_id="wide").result(30)
        graph = runtime.call_graph("wide")
        assert graph is not None
        shares = [int(one["share"].removeprefix("1/")) for one in graph["calls"] if one["caller"] > 0]
        assert len(shares) == 49 * 7
    for order in (shares, shares[::-1]):
        acks = Acks()
        for at, share in enumerate(order):
            assert not acks.is_complete, f"complete after {at} of {len(order)} shares"
            acks.add(share)
        assert acks.is_complete
    assert sum(Fraction(1, share) for share in shares) == 1
    assert sum(1 / share for share in shares) != 1, "floats would do here"


def test_fx9_sequencers_give_each_number_once(store: StateStore) -> None:
    """X11, X12: five, one and no requests; then one each, behind the furthest."""
    three = [Sequencer(sid, 3) for sid in (1, 2, 3)]
    assert [list(one.take(count)) for one, count in zip(three, (5, 1, 0), strict=True)] == [[1, 4, 7, 10, 13], [2], []]
    rebalance(three)
    assert [list(one.take(1)) for one in three] == [[16], [17], [18]]


@pytest.mark.parametrize(
    ("conflicts", "expected"),
    [("serializable", {"A": 1, "B": 1}), ("reorder", {"A": 1, "B": 1}), ("snapshot", {"A": 2, "B": 1})],
)
def test_fx10_a_write_skew_over_partitions(store: StateStore, conflicts: Any, expected: dict[str, int]) -> None:
    """X18: B becomes A's value and A becomes B's; only snapshot isolation lets both see the old ones.

    Deciding per partition, as a published system does, would commit both in the mode `reorder`, too.
    """
    with fn.Runtime(store, "p", [cells()], conflicts=conflicts) as runtime:
        run_together(runtime, ("cell", "A", "write", 1), ("cell", "B", "write", 2))
        run_together(runtime, ("cell", "B", "copy_of", "A"), ("cell", "A", "copy_of", "B"))
        assert values(runtime, "A B") == expected
