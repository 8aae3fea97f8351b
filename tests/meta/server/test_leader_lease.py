"""The leader's lease: how a term is taken and kept, and that no clock, stall or lost answer makes two leaders."""

import random

import pytest

from support.buckets.faulty_bucket import Call, Fate, where
from support.service.replicas import LEASE, Node, leader_of, run
from support.store.versions import FakeSystem, ModelBucket
from tussock.meta.log.format import lease_path
from tussock.meta.log.leases import LeaseRecord, decode_lease, encode_lease
from tussock.meta.server.election import Action, HeldLease, SeenLease, judge
from tussock.statestore.errors import Fenced, InvalidOption


@pytest.fixture
def nodes(bucket: ModelBucket) -> list[Node]:
    return [Node(bucket, name) for name in ("a", "b", "c")]


def test_an_empty_store_gets_one_leader_that_all_agree_on(nodes: list[Node]) -> None:
    """The first node takes term 1, begins it in the log and keeps it; the others know its address."""
    run(nodes, 20)
    leader = leader_of(nodes)
    assert {node.lease.term for node in nodes} == {1}
    assert {node.lease.leader_address for node in nodes} == {leader.address}
    version = nodes[2].log.refresh()
    assert (version.term, version.leader_address, version.seq) == (1, leader.address, 1)


def test_a_dead_leader_is_replaced_within_a_lease_and_one_look(nodes: list[Node]) -> None:
    """At any timing of the looks: from death to the new leader's first entry less than 4 s at a lease of 3 s."""
    for extra in range(20):
        bucket = ModelBucket(FakeSystem())
        nodes = [Node(bucket, name) for name in ("a", "b", "c")]
        run(nodes, 10 + extra * 0.05)
        dead = leader_of(nodes)
        alive = [node for node in nodes if node is not dead]
        waited = 0.0
        while not any(node.lease.is_held() for node in alive):
            run(alive, 0.01)
            waited += 0.01
        assert LEASE * 2 / 3 - 0.1 < waited < 4.0
        assert leader_of(alive).lease.term == 2
        leader_of(alive).append()


def test_a_leader_that_resigns_is_replaced_at_the_next_look(nodes: list[Node]) -> None:
    """No node waits for the end of its lease; it does not come back."""
    run(nodes, 10)
    old = leader_of(nodes)
    old.lease.resign()
    assert not old.lease.is_held()
    run(nodes, LEASE / 4 + 0.02)
    assert leader_of(nodes) is not old
    run(nodes, 10)
    assert leader_of(nodes).lease.term == 2


def test_two_racers_for_one_term_make_one_leader(bucket: ModelBucket) -> None:
    """Both saw the same lease, both create: the second finds the object and follows."""
    one, two = Node(bucket, "a"), Node(bucket, "b")
    one.bucket.stall(
        lambda call: call.operation == "create" and call.path.startswith("leader/"), lambda: two.step() and None
    )
    assert one.step() is False
    assert two.lease.is_held()
    assert one.step() is False
    assert one.lease.leader_address == "b:7370"


def test_a_leader_that_stood_still_stops_by_its_own_clock_and_is_fenced(bucket: ModelBucket) -> None:
    """Another node leads meanwhile; the old one does not act when it wakes up, and its requests are refused."""
    old, new = Node(bucket, "a"), Node(bucket, "b")
    run([old, new], 5)
    stopped, other = (old, new) if old.lease.is_held() else (new, old)
    run([other], 10)
    assert other.lease.is_held()
    assert not stopped.lease.is_held()
    seq = other.log.version.seq
    with pytest.raises(Fenced, match=r"term 1 is over: .* leads term 2"):
        stopped.append()
    assert other.log.refresh().seq == seq
    run([old, new], 10)
    assert other.lease.is_held()
    assert stopped.lease.leader_address == other.address


def test_a_lone_leader_that_stood_still_takes_a_new_term(bucket: ModelBucket) -> None:
    """It never comes back in a lapsed term: another node may be about to take over."""
    node = Node(bucket, "a")
    run([node], 5)
    bucket.system.forward(LEASE)
    assert not node.lease.is_held()
    run([node], 0.5)
    assert node.lease.is_held()
    assert node.lease.term == 2


def test_a_watcher_that_stood_still_does_not_depose_a_living_leader(bucket: ModelBucket) -> None:
    """What it saw before the stall is no evidence: it looks again, and the time between does not count."""
    leader, watcher = Node(bucket, "a"), Node(bucket, "b")
    run([leader, watcher], 5)
    leader, watcher = (leader, watcher) if leader.lease.is_held() else (watcher, leader)
    run([leader], 10)
    for _ in range(3):
        # Also while it waits for an answer: by then the leader has renewed.
        watcher.bucket.stall(lambda call: call.operation == "get", lambda: run([leader], 5))
        watcher.bucket.stall(lambda call: call.operation == "list", lambda: run([leader], 5))
        assert watcher.step() is False
    assert leader.lease.is_held()
    assert leader.lease.term == 1


def test_a_late_creation_of_an_old_term_makes_no_leader(bucket: ModelBucket) -> None:
    """The number is free again, since old leases are deleted; the log knows the newer term; the lease is given up."""
    late = Node(bucket, "late")
    others = [Node(bucket, f"n{number}") for number in range(4)]

    def meanwhile() -> None:
        for node in others:
            while not node.lease.is_held():
                run([node], 0.1)
            node.lease.resign()

    late.bucket.stall(lambda call: call.operation == "create" and call.path.startswith("leader/"), meanwhile)
    assert late.step() is False
    assert lease_path(1) in bucket.objects
    assert late.log.version.term == 4
    run([late], 1)
    assert late.lease.is_held()
    assert late.lease.term == 5


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
@pytest.mark.parametrize("operation", ["create leader/", "create log/", "put leader/", "list leader/", "get leader/"])
def test_a_lost_request_or_answer_is_made_up_for(bucket: ModelBucket, operation: str, fate: Fate) -> None:
    """Whichever is lost, and at any time: within a second the same node leads, in its term."""
    node = Node(bucket, "a")
    node.bucket.script = where(*operation.split(), fate, times=1)  # type: ignore[arg-type]
    run([node], 5)
    assert node.lease.is_held()
    assert node.lease.term == 1
    assert node.log.refresh().term == 1


def test_a_lease_whose_creation_was_answered_too_late_is_not_adopted(bucket: ModelBucket) -> None:
    """It counts from when its creation was first sent; by now another node may have taken over."""
    node = Node(bucket, "a")
    node.bucket.script = where("create", "leader/", Fate.LOSE_ANSWER)
    node.step()
    bucket.system.forward(LEASE)
    run([node], 1)
    assert node.lease.term == 2


def test_a_leader_that_cannot_renew_stops_before_others_take_over(bucket: ModelBucket) -> None:
    """Its requests never arrive: it stops by its own clock, and another node leads half a second later or more."""
    cut, other = Node(bucket, "a"), Node(bucket, "b")
    run([cut], 1)
    run([cut, other], 5)
    cut.bucket.script = lambda call: Fate.LOSE_REQUEST if call.operation in ("put", "create") else Fate.PASS
    ended: list[float] = []
    begun: list[float] = []

    def note() -> None:
        if not cut.lease.is_held() and not ended:
            ended.append(bucket.system.ticks)
        if other.lease.is_held() and not begun:
            begun.append(bucket.system.ticks)

    run([cut, other], 8, note)
    assert begun[0] - ended[0] >= LEASE / 6
    assert cut.lease.leader_address == "b:7370"


def test_a_leader_that_the_bucket_refuses_asks_ten_times_a_second_at_most(bucket: ModelBucket) -> None:
    """A refusal comes at once, unlike a network failure, so only the pause keeps it from asking without end."""
    node = Node(bucket, "a")
    run([node], 5)
    node.bucket.script = lambda _: Fate.LOSE_REQUEST
    node.bucket.calls.clear()
    run([node], 5)
    assert not node.lease.is_held()
    assert 0 < len(node.bucket.calls) <= 50


@pytest.mark.parametrize("rate", [0.9, 1.1])
def test_clocks_that_run_at_different_rates_make_no_two_leaders(bucket: ModelBucket, rate: float) -> None:
    """Within the margin of a sixth; wall clocks may jump by a day, since they are not read."""
    nodes = [Node(bucket, name) for name in ("a", "b")]
    nodes[1].system.rate = rate
    chance = random.Random(5)
    for _ in range(12):
        for node in nodes:
            node.system.wall_ms += chance.choice([-86_400_000, 0, 86_400_000])
        run(nodes, chance.random() * 3)
        run([nodes[chance.randrange(2)]], chance.random() * 6)
    run(nodes, 5)
    leader_of(nodes)


def test_random_stalls_and_losses_never_make_two_leaders() -> None:
    """For any losses and stalls; once all is well again, there is a leader that can append."""
    for seed in range(15):
        bucket = ModelBucket(FakeSystem())
        nodes = [Node(bucket, name) for name in ("a", "b", "c")]
        chance = random.Random(seed)

        def script(_: Call, chance: random.Random = chance) -> Fate:
            return chance.choices([Fate.PASS, Fate.LOSE_ANSWER, Fate.LOSE_REQUEST], [8, 1, 1])[0]

        for node in nodes:
            node.bucket.script = script
        for _ in range(8):
            run(chance.sample(nodes, chance.randint(1, 3)), chance.random() * 4)
        for node in nodes:
            node.bucket.script = None
        run(nodes, 2 * LEASE)
        leader_of(nodes).append()
        assert nodes[0].log.refresh().term == leader_of(nodes).lease.term


def test_a_damaged_lease_runs_out_like_that_of_a_dead_holder(bucket: ModelBucket) -> None:
    """An unreadable object stops no node, and its holder finds it replaced."""
    bucket.put(lease_path(7), b"rubbish")
    bucket.put("leader/readme", b"foreign, and ignored")
    node = Node(bucket, "a")
    run([node], LEASE - 0.1)
    assert not node.lease.is_held()
    run([node], 0.3)
    assert node.lease.is_held()
    assert node.lease.term == 8


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10**20 - 1])
def test_a_number_that_no_term_can_have_is_no_lease(bucket: ModelBucket, number: int) -> None:
    """It could not be written into a lease, and no node ever led in it."""
    bucket.put(lease_path(number), b"rubbish")
    nodes = [Node(bucket, "a"), Node(bucket, "b")]
    run(nodes, 20)
    assert leader_of(nodes).lease.term == 1
    assert lease_path(1) in bucket.objects


def test_terms_continue_from_the_log_when_leases_are_gone(bucket: ModelBucket) -> None:
    """A store may be copied without its leases: the next term is above those in its log."""
    node = Node(bucket, "a")
    run([node], 1)
    bucket.delete([lease_path(1)])
    other = Node(bucket, "b")
    run([other], 1)
    assert other.lease.is_held()
    assert other.lease.term == 2


def test_the_two_newest_leases_are_kept(bucket: ModelBucket) -> None:
    """A new leader deletes leases of older terms."""
    for number in range(5):
        node = Node(bucket, f"n{number}")
        run([node], 1)
        assert node.lease.is_held()
        node.lease.resign()
    assert [path for path in sorted(bucket.objects) if path.startswith("leader/")] == [lease_path(4), lease_path(5)]


def test_an_idle_leader_makes_two_requests_a_second_and_a_follower_less_than_three(nodes: list[Node]) -> None:
    """A leader lists and renews every third of a lease, a follower lists and reads every quarter of one."""
    run(nodes, 10)
    for node in nodes:
        node.bucket.calls.clear()
    run(nodes, 12)
    leader = leader_of(nodes)
    puts = [call for call in leader.bucket.calls if call.operation == "put"]
    assert 11 <= len(puts) <= 12
    assert len(leader.bucket.calls) == 2 * len(puts)
    for node in nodes:
        if node is not leader:
            assert len(node.bucket.calls) <= 2 * 12 / (LEASE / 4) + 2


def test_the_lease_holds_its_holder_and_its_duration(bucket: ModelBucket) -> None:
    """The object in the bucket has the fields that the document lists."""
    node = Node(bucket, "a")
    run([node], 2.5)
    lease = decode_lease("x", 1, bucket.get(lease_path(1)))
    assert (lease.term, lease.address, lease.lease_ms, lease.renewals, lease.resigned) == (1, "a:7370", 3000, 2, False)
    node.lease.resign()
    assert decode_lease("x", 1, bucket.get(lease_path(1))).resigned
    with pytest.raises(InvalidOption, match="must be positive"):
        Node(bucket, "b", lease=0)


def lease(term: int = 4, holder: str = "other", **fields: object) -> LeaseRecord:
    return LeaseRecord(term=term, holder=holder, address="x:1", lease_ms=3000, **fields)  # type: ignore[arg-type]


def lease_seen(since: float, found: LeaseRecord | None) -> SeenLease:
    return SeenLease(4, b"" if found is None else encode_lease(found), found, since)


MINE = HeldLease(lease(holder="me"), 100.0, True)


@pytest.mark.parametrize(
    ("newest", "looked", "held", "tried", "now", "expected"),
    [
        (0, None, None, None, 100.0, Action.TAKE),
        (4, lease_seen(100.0, lease()), None, None, 102.99, Action.FOLLOW),
        (4, lease_seen(100.0, lease()), None, None, 103.0, Action.TAKE),
        (4, lease_seen(100.0, None), None, None, 102.99, Action.FOLLOW),
        (4, lease_seen(100.0, None), None, None, 103.0, Action.TAKE),
        (4, lease_seen(100.0, lease(resigned=True)), None, None, 100.0, Action.TAKE),
        (4, lease_seen(100.0, MINE.lease), None, MINE, 102.4, Action.ADOPT),
        (4, lease_seen(100.0, MINE.lease), None, MINE, 102.5, Action.TAKE),
        (4, lease_seen(100.0, lease(holder="me", renewals=1)), None, MINE, 100.0, Action.TAKE),
        (4, None, MINE, None, 100.99, Action.KEEP),
        (4, None, MINE, None, 101.0, Action.RENEW),
        (4, None, MINE, None, 102.49, Action.RENEW),
        (4, None, MINE, None, 102.5, Action.LAPSE),
        (5, None, MINE, None, 100.0, Action.LOSE),
    ],
)
def test_the_decision_on_a_lease_alone(
    newest: int, looked: SeenLease | None, held: HeldLease | None, tried: HeldLease | None, now: float, expected: Action
) -> None:
    """Each edge of time, on both sides."""
    assert judge(newest, looked, held, tried, now, 3.0) is expected
