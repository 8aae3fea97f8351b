"""A store whose certificates cert-manager issues: what is asked of it, and what is told while they are not there."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.store import store_manifests
from tussock.operator.planning.certificates import certificate_obstacle, first_end_of
from tussock.operator.planning.store import StoreFacts, plan_store
from tussock.operator.planning.words.conditions import Verdict
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import Apply, Observed, Plan, Ref

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TLS = {"mode": "certManager", "issuerRef": {"name": "company", "kind": "ClusterIssuer"}}
STORE = store_with({"volume": {"size": "1Gi"}}, tls=TLS)
NAMES = [f"shop-{name}-tls" for name in ("client-admin", "client-reader", "client-writer", "compactor", "meta")]
FILES = {"ca.crt": "", "tls.crt": "", "tls.key": ""}


def secrets(**other: dict[str, str]) -> dict[Ref, Any]:
    """All of them; `other` has what is in some, by the identity."""
    data = {name: other.get(name.removeprefix("shop-").removesuffix("-tls"), FILES) for name in NAMES}
    return {Ref("Secret", name): {"metadata": {"name": name}, "data": files} for name, files in data.items()}


def certificate(name: str, made: str, *conditions: dict[str, str], ends: str = "") -> dict[Ref, Any]:
    status: dict[str, Any] = {"conditions": conditions, **({"notAfter": ends} if ends else {})}
    return {Ref("Certificate", name): {"metadata": {"name": name, "creationTimestamp": made}, "status": status}}


def missing(others: Any, children: Any = None, *, has_cert_manager: bool = True) -> Verdict | None:
    return certificate_obstacle(STORE, children or {}, others, DEFAULTS, NOW, has_cert_manager=has_cert_manager)


def test_nothing_is_missing_once_all_are_issued() -> None:
    """With the files that nodes and clients read."""
    assert missing(secrets()) is None


def test_without_cert_manager_the_store_says_so_and_asks_nothing_of_it() -> None:
    """An object of a kind that is not there would be refused; nodes that run go on."""

    def planned(*, has_cert_manager: bool) -> Plan:
        facts = StoreFacts(DEFAULTS, {"Meta": {}}, bucket=BucketFact(None), has_cert_manager=has_cert_manager)
        return plan_store(STORE, Observed(facts, {}, {}), NOW)

    def kinds(plan: Plan) -> set[str]:
        return {action.manifest["kind"] for action in plan.actions if isinstance(action, Apply)}

    without = planned(has_cert_manager=False)
    assert "Certificate" in kinds(planned(has_cert_manager=True))
    assert "Certificate" not in kinds(without)
    condition = without.status["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "CertificatesNotIssued")
    assert "Install cert-manager" in condition["message"]


def test_an_issuer_gets_a_minute_before_something_is_wrong() -> None:
    """Then the message has its name, the words of cert-manager, and where to look."""
    others = secrets()
    del others[Ref("Secret", "shop-meta-tls")]
    words = {"type": "Issuing", "status": "False", "message": "The certificate request has failed."}
    young = missing(others, certificate("shop-meta-tls", "2026-11-22T11:59:30Z"))
    assert young is not None
    assert (young.reason, young.degraded) == ("Reconciling", False)
    assert young.message == "Waiting until cert-manager has issued shop-meta-tls with ClusterIssuer company."
    old = missing(others, certificate("shop-meta-tls", "2026-11-22T11:58:30Z", words))
    assert old is not None
    assert (old.reason, old.degraded) == ("CertificatesNotIssued", True)
    assert "shop-meta-tls with ClusterIssuer company (The certificate request has failed). Check" in old.message
    silent = missing(others, certificate("shop-meta-tls", "2026-11-22T11:58:30Z"))
    assert silent is not None
    assert "ClusterIssuer company. Check that this issuer exists" in silent.message


@pytest.mark.parametrize("identity", ["meta", "compactor"])
def test_an_issuer_that_keeps_its_ca_to_itself_is_told(identity: str) -> None:
    """Nodes could not check each other."""
    found = missing(secrets(**{identity: {"tls.crt": "", "tls.key": ""}}))
    assert found is not None
    assert found.reason == "CertificatesNotIssued"
    assert found.message.startswith(f"Secret shop-{identity}-tls has no key ca.crt: ClusterIssuer company does not")


def test_the_first_end_is_told_as_cert_manager_knows_it() -> None:
    """For the store's status; nothing where nothing is issued yet."""
    children = {
        **certificate("a", "2026-11-22T11:58:30Z", ends="2027-02-20T11:58:30Z"),
        **certificate("b", "2026-11-22T11:58:30Z", ends="2027-01-20T11:58:30Z"),
        **certificate("c", "2026-11-22T11:58:30Z"),
        Ref("Service", "d"): {"metadata": {"name": "d"}},
    }
    assert first_end_of(children) == "2027-01-20T11:58:30Z"
    assert first_end_of(certificate("c", "2026-11-22T11:58:30Z")) == ""


def test_secrets_carry_the_labels_of_the_store() -> None:
    """So a renewed one is known to be the store's, and kubelets are told to look."""
    asked = [
        found for found in store_manifests(STORE, ["shop"], DEFAULTS, "").manifests if found["kind"] == "Certificate"
    ]
    assert sorted(found["spec"]["secretName"] for found in asked) == NAMES
    for found in asked:
        assert found["spec"]["secretTemplate"]["labels"] == found["metadata"]["labels"]
