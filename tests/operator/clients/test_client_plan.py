"""The plan of a declared client: its certificate, what its status says, and when its object may go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.operator.clients import client_body
from support.operator.computes import body, store
from tussock.operator.manifests.certificates import ca_secret, certificate_secret, client_certificate
from tussock.operator.manifests.meta_config import clients_file
from tussock.operator.planning.clients.certificates import ISSUE_OWN_CERTIFICATE
from tussock.operator.planning.clients.declarations import declare
from tussock.operator.planning.clients.plan import ClientFacts, plan_client
from tussock.operator.planning.words.model import (
    Apply,
    Delete,
    Emit,
    Hold,
    Manifest,
    Observed,
    Plan,
    Ref,
    Release,
    Work,
    ref_of,
    stamp,
)
from tussock.operator.resources.client import parse_client
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import parse_store

SECRET = Ref("Secret", "dashboard-client-tls")
ISSUER = {"mode": "certManager", "issuerRef": {"name": "company", "kind": "ClusterIssuer"}}
ENDS = "2027-02-19T00:00:00Z"


class World:
    """A client, its store `s` with one Meta, and the file of that."""

    def __init__(self, *, store_spec: dict[str, Any] | None = None, **spec: Any) -> None:
        self.now = datetime(2026, 11, 21, 12, tzinfo=UTC)
        self.client = client_body(store="s", **spec)
        self.client["metadata"]["namespace"] = "team"
        meta = body("Meta", "s", {"storeRef": {"name": "s"}})
        self.others: dict[Ref, Manifest] = {ref_of(one): one for one in (store(**(store_spec or {})), meta)}
        self.children: dict[Ref, Manifest] = {}
        self.file = ""
        self.has_cert_manager = False
        self.ends = ""
        self.write()
        self.issue()

    @property
    def store(self) -> Any:
        return parse_store(self.others[Ref("StateStore", "s")])

    def write(self) -> None:
        """What the Meta's plan does: bring its file up to date."""
        entries = declare(self.store, [parse_client(self.client)]).entries.values()
        self.file = clients_file(parse_meta(self.others[Ref("Meta", "s")]), tuple(entries))

    def issue(self) -> None:
        """What the operator does where the plan asks for the certificate."""
        client = parse_client(self.client)
        files = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), "")
        self.others[SECRET] = certificate_secret(client, "s", client_certificate(client, self.store), files)
        self.others[Ref("Secret", ca_secret(self.store))] = {"metadata": {}}
        self.ends = ENDS

    def plan(self, *, due: bool = False) -> Plan:
        client = parse_client(self.client)
        facts = ClientFacts(self.store, declare(self.store, [client]), {"s": self.file}, due, self.ends)
        if Ref("Meta", "s") not in self.others:
            facts = ClientFacts(self.store, declare(self.store, [client]), {}, due, self.ends)
        if self.has_cert_manager:
            facts = ClientFacts(facts.store, facts.declarations, facts.files, due, self.ends, has_cert_manager=True)
        plan = plan_client(client, Observed(facts, self.children, self.others), self.now)
        self.client["status"] = plan.status
        return plan

    def set(self, **spec: Any) -> None:
        """Change the spec, as a user does."""
        self.client["spec"].update(spec)
        self.client["metadata"]["generation"] += 1

    def delete(self) -> None:
        """Delete the object, as a user does."""
        self.client["metadata"]["deletionTimestamp"] = stamp(self.now)

    def reason(self) -> tuple[str, str, str]:
        """Of the condition Ready, and whether anything is wrong."""
        ready, _, degraded = self.plan().status["conditions"]
        return ready["status"], ready["reason"], degraded["status"]

    def message(self) -> str:
        return str(self.plan().status["conditions"][0]["message"])


def works(plan: Plan) -> list[Any]:
    return [action for action in plan.actions if isinstance(action, Work)]


def test_a_client_is_ready_when_it_can_call() -> None:
    """The status says how; nothing is left to do."""
    world = World()
    plan = world.plan()
    assert world.reason() == ("True", "Ready", "False")
    assert plan.actions == (Hold(),)
    assert plan.again_seconds is None
    told = {name: value for name, value in plan.status.items() if name not in ("conditions", "observedGeneration")}
    assert told == {
        "identity": "client:dashboard",
        "endpoint": "tussock://s-meta.team.svc:7370",
        "secretName": SECRET.name,
        "certificatesExpireTime": ENDS,
    }


def test_a_client_waits_for_its_certificate() -> None:
    """It is issued when the store has a CA, again when it is due, and not while the client is shut out."""
    world = World()
    ca = world.others.pop(Ref("Secret", "s-ca"))
    del world.others[SECRET]
    assert works(world.plan()) == []
    world.others[Ref("Secret", "s-ca")] = ca
    assert works(world.plan()) == [Work(ISSUE_OWN_CERTIFICATE, {})]
    assert world.reason() == ("False", "Reconciling", "False")
    assert SECRET.name in world.message()
    world.issue()
    assert works(world.plan()) == []
    assert works(world.plan(due=True)) == [Work(ISSUE_OWN_CERTIFICATE, {})]
    world.set(revoked=True)
    assert works(world.plan(due=True)) == []


@pytest.mark.parametrize("shut_out", ["revoked", "expired"])
def test_a_client_that_is_shut_out_is_at_rest(shut_out: str) -> None:
    """Once the nodes know of a revocation; of an expiry they know all along. Its certificate's end is told no more."""
    world = World(expiresAt="2026-11-21T12:00:10Z")
    assert world.plan().again_seconds == 10.0
    if shut_out == "revoked":
        world.set(revoked=True)
        assert world.reason() == ("False", "Reconciling", "False")
        assert world.plan().again_seconds == 1.0
        world.write()
        assert world.reason() == ("False", "Revoked", "False")
        world.set(revoked=False)
        world.write()
        assert world.reason()[0] == "True"
    world.now += timedelta(seconds=9)
    assert world.reason()[0] == "True"
    world.now += timedelta(seconds=1)
    assert world.reason() == ("False", "Expired", "False")
    assert "certificatesExpireTime" not in world.plan().status
    assert world.plan().again_seconds is None


def test_a_client_that_is_known_by_a_service_account_says_for_whom_its_tokens_are() -> None:
    world = World(store_spec={"tokenReviews": True}, serviceAccounts=["web"])
    assert world.reason() == ("True", "Ready", "False")
    assert world.plan().status["audience"] == "tussock://team/s"
    assert "one of the tokens of spec.serviceAccounts may call as dashboard; the certificate" in world.message()


def test_a_refused_declaration_says_why() -> None:
    world = World(expiresAt="2026-02-30T00:00:00Z")
    assert world.reason() == ("False", "ClientRefused", "True")
    assert "spec.expiresAt is '2026-02-30T00:00:00Z', which is no time" in world.message()
    assert works(world.plan(due=True)) == []


def test_a_foreign_secret_is_neither_used_nor_named() -> None:
    """Nor is another certificate asked for."""
    world = World()
    world.others[SECRET]["metadata"] = {"name": SECRET.name, "namespace": "team", "uid": "mine"}
    assert world.reason() == ("False", "NameInUse", "True")
    assert "that does not belong to StateStoreClient dashboard" in world.message()
    assert works(world.plan(due=True)) == []
    assert not world.plan().status.keys() & {"secretName", "certificatesExpireTime"}


@pytest.mark.parametrize(
    ("lacks", "reason", "told"),
    [
        ("store", "WaitingForStore", "There is no StateStore s"),
        ("usable store", "WaitingForStore", "StateStore s is not usable: no bucket"),
        ("meta", "WaitingForMeta", "There is no Meta of StateStore s"),
        ("serving meta", "WaitingForMeta", "Waiting until Meta s serves."),
    ],
)
def test_a_client_waits_for_its_store(lacks: str, reason: str, told: str) -> None:
    world = World()
    if lacks == "store":
        client = parse_client(world.client)
        plan = plan_client(client, Observed(ClientFacts(None), {}, {}), world.now)
        ready = plan.status["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("False", reason)
        assert told in ready["message"]
        return
    if lacks == "usable store":
        world.others[Ref("StateStore", "s")]["status"]["obstacle"] = "no bucket"
        world.others[Ref("Meta", "s")]["status"]["conditions"][0]["status"] = "False"
    elif lacks == "meta":
        del world.others[Ref("Meta", "s")]
    else:
        world.others[Ref("Meta", "s")]["status"]["conditions"][0]["status"] = "False"
    assert world.reason()[:2] == ("False", reason)
    assert told in world.message()


def test_a_paused_store_changes_nothing_and_says_so() -> None:
    """A revocation that waits is not told as if it held."""
    world = World()
    world.others[Ref("StateStore", "s")]["spec"]["paused"] = True
    assert world.reason() == ("True", "Paused", "False")
    world.set(revoked=True)
    assert world.reason() == ("False", "Paused", "False")
    assert "this declaration is not in force in Meta s" in world.message()
    assert works(world.plan(due=True)) == []


def test_an_issuer_issues_and_its_secret_goes_with_the_client() -> None:
    world = World(store_spec={"tls": ISSUER})
    world.has_cert_manager = True
    applied = [action.manifest for action in world.plan().actions if isinstance(action, Apply)]
    (certificate,) = applied
    assert certificate["spec"]["uris"] == ["tussock://team/s/client/dashboard/1"]
    assert certificate["spec"]["usages"] == ["digital signature", "client auth"]
    assert certificate["spec"]["secretTemplate"]["labels"]["tussock.dev/owner-kind"] == "StateStoreClient"
    issued = Ref("Certificate", SECRET.name)
    world.children = {issued: certificate, SECRET: world.others[SECRET]}
    world.delete()
    world.write()
    assert world.plan().actions == (Delete(issued), Delete(SECRET), Release())


def test_a_deleted_client_goes_when_no_node_lets_it_in() -> None:
    """Not before; if that cannot be done, it goes after the store's deadline, with a warning."""
    world = World()
    world.delete()
    plan = world.plan()
    assert plan.actions == ()
    assert plan.again_seconds == 1.0
    assert "Waiting until the nodes of Meta s are told" in world.message()
    world.now += timedelta(seconds=121)
    event, *end = world.plan().actions
    assert isinstance(event, Emit)
    assert (event.type, event.reason) == ("Warning", "DeletionGaveUp")
    assert "still let dashboard in" in event.message
    assert end == [Release()]
    world.write()
    assert world.plan().actions == (Release(),)


def test_a_deleted_client_does_not_wait_for_a_store_that_goes() -> None:
    world = World()
    world.delete()
    world.others[Ref("StateStore", "s")]["metadata"]["deletionTimestamp"] = stamp(world.now)
    assert world.plan().actions == (Release(),)


def test_without_a_grant_nothing_is_made_and_nothing_is_told() -> None:
    """The same with a store that does not allow it as without one; a grant that is taken back is told to the nodes."""
    world = World(storeRef={"name": "s", "namespace": "team"})
    world.client["metadata"]["namespace"] = "lab"
    spec = world.others[Ref("StateStore", "s")]["spec"]
    assert works(world.plan(due=True)) == []
    assert world.reason() == ("False", "StoreNotGranted", "True")
    assert "has to add lab to its spec.allowedNamespaces" in world.message()
    assert "endpoint" not in world.plan().status
    client = parse_client(world.client)
    absent = plan_client(client, Observed(ClientFacts(None), {}, {}), world.now)
    assert absent.status["conditions"] == world.plan().status["conditions"]

    spec["allowedNamespaces"] = ["lab"]
    assert world.reason() == ("False", "Reconciling", "False")
    world.write()
    world.issue()
    assert world.reason() == ("True", "Ready", "False")
    assert world.plan().status["endpoint"] == "tussock://s-meta.team.svc:7370"
    assert world.plan().status["identity"] == "client:lab/dashboard"
    spec["allowedNamespaces"] = []
    assert world.reason() == ("False", "Reconciling", "False")
    assert world.plan().again_seconds == 1.0
    world.write()
    assert world.reason() == ("False", "StoreNotGranted", "True")
