"""What is decided without I/O: homes of entities, the order of losers, and what has been sent."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from support.functions.accounts import accounts, cells
from tussock.compute import functions as fn
from tussock.compute.functions.epochs.epoch import REPLY_BYTES_MAX
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.workers.assignment import Assignment, homes
from tussock.compute.functions.workers.early_end import EarlyEnd
from tussock.compute.functions.workers.lock_phase.locks import LockQueue
from tussock.compute.functions.workers.lock_phase.losers import CachedGuess
from tussock.compute.functions.workers.shipment import fingerprint, pack_program, unpack_program


@pytest.mark.parametrize("partitions", [1, 3, 4, 17, 256])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_each_worker_has_a_range_of_partitions(partitions: int, workers: int) -> None:
    """All virtual nodes of a partition are with one worker, and workers differ by one partition at most."""
    found = homes(partitions, workers, 0)
    by_partition = {vnode * partitions // 256: worker for vnode, worker in enumerate(found)}
    assert all(found[vnode] == by_partition[vnode * partitions // 256] for vnode in range(256))
    assert all(0 <= worker < workers for worker in found)
    shares = Counter(by_partition.values())
    assert max(shares.values()) - min((shares[worker] for worker in range(workers)), default=0) <= 1
    if partitions >= workers:
        assert all(before <= after for before, after in pairwise(found))


def test_small_operators_are_not_all_on_the_first_worker() -> None:
    """Each begins one worker further."""
    operators = Operators([fn.Operator(name) for name in ("a", "b", "c")])
    assignment = Assignment(operators, 3)
    assert [assignment.home((number, "any")) for number in range(3)] == [0, 1, 2]


def test_keys_of_all_types_have_a_home() -> None:
    """The same one at each call, whatever runs."""
    assignment = Assignment(Operators([fn.Operator("a", 256)]), 64)
    keys = ["", "é", 0, -5, 1 << 62, b"", b"\xff"]
    assert [assignment.home((0, key)) for key in keys] == [assignment.home((0, key)) for key in keys]


def drawn_losers(chance: random.Random) -> tuple[list[tuple[set[int], set[int]]], dict[int, set[int]]]:
    """What each of 25 losers reads and writes, and the lower ones with which it shares."""
    wants = [
        (set(chance.choices(range(12), k=chance.randint(0, 3))), set(chance.choices(range(12), k=chance.randint(0, 2))))
        for _ in range(25)
    ]
    before = {
        at: {
            other
            for other in range(at)
            if wants[other][1] & (wants[at][0] | wants[at][1]) or wants[at][1] & wants[other][0]
        }
        for at in range(25)
    }
    return wants, before


@pytest.mark.parametrize("seed", range(30))
def test_losers_run_behind_those_with_whom_they_share(seed: int) -> None:
    """Each begins when all lower ones that write what it touches, or touch what it writes, have ended; no later."""
    chance = random.Random(seed)
    wants, before = drawn_losers(chance)
    queue = LockQueue(wants)
    ready, ended = queue.free(), set[int]()
    while ready:
        assert all(before[at] <= ended for at in ready)
        one = ready.pop(chance.randrange(len(ready)))
        ended.add(one)
        released = queue.release(one)
        assert set(released) == {at for at in range(25) if at not in ended and at not in ready and before[at] <= ended}
        ready += released
    assert len(ended) == 25


@pytest.mark.parametrize("seed", range(30))
def test_a_chain_has_all_whose_lower_ones_are_in_it(seed: int) -> None:
    """Each has all before it that share with it, if they have not ended; nobody is left out but by what it may have."""
    chance = random.Random(seed)
    wants, before = drawn_losers(chance)
    refused = {at for at in range(25) if chance.random() < 0.2}
    queue = LockQueue(wants)
    ready, ended = set(queue.free()), set[int]()
    for _ in range(5):
        one = min(ready)
        ready = ready - {one} | set(queue.release(one))
        ended.add(one)
    expected: list[int] = []
    for at in range(25):
        if at not in ended and at not in refused and before[at] <= ended | set(expected):
            expected.append(at)
    assert queue.chain(ready, lambda at: at not in refused, 25) == expected
    assert queue.chain(ready, lambda at: at not in refused, 3) == expected[:3]


def test_a_function_that_calls_otherwise_is_tried_now_and_then() -> None:
    """Every 64th epoch; one that called the same again counts as much as one that did not."""
    one = FunctionTransaction(
        1, FunctionRequest(Operators([cells()]).target("cell", "a", "value", ()), None, None, 0.0)
    )
    guess = CachedGuess()
    for tries in range(20):
        assert guess.is_likely(one, 1) == (tries < 8)
        guess.note(one, is_same=False)
    assert [epoch for epoch in range(1, 200) if guess.is_likely(one, epoch)] == [64, 128, 192]
    guess.note(one, is_same=True)
    assert guess.is_likely(one, 1)


def test_a_program_that_was_sent_is_the_same() -> None:
    """Functions inside functions go as their code; another code, or another schema, is told apart."""
    sent = unpack_program(pack_program([accounts(), cells()], "p"))
    own, other = Operators([accounts(), cells()]), Operators(sent)
    assert fingerprint(own) == fingerprint(other)
    assert fingerprint(own) != fingerprint(Operators([accounts()]))
    changed = cells()
    changed.partitions = 5
    assert fingerprint(own) != fingerprint(Operators([accounts(), changed]))


def test_an_epoch_does_not_end_before_what_has_asked_outside() -> None:
    """Story: a call was made whose transaction was then put off; in a later epoch it was made by another key."""
    request = FunctionRequest(Operators([cells()]).target("cell", "a", "value", ()), None, None, 0.0)
    ones = [FunctionTransaction(tid, request) for tid in range(1, 7)]
    early = EarlyEnd(ones, 0)
    assert early.asked([ones[3], ones[1]]) == [ones[3], ones[1]]
    early.count(REPLY_BYTES_MAX)
    for tid in (1, 2, 3):
        early.end(tid)
        assert early.place() is None
    early.end(4)
    assert early.place() == 4
    assert early.kept(ones) == ones[:4]
