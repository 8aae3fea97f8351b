"""Which of two StateStores with overlapping prefixes keeps the other out, over all states and pairs of them."""

from itertools import permutations, product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.operator.resources import DEFAULTS
from tussock.operator.cluster.kinds import FINALIZER
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.store import STATE_STORE
from tussock.operator.handlers.world import World
from tussock.operator.planning.precedence import Claim, keeps_out
from tussock.operator.planning.store import StoreFacts
from tussock.operator.planning.words.components import named
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import Observed
from tussock.operator.resources.store import parse_store
from tussock.statestore.base.system import RealSystem

OLD, NEW = "2026-11-21T11:00:00Z", "2026-11-21T12:00:00Z"
DELETED = {"deletionTimestamp": "2026-11-21T12:30:00Z"}


def degraded_status(reason: str) -> dict[str, Any]:
    held = [("Ready", "False"), ("Progressing", "False"), ("Degraded", "True")]
    return {"conditions": [{"type": type_, "status": status, "reason": reason} for type_, status in held]}


STATES: dict[str, tuple[bool, dict[str, Any]]] = {
    # Whether a store in this state holds its prefix, and what of its body makes the state.
    "never probed": (False, {}),
    "without a key": (False, {"status": degraded_status("SecretNotFound")}),
    "refused": (False, {"status": degraded_status("PrefixInUse")}),
    "readers may write": (False, {"status": degraded_status("ReadersMayWrite")}),
    "paused": (False, {"spec": {"paused": True}}),
    "deleted": (False, {"metadata": DELETED}),
    "holding": (True, {"status": {"prefixHeld": True}}),
    "of an earlier operator": (True, {"status": {"version": "0.1.0"}}),
    "holding without a key": (True, {"status": {"prefixHeld": True, **degraded_status("SecretNotFound")}}),
    "holding and paused": (True, {"status": {"prefixHeld": True}, "spec": {"paused": True}}),
    "holding and deleted": (True, {"status": {"prefixHeld": True}, "metadata": DELETED}),
    "let go": (False, {"status": {"prefixHeld": True}, "metadata": {**DELETED, "finalizers": ["theirs"]}}),
}


def store_body(name: str, created: str, state: str, prefix: str = "p") -> dict[str, Any]:
    more = STATES[state][1]
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "creationTimestamp": created, "generation": 1}
    place = {"s3": {"bucket": "b", "prefix": prefix, "credentialsSecret": {"name": "keys"}}}
    return {
        "kind": "StateStore",
        "metadata": {"finalizers": [FINALIZER], **metadata, **more.get("metadata", {})},
        "spec": {"objectStore": place, "tls": {"mode": "none"}, **more.get("spec", {})},
        "status": more.get("status", {}),
    }


class Answering:
    """Stands in for `Probes`: every bucket that is asked has this answer."""

    def __init__(self, fact: BucketFact | None) -> None:
        self.asked: list[str] = []
        self._fact = fact

    def latest_fact(self, _owner: Key, _about: object) -> BucketFact | None:
        return self._fact

    def fact(self, owner: Key, _about: object, _run: object, _every_seconds: float) -> BucketFact | None:
        self.asked.append(owner.name)
        return self._fact


def world_of(*bodies: dict[str, Any], fact: BucketFact | None = None) -> World:
    seen, probes = Seen(), Answering(fact)
    for body in bodies:
        seen.put("StateStore", body)

    found = SimpleNamespace(seen=seen, probes=probes, holders=set(), defaults=DEFAULTS, has_cert_manager=False)
    found.refs = lambda namespace, *kinds: World.refs(cast(World, found), namespace, *kinds)
    found.system = RealSystem()
    found.now = lambda: World.now(cast(World, found))
    return cast(World, found)


def look(world: World, body: dict[str, Any]) -> StoreFacts:
    observed: Observed[StoreFacts] = STATE_STORE.observe(world, parse_store(body), body)
    return observed.facts


@pytest.mark.parametrize(("mine", "other"), list(product(STATES, STATES)))
def test_only_a_store_that_holds_its_prefix_keeps_others_out(mine: str, other: str) -> None:
    """Of two that hold theirs, the older one: in every other pair age does not count."""
    for mine_created, other_created in permutations((OLD, NEW)):
        ours, theirs = store_body("mine", mine_created, mine), store_body("other", other_created, other, "p/in")
        rivals = look(world_of(ours, theirs), ours).rivals
        is_first = STATES[mine][0] and mine_created == OLD
        # A store that has let go is asked nothing more.
        kept_out = mine != "let go" and STATES[other][0] and not is_first
        assert rivals == (("n/other",) if kept_out else ())


@pytest.mark.parametrize(("mine", "other"), list(product((False, True), (False, True))))
def test_of_two_stores_one_at_most_is_kept_out(mine: bool, other: bool) -> None:
    """So none waits for each other; created in the same second, the smaller uid is first."""
    for created in ((OLD, NEW), (NEW, OLD), (OLD, OLD)):
        one, two = Claim(mine, created[0], "1"), Claim(other, created[1], "2")
        kept = [keeps_out(one, two), keeps_out(two, one)]
        assert kept.count(True) == (1 if mine or other else 0)
    assert keeps_out(Claim(True, OLD, "1"), Claim(True, OLD, "2"))


@pytest.mark.parametrize("order", list(permutations(("outer", "inner", "same"))))
def test_of_stores_whose_buckets_answer_at_once_one_begins(order: tuple[str, ...]) -> None:
    """In whatever order the passes come, and in each pass after that."""
    prefixes = {"outer": "", "inner": "p/in", "same": "p"}
    bodies = {name: store_body(name, OLD, "never probed", prefix) for name, prefix in prefixes.items()}
    world = world_of(*bodies.values(), fact=BucketFact(None))
    for _ in range(2):
        found = {name: look(world, bodies[name]) for name in order}
        assert [name for name in order if found[name].holds_prefix] == [order[0]]
        assert [name for name in order if found[name].bucket is not None] == [order[0]]
        assert all(found[name].rivals == (f"n/{order[0]}",) for name in order[1:])


@pytest.mark.parametrize("state", ["paused", "deleted"])
def test_a_store_that_starts_nothing_takes_no_prefix(state: str) -> None:
    body = store_body("mine", OLD, state)
    world = world_of(body, fact=BucketFact(None))
    facts = look(world, body)
    assert (facts.bucket, facts.holds_prefix) == (None, False)


def test_a_bucket_that_refuses_makes_no_holder() -> None:
    body = store_body("mine", OLD, "never probed")
    facts = look(world_of(body, fact=BucketFact(Reason.BUCKET_ACCESS_DENIED, "no")), body)
    assert not facts.holds_prefix


def test_a_deleted_store_with_nodes_holds_on_without_its_finalizer() -> None:
    """As where somebody has taken the finalizer away: its nodes may still write."""
    ours, theirs = store_body("mine", NEW, "never probed"), store_body("other", OLD, "let go")
    world = world_of(ours, theirs)
    assert look(world, ours).rivals == ()
    labels = {"tussock.dev/store": "other", "app.kubernetes.io/component": "meta"}
    world.seen.put("Pod", {"metadata": {"name": "m", "namespace": "n", "uid": "3", "labels": labels}})
    assert look(world, ours).rivals == ("n/other",)


def test_a_message_names_a_few_of_many() -> None:
    names = [f"n/{number}" for number in range(7)]
    assert named(names[:5]) == "n/0, n/1, n/2, n/3, n/4"
    assert named(names) == "n/0, n/1, n/2, n/3, n/4 and 2 more"


@pytest.mark.parametrize(
    ("endpoint", "is_amazon"),
    [
        ("", True),
        ("https://s3.amazonaws.com", True),
        ("https://S3.eu-west-1.amazonaws.com/", True),
        ("https://s3.eu-west-1.amazonaws.com:443", True),
        ("https://s3-eu-west-1.amazonaws.com", True),
        ("https://s3.dualstack.us-gov-west-1.amazonaws.com", True),
        ("https://s3-fips.us-east-1.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://x.elb.amazonaws.com", False),
        ("https://s3.x.elb.amazonaws.com", False),
        ("https://s3-1234.us-east-1.elb.amazonaws.com", False),
        ("https://ec2-1-2-3-4.compute-1.amazonaws.com", False),
        ("https://bucket.s3.amazonaws.com", False),
        ("https://s3.amazonaws.com.example", False),
        ("https://s3xamazonaws.com", False),
    ],
)
def test_only_the_endpoints_of_amazons_s3_are_amazon(endpoint: str, is_amazon: bool) -> None:
    """A server of somebody else's under Amazon's domain must not hold a bucket of Amazon's."""
    ours, theirs = store_body("mine", NEW, "never probed"), store_body("other", OLD, "holding")
    if endpoint:
        theirs["spec"]["objectStore"]["s3"]["endpoint"] = endpoint
    assert look(world_of(ours, theirs), ours).rivals == (("n/other",) if is_amazon else ())
