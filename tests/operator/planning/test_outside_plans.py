"""The ways in from outside: which pod has which number, which addresses are known, and what is said of the others."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.operator.resources import DEFAULTS, meta_with, store_with
from tussock.operator.manifests.certificates import desired_certificates
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.planning.meta import MetaFacts, plan_meta
from tussock.operator.planning.outside.addresses import hosts_outside
from tussock.operator.planning.outside.replicas import numbered
from tussock.operator.planning.words.components import SECRETS_SEEN
from tussock.operator.planning.words.facts import PlatformFact
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Label, Observed, Plan, Ref, ref_of
from tussock.operator.resources import InvalidResource
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import parse_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
REPLICA = "tussock.dev/replica"
LOAD_BALANCERS = {"type": "LoadBalancer"}
NODE_PORTS = {"type": "NodePort", "host": "nodes.example"}
LED = PlatformFact("", version="0.1.0", leader="10.0.0.1:7370", term=4)


def pod(name: str, number: str = "", *, age: int = 0, **changes: Any) -> dict[str, Any]:
    """A pod whose IP is made of its age: the older, the larger."""
    labels = {REPLICA: number} if number else {}
    about = {"name": name, "labels": labels, "creationTimestamp": f"2026-11-21T11:{59 - age:02}:00Z"}
    status = {"podIP": f"10.0.0.{age}", "phase": changes.pop("phase", "Running")}
    return {"kind": "Pod", "metadata": {**about, **changes}, "status": status}


def labels(pods: list[dict[str, Any]], replicas: int) -> dict[str, str | None]:
    return {label.ref.name: label.labels[REPLICA] for label in numbered(pods, replicas)}


ENDED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}


@pytest.mark.parametrize(
    ("pods", "replicas", "expected"),
    [
        pytest.param([pod("a", age=1), pod("b", age=2)], 2, {"b": "0", "a": "1"}, id="the oldest first"),
        pytest.param([pod("a", "1"), pod("b", "0")], 2, {}, id="numbers stay"),
        pytest.param([pod("a", "0", age=3), pod("b", age=1), pod("c", "1", age=2)], 2, {}, id="one more in a rollout"),
        pytest.param([pod("a", "0", **ENDED), pod("b")], 1, {"b": "0"}, id="of one that ends"),
        pytest.param([pod("a", "0", phase="Failed"), pod("b")], 1, {"b": "0"}, id="of one that was evicted"),
        pytest.param([pod("a", "0", age=2), pod("b", "0", age=1)], 2, {"b": "1"}, id="two with one number"),
        pytest.param([pod("a", "7"), pod("b", "x")], 1, {"a": "0", "b": None}, id="numbers that are none"),
        pytest.param([pod("a", "0"), pod("b", "1")], 1, {"b": None}, id="fewer replicas"),
        pytest.param([pod("a", "0"), pod("b")], 0, {"a": None}, id="nobody outside any more"),
    ],
)
def test_each_number_has_one_pod(pods: list[dict[str, Any]], replicas: int, expected: dict[str, str | None]) -> None:
    """A pod keeps its number while it lives, so that the addresses outside stay those of the same process."""
    assert labels(pods, replicas) == expected


def children_of(found: Plan) -> dict[Ref, Any]:
    """The children that a plan applies, as they would be observed; the Deployment has rolled out."""
    children: dict[Ref, Any] = {}
    for action in found.actions:
        if isinstance(action, Apply):
            body = {**action.manifest, "metadata": {**action.manifest["metadata"], "generation": 1}}
            children[ref_of(body)] = body
    numbers = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    children[Ref("Deployment", "m-meta")]["status"] = {"observedGeneration": 1, **numbers}
    return children


def conditions_of(found: Plan) -> tuple[str, str]:
    held = found.status["conditions"]
    return held[0]["reason"], "".join(condition["status"][0] for condition in held)


def plan(children: dict[Ref, Any], outside: dict[str, Any] | None, **changes: Any) -> Plan:
    """The plan of the Meta `m` of the store `s`, which has no obstacle."""
    about = {"namespace": "n", "uid": "1", "generation": 1}
    spec = {"objectStore": {"gcs": {"bucket": "b"}}, **changes.pop("store", {})}
    store = {"kind": "StateStore", "metadata": {**about, "name": "s"}, "spec": spec, "status": {"obstacle": ""}}
    facts = MetaFacts(parse_store(store), DEFAULTS, changes.pop("platform", LED))
    given = {} if outside is None else {"outside": outside}
    spec = {"storeRef": {"name": "s"}, "replicas": 2, **given, **changes}
    meta = parse_meta({"kind": "Meta", "metadata": {**about, "name": "m", "uid": "2"}, "spec": spec})
    return plan_meta(meta, Observed(facts, children, {Ref("StateStore", "s"): store}), NOW)


def running(outside: dict[str, Any], *pods: dict[str, Any]) -> dict[Ref, Any]:
    """The children of a Meta with two nodes that serve, before the cluster has given out addresses."""
    children = children_of(plan({}, outside))
    return children | {Ref("Pod", one["metadata"]["name"]): one for one in pods}


def give(children: dict[Ref, Any], number: int, *, port: int = 0, ingress: dict[str, str] | None = None) -> None:
    """What the cluster writes into the Service of a replica."""
    ref = Ref("Service", f"m-meta-outside-{number}")
    body = children[ref]
    if port:
        ports = [{**body["spec"]["ports"][0], "nodePort": port}]
        body = {**body, "spec": {**body["spec"], "ports": ports}}
    children[ref] = {**body, "status": {"loadBalancer": {"ingress": [ingress]} if ingress else {}}}


def file_of(found: Plan) -> str:
    """The file with addresses, as the plan applies it."""
    (applied,) = [one for one in found.actions if isinstance(one, Apply) and one.manifest["kind"] == "ConfigMap"]
    return str(applied.manifest["data"]["outside.toml"])


def test_nodes_are_told_the_addresses_that_their_peers_have_outside() -> None:
    """By the inside one, of pods that have a number; their kubelets are made to look at once."""
    children = running(NODE_PORTS, pod("a", "0", age=1), pod("b", "1", age=2), pod("c", age=3))
    give(children, 0, port=30400)
    give(children, 1, port=30401)
    found = plan(children, NODE_PORTS)
    assert file_of(found) == (
        '[addresses]\n"10.0.0.1:7370" = "nodes.example:30400"\n"10.0.0.2:7370" = "nodes.example:30401"\n'
    )
    assert found.status["outsideEndpoint"] == "tussock://nodes.example:30400,nodes.example:30401"
    assert conditions_of(found) == ("Ready", "TFF")
    assert {one.ref.name for one in found.actions if isinstance(one, Annotate) and SECRETS_SEEN in one.annotations}


@pytest.mark.parametrize(
    ("section", "ingress", "address"),
    [
        ({}, {"hostname": "lb-7.cloud.example"}, "lb-7.cloud.example:7370"),
        ({}, {"ip": "203.0.113.7"}, "203.0.113.7:7370"),
        ({}, {"ip": "2001:db8::7"}, "[2001:db8::7]:7370"),
        ({"host": "meta-{replica}.example"}, {"ip": "203.0.113.7"}, "meta-0.example:7370"),
    ],
)
def test_a_load_balancer_gives_the_address_that_the_spec_leaves_open(
    section: dict[str, str], ingress: dict[str, str], address: str
) -> None:
    """A host of the spec comes first, but only once there is something that it can lead to."""
    outside = {**LOAD_BALANCERS, **section}
    children = running(outside)
    assert "outsideEndpoint" not in plan(children, outside).status
    give(children, 0, ingress=ingress)
    assert plan(children, outside).status["outsideEndpoint"] == f"tussock://{address}"


@pytest.mark.parametrize(("outside", "what"), [(LOAD_BALANCERS, "load balancer"), (NODE_PORTS, "node port")])
def test_a_missing_address_is_said_with_its_service(outside: dict[str, Any], what: str) -> None:
    """The nodes serve meanwhile, and an upgrade of others does not wait for it."""
    children = running(outside)
    give(children, 0, port=30400, ingress={"ip": "203.0.113.7"})
    found = plan(children, outside)
    assert conditions_of(found) == ("WaitingForAddress", "TTF")
    message = found.status["conditions"][0]["message"]
    assert f"cannot reach 1 of 2 meta nodes yet: Service m-meta-outside-1 has no {what}." in message
    assert "kubectl describe service m-meta-outside-1" in message
    assert found.again_seconds


def test_what_is_worse_is_said_first() -> None:
    """A way to nodes that do not serve is of no use."""
    children = running(LOAD_BALANCERS)
    found = plan(children, LOAD_BALANCERS, platform=PlatformFact("", leader="", times=3))
    assert conditions_of(found)[0] == "NoLeader"


def test_without_outside_all_of_it_goes() -> None:
    """Services, rule and numbers; the other Services stay."""
    children = running(NODE_PORTS, pod("a", "0"), pod("b", "1"))
    found = plan(children, None)
    gone = [action.ref for action in found.actions if isinstance(action, Delete)]
    names = [("NetworkPolicy", "m-meta-outside"), ("Service", "m-meta-outside-0"), ("Service", "m-meta-outside-1")]
    assert gone == [Ref(*name) for name in names]
    assert [action.labels for action in found.actions if isinstance(action, Label)] == [{REPLICA: None}] * 2
    assert "outsideEndpoint" not in found.status


def test_a_paused_store_keeps_its_address() -> None:
    """Clients go on, and find it in the status."""
    children = running(NODE_PORTS, pod("a"))
    give(children, 0, port=30400)
    found = plan(children, NODE_PORTS, store={"paused": True})
    assert found.actions == ()
    assert found.status["outsideEndpoint"] == "tussock://nodes.example:30400"


def test_nobody_outside_is_let_in_without_encryption() -> None:
    """A Meta cannot see its store's spec, so the API server has not refused it."""
    store = store_with({"managed": {}}, tls={"mode": "none"})
    with pytest.raises(
        InvalidResource, match=r"outside needs encryption, but spec\.tls\.mode of StateStore shop is none"
    ):
        meta_manifests(meta_with(outside=LOAD_BALANCERS), store, DEFAULTS)


def test_certificates_are_for_the_hosts_outside() -> None:
    """Names and addresses apart, as clients check them, each once; those of all Metas, if they have any."""
    endpoint = "tussock://meta.example:7370,203.0.113.7:7370,[2001:DB8::0:7]:30400,meta.example:7371"
    hosts = hosts_outside([{"status": {"outsideEndpoint": endpoint}}, {"status": {}}, {}])
    assert hosts == ("2001:DB8::0:7", "203.0.113.7", "meta.example")
    server, *clients = desired_certificates(store_with({"managed": {}}), ["shop"], DEFAULTS, hosts)
    assert server.dns_names[-2:] == ("localhost", "meta.example")
    assert server.ip_addresses == ("2001:db8::7", "203.0.113.7")
    assert not any(client.ip_addresses for client in clients)


CONSOLE = {"namespace": "ingress-nginx"}
LEADS = "tussock.dev/leads"


def marked(found: Plan) -> dict[str, str | None]:
    return {one.ref.name: one.labels[LEADS] for one in found.actions if isinstance(one, Label) and LEADS in one.labels}


def test_the_console_follows_the_leader() -> None:
    """One pod is marked: of the others a browser would see half of the store."""
    first, second = pod("a", age=1), pod("b", age=2)
    children = {ref_of(first): first, ref_of(second): second}
    assert marked(plan(children, None, console=CONSOLE)) == {"a": "true"}
    first["metadata"]["labels"][LEADS] = "true"
    assert marked(plan(children, None, console=CONSOLE)) == {}
    moved = LED._replace(leader="10.0.0.2:7370")
    assert marked(plan(children, None, console=CONSOLE, platform=moved)) == {"a": None, "b": "true"}
    for unknown in (None, PlatformFact("no route."), LED._replace(leader="")):
        assert marked(plan(children, None, console=CONSOLE, platform=unknown)) == {}
    assert marked(plan(children, None)) == {"a": None}


def test_browsers_reach_the_page_and_nothing_else_of_its_port() -> None:
    """By TLS up to the node, and from the named namespace alone."""
    ingress = {"host": "c.example", "tlsSecret": "c"}
    meta = meta_with(console={**CONSOLE, "ingress": ingress})
    made = meta_manifests(meta, store_with({"managed": {}}), DEFAULTS).manifests
    found = {one["kind"]: one["spec"] for one in made if one["metadata"]["name"] == "shop-meta-console"}
    (rule,) = found["Ingress"]["rules"]
    assert [path["path"] for path in rule["http"]["paths"]] == ["/", "/static/", "/api/status"]
    assert found["Ingress"]["tls"] == [{"hosts": ["c.example"], "secretName": "c"}]
    assert found["Service"]["ports"][0]["appProtocol"] == "https"
    (peer,) = found["NetworkPolicy"]["ingress"][0]["from"]
    assert peer == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}


def test_no_console_is_shown_without_encryption() -> None:
    """Nodes would ask nobody who they are."""
    store = store_with({"managed": {}}, tls={"mode": "none"})
    with pytest.raises(
        InvalidResource, match=r"console needs encryption, but spec\.tls\.mode of StateStore shop is none"
    ):
        meta_manifests(meta_with(console=CONSOLE), store, DEFAULTS)
