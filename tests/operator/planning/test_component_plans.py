"""The plans of `Meta` and `Compactor`: their store, their order, the leader's pod, secrets, pauses, deletion."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.compactor import CompactorFacts, plan_compactor
from tussock.operator.planning.meta import DELETION_COST, MetaFacts, plan_meta
from tussock.operator.planning.words.conditions import Reason, Verdict, conditions, problem_verdict, progress_verdict
from tussock.operator.planning.words.facts import PlatformFact
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Emit, Observed, Plan, Ref
from tussock.operator.resources.compactor import parse_compactor
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import parse_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = "2026-11-21T11:59:00Z"
DEFAULTS = Defaults(node_image="node:1")
SPEC = {"objectStore": {"s3": {"bucket": "b", "credentialsSecret": {"name": "keys"}}}, "tls": {"mode": "none"}}
LED = PlatformFact("", version="0.1.0", leader="10.0.0.2:7370", term=4, committed_epoch=17, committed_ms=1763725000000)
WAITS = progress_verdict(Reason.WAITING_FOR_META, "x")


def store_body(verdict: Verdict | None = WAITS, **changes: Any) -> dict[str, Any]:
    """A store with the status of its plan: by default without obstacles and waiting for meta nodes."""
    metadata = {"name": "s", "namespace": "n", "uid": "1", "generation": 1, **changes.pop("metadata", {})}
    body = {"kind": "StateStore", "metadata": metadata, "spec": {**SPEC, **changes}}
    if verdict is not None:
        obstacle = "" if verdict.reason is Reason.WAITING_FOR_META else verdict.message
        held = conditions((), verdict, 1, NOW)
        body["status"] = {"observedGeneration": 1, "conditions": held, "obstacle": obstacle}
    return body


def resource(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "m", "namespace": "n", "uid": "2", "generation": 5}
    return {"kind": kind, "metadata": metadata, "spec": {"storeRef": {"name": "s"}, **spec}}


def others_of(body: dict[str, Any] | None, secret_version: str = "1") -> dict[Ref, Any]:
    secret = {"kind": "Secret", "metadata": {"name": "keys", "resourceVersion": secret_version}}
    found: dict[Ref, Any] = {Ref("Secret", "keys"): secret}
    return found | ({Ref("StateStore", "s"): body} if body is not None else {})


def plan_of_meta(
    body: dict[str, Any] | None = None,
    children: Any = None,
    platform: PlatformFact | None = None,
    secret_version: str = "1",
    **spec: Any,
) -> Plan:
    body = store_body() if body is None else body
    facts = MetaFacts(parse_store(body), DEFAULTS, platform)
    observed = Observed(facts, children or {}, others_of(body, secret_version))
    return plan_meta(parse_meta(resource("Meta", replicas=2, **spec)), observed, NOW)


def plan_of_compactor(
    body: dict[str, Any] | None = None, children: Any = None, metas: dict[str, bool] | None = None, **spec: Any
) -> Plan:
    body = store_body() if body is None else body
    facts = CompactorFacts(parse_store(body), DEFAULTS, {"s": True} if metas is None else metas, None)
    observed = Observed(facts, children or {}, others_of(body))
    return plan_compactor(parse_compactor(resource("Compactor", **spec)), observed, NOW)


def children_of(found: Plan, ready_replicas: int | None = None) -> dict[Ref, Any]:
    """The children that a plan applies, as they would be observed; the Deployment has rolled out."""
    children: dict[Ref, Any] = {}
    for action in found.actions:
        if isinstance(action, Apply):
            body = {**action.manifest, "metadata": {**action.manifest["metadata"], "generation": 1}}
            children[Ref(body["kind"], body["metadata"]["name"])] = body
            if body["kind"] == "Deployment":
                wanted = body["spec"]["replicas"]
                numbers = {"replicas": wanted, "updatedReplicas": wanted}
                numbers["readyReplicas"] = wanted if ready_replicas is None else ready_replicas
                body["status"] = {"observedGeneration": 1, **numbers}
    return children


def pods(*ips: str, **annotations: str) -> dict[Ref, Any]:
    return {
        Ref("Pod", f"m-{ip}"): {
            "kind": "Pod",
            "metadata": {"name": f"m-{ip}", "annotations": dict(annotations)},
            "status": {"podIP": f"10.0.0.{ip}"},
        }
        for ip in ips
    }


def conditions_of(found: Plan) -> tuple[str, str]:
    held = found.status["conditions"]
    return held[0]["reason"], "".join(condition["status"][0] for condition in held)


def applied_kinds(found: Plan) -> list[str]:
    return [action.manifest["kind"] for action in found.actions if isinstance(action, Apply)]


NOT_USABLE: dict[str, Verdict | None] = {
    "new": None,
    "bucket": problem_verdict(Reason.BUCKET_UNREACHABLE, "the bucket is away."),
    "prefix": problem_verdict(Reason.PREFIX_IN_USE, "taken."),
    "certificates": progress_verdict(Reason.RECONCILING, "being issued."),
}


@pytest.mark.parametrize("verdict", NOT_USABLE.values(), ids=NOT_USABLE)
@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
def test_no_component_starts_on_an_unusable_store(plan: Any, verdict: Verdict | None) -> None:
    """The message repeats the store's own."""
    found = plan(store_body(verdict))
    assert found.actions == ()
    assert conditions_of(found) == ("WaitingForStore", "FTF")
    assert (verdict.message if verdict else "first time") in found.status["conditions"][0]["message"]


@pytest.mark.parametrize("verdict", NOT_USABLE.values(), ids=NOT_USABLE)
@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
def test_running_components_are_kept_in_any_state_of_the_store(plan: Any, verdict: Verdict | None) -> None:
    children = children_of(plan())
    gone = children.pop(Ref("ServiceAccount", "m-meta" if plan is plan_of_meta else "m-compactor"))
    found = plan(store_body(verdict), children)
    assert applied_kinds(found) == [gone["kind"]]
    assert conditions_of(found) == ("Ready", "TFF")


@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
def test_a_problem_of_a_part_is_no_obstacle_to_the_parts(plan: Any) -> None:
    """Once Meta reported a Service refused by a quota, the store repeated it, Meta waited for the store, and so on."""
    body = store_body(problem_verdict(Reason.APPLY_REFUSED, "Meta m: The API server refused a request."))
    body["status"]["obstacle"] = ""
    assert conditions_of(plan(body))[0] != "WaitingForStore"
    assert applied_kinds(plan(body)) == applied_kinds(plan())


ASKED: dict[str, tuple[PlatformFact, bool, str, str]] = {
    "silent at first": (PlatformFact("refused.", times=1), False, "RollingOut", "FTF"),
    "silent for a moment": (PlatformFact("refused.", times=2), True, "Ready", "TFF"),
    "silent": (PlatformFact("refused.", times=3), True, "ProbeFailed", "FFT"),
    "silent since the beginning": (PlatformFact("wrong name.", times=3), False, "ProbeFailed", "FFT"),
    "not to be seen": (PlatformFact("no route.", times=3, is_blind=True), True, "Ready", "TFF"),
    "electing for the first time": (PlatformFact("", times=1), False, "RollingOut", "FTF"),
    "electing another leader": (PlatformFact("", times=2), True, "NoLeader", "FTF"),
    "without a leader": (PlatformFact("", times=3), True, "NoLeader", "FFT"),
}


@pytest.mark.parametrize(("platform", "has_led", "reason", "statuses"), ASKED.values(), ids=ASKED)
def test_meta_nodes_serve_when_one_leads_and_answers(
    platform: PlatformFact, has_led: bool, reason: str, statuses: str
) -> None:
    """Story: with all gRPC down, or a wrong name in the certificate, pods were ready and so was the Meta."""
    children = children_of(plan_of_meta())
    body = resource("Meta", replicas=2)
    if has_led:
        body["status"] = plan_of_meta(children=children, platform=LED).status
    facts = MetaFacts(parse_store(store_body()), DEFAULTS, platform)
    found = plan_meta(parse_meta(body), Observed(facts, children, others_of(store_body())), NOW)
    assert conditions_of(found) == (reason, statuses)


AWAY = problem_verdict(Reason.BUCKET_UNREACHABLE, "s3://b does not answer.")
OUTAGE: list[tuple[Verdict | None, int, PlatformFact, str, str]] = [
    # The store's bucket, ready pods of two, the nodes' answer; then what is told.
    (None, 2, LED, "Ready", "TFF"),
    (None, 1, LED, "RollingOut", "TTF"),
    (None, 1, PlatformFact("", times=1), "RollingOut", "TTF"),
    (None, 2, PlatformFact("", times=2), "NoLeader", "FTF"),
    (None, 1, PlatformFact("", times=2), "NoLeader", "FTF"),
    (None, 1, PlatformFact("", times=3), "NoLeader", "FFT"),
    (AWAY, 1, PlatformFact("", times=3), "BucketUnreachable", "FFT"),
    (AWAY, 2, PlatformFact("refused.", times=3), "BucketUnreachable", "FFT"),
    (None, 1, PlatformFact("refused.", times=3), "ProbeFailed", "FFT"),
    (None, 2, PlatformFact("refused.", times=1), "RollingOut", "FTF"),
    (None, 1, PlatformFact("", times=1), "NoLeader", "FTF"),
    (None, 0, PlatformFact("", times=2), "RollingOut", "FTF"),
    (None, 1, LED, "RollingOut", "TTF"),
    (None, 2, LED, "Ready", "TFF"),
]


def test_an_outage_of_the_bucket_changes_ready_once_each_way() -> None:
    """Story: the readiness of pods comes and goes in an outage, and so did `Ready`, three times on one node."""
    status: Any = {}
    for verdict, ready_replicas, platform, reason, statuses in OUTAGE:
        body = store_body(verdict)
        facts = MetaFacts(parse_store(body), DEFAULTS, platform)
        observed = Observed(facts, children_of(plan_of_meta(), ready_replicas), others_of(body))
        found = plan_meta(parse_meta({**resource("Meta", replicas=2), "status": status}), observed, NOW)
        assert conditions_of(found) == (reason, statuses)
        status = found.status


def test_pods_that_cannot_run_are_reported_before_a_missing_leader() -> None:
    """No earlier pod serves."""
    children = children_of(plan_of_meta(), 1)
    container = {"name": "meta", "image": "node:2", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pod = {"kind": "Pod", "metadata": {"name": "m-1"}, "status": {"containerStatuses": [container]}}
    found = plan_of_meta(children={**children, Ref("Pod", "m-1"): pod}, platform=PlatformFact("", times=3))
    assert conditions_of(found) == ("ImagePullFailed", "FTT")
    assert "serve" not in found.status["conditions"][0]["message"]


@pytest.mark.parametrize("reason", [Reason.BUCKET_NOT_WRITABLE, Reason.BUCKET_ACCESS_DENIED, Reason.READERS_MAY_WRITE])
@pytest.mark.parametrize("ready_replicas", [0, 1, 2])
@pytest.mark.parametrize("platform", [None, PlatformFact("refused.", times=1), PlatformFact("", times=3)])
def test_a_meta_without_its_bucket_reports_the_bucket(
    platform: PlatformFact | None, ready_replicas: int, reason: Reason
) -> None:
    """Story: a full bucket was reported as `elect a leader`; in an outage `Ready` went up and down with the pods."""
    body = store_body(problem_verdict(reason, "s3://b is what it is: it is full."))
    found = plan_of_meta(body, children_of(plan_of_meta(), ready_replicas), platform)
    if platform is None and ready_replicas:
        assert conditions_of(found)[0] in ("Ready", "RollingOut"), "nobody has asked them yet"
        return
    assert conditions_of(found) == (reason, "FFT")
    assert "it is full" in found.status["conditions"][0]["message"]


def test_a_leading_node_proves_that_the_bucket_is_reachable() -> None:
    body = store_body(problem_verdict(Reason.BUCKET_UNREACHABLE, "s3://b does not answer."))
    assert conditions_of(plan_of_meta(body, children_of(plan_of_meta()), LED)) == ("Ready", "TFF")


def test_a_leader_whose_pod_is_gone_is_not_shown() -> None:
    """Neither under its old address, nor while no node can be asked."""
    children = {**children_of(plan_of_meta()), **pods("1", "2")}
    shown = plan_of_meta(children=children, platform=LED).status
    assert shown["leader"] in {ref.name for ref in children}
    assert "leader" not in plan_of_meta(children=children_of(plan_of_meta()), platform=LED).status
    body = {**resource("Meta", replicas=2), "status": shown}
    facts = MetaFacts(parse_store(store_body()), DEFAULTS, PlatformFact("away.", is_blind=True))
    gone = {ref: child for ref, child in children.items() if ref.name != shown["leader"]}
    kept = plan_meta(parse_meta(body), Observed(facts, gone, others_of(store_body())), NOW).status
    assert "leader" not in kept
    assert kept["committedEpoch"] == 17


def test_a_new_operator_keeps_what_the_status_knows() -> None:
    """Story: each change of the operator's leader wrote every status twice, with an event each time."""
    children = children_of(plan_of_meta())
    for platform in (LED, PlatformFact("", times=3), PlatformFact("refused.", times=3)):
        body = resource("Meta", replicas=2)
        body["status"] = plan_of_meta(children=children, platform=platform).status
        facts = MetaFacts(parse_store(store_body()), DEFAULTS, None)
        found = plan_meta(parse_meta(body), Observed(facts, children, others_of(store_body())), NOW)
        assert found.status == body["status"]


def test_scaling_is_no_change_of_image() -> None:
    children = children_of(plan_of_meta())
    before = plan_of_meta(children=children, platform=LED)
    assert conditions_of(before) == ("Ready", "TFF")
    children[Ref("Deployment", "m-meta")]["spec"]["replicas"] = 1
    children[Ref("Deployment", "m-meta")]["status"].update(replicas=1, updatedReplicas=1, readyReplicas=1)
    message = plan_of_meta(children=children, platform=LED).status["conditions"][0]["message"]
    assert "image" not in message


def test_a_component_without_its_store_says_so() -> None:
    observed = Observed(MetaFacts(None, DEFAULTS, None), {}, others_of(None))
    found = plan_meta(parse_meta(resource("Meta")), observed, NOW)
    assert conditions_of(found) == ("WaitingForStore", "FTF")
    assert "There is no StateStore s" in found.status["conditions"][0]["message"]


@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
def test_a_second_pass_does_nothing(plan: Any) -> None:
    found = plan(store_body(), children_of(plan()))
    assert found.actions == ()
    assert conditions_of(found) == ("Ready", "TFF")
    assert found.status["observedGeneration"] == 5


def test_the_status_has_the_facts_of_the_platform() -> None:
    children = {**children_of(plan_of_meta()), **pods("1", "2")}
    status = plan_of_meta(children=children, platform=LED).status
    told_of = {name: status[name] for name in ("leader", "term", "version", "committedEpoch", "committedTime")}
    assert told_of == {
        "leader": "m-2",
        "term": 4,
        "version": "0.1.0",
        "committedEpoch": 17,
        "committedTime": "2025-11-21T11:36:40Z",
    }
    assert status["image"] == "node:1"


def test_meta_nodes_without_a_leader_do_not_serve() -> None:
    found = plan_of_meta(children=children_of(plan_of_meta()), platform=LED._replace(leader=""))
    assert conditions_of(found) == ("RollingOut", "FTF")


def test_meta_nodes_that_the_operator_cannot_reach_may_serve() -> None:
    """A network policy may be the cause, or an operator outside the cluster: the kubelet's probes know better."""
    found = plan_of_meta(children=children_of(plan_of_meta()), platform=PlatformFact("no route.", is_blind=True))
    assert conditions_of(found) == ("Ready", "TFF")
    assert "no route" in found.status["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("before", "ips", "platform", "expected"),
    [
        pytest.param({}, ("1", "2"), LED, {"m-2": "100"}, id="the-leader-costs-most"),
        pytest.param({DELETION_COST: "100"}, ("1", "2"), LED, {"m-1": None}, id="who-led-before"),
        pytest.param({}, ("2",), LED, {}, id="one-pod"),
        pytest.param({}, ("1", "2"), None, {}, id="not-asked-yet"),
        pytest.param({}, ("1", "2"), LED._replace(leader=""), {}, id="no-leader"),
    ],
)
def test_the_leaders_pod_is_deleted_last(
    before: dict[str, str], ips: tuple[str, ...], platform: PlatformFact | None, expected: dict[str, str | None]
) -> None:
    found = plan_of_meta(children={**children_of(plan_of_meta()), **pods(*ips, **before)}, platform=platform)
    costs = [action for action in found.actions if isinstance(action, Annotate) and DELETION_COST in action.annotations]
    assert {action.ref.name: action.annotations[DELETION_COST] for action in costs} == expected


def test_pods_are_stamped_once_for_each_version_of_a_secret() -> None:
    children = {**children_of(plan_of_meta()), **pods("1")}
    [first] = [action for action in plan_of_meta(children=children).actions if isinstance(action, Annotate)]
    children[Ref("Pod", "m-1")]["metadata"]["annotations"] = first.annotations
    assert plan_of_meta(children=children).actions == ()
    [second] = plan_of_meta(children=children, secret_version="2").actions
    assert isinstance(second, Annotate)
    assert second.annotations != first.annotations


def test_a_revocation_reaches_running_pods_and_restarts_none() -> None:
    """The file changes, and a stamp has kubelets bring it to the pods at once; the Deployment stays as it is."""
    body = store_body()
    body["spec"]["tls"] = {"mode": "managed"}
    children = {**children_of(plan_of_meta(body)), **pods("1")}
    [before] = [action for action in plan_of_meta(body, children).actions if isinstance(action, Annotate)]
    children[Ref("Pod", "m-1")]["metadata"]["annotations"] = before.annotations
    config = {"tls": {"revoked": ["URI:tussock://data/shop/writer/totals"]}}
    applied, stamped = plan_of_meta(body, children, config=config).actions
    assert isinstance(applied, Apply)
    assert applied.manifest["kind"] == "ConfigMap"
    assert "writer/totals" in applied.manifest["data"]["clients.toml"]
    assert isinstance(stamped, Annotate)
    assert stamped.annotations != before.annotations
    # Back again, where nobody is revoked any more.
    children[Ref("Pod", "m-1")]["metadata"]["annotations"] = stamped.annotations
    assert plan_of_meta(body, children).actions == (before,)


def test_overruled_parts_of_a_pod_template_are_reported_once() -> None:
    """Once, when it is applied, and not in each pass."""
    template = {"spec": {"hostNetwork": True}}
    found = plan_of_meta(podTemplate=template)
    [event] = [action for action in found.actions if isinstance(action, Emit)]
    assert (event.type, event.reason) == ("Warning", "PodTemplateKept")
    assert "hostNetwork" in event.message
    assert plan_of_meta(children=children_of(found), podTemplate=template).actions == ()


METAS: dict[str, tuple[dict[str, bool], str]] = {
    "none": ({}, "There is no Meta"),
    "rolls": ({"s": False}, "Meta s"),
    "one of two rolls": ({"a": True, "b": False}, "Waiting until Meta b matches its spec."),
    "two roll": ({"b": False, "a": False}, "Waiting until the Metas a, b match their specs."),
    "many roll": ({f"m{number}": False for number in range(7)}, "the Metas m0, m1, m2, m3, m4 and 2 more match"),
}


@pytest.mark.parametrize(("metas", "words"), METAS.values(), ids=METAS)
def test_compactors_wait_for_all_meta_nodes(metas: dict[str, bool], words: str) -> None:
    found = plan_of_compactor(metas=metas)
    assert found.actions == ()
    assert conditions_of(found) == ("WaitingForMeta", "FTF")
    assert words in found.status["conditions"][0]["message"]


def test_compactors_say_that_the_meta_of_the_store_is_on_its_way() -> None:
    """A user who gave the store a meta section was told to create one."""
    found = plan_of_compactor(store_body(meta={}), metas={})
    assert conditions_of(found) == ("WaitingForMeta", "FTF")
    assert found.status["conditions"][0]["message"] == "The operator is creating Meta s of StateStore s."
    found = plan_of_compactor(metas={})
    advice = "There is no Meta of StateStore s; create one, or set spec.meta of the store."
    assert found.status["conditions"][0]["message"] == advice


def test_a_new_template_waits_for_meta_nodes_and_a_new_number_does_not() -> None:
    children = children_of(plan_of_compactor())
    waits = plan_of_compactor(children=children, metas={"s": False}, image="node:2")
    assert applied_kinds(waits) == []
    assert conditions_of(waits) == ("WaitingForMeta", "TTF")
    scaled = plan_of_compactor(children=children, metas={"s": False}, replicas=3)
    assert applied_kinds(scaled) == ["Deployment"]
    assert applied_kinds(plan_of_compactor(children=children, image="node:2")) == ["Deployment"]


@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
def test_a_roll_is_checked_often_without_events(plan: Any) -> None:
    """No event comes after the half minute in which a pod found no node."""
    assert plan(children=children_of(plan(), ready_replicas=0)).again_seconds == 15.0
    assert (
        plan_of_meta(children=children_of(plan_of_meta()), platform=PlatformFact("away.", is_blind=True)).again_seconds
        is None
    )
    assert (
        plan_of_meta(children=children_of(plan_of_meta()), platform=PlatformFact("", leader="")).again_seconds == 15.0
    )


@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
def test_a_paused_store_changes_nothing(plan: Any) -> None:
    children = children_of(plan())
    children.popitem()
    found = plan(store_body(paused=True), {**children, **pods("1")})
    assert found.actions == ()
    assert conditions_of(found)[0] == "Paused"


@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
@pytest.mark.parametrize(("reason", "goes"), [(Reason.DRAINING, False), (Reason.DELETING, True)])
def test_nodes_are_deleted_once_the_jobs_of_a_deleted_store_have_drained(plan: Any, reason: Reason, goes: bool) -> None:
    body = store_body(progress_verdict(reason, "x"), metadata={"deletionTimestamp": LATER})
    found = plan(body, children_of(plan()))
    name = "m-meta" if plan is plan_of_meta else "m-compactor"
    assert found.actions == ((Delete(Ref("Deployment", name)),) if goes else ())
    assert conditions_of(found) == ("Deleting", "FTF")


@pytest.mark.parametrize("plan", [plan_of_meta, plan_of_compactor])
@pytest.mark.parametrize("references", [[], [{"uid": "another"}]])
def test_nodes_of_somebody_else_are_not_deleted(plan: Any, references: list[dict[str, str]]) -> None:
    """A copy has the labels, and not the owner."""
    children = children_of(plan())
    for ref, found in children.items():
        children[ref] = {**found, "metadata": {**found["metadata"], "ownerReferences": references}}
    body = store_body(progress_verdict(Reason.DELETING, "x"), metadata={"deletionTimestamp": LATER})
    assert plan(body, children).actions == ()


def test_the_last_known_facts_stay_while_no_node_answers() -> None:
    children = children_of(plan_of_meta())
    known = plan_of_meta(children=children, platform=LED).status
    body = {**resource("Meta", replicas=2), "status": known}
    facts = MetaFacts(parse_store(store_body()), DEFAULTS, PlatformFact("away."))
    found = plan_meta(parse_meta(body), Observed(facts, children, others_of(store_body())), NOW)
    assert found.status["committedEpoch"] == 17


def test_a_store_tells_of_rows_that_were_accepted_as_lost() -> None:
    """The meta's status has the numbers, and keeps them while its nodes do not answer; a store without has none."""
    assert not {"lostRows", "quarantinedSsts"} & plan_of_meta(platform=LED).status.keys()
    lossy = LED._replace(quarantined_ssts=2, lost_rows=40)
    told = plan_of_meta(platform=lossy).status
    assert (told["quarantinedSsts"], told["lostRows"]) == (2, 40)
    body = store_body()
    facts = MetaFacts(parse_store(body), DEFAULTS, None)
    one = parse_meta({**resource("Meta", replicas=2), "status": told})
    kept = plan_meta(one, Observed(facts, {}, others_of(body)), NOW).status
    assert (kept["quarantinedSsts"], kept["lostRows"]) == (2, 40)


AHEAD = LED._replace(version="0.2.0", log_format=8)


def rolled_back(image: str, **status: Any) -> tuple[Plan, Plan]:
    """The plan of a Meta whose nodes run `node:0.2.0`, and the next one, when the user asks for another image."""
    first = plan_of_meta(platform=AHEAD, image="node:0.2.0")
    body = {**resource("Meta", replicas=2, image=image), "status": {**first.status, **status}}
    facts = MetaFacts(parse_store(store_body()), DEFAULTS, AHEAD)
    observed = Observed(facts, children_of(first), others_of(store_body()))
    return first, plan_meta(parse_meta(body), observed, NOW)


def test_an_image_that_cannot_read_the_store_is_not_started() -> None:
    """The old nodes serve, what they mount stays as it is, and the message says what to do."""
    first, found = rolled_back("node:0.1.0")
    assert first.status["logFormat"] == 8
    assert {"Deployment", "ConfigMap"} & set(applied_kinds(found)) == set()
    assert conditions_of(found) == ("DowngradeRefused", "TFT")
    told = found.status["conditions"][0]["message"]
    assert "Image node:0.1.0 is of Tussock 0.1" in told
    assert "The meta nodes keep image node:0.2.0. Set an image of the release that wrote it" in told
    assert found.status["image"] == "node:0.2.0"


@pytest.mark.parametrize("image", ["node:0.2.0", "node:0.2.1", "node:next"])
def test_other_images_are_started(image: str) -> None:
    _, found = rolled_back(image)
    assert ("Deployment" in applied_kinds(found)) == (image != "node:0.2.0")
    assert conditions_of(found)[0] in ("Ready", "RollingOut")


def test_the_format_of_a_store_outlives_nodes_that_do_not_tell() -> None:
    """Such as followers, or nodes that do not answer; and it never becomes older."""
    for platform in (LED, LED._replace(log_format=7), PlatformFact("refused.", times=3)):
        body = {**resource("Meta", replicas=2), "status": {"logFormat": 8}}
        observed = Observed(MetaFacts(parse_store(store_body()), DEFAULTS, platform), {}, others_of(store_body()))
        assert plan_meta(parse_meta(body), observed, NOW).status["logFormat"] == 8
    assert "logFormat" not in plan_of_meta(platform=LED).status
