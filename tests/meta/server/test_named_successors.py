"""Leadership that a leader hands to a certain replica: which replica waits, and for how long."""

import random

import pytest

from support.service.replicas import LEASE, Node, leader_of, run
from support.store.versions import FakeSystem, ModelBucket
from tussock.meta.log.format import lease_path
from tussock.meta.log.leases import LeaseRecord, decode_lease, encode_lease
from tussock.meta.server.election import Action, SeenLease, judge


@pytest.fixture
def nodes(bucket: ModelBucket) -> list[Node]:
    return [Node(bucket, name) for name in ("a", "b", "c", "d")]


@pytest.mark.parametrize("which", range(3))
def test_the_named_replica_leads_at_its_next_look(nodes: list[Node], which: int) -> None:
    """Whichever of the followers is named; the log fences the former leader as after any change."""
    run(nodes, 10)
    old = leader_of(nodes)
    chosen = [node for node in nodes if node is not old][which]
    old.lease.hand_over(chosen.address)
    assert not old.lease.is_held()
    run(nodes, LEASE / 4 + 0.02)
    assert leader_of(nodes) is chosen
    assert chosen.lease.term == 2
    chosen.append()


def test_the_former_leader_takes_part_again(nodes: list[Node]) -> None:
    """Unlike after `resign`: leadership can be handed back to it."""
    run(nodes, 10)
    old = leader_of(nodes)
    chosen = next(node for node in nodes if node is not old)
    old.lease.hand_over(chosen.address)
    run(nodes, 2)
    chosen.lease.hand_over(old.address)
    run(nodes, 2)
    assert leader_of(nodes) is old
    assert old.lease.term == 3


def test_a_successor_that_died_costs_one_lease(nodes: list[Node]) -> None:
    """Nobody comes before that, the former leader included; then one of the others leads."""
    run(nodes, 10)
    old = leader_of(nodes)
    dead, *alive = [node for node in nodes if node is not old]
    old.lease.hand_over(dead.address)
    living = [old, *alive]
    waited = 0.0
    while not any(node.lease.is_held() for node in living):
        run(living, 0.01)
        waited += 0.01
    assert LEASE - 0.02 < waited < 4.0


def test_a_leader_that_does_not_lead_hands_nothing_over(nodes: list[Node], bucket: ModelBucket) -> None:
    run(nodes, 10)
    old = leader_of(nodes)
    follower = next(node for node in nodes if node is not old)
    before = bucket.objects[lease_path(1)]
    follower.lease.hand_over(follower.address)
    assert bucket.objects[lease_path(1)] == before
    run(nodes, 1)
    assert leader_of(nodes) is old


def test_random_hand_overs_never_make_two_leaders() -> None:
    """`run` checks that; with stalls of single replicas, and successors that stand still just then."""
    for seed in range(20):
        drawn = random.Random(seed)
        bucket = ModelBucket(FakeSystem())
        nodes = [Node(bucket, name) for name in ("a", "b", "c")]
        run(nodes, 5)
        for _ in range(15):
            for node in nodes:
                if node.lease.is_held() and drawn.random() < 0.5:
                    node.lease.hand_over(drawn.choice(nodes).address)
            awake = [node for node in nodes if drawn.random() < 0.7] or nodes
            run(awake, drawn.random() * 2 * LEASE)
        run(nodes, 3 * LEASE)
        leader_of(nodes).append()


def seen(successor: str, since: float, holder: str = "other") -> SeenLease:
    lease = LeaseRecord(term=4, holder=holder, address="x:1", lease_ms=3000, resigned=True, successor=successor)
    return SeenLease(4, b"", lease, since)


@pytest.mark.parametrize(
    ("successor", "now", "action"),
    [
        ("me:1", 10.0, Action.TAKE),
        ("", 10.0, Action.TAKE),
        ("you:1", 10.0, Action.FOLLOW),
        ("you:1", 12.99, Action.FOLLOW),
        # As with a holder that has died: when a whole lease has passed.
        ("you:1", 13.0, Action.TAKE),
    ],
)
def test_the_decision_on_a_lease_that_names_a_successor(successor: str, now: float, action: Action) -> None:
    assert judge(4, seen(successor, 10.0), None, None, now, 3.0, "me:1") is action


def test_a_lease_without_a_successor_has_the_bytes_of_earlier_releases() -> None:
    """They ignore the field; without one there is nothing to ignore."""
    lease = LeaseRecord(term=4, holder="h", address="x:1", lease_ms=3000, resigned=True)
    assert b"successor" not in encode_lease(lease)
    named = LeaseRecord(term=4, holder="h", address="x:1", lease_ms=3000, resigned=True, successor="y:1")
    assert decode_lease("leader/4", 4, encode_lease(named)) == named
    assert decode_lease("leader/4", 4, encode_lease(lease)) == lease
