"""A store whose certificates cert-manager issues: the requests, and the messages while certificates are missing."""

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
    """All secrets; `other` replaces the content of some, by identity."""
    data = {name: other.get(name.removeprefix("shop-").removesuffix("-tls"), FILES) for name in NAMES}
    return {Ref("Secret", name): {"metadata": {"name": name}, "data": files} for name, files in data.items()}


def certificate(name: str, made: str, *conditions: dict[str, str], ends: str = "") -> dict[Ref, Any]:
    status: dict[str, Any] = {"conditions": conditions, **({"notAfter": ends} if ends else {})}
    return {Ref("Certificate", name): {"metadata": {"name": name, "creationTimestamp": made}, "status": status}}


def missing(others: Any, children: Any = None, *, has_cert_manager: bool = True) -> Verdict | None:
    return certificate_obstacle(STORE, children or {}, others, DEFAULTS, NOW, has_cert_manager=has_cert_manager)


def test_nothing_is_missing_once_all_are_issued() -> None:
    """They have the files that nodes and clients read."""
    assert missing(secrets()) is None


def test_without_cert_manager_the_store_reports_it_and_makes_no_request() -> None:
    """An object of a missing kind would be refused; running nodes go on."""

    def plan_again(*, has_cert_manager: bool) -> Plan:
        facts = StoreFacts(DEFAULTS, {"Meta": {}}, bucket=BucketFact(None), has_cert_manager=has_cert_manager)
        return plan_store(STORE, Observed(facts, {}, {}), NOW)

    def kinds(plan: Plan) -> set[str]:
        return {action.manifest["kind"] for action in plan.actions if isinstance(action, Apply)}

    without = plan_again(has_cert_manager=False)
    assert "Certificate" in kinds(plan_again(has_cert_manager=True))
    assert "Certificate" not in kinds(without)
    condition = without.status["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "CertificatesNotIssued")
    assert "Install cert-manager" in condition["message"]


def test_an_issuer_has_a_minute_before_the_store_is_degraded() -> None:
    """Then the message has the issuer's name, cert-manager's words, and where to look."""
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
def test_an_issuer_without_its_ca_in_the_secret_is_reported(identity: str) -> None:
    """Nodes could not verify each other."""
    found = missing(secrets(**{identity: {"tls.crt": "", "tls.key": ""}}))
    assert found is not None
    assert found.reason == "CertificatesNotIssued"
    assert found.message.startswith(f"Secret shop-{identity}-tls has no key ca.crt: ClusterIssuer company does not")


def test_the_status_has_the_first_expiry_that_cert_manager_reports() -> None:
    """It goes into the store's status; nothing if no certificate is issued yet."""
    children = {
        **certificate("a", "2026-11-22T11:58:30Z", ends="2027-02-20T11:58:30Z"),
        **certificate("b", "2026-11-22T11:58:30Z", ends="2027-01-20T11:58:30Z"),
        **certificate("c", "2026-11-22T11:58:30Z"),
        Ref("Service", "d"): {"metadata": {"name": "d"}},
    }
    assert first_end_of(children) == "2027-01-20T11:58:30Z"
    assert first_end_of(certificate("c", "2026-11-22T11:58:30Z")) == ""


def test_secrets_carry_the_labels_of_the_store() -> None:
    """The operator then sees that a renewed one is the store's, and wakes the kubelets."""
    asked = [
        found for found in store_manifests(STORE, ["shop"], DEFAULTS, "").manifests if found["kind"] == "Certificate"
    ]
    assert sorted(found["spec"]["secretName"] for found in asked) == NAMES
    for found in asked:
        assert found["spec"]["secretTemplate"]["labels"] == found["metadata"]["labels"]
