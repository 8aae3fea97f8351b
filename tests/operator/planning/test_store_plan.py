"""The plan of a `StateStore`: obstacles in their order, the start of its parts, and its status."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.store import ISSUE_CERTIFICATES, MAKE_MINIO_SECRET, StoreFacts, plan_store
from tussock.operator.planning.turns import UPGRADED, UpgradeTurn, with_turn
from tussock.operator.planning.words.comparison import APPLIED
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    conditions,
    problem_verdict,
    progress_verdict,
    ready_verdict,
)
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import Annotate, Apply, Delete, Emit, Hold, Observed, Plan, Ref, Work
from tussock.operator.resources.store import StoreResource, parse_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DEFAULTS = Defaults(node_image="node:1", minio_image="minio:1")
S3 = {"s3": {"bucket": "b", "prefix": "p", "credentialsSecret": {"name": "keys"}}}
READERS = {"s3": {**S3["s3"], "readerCredentialsSecret": {"name": "readers"}}}
KEYS = {"access-key-id": "", "secret-access-key": ""}
GOOD = StoreFacts(defaults=DEFAULTS, sections={"Meta": {}, "Compactor": {"slots": 2}}, bucket=BucketFact(None))


def store(**spec: Any) -> StoreResource:
    metadata = {"name": "s", "namespace": "n", "uid": "1", "generation": 3}
    full = {"objectStore": S3, "tls": {"mode": "none"}, **spec}
    return parse_store({"kind": "StateStore", "metadata": metadata, "spec": full, "status": {"prefixHeld": True}})


def secret(name: str = "keys", data: dict[str, str] | None = None) -> dict[Ref, Any]:
    body = {"kind": "Secret", "metadata": {"name": name}, "data": KEYS if data is None else data}
    return {Ref("Secret", name): body}


def own_secret(name: str, data: dict[str, str] | None = None) -> dict[Ref, Any]:
    """A secret that the operator has made for the store."""
    found = secret(name, data)
    found[Ref("Secret", name)]["metadata"]["ownerReferences"] = [{"kind": "StateStore", "name": "s", "uid": "1"}]
    return found


def component(kind: str, verdict: Verdict | None, name: str = "s", generation: int = 1) -> dict[Ref, Any]:
    """A `Meta` or `Compactor` of the store, with the status that its plan gives it."""
    body: dict[str, Any] = {"kind": kind, "metadata": {"name": name, "namespace": "n", "generation": 1}}
    body["spec"] = {"storeRef": {"name": "s"}}
    if verdict is not None:
        body["status"] = {"observedGeneration": generation, "conditions": conditions((), verdict, generation, NOW)}
    return {Ref(kind, name): body}


def plan(one: StoreResource, facts: StoreFacts = GOOD, others: Any = None, children: Any = None) -> Plan:
    return plan_store(one, Observed(facts, children or {}, secret() if others is None else others), NOW)


def conditions_of(found: Plan) -> tuple[str, str]:
    """The reason, and the statuses of Ready, Progressing and Degraded by their first letters."""
    held = found.status["conditions"]
    return held[0]["reason"], "".join(condition["status"][0] for condition in held)


def applied_kinds(found: Plan) -> set[str]:
    return {action.manifest["kind"] for action in found.actions if isinstance(action, Apply)}


OBSTACLES: dict[str, tuple[dict[str, Any], Any, StoreFacts, str, str]] = {
    "no secret": ({}, {}, GOOD, "SecretNotFound", "FFT"),
    "no key": ({}, secret(data={"access-key-id": ""}), GOOD, "SecretKeyMissing", "FFT"),
    "bucket not looked at": ({}, secret(), replace(GOOD, bucket=None), "Reconciling", "FTF"),
    "rival": ({}, secret(), replace(GOOD, rivals=("n/first",)), "PrefixInUse", "FFT"),
    "rival before secret": ({}, {}, replace(GOOD, rivals=("n/first",)), "PrefixInUse", "FFT"),
    "no readers' secret": ({"objectStore": READERS}, secret(), GOOD, "SecretNotFound", "FFT"),
    "no readers' key": (
        {"objectStore": READERS},
        secret() | secret("readers", {"access-key-id": ""}),
        GOOD,
        "SecretKeyMissing",
        "FFT",
    ),
    "no user's certificates": ({"tls": {"mode": "secret", "secretName": "t"}}, secret(), GOOD, "SecretNotFound", "FFT"),
    "a user's certificate without key": (
        {"tls": {"mode": "secret", "secretName": "t"}},
        {**secret(), **secret("t", {"ca.crt": "", "tls.crt": ""})},
        GOOD,
        "SecretKeyMissing",
        "FFT",
    ),
    "certificates not issued": ({"tls": {}}, secret(), replace(GOOD, certificates_due=True), "Reconciling", "FTF"),
    **{
        reason: ({}, secret(), replace(GOOD, bucket=BucketFact(reason, "words")), str(reason), "FFT")
        for reason in (
            Reason.BUCKET_UNREACHABLE,
            Reason.BUCKET_NOT_FOUND,
            Reason.BUCKET_ACCESS_DENIED,
            Reason.BUCKET_NOT_WRITABLE,
            Reason.PREFIX_IN_USE,
        )
    },
}


@pytest.mark.parametrize(("spec", "others", "facts", "reason", "statuses"), OBSTACLES.values(), ids=OBSTACLES)
def test_an_obstacle_is_reported_and_nothing_is_started(
    spec: dict[str, Any], others: Any, facts: StoreFacts, reason: str, statuses: str
) -> None:
    found = plan(store(**spec), facts, others)
    assert conditions_of(found) == (reason, statuses)
    assert not applied_kinds(found) & {"Meta", "Compactor"}
    assert found.again_seconds == 10.0


def test_nothing_is_started_before_the_status_says_that_the_prefix_is_held() -> None:
    """An operator that dies in between must not forget the owner of the prefix; the next pass starts the parts."""
    new = replace_status(store(), {})
    first = plan(new, replace(GOOD, holds_prefix=True))
    assert conditions_of(first) == ("Reconciling", "FTF")
    assert not applied_kinds(first) & {"Meta", "Compactor"}
    assert first.status["prefixHeld"] is True
    assert first.status["obstacle"]
    second = plan(replace_status(new, first.status), replace(GOOD, holds_prefix=True))
    assert {"Meta", "Compactor"} <= applied_kinds(second)
    assert second.status["obstacle"] == ""
    assert "prefixHeld" not in plan(new, replace(GOOD, bucket=None)).status


def test_of_many_stores_on_the_prefix_a_few_are_named() -> None:
    """Story: each of 200 stores on one prefix named the 199 others, in 5,805 characters."""
    found = plan(store(), replace(GOOD, rivals=tuple(f"n/s{number}" for number in range(199))))
    message = found.status["conditions"][0]["message"]
    assert "belongs to StateStore n/s0, n/s1, n/s2, n/s3, n/s4 and 194 more, whose prefix" in message
    assert len(message) < 400


def test_a_store_that_was_let_go_keeps_its_last_word() -> None:
    """Somebody else's finalizer keeps the object; the place may be another store's by now."""
    deleted = store()
    deleted = msgspec.structs.replace(
        deleted, metadata=msgspec.structs.replace(deleted.metadata, deletion_timestamp="2026-11-21T11:59:00Z")
    )
    status = plan(deleted, GOOD).status
    found = plan(replace_status(deleted, status), replace(GOOD, has_let_go=True, rivals=("n/next",)))
    assert found == Plan((), status)


def test_a_store_of_an_earlier_operator_holds_its_prefix() -> None:
    """Its status has no such field; the version that its meta nodes reported shows the same."""
    found = plan(replace_status(store(), {"version": "0.1.0"}))
    assert {"Meta", "Compactor"} <= applied_kinds(found)
    assert found.status["prefixHeld"] is True


def test_secrets_of_a_former_store_of_the_name_are_waited_for() -> None:
    """It was once reported that the name is taken, and that the user should delete the secret."""
    former = own_secret("s-ca")
    reference = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "name": "s", "uid": "0"}
    former[Ref("Secret", "s-ca")]["metadata"]["ownerReferences"] = [reference]
    found = plan(store(tls={"mode": "managed"}), others={**secret(), **former})
    assert conditions_of(found)[0] == "Reconciling"
    assert "what a former resource of this name owned: Secret s-ca" in found.status["conditions"][0]["message"]
    former[Ref("Secret", "s-ca")]["metadata"]["ownerReferences"] = []
    assert conditions_of(plan(store(tls={"mode": "managed"}), others={**secret(), **former}))[0] == "NameInUse"


def test_a_new_operator_takes_the_status_of_a_store_as_it_was() -> None:
    """That holds until it has looked at the bucket itself; until then an obstacle stays one, and nothing is started."""
    meta = component("Meta", ready_verdict("x"))
    others = {**secret(), **meta, **component("Compactor", ready_verdict("x"))}
    for bucket in (BucketFact(None), BucketFact(Reason.BUCKET_UNREACHABLE, "away.")):
        before = plan(store(), replace(GOOD, bucket=bucket), others, meta)
        again = plan_store(
            replace_status(store(), before.status), Observed(replace(GOOD, bucket=None), meta, others), NOW
        )
        assert again.status == before.status
        assert ("Compactor" in applied_kinds(again)) == (bucket.reason is None)


def replace_status(one: StoreResource, status: dict[str, Any]) -> StoreResource:
    return msgspec.structs.replace(one, status=status)


@pytest.mark.parametrize(("spec", "others", "facts", "reason", "statuses"), OBSTACLES.values(), ids=OBSTACLES)
def test_running_components_are_kept_in_spite_of_an_obstacle(
    spec: dict[str, Any], others: Any, facts: StoreFacts, reason: str, statuses: str
) -> None:
    """The store serves as long as its meta nodes do; their objects are still corrected."""
    meta = component("Meta", ready_verdict("x"))
    found = plan(store(**spec), facts, {**others, **meta}, meta)
    assert conditions_of(found) == (reason, "T" + statuses[1:])
    assert not any(isinstance(action, Delete) and action.ref.kind == "Meta" for action in found.actions)


def test_a_store_without_obstacles_gets_its_components() -> None:
    """As the user wrote them: fields that a section leaves out stay with the API server and autoscalers."""
    found = plan(store())
    assert conditions_of(found) == ("WaitingForMeta", "FTF")
    made = {action.manifest["kind"]: action.manifest for action in found.actions if isinstance(action, Apply)}
    assert made["Compactor"]["spec"] == {"storeRef": {"name": "s"}, "slots": 2}
    assert made["Meta"]["metadata"]["ownerReferences"][0]["uid"] == "1"
    assert found.actions[0] == Hold()


def test_a_removed_section_deletes_its_object() -> None:
    both = {**component("Meta", ready_verdict("x")), **component("Compactor", ready_verdict("x"))}
    made = plan(store())
    children = {
        Ref(action.manifest["kind"], action.manifest["metadata"]["name"]): action.manifest
        for action in made.actions
        if isinstance(action, Apply)
    }
    found = plan(store(), replace(GOOD, sections={"Meta": {}, "Compactor": None}), {**secret(), **both}, children)
    assert [action for action in found.actions if isinstance(action, Delete)] == [Delete(Ref("Compactor", "s"))]


def test_a_second_pass_does_nothing() -> None:
    """Once everything is as planned, the plan is empty but for the finalizer, which is kept."""
    first = plan(store())
    children = {
        Ref(action.manifest["kind"], action.manifest["metadata"]["name"]): action.manifest
        for action in first.actions
        if isinstance(action, Apply)
    }
    others = {**secret(), **component("Meta", ready_verdict("x")), **component("Compactor", ready_verdict("x"))}
    assert plan(store(), GOOD, others, children).actions == (Hold(),)


PARTS: dict[str, tuple[Verdict | None, Verdict | None, str, str]] = {
    "all serve": (ready_verdict("x"), ready_verdict("x"), "Ready", "TFF"),
    "meta is new": (None, None, "WaitingForMeta", "FTF"),
    "meta rolls and serves": (
        progress_verdict(Reason.ROLLING_OUT, "x", serving=True),
        ready_verdict("x"),
        "RollingOut",
        "TTF",
    ),
    "meta waits": (progress_verdict(Reason.WAITING_FOR_STORE, "x"), None, "WaitingForMeta", "FTF"),
    "meta is too old": (
        problem_verdict(Reason.DOWNGRADE_REFUSED, "x", serving=True),
        ready_verdict("x"),
        "DowngradeRefused",
        "TFT",
    ),
    "meta is wrong": (problem_verdict(Reason.CRASH_LOOPING, "x"), ready_verdict("x"), "CrashLooping", "FFT"),
    "meta is wrong and serves": (
        problem_verdict(Reason.IMAGE_PULL_FAILED, "x", serving=True),
        None,
        "ImagePullFailed",
        "TFT",
    ),
    "meta finds no node": (progress_verdict(Reason.UNSCHEDULABLE, "x"), None, "Unschedulable", "FTF"),
    "compactors are new": (ready_verdict("x"), None, "WaitingForCompactors", "TTF"),
    "compactors wait": (
        ready_verdict("x"),
        progress_verdict(Reason.WAITING_FOR_META, "x"),
        "WaitingForCompactors",
        "TTF",
    ),
    "compactors roll": (ready_verdict("x"), progress_verdict(Reason.ROLLING_OUT, "x"), "RollingOut", "TTF"),
    "compactors are wrong": (ready_verdict("x"), problem_verdict(Reason.CRASH_LOOPING, "x"), "CrashLooping", "TFT"),
}


@pytest.mark.parametrize(("meta", "compactor", "reason", "statuses"), PARTS.values(), ids=PARTS)
def test_the_status_of_a_store_follows_its_parts(
    meta: Verdict | None, compactor: Verdict | None, reason: str, statuses: str
) -> None:
    others = {**secret(), **component("Meta", meta), **component("Compactor", compactor)}
    found = plan(store(), GOOD, others)
    assert conditions_of(found) == (reason, statuses)
    assert found.status["observedGeneration"] == 3


def test_a_store_that_does_not_serve_checks_its_bucket_soon() -> None:
    """Story: a full bucket was found by a write that the next pass asked for, half a minute later."""
    leaderless = component("Meta", progress_verdict(Reason.NO_LEADER, "The leader is gone."))
    assert plan(store(), others={**secret(), **leaderless}).again_seconds == 10.0
    assert (
        plan(store(), others={**secret(), **component("Meta", ready_verdict("All 1 meta nodes serve."))}).again_seconds
        is None
    )


def test_a_part_that_has_not_seen_its_newest_spec_is_waited_for() -> None:
    others = {
        **secret(),
        **component("Meta", ready_verdict("x"), generation=0),
        **component("Compactor", ready_verdict("x")),
    }
    found = plan(store(), GOOD, others)
    assert conditions_of(found) == ("WaitingForMeta", "TTF")
    assert found.status["conditions"][0]["message"] == "Meta s has changed; the operator is checking it."


def test_a_meta_of_the_section_is_waited_for() -> None:
    """The operator does not report it as missing: the user has written the section."""
    found = plan(store(meta={}), GOOD)
    assert conditions_of(found) == ("WaitingForMeta", "FTF")
    assert found.status["conditions"][0]["message"] == "The operator is creating Meta s."


def test_a_status_of_another_release_keeps_its_obstacle() -> None:
    """Its reason is unknown to this release: the obstacle stays one until the operator has looked again."""
    before = plan(store(), replace(GOOD, bucket=BucketFact(Reason.BUCKET_UNREACHABLE, "away."))).status
    for condition in before["conditions"]:
        condition["reason"] = "OfTheNextRelease"
    again = plan(replace_status(store(), before), replace(GOOD, bucket=None))
    assert conditions_of(again) == ("Reconciling", "FTF")
    assert again.status["obstacle"] == "away."
    assert not applied_kinds(again) & {"Meta", "Compactor"}


def test_a_paused_store_changes_nothing() -> None:
    """No difference and no obstacle changes that; the status still shows whether the store serves."""
    found = plan(store(paused=True), replace(GOOD, bucket=None), component("Meta", ready_verdict("x")))
    assert found.actions == (Hold(),)
    assert conditions_of(found) == ("Paused", "TFF")


def test_a_managed_object_store_comes_first() -> None:
    """Its secret is drawn, then its server started; the bucket is checked only when that serves."""
    one = store(objectStore={"managed": {}})
    found = plan(one, replace(GOOD, bucket=None), {})
    assert Work(MAKE_MINIO_SECRET, {}) in found.actions
    assert {"PersistentVolumeClaim", "Service"} <= applied_kinds(found)
    assert "StatefulSet" not in applied_kinds(found)
    assert conditions_of(found) == ("RollingOut", "FTF")
    assert found.again_seconds == 2.0
    again = plan(one, replace(GOOD, bucket=None), own_secret("s-minio"))
    assert not any(isinstance(action, Work) for action in again.actions)
    assert "StatefulSet" in applied_kinds(again)
    told = f"0 of 1 servers of the managed object store serve with image {DEFAULTS.minio_image}."
    assert again.status["conditions"][0]["message"] == told


def test_a_managed_object_store_waits_for_its_turn() -> None:
    """An upgrade restarts the servers of a few stores at a time; all else of the store is done."""
    one, facts = store(objectStore={"managed": {}}), replace(GOOD, turn=UpgradeTurn(is_asked=True, before=("n/first",)))
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
    server = {"kind": "StatefulSet", "metadata": {"name": "s-minio", "generation": 1}, "spec": {"replicas": 1}}
    children = {Ref("StatefulSet", "s-minio"): {**server, "status": status}}
    parts = {**component("Meta", ready_verdict("ok")), **component("Compactor", ready_verdict("ok"))}
    others = {**own_secret("s-minio"), **parts}
    waiting = plan(one, facts, others, children)
    assert "StatefulSet" not in applied_kinds(waiting)
    assert "Service" in applied_kinds(waiting)
    assert conditions_of(waiting) == ("Ready", "TFF")
    told = "An upgrade of the operator changes its object store after that of StateStore n/first."
    assert told in waiting.status["conditions"][0]["message"]
    assert waiting.again_seconds == 3.0
    assert "StatefulSet" in applied_kinds(plan(one, GOOD, others, children))


def test_a_server_has_the_note_of_an_upgrade_until_it_serves() -> None:
    """By it the next operator knows a server that an upgrade has broken from one whose user did."""
    one, turn = store(objectStore={"managed": {}}), UpgradeTurn(is_asked=True)
    others = {**own_secret("s-minio"), **component("Meta", ready_verdict("ok"))}
    numbers = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
    server = {"kind": "StatefulSet", "metadata": {"name": "s-minio", "generation": 1}, "spec": {"replicas": 1}}
    former = {Ref("StatefulSet", "s-minio"): {**server, "status": numbers}}
    made = plan(one, replace(GOOD, turn=turn), others, former).actions
    [new] = [one.manifest for one in made if isinstance(one, Apply) and one.manifest["kind"] == "StatefulSet"]
    note = Annotate(Ref("StatefulSet", "s-minio"), {UPGRADED: new["metadata"]["annotations"][APPLIED]})
    assert made.index(note) < made.index(Apply(new)), "it is never missed"
    assert not any(isinstance(one, Annotate) for one in plan(one, GOOD, others, former).actions)
    passed = Annotate(Ref("StatefulSet", "s-minio"), {UPGRADED: None})
    annotations = {**new["metadata"]["annotations"], **note.annotations}
    for ready, is_over in ((0, False), (1, True)):
        child = {**new, "metadata": {**new["metadata"], "generation": 1, "annotations": annotations}}
        child["status"] = {**numbers, "readyReplicas": ready}
        assert (passed in plan(one, GOOD, others, {Ref("StatefulSet", "s-minio"): child}).actions) is is_over


@pytest.mark.parametrize("kind", ["Meta", "Compactor"])
def test_a_store_says_that_an_upgrade_of_its_parts_is_stopped(kind: str) -> None:
    """It serves, and waits for nothing that its users could do here: the message names the store that has failed."""
    failed = UpgradeTurn(is_asked=True, failed="n/first (ImagePullFailed)")
    parts = {**component("Meta", ready_verdict("ok")), **component("Compactor", ready_verdict("ok"))}
    parts |= component(kind, with_turn(ready_verdict("ok"), failed, "them"))
    stopped = plan(store(), GOOD, {**secret(), **parts})
    assert conditions_of(stopped) == ("UpgradeStopped", "TFF")
    assert "StateStore n/first (ImagePullFailed) has failed it" in stopped.status["conditions"][0]["message"]


def test_a_store_says_which_images_of_its_parts_wait_for_approval() -> None:
    """All of them in one line, which an approval repeats; the time stays while these wait."""
    parts = {**component("Meta", ready_verdict("ok")), **component("Compactor", ready_verdict("ok"))}
    for ref, body in parts.items():
        body["status"]["pendingImage"] = {"Meta": "node:3", "Compactor": "node:2"}[ref.kind]
    waiting = plan(store(), GOOD, {**secret(), **parts})
    assert conditions_of(waiting) == ("WaitingForApproval", "TFF")
    assert waiting.status["pendingImage"] == "node:2,node:3"
    assert waiting.status["pendingImageTime"] == waiting.status["conditions"][0]["lastTransitionTime"]
    told = waiting.status["conditions"][0]["message"]
    assert told.endswith("give the StateStore the annotation tussock.dev/approved-image: node:2,node:3")
    later = plan_store(
        msgspec.structs.replace(store(), status={**waiting.status, "prefixHeld": True}),
        Observed(GOOD, {}, {**secret(), **parts}),
        NOW + timedelta(hours=1),
    )
    assert later.status["pendingImageTime"] == waiting.status["pendingImageTime"]


def test_a_managed_object_store_restarts_with_another_secret() -> None:
    """A new one may be drawn after a user deleted the first; meanwhile the server is left alone."""
    one = store(objectStore={"managed": {}})

    def server(others: Any, children: Any = None) -> dict[str, Any] | None:
        made = plan(one, GOOD, others, children).actions
        found = [action.manifest for action in made if isinstance(action, Apply)]
        return next((manifest for manifest in found if manifest["kind"] == "StatefulSet"), None)

    def version(number: int) -> dict[Ref, Any]:
        found = own_secret("s-minio")
        found[Ref("Secret", "s-minio")]["metadata"]["resourceVersion"] = str(number)
        return found

    first = server(version(1))
    assert first is not None
    children = {Ref("StatefulSet", "s-minio"): first}
    assert server(version(1), children) is None
    gone = plan(one, GOOD, {}, children)
    assert not {Ref("StatefulSet", "s-minio")} & {action.ref for action in gone.actions if isinstance(action, Delete)}
    assert server({}, children) is None
    second = server(version(2), children)
    assert second is not None
    assert second["spec"]["template"] != first["spec"]["template"]


def test_certificates_are_requested_for_the_names_of_all_meta_nodes() -> None:
    others = {**secret(), **component("Meta", ready_verdict("x"), name="other")}
    found = plan(store(tls={}), replace(GOOD, certificates_due=True), others)
    assert Work(ISSUE_CERTIFICATES, {"metas": ["other", "s"], "hosts": []}) in found.actions


def test_numbers_in_the_status_are_sums() -> None:
    others = {**secret(), **component("Meta", ready_verdict("x")), **component("Compactor", ready_verdict("x"))}
    others |= component("Compactor", ready_verdict("x"), name="more")
    for ref, numbers in {
        Ref("Meta", "s"): (2, 2),
        Ref("Compactor", "s"): (3, 1),
        Ref("Compactor", "more"): (1, 1),
    }.items():
        others[ref]["status"] |= dict(zip(("replicas", "readyReplicas"), numbers, strict=True))
    status = plan(store(), GOOD, others).status
    assert status["meta"] == {"replicas": 2, "readyReplicas": 2}
    assert status["compactor"] == {"replicas": 4, "readyReplicas": 2}
    assert status["compute"] == {"total": 0, "ready": 0}


@pytest.mark.parametrize("paused", [False, True])
def test_rows_that_were_accepted_as_lost_are_told_once(paused: bool) -> None:
    """The status has the numbers of the meta nodes; an event tells of each loss, and no pass repeats it."""
    meta = {"kind": "Meta", "metadata": {"name": "s", "namespace": "n"}, "spec": {"storeRef": {"name": "s"}}}
    one = store(paused=paused)

    def told(one: Any, **numbers: int) -> tuple[dict[str, Any], list[str]]:
        others = secret() | {Ref("Meta", "s"): {"kind": "Meta", **meta, "status": numbers}}
        found = plan(one, others=others)
        events = [action for action in found.actions if isinstance(action, Emit) and action.reason == "RowsLost"]
        return found.status, [event.message for event in events]

    assert told(one)[1] == []
    status, events = told(one, lostRows=40, quarantinedSsts=1)
    assert (status["lostRows"], status["quarantinedSsts"]) == (40, 1)
    assert [text.partition(" of")[0] for text in events] == ["40 rows"]
    status, events = told(replace_status(one, status), lostRows=40)
    assert events == []
    assert "quarantinedSsts" not in status
    assert [text.partition(" of")[0] for text in told(replace_status(one, status), lostRows=41)[1]] == ["1 rows"]
