"""The checker of histories finds what is wrong and nothing else: examples, and a comparison with all orders."""

import random
from collections.abc import Sequence
from itertools import permutations

import pytest

from support.chaos.linearizability import Operation, Undecided, check


def commit(client: str, called: int, returned: int | None, **wrote: str) -> Operation:
    return Operation(client, called, returned, {}, wrote)


def read(client: str, called: int, returned: int, **saw: str | None) -> Operation:
    return Operation(client, called, returned, saw, {})


def update(client: str, called: int, returned: int | None, saw: dict[str, str | None], **wrote: str) -> Operation:
    """A conditional commit."""
    return Operation(client, called, returned, saw, wrote)


GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "an empty store": [read("r", 0, 1, x=None)],
    "one after the other": [
        commit("w", 0, 1, x="1"),
        read("r", 2, 3, x="1"),
        commit("w", 4, 5, x="2"),
        read("r", 6, 7, x="2"),
    ],
    "a read beside a commit sees the state before": [
        commit("w", 0, 1, x="1"),
        commit("w", 2, 9, x="2"),
        read("r", 3, 4, x="1"),
    ],
    "a read beside a commit sees the state after": [
        commit("w", 0, 1, x="1"),
        commit("w", 2, 9, x="2"),
        read("r", 3, 4, x="2"),
    ],
    "commits that overlap, in the order that reads tell": [
        commit("v", 0, 5, x="v", y="v"),
        commit("w", 0, 6, x="w", z="w"),
        read("r", 7, 8, x="v", y="v", z="w"),
    ],
    "a commit without an answer took effect": [commit("w", 0, None, x="1"), read("r", 5, 6, x="1")],
    "a commit without an answer took effect late": [
        commit("w", 0, None, x="1"),
        read("r", 5, 6, x=None),
        commit("v", 7, 8, x="2"),
        read("r", 9, 10, x="2"),
        read("r", 11, 12, x="1"),
    ],
    "a commit without an answer never took effect": [commit("w", 0, None, x="1"), read("r", 5, 6, x=None)],
    "conditional commits, one after the other": [
        update("v", 0, 9, {"n": None}, n="1"),
        update("w", 0, 9, {"n": "1"}, n="2"),
        read("r", 10, 11, n="2"),
    ],
    "called at the moment of an answer": [commit("w", 0, 5, x="1"), read("r", 5, 6, x=None)],
}

BAD: dict[str, list[Operation]] = {
    "a stale read: the commit had been acknowledged": [commit("w", 0, 1, x="1"), read("r", 2, 3, x=None)],
    "a stale read of an older value": [
        commit("w", 0, 1, x="1"),
        commit("w", 2, 3, x="2"),
        read("r", 4, 5, x="1"),
    ],
    "a reader goes back, although the commit is still under way": [
        commit("w", 0, 99, x="1"),
        read("r", 1, 2, x="1"),
        read("r", 3, 4, x=None),
    ],
    "another reader goes back": [
        commit("w", 0, 99, x="1"),
        read("r", 1, 2, x="1"),
        read("s", 3, 4, x=None),
    ],
    "a lost write: acknowledged and never there": [
        commit("v", 0, 1, x="1"),
        commit("w", 2, 3, y="2"),
        read("r", 4, 5, x="1", y=None),
        read("r", 6, 7, x="1", y=None),
    ],
    "half an epoch": [commit("w", 0, 9, x="1", y="1"), read("r", 1, 2, x="1", y=None)],
    "half an epoch that was never answered": [commit("w", 0, None, x="1", y="1"), read("r", 1, 2, x=None, y="1")],
    "two halves of two epochs": [
        commit("v", 0, 5, x="v", y="v"),
        commit("w", 0, 6, x="w", y="w"),
        read("r", 7, 8, x="v", y="w"),
    ],
    "reordered: the second commit is there, the first is not": [
        commit("w", 0, 1, x="1"),
        commit("w", 2, 9, y="2"),
        read("r", 3, 4, x=None, y="2"),
    ],
    "two readers see two commits in two orders": [
        commit("v", 0, 99, x="1"),
        commit("w", 0, 99, y="2"),
        read("r", 1, 2, x="1", y=None),
        read("s", 3, 4, x=None, y="2"),
    ],
    "a value of nobody": [commit("w", 0, 1, x="1"), read("r", 2, 3, x="?")],
    "a commit that counted twice": [
        commit("v", 0, 1, x="v"),
        commit("w", 2, 3, x="w"),
        read("r", 4, 5, x="w"),
        read("r", 6, 7, x="v"),
    ],
    "a commit without an answer that counted twice": [
        commit("v", 0, None, x="v"),
        read("r", 1, 2, x="v"),
        commit("w", 3, 4, x="w"),
        read("r", 5, 6, x="w"),
        read("r", 7, 8, x="v"),
    ],
    "seen before it was called": [read("r", 0, 1, x="1"), commit("w", 2, 3, x="1")],
    "seen before it was called, and never answered": [read("r", 0, 1, x="1"), commit("w", 2, None, x="1")],
    "a lost update: two conditional commits on the same state": [
        update("v", 0, 9, {"n": None}, n="1"),
        update("w", 0, 9, {"n": None}, n="1 too"),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_right_history_passes(history: list[Operation]) -> None:
    assert check(history) is None


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_a_wrong_history_is_found(history: list[Operation]) -> None:
    """The error names the operation that does not fit."""
    violation = check(history)
    assert violation is not None
    assert "none of these fits" in str(violation)
    assert violation.pending


def in_some_order(history: Sequence[Operation]) -> bool:
    """The definition in code: some order of all known and some unknown operations gives these results."""
    unknown = [one for one in history if one.returned is None]
    known = [one for one in history if one.returned is not None]
    for chosen in range(1 << len(unknown)):
        picked = known + [one for at, one in enumerate(unknown) if chosen >> at & 1]
        for order in permutations(picked):
            if all(
                later.returned is None or later.returned >= earlier.called
                for at, earlier in enumerate(order)
                for later in order[at + 1 :]
            ) and _answers_are_right(order):
                return True
    return False


def _answers_are_right(order: Sequence[Operation]) -> bool:
    state: dict[str, str | None] = {}
    for one in order:
        if any(state.get(key) != value for key, value in one.saw.items()):
            return False
        state.update(one.wrote)
    return True


def random_history(chance: random.Random) -> list[Operation]:
    """Up to six operations on two keys; about half of the histories are right."""
    history = []
    written: dict[str, list[str | None]] = {"x": [None], "y": [None]}
    for at in range(chance.randrange(2, 7)):
        called = chance.randrange(12)
        returned = None if chance.random() < 0.2 else called + chance.randrange(8)
        saw: dict[str, str | None] = {}
        wrote: dict[str, str] = {}
        kind = chance.random()
        if kind < 0.6:
            keys = chance.choice([["x"], ["y"], ["x", "y"]])
            wrote = {key: f"{at}{key}" for key in keys}
            for key in keys:
                written[key].append(wrote[key])
        if kind > 0.45:
            saw = {key: chance.choice(written[key]) for key in chance.choice([["x"], ["y"], ["x", "y"]])}
        if not wrote and returned is None:
            returned = called + 1
        history.append(Operation(f"c{at}", called, returned, saw, wrote))
    chance.shuffle(history)
    return history


def test_it_agrees_with_a_search_of_all_orders() -> None:
    """Compared on 3,000 small histories, of which many are right and many wrong."""
    chance = random.Random(4)
    right = 0
    for at in range(3000):
        history = random_history(chance)
        expected = in_some_order(history)
        right += expected
        assert (check(history) is None) == expected, f"history {at}: {history}"
    assert 800 < right < 2200


def long_history(commits: int, clients: int, chance: random.Random) -> list[Operation]:
    """A history of a right store with clients that overlap all the time: each operation takes effect in its middle.

    Each client goes on when it has its answer; of those whose answer is lost, a successor does.
    """
    state: dict[str, str | None] = {f"k{n}": None for n in range(6)}
    history = []
    # The moments of the clients' operations alternate; between two of its moments a client answers and calls again.
    for at in range(commits):
        moment = at * 100
        called = moment - chance.randrange(1, 49 * clients)
        returned = moment + chance.randrange(1, 49 * clients)
        if chance.random() < 0.5:
            history.append(Operation(f"r{at % clients}", called, returned, dict(state), {}))
            continue
        wrote = {key: f"{at}{key}" for key in chance.sample(sorted(state), 3)}
        lost = chance.random() < 0.05
        if not lost or chance.random() < 0.5:
            state.update(wrote)
        history.append(Operation(f"w{at % clients}", called, None if lost else returned, {}, wrote))
    return history


def test_long_histories_are_decided_within_few_steps() -> None:
    """Thousands of operations of six clients, some of unknown outcome; one changed result refutes the history."""
    for seed in range(3):
        chance = random.Random(seed)
        history = long_history(2000, 6, chance)
        assert check(history, configurations_max=100_000) is None
        reads = [at for at, one in enumerate(history) if not one.wrote and at > 500]
        bent = chance.choice(reads)
        old = next(one for one in history if not one.wrote and one.returned is not None and any(one.saw.values()))
        history[bent] = history[bent]._replace(saw=old.saw)
        assert check(history, configurations_max=100_000) is not None


def test_a_search_without_end_is_given_up() -> None:
    """Twenty commits at once, and a read that none of their orders explains, are more than the checker tries."""
    history = [commit(f"w{n}", 0, 100, **{f"k{n}": "v"[:1] + str(n)}) for n in range(20)]
    history.append(read("r", 0, 100, k0="v0", other="?"))
    with pytest.raises(Undecided, match="too many overlap"):
        check(history, configurations_max=1000)


def test_a_history_that_proves_nothing_is_refused() -> None:
    """Equal values of two writers, and results before their call."""
    with pytest.raises(ValueError, match="written by two operations"):
        check([commit("v", 0, 1, x="1"), commit("w", 0, 1, y="1")])
    with pytest.raises(ValueError, match="before it was called"):
        check([read("r", 5, 4, x=None)])
