"""A store that begins with a backup: the pod that copies it, its status, and that nothing starts before."""

from typing import Any

import pytest

from golden.write_manifests import RESTORES, text_of
from support.operator.backups.restore_cases import RESTORE_CASES
from support.operator.computes import DEFAULTS, NOW, at, body
from tussock.operator.planning.store import StoreFacts, plan_store
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import Apply, Delete, Manifest, Observed, Plan, Ref, ref_of
from tussock.operator.resources.store import parse_store

POD, CONFIG = Ref("Pod", "new-restore"), Ref("ConfigMap", "new-restore")
S3 = {"s3": {"bucket": "b", "prefix": "new", "region": "eu-central-1"}}


class Case:
    """The store `new`, which begins with a backup of the store `s`."""

    def __init__(self, restore_from: dict[str, Any], **made: Any) -> None:
        spec = {"objectStore": S3, "tls": {"mode": "none"}, "restoreFrom": restore_from, "networkPolicy": False}
        self.store = body("StateStore", "new", {**spec, "meta": {}})
        self.store["status"] = {"prefixHeld": True}
        backup = body("StateStoreBackup", "nightly", {"storeRef": {"name": "s"}})
        backup["status"] = {"backupName": "nightly-1", **made}
        source = body("StateStore", "s", {"objectStore": {"s3": {"bucket": "b", "prefix": "old", "region": "x"}}})
        self.others = {Ref("StateStoreBackup", "nightly"): backup, Ref("StateStore", "s"): source}
        self.children: dict[Ref, Manifest] = {}

    def pass_(self, bucket: BucketFact = BucketFact(None)) -> Plan:  # noqa: B008 - it is frozen
        facts = StoreFacts(defaults=DEFAULTS, sections={"Meta": {}, "Compactor": None}, bucket=bucket)
        plan = plan_store(parse_store(self.store), Observed(facts, self.children, self.others), NOW)
        for action in plan.actions:
            if isinstance(action, Apply):
                self.children[ref_of(action.manifest)] = {**action.manifest}
            elif isinstance(action, Delete):
                del self.children[action.ref]
        self.store["status"] = plan.status
        return plan

    def pod_is(self, phase: str, **status: Any) -> None:
        self.children[POD]["status"] = {"phase": phase, **status}

    def arguments(self) -> list[str]:
        return list(self.children[POD]["spec"]["containers"][0]["args"])


def conditions_of(plan: Plan) -> tuple[str, str, str]:
    held = {condition["type"]: condition for condition in plan.status["conditions"]}
    return held["Ready"]["reason"], held["Degraded"]["status"], held["Ready"]["message"]


def ended_pod(code: int, message: str = "") -> dict[str, Any]:
    container = {
        "name": "restore",
        "restartCount": 1,
        "lastState": {"terminated": {"exitCode": code, "message": message}},
    }
    return {"containerStatuses": [container]}


@pytest.mark.parametrize("case", RESTORE_CASES)
def test_manifests_are_those_of_the_file(case: str) -> None:
    """Byte for byte; after an intended change run `tests/golden/write_manifests.py`."""
    assert text_of(list(RESTORE_CASES[case])) == (RESTORES / f"{case}.yaml").read_text(encoding="utf-8")


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in RESTORES.iterdir()} == set(RESTORE_CASES)


def test_the_backup_is_there_before_anything_starts() -> None:
    """Pod, then Meta; then the pod and its settings are deleted, and never come back."""
    case = Case({"backup": "nightly"})
    assert conditions_of(case.pass_())[:2] == ("Restoring", "False")
    assert set(case.children) == {POD, CONFIG}
    assert case.arguments()[:6] == ["backup", "restore", "nightly-1", "s3://b/new", "--store", "s3://b/old"]
    for phase in ("Pending", "Running"):
        case.pod_is(phase)
        plan = case.pass_()
        assert conditions_of(plan)[:2] == ("Restoring", "False")
        assert "restoredFrom" not in plan.status
        assert not any(ref.kind == "Meta" for ref in case.children)
    case.pod_is("Succeeded")
    plan = case.pass_()
    assert plan.status["restoredFrom"] == "nightly-1"
    assert Ref("Meta", "new") in case.children
    plan = case.pass_()
    assert set(case.children) == {Ref("Meta", "new")}
    assert plan.status["restoredFrom"] == "nightly-1"
    assert not [action for action in case.pass_().actions if isinstance(action, Apply | Delete)]


def test_a_lost_pod_is_replaced_and_restores_the_same_backup() -> None:
    """The schedule has made a newer one meanwhile, but the place holds a part of the first."""
    case = Case({"backup": "nightly"})
    case.pass_()
    case.others[Ref("StateStoreBackup", "nightly")]["status"]["backupName"] = "nightly-2"
    case.pod_is("Failed", reason="Evicted")
    assert conditions_of(case.pass_())[0] == "Restoring"
    assert POD not in case.children
    case.pass_()
    assert case.arguments()[2] == "nightly-1"


def test_a_named_backup_is_restored() -> None:
    case = Case({"backup": "nightly", "backupName": "nightly-0"})
    case.pass_()
    assert case.arguments()[2] == "nightly-0"
    case = Case({"backupName": "old-7", "objectStore": {"gcs": {"bucket": "elsewhere"}}})
    case.others.clear()
    case.pass_()
    assert case.arguments()[2:6] == ["old-7", "s3://b/new", "--store", "gs://elsewhere"]


class CloneCase(Case):
    """The store `new`, which begins as a clone of the store `s`."""

    def __init__(self, source: dict[str, Any] | None = None, **clone_from: str) -> None:
        super().__init__({"backup": "nightly"})
        del self.store["spec"]["restoreFrom"]
        self.store["spec"]["cloneFrom"] = {"store": "s", **clone_from}
        s3 = {"bucket": "b", "prefix": "old", "region": "eu-central-1"}
        self.others[Ref("StateStore", "s")]["spec"]["objectStore"] = source or {"s3": s3}


@pytest.mark.parametrize("backup", ["", "nightly-1"])
def test_a_clone_is_there_before_anything_starts(backup: str) -> None:
    """By the command `clone`, with the credentials of the new store; then its pod goes, and never comes back."""
    case = CloneCase(**({"backupName": backup} if backup else {}))
    assert conditions_of(case.pass_())[:2] == ("Restoring", "False")
    assert case.arguments() == [
        "clone",
        "s3://b/old",
        "s3://b/new",
        *(["--backup", backup] if backup else []),
        "--json",
    ]
    case.pod_is("Running", **ended_pod(1, "no store to clone at s3://b/old: it has no log"))
    reason, degraded, told = conditions_of(case.pass_())
    assert (reason, degraded) == ("RestoreFailed", "True")
    assert "cannot be cloned: no store to clone at s3://b/old" in told
    case.pod_is("Running")
    assert "is cloning StateStore s" in conditions_of(case.pass_())[2]
    assert not any(ref.kind == "Meta" for ref in case.children)
    case.pod_is("Succeeded")
    assert case.pass_().status["clonedFrom"] == (f"s, backup {backup}" if backup else "s")
    plan = case.pass_()
    assert set(case.children) == {Ref("Meta", "new")}
    assert "restoredFrom" not in plan.status
    assert not [action for action in case.pass_().actions if isinstance(action, Apply | Delete)]


S3_OLD = {"bucket": "b", "prefix": "old", "region": "eu-central-1"}


@pytest.mark.parametrize(
    "source",
    [
        {"managed": {}},
        {"volume": {"size": "1Gi"}},
        {"gcs": {"bucket": "b"}},
        {"s3": {**S3_OLD, "region": "eu-west-1"}},
        {"s3": {**S3_OLD, "endpoint": "https://other"}},
        {"s3": {**S3_OLD, "serviceAccount": "other"}},
        {"s3": {**S3_OLD, "credentialsSecret": {"name": "other"}}},
    ],
)
def test_a_store_that_nodes_of_the_clone_cannot_reach_is_refused(source: dict[str, Any]) -> None:
    """Nothing is made: the clone would start, and fail at the first read."""
    case = CloneCase(source)
    reason, degraded, told = conditions_of(case.pass_())
    assert (reason, degraded, case.children) == ("RestoreFailed", "True", {})
    assert "same server with the same credentials" in told


@pytest.mark.parametrize(("name", "said"), [("gone", "There is no StateStore gone"), ("new", "itself")])
def test_a_clone_of_no_store_is_refused(name: str, said: str) -> None:
    case = CloneCase(store=name)
    case.others[Ref("StateStore", "new")] = case.store
    reason, degraded, told = conditions_of(case.pass_())
    assert (reason, degraded, case.children) == ("RestoreFailed", "True", {})
    assert said in told


def test_a_clone_that_is_there_is_not_made_again() -> None:
    """Its data were there before this object, as when a manifest is applied again."""
    case = CloneCase()
    case.pass_(BucketFact(None, has_store=True))
    assert set(case.children) == {Ref("Meta", "new")}


@pytest.mark.parametrize("name", ["s", "new"])
def test_a_copy_stands_in_for_a_store_that_is_gone(name: str) -> None:
    """The newest copy of the object; also for a new store that has the name of the old one."""
    case = Case({"backup": "nightly"})
    backup = case.others[Ref("StateStoreBackup", "nightly")]
    backup["spec"] |= {"destination": {"gcs": {"bucket": "elsewhere"}}, "storeRef": {"name": name}}
    case.others.pop(Ref("StateStore", "s"))
    if name == "new":
        case.others[Ref("StateStore", "new")] = case.store
    plan = case.pass_()
    assert conditions_of(plan)[:2] == ("RestoreFailed", "True")
    assert "knows of no copy in gs://elsewhere" in conditions_of(plan)[2]
    backup["status"]["backups"] = [{"name": "nightly-3"}, {"name": "nightly-2", "copied": True}]
    case.pass_()
    assert case.arguments()[2:6] == ["nightly-2", "s3://b/new", "--store", "gs://elsewhere"]
    backup["status"]["backups"] = [{"name": "nightly-3", "copied": True}]
    case.pod_is("Failed", reason="Evicted")
    case.pass_()
    case.pass_()
    assert case.arguments()[2] == "nightly-2", "the place holds a part of the first"


@pytest.mark.parametrize(
    ("gap", "reason", "degraded", "said"),
    [
        ("backup", "RestoreFailed", "True", "no StateStoreBackup nightly"),
        ("store", "RestoreFailed", "True", "StateStoreBackup nightly is a backup of StateStore s, which is gone"),
        ("made", "Restoring", "False", "until StateStoreBackup nightly has made a backup"),
    ],
)
def test_what_is_missing_is_told(gap: str, reason: str, degraded: str, said: str) -> None:
    case = Case({"backup": "nightly"}, **({"backupName": ""} if gap == "made" else {}))
    if gap == "backup":
        del case.others[Ref("StateStoreBackup", "nightly")]
    elif gap == "store":
        del case.others[Ref("StateStore", "s")]
    found = conditions_of(case.pass_())
    assert found[:2] == (reason, degraded)
    assert said in found[2]
    assert case.children == {}


@pytest.mark.parametrize(
    ("credentials", "is_told"),
    [({"credentialsSecret": {"name": "keys"}}, False), ({}, False), ({"serviceAccount": "pods"}, True)],
    ids=["a secret", "a public bucket", "an account of pods"],
)
def test_data_are_to_be_adopted_only_where_nobody_has_looked(credentials: dict[str, Any], is_told: bool) -> None:
    """Story: for a backup that does not exist users were told to adopt the data of an empty prefix."""
    case = Case({"backup": "missing"})
    case.store["spec"]["objectStore"] = {"s3": {**S3["s3"], **credentials}}
    keys = {"data": {"access-key-id": "", "secret-access-key": ""}, "metadata": {"name": "keys"}}
    case.others[Ref("Secret", "keys")] = keys
    reason, _, message = conditions_of(case.pass_())
    assert reason == "RestoreFailed"
    assert ("spec.adopt" in message) is is_told


def test_existing_data_are_served_without_a_restore() -> None:
    """For example after a deletion with `Retain` and a second apply of the manifest: no restore, no obstacle."""
    case = Case({"backup": "nightly"})
    found = conditions_of(case.pass_(BucketFact(None, has_store=True)))
    assert found[:2] == ("WaitingForMeta", "False")
    assert POD not in case.children
    assert Ref("Meta", "new") in case.children


def test_the_secret_of_the_source_is_checked_first() -> None:
    """A pod would wait for a missing one without a word."""
    s3 = {"bucket": "old", "endpoint": "https://old", "credentialsSecret": {"name": "old-keys"}}
    case = Case({"backupName": "old-7", "objectStore": {"s3": s3}})
    found = conditions_of(case.pass_())
    assert found[:2] == ("SecretNotFound", "True")
    assert "no Secret old-keys in namespace team" in found[2]
    secret: Manifest = {"kind": "Secret", "metadata": {"name": "old-keys"}, "data": {"access-key-id": ""}}
    case.others[Ref("Secret", "old-keys")] = secret
    found = conditions_of(case.pass_())
    assert found[:2] == ("SecretKeyMissing", "True")
    assert "has no key secret-access-key" in found[2]
    assert POD not in case.children
    secret["data"]["secret-access-key"] = ""
    assert conditions_of(case.pass_())[0] == "Restoring"
    assert POD in case.children


def test_the_message_of_the_pod_is_reported() -> None:
    """The message has the words of the failed attempt, or those of Kubernetes for a pod that cannot begin."""
    case = Case({"backup": "nightly"})
    case.pass_()
    case.pod_is("Running", **ended_pod(1, "StoreNotEmpty: s3://b/new holds another store\n"))
    found = conditions_of(case.pass_())
    assert found[:2] == ("RestoreFailed", "True")
    assert "StoreNotEmpty: s3://b/new holds another store. Pod new-restore tries again." in found[2]
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    case.pod_is("Pending", containerStatuses=[{"name": "restore", "image": "i", "state": {"waiting": waiting}}])
    found = conditions_of(case.pass_())
    assert found[:2] == ("ImagePullFailed", "True")
    case.pod_is("Succeeded", **ended_pod(1, "before"))
    assert case.pass_().status["restoredFrom"] == "nightly-1"


def test_the_deletion_of_a_store_ends_its_restore_first() -> None:
    """The pod writes into the prefix that is to be emptied, so it is deleted and waited for."""
    case = Case({"backup": "nightly"})
    case.pass_()
    case.store["metadata"]["deletionTimestamp"] = at(-1)
    pod = case.children[POD]
    facts = StoreFacts(defaults=DEFAULTS, sections={"Meta": {}, "Compactor": None}, pods=[pod])
    plan = plan_store(parse_store(case.store), Observed(facts, case.children, case.others), NOW)
    assert Delete(POD) in plan.actions
    assert "new-restore" in conditions_of(plan)[2]


def test_a_lost_pod_of_somebody_else_is_not_deleted() -> None:
    """It has the name and the labels of the one that restores."""
    case = Case({"backup": "nightly"})
    case.pass_()
    case.pod_is("Failed")
    foreign = case.children[POD]
    foreign["metadata"] = {**foreign["metadata"], "ownerReferences": [{"uid": "another"}]}
    assert Delete(POD) not in case.pass_().actions
    assert "restoredFrom" not in case.store["status"]
