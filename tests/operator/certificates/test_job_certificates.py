"""Each job has its own certificate: issued, mounted, renewed and deleted with it, and readable by no other job."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from support.operator.compute_cases import compute_with
from support.operator.computes import World, compute
from support.operator.process import Body, Objects, eventually
from support.operator.resources import DEFAULTS, store_with
from support.operator.services.service_world import ServiceWorld, service
from support.operator.stores_in_cluster import serving
from tussock.operator.certificates.issue import certificates_in
from tussock.operator.certificates.renewal import SETTLE, is_own_due, renew_certificates, renew_own_certificate
from tussock.operator.cluster.seen import Seen
from tussock.operator.handlers.certificates import CertificatesFact, certificates_end, own_certificate_fact
from tussock.operator.handlers.world import World as OperatorWorld
from tussock.operator.manifests.certificates import (
    CA_SECONDS,
    LEAF_SECONDS,
    desired_certificates,
    job_certificate,
)
from tussock.operator.manifests.transport_security import ROLES, common_name, role_patterns
from tussock.operator.planning.clients.certificates import ISSUE_OWN_CERTIFICATE
from tussock.operator.planning.compute.facts import ComputeFacts
from tussock.operator.planning.compute.plan import plan_compute
from tussock.operator.planning.words.model import Apply, Delete, Observed, Ref, Release, Work, stamp
from tussock.operator.probes.cache import Probes
from tussock.operator.resources.compute import parse_compute

START = datetime(2030, 1, 1, tzinfo=UTC)
STORE = store_with({"managed": {}})
JOB = compute_with("totals")
WANTED = job_certificate(JOB, STORE)
SECRET = Ref("Secret", "x-driver-tls")
ISSUER = {"mode": "certManager", "issuerRef": {"name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io"}}

Secrets = dict[str, dict[str, str]]


def renew_store(secrets: Secrets, now: datetime) -> None:
    wanted = desired_certificates(STORE, ("shop",), DEFAULTS)
    secrets.update(
        {found["metadata"]["name"]: found["data"] for found in renew_certificates(STORE, wanted, secrets, now)}
    )


def renew_job(secrets: Secrets, now: datetime) -> bool:
    """Renew the job's certificate; returns whether it was due."""
    found = renew_own_certificate(JOB, STORE, WANTED, secrets, now)
    assert is_own_due(STORE, WANTED, secrets, now) is (found is not None)
    if found is None:
        return False
    assert found["metadata"]["ownerReferences"][0]["name"] == "totals"
    secrets[found["metadata"]["name"]] = found["data"]
    return True


def file_of(data: dict[str, str], name: str) -> str:
    return base64.b64decode(data[name]).decode()


def uris(data: dict[str, str]) -> list[str]:
    leaf = certificates_in(file_of(data, "tls.crt"))[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def works(world: World) -> list[Any]:
    return [action for action in world.plan().actions if isinstance(action, Work)]


def secrets_of(world: World) -> set[str]:
    """The secrets that the driver mounts."""
    return {volume.get("secret", {}).get("secretName", "") for volume in world.driver()["spec"]["volumes"]}


# --- Issuing -----------------------------------------------------------------------------------------------------


def test_a_jobs_certificate_names_the_job_and_is_renewed_in_time() -> None:
    """Not before the store has a CA; then once, and again after two thirds of its life."""
    secrets: Secrets = {}
    assert not renew_job(secrets, START)
    renew_store(secrets, START)
    assert renew_job(secrets, START)
    assert uris(secrets["totals-driver-tls"]) == ["tussock://data/shop/writer/totals"]
    assert not renew_job(secrets, START)
    two_thirds = timedelta(seconds=LEAF_SECONDS * 2 / 3)
    assert not renew_job(secrets, START + two_thirds - timedelta(hours=1))
    assert renew_job(secrets, START + two_thirds)


def test_a_jobs_certificate_follows_a_change_of_the_ca() -> None:
    """It trusts the next CA once that is made, and is issued by it later, so all pods trust each other at any time."""
    secrets: Secrets = {}
    renew_store(secrets, START)
    renew_job(secrets, START)
    later = START + timedelta(seconds=CA_SECONDS * 2 / 3)
    renew_store(secrets, later)
    assert renew_job(secrets, later)
    own = secrets["totals-driver-tls"]
    assert file_of(own, "ca.crt") == file_of(secrets["shop-meta-tls"], "ca.crt")
    assert len(certificates_in(file_of(own, "ca.crt"))) == 2
    renew_store(secrets, later + SETTLE)
    assert renew_job(secrets, later + SETTLE)
    issuer = certificates_in(file_of(secrets["shop-ca"], "tls.crt"))[0]
    certificates_in(file_of(secrets["totals-driver-tls"], "tls.crt"))[0].verify_directly_issued_by(issuer)
    assert not renew_job(secrets, later + SETTLE)


class _Secrets:
    """The part of the API that gives secrets."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def get(self, kind: str, namespace: str, name: str) -> Body:
        assert (kind, namespace) == ("Secret", JOB.namespace)
        return {"data": self._secrets[name]}


def test_the_end_of_a_jobs_certificate_is_known_after_the_first_look() -> None:
    """It is that of the certificate which the job has, not of a next one."""
    secrets: Secrets = {}
    renew_store(secrets, START)
    renew_job(secrets, START)

    async def look() -> CertificatesFact | None:
        woken = asyncio.Event()
        parts: Any = {"wake": None, "metrics": None, "identity": "x", "has_cert_manager": False, "defaults": DEFAULTS}
        system: Any = SimpleNamespace(now_ms=lambda: int((START + timedelta(days=1)).timestamp() * 1000))
        api: Any = _Secrets(secrets)
        world = OperatorWorld(**parts, api=api, seen=Seen(), probes=Probes(lambda _: woken.set()), system=system)
        assert own_certificate_fact(world, JOB, STORE, WANTED) is None
        await woken.wait()
        found = own_certificate_fact(world, JOB, STORE, WANTED)
        await world.probes.close()
        return found

    end = certificates_in(file_of(secrets["totals-driver-tls"], "tls.crt"))[0].not_valid_after_utc
    assert asyncio.run(look()) == CertificatesFact(due=False, expire=stamp(end))


@pytest.mark.parametrize(
    ("mode", "found", "ends"),
    [
        ("managed", None, "2030-01-01T00:00:00Z"),
        ("managed", CertificatesFact(due=False, expire="2031-01-01T00:00:00Z"), "2031-01-01T00:00:00Z"),
        ("managed", CertificatesFact(due=True, expire=""), ""),
        ("certManager", None, "2032-01-01T00:00:00Z"),
        ("none", None, ""),
    ],
)
def test_a_status_keeps_the_end_of_certificates_until_a_look_finds_another(
    mode: str, found: CertificatesFact | None, ends: str
) -> None:
    """Story: a store's status lost it at each start of the operator and each renewal, for a moment."""
    tls = {**ISSUER, "mode": mode} if mode == "certManager" else {"mode": mode}
    issued = {"kind": "Certificate", "status": {"notAfter": "2032-01-01T00:00:00Z"}}
    children = {Ref("Certificate", "c"): issued} if mode == "certManager" else {}
    known = {"certificatesExpireTime": "2030-01-01T00:00:00Z"}
    assert certificates_end(store_with({"managed": {}}, tls=tls), found, known, children) == ends


@pytest.mark.parametrize("made", [World(compute()), ServiceWorld(service())], ids=["job", "service"])
def test_the_status_of_a_job_and_of_a_service_says_when_its_certificate_ends(made: World | ServiceWorld) -> None:
    """Absent while that is not known, or if nobody issues one."""
    settled = {Ref("Meta", "s"): True, Ref("Compactor", "s"): True}
    for end in ("", "2030-06-01T00:00:00Z"):
        facts = ComputeFacts(DEFAULTS, settled=settled, certificate_expires=end)
        plan = plan_compute(parse_compute(made.job), Observed(facts, made.children, made.others), made.now)
        assert plan.status.get("certificatesExpireTime", "") == end


@pytest.mark.parametrize("name", ["admin", "tussock-admin", "a" * 40])
def test_no_name_of_a_job_gives_it_another_role_than_writer(name: str) -> None:
    """With a separate CA for each store, common names count as well; X.509 limits one to 64 characters."""
    wanted = job_certificate(compute_with(name), STORE)
    assert wanted.common_name not in {common_name(role) for role in ROLES}
    assert len(wanted.common_name) <= 64
    names = {f"CN:{wanted.common_name}", *(f"URI:{uri}" for uri in wanted.uris)}
    fitting = {
        role
        for role, patterns in role_patterns(STORE).items()
        for pattern in patterns
        for name in names
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
    }
    assert fitting == {"writer"}


# --- The plan ----------------------------------------------------------------------------------------------------


def test_no_driver_starts_without_its_certificate() -> None:
    """It is issued once the store has a CA; a running driver, of an earlier operator, goes on until it exists."""
    world = World(compute())
    issued, ca = world.others.pop(SECRET), world.others.pop(Ref("Secret", "s-ca"))
    assert works(world) == []
    world.others[Ref("Secret", "s-ca")] = ca
    assert works(world) == [Work(ISSUE_OWN_CERTIFICATE, {})]
    world.settle()
    assert world.pods == []
    assert world.reason() == ("False", "Reconciling")
    assert "x-driver-tls" in world.message()
    world.others[SECRET] = issued
    assert works(world) == []
    world.settle()
    world.run()
    world.settle()
    del world.others[SECRET]
    assert not [action for action in world.plan().actions if isinstance(action, Delete)]


def test_driver_and_executors_mount_only_the_jobs_certificate() -> None:
    world = World(compute())
    world.settle()
    assert "s-client-writer-tls" not in str(world.children)
    assert "x-driver-tls" in secrets_of(world)
    assert "x-driver-tls" in str(world.children[Ref("ConfigMap", "x-driver")]["data"])


@pytest.mark.parametrize("tls", [{"mode": "managed"}, ISSUER])
def test_a_foreign_certificate_is_not_used(tls: dict[str, Any]) -> None:
    """The foreign secret is not overwritten, either: the job reports whose name it is."""
    world = World(compute(), tls=tls)
    world.has_cert_manager = True
    world.others[SECRET]["metadata"] = {"name": "x-driver-tls", "namespace": "team", "uid": "mine"}
    plan = world.settle()
    assert world.pods == []
    assert works(world) == []
    assert not [one for one in plan.actions if isinstance(one, Apply) and one.manifest["kind"] == "Certificate"]
    assert world.reason() == ("False", "NameInUse")
    assert "There is a Secret x-driver-tls in namespace team that does not belong to Compute x" in world.message()


@pytest.mark.parametrize("of", ["cert-manager", "a former request"])
def test_an_issuer_issues_the_certificate_and_its_secret_goes_with_the_job(of: str) -> None:
    """cert-manager would keep it; the request is deleted first, or it would fill the secret again."""
    world = World(compute(), tls=ISSUER)
    issued = world.others.pop(SECRET)
    world.settle()
    assert Ref("Certificate", "x-driver-tls") not in world.children
    world.has_cert_manager = True
    applied = [action.manifest for action in world.plan().actions if isinstance(action, Apply)]
    (certificate,) = [manifest for manifest in applied if manifest["kind"] == "Certificate"]
    certificate["metadata"]["creationTimestamp"] = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.children[Ref("Certificate", "x-driver-tls")] = certificate
    world.settle()
    assert certificate["spec"]["uris"] == ["tussock://team/s/writer/x"]
    assert certificate["spec"]["secretTemplate"]["labels"]["tussock.dev/owner"] == "x"
    assert (world.pods, world.reason()) == ([], ("False", "Reconciling"))
    assert "cert-manager has issued x-driver-tls with ClusterIssuer company" in world.message()
    # cert-manager gives the labels of the request, no owner, and the name of the request, which a copy has, too.
    del issued["metadata"]["ownerReferences"]
    request = "x-driver-tls" if of == "cert-manager" else "x-old-tls"
    issued["metadata"]["annotations"] = {"cert-manager.io/certificate-name": request}
    copies = {
        Ref(ref.kind, "copy"): {**body, "metadata": {**body["metadata"], "name": "copy", "ownerReferences": []}}
        for ref, body in [(SECRET, issued), (Ref("Certificate", "x-driver-tls"), certificate)]
    }
    world.children.update(copies)
    world.others[SECRET] = world.children[SECRET] = issued
    world.settle()
    assert world.pods == ["x-driver"]
    del world.children[Ref("Pod", "x-driver")]
    world.job["metadata"]["deletionTimestamp"] = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    gone = [action for action in world.plan().actions if isinstance(action, Delete | Release)]
    secrets = [Delete(SECRET)] if of == "cert-manager" else []
    assert gone == [Delete(Ref("Certificate", "x-driver-tls")), *secrets, Release()]


@pytest.mark.parametrize("tls", [{"mode": "none"}, {"mode": "secret", "secretName": "ours"}])
def test_a_job_does_not_wait_if_no_certificate_is_issued(tls: dict[str, Any]) -> None:
    """Without TLS, and with the user's one certificate, which the job mounts."""
    world = World(compute(), tls=tls)
    world.others.pop(SECRET, None)
    world.settle()
    assert world.pods == ["x-driver"]
    assert ("ours" in secrets_of(world)) == (tls["mode"] == "secret")


# --- At an API server --------------------------------------------------------------------------------------------


def status_of(objects: Objects, name: str) -> Body:
    return (objects.get("Compute", name) or {}).get("status") or {}


def job(store: str, name: str) -> Body:
    spec = {"storeRef": {"name": store}, "application": {"file": "/opt/app.py"}, "checkpoint": {"emptyDir": {}}}
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": "Compute", "metadata": {"name": name}, "spec": spec}


@pytest.mark.minio
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("operator")
def test_two_jobs_of_a_store_have_two_certificates(store: Body, name: str, shared: Objects) -> None:
    """Each has a different key and is mounted by its job's pods; a lost one is issued again; both go with their job."""
    store["spec"]["tls"] = {"mode": "managed"}
    platform = serving(shared, store)
    jobs = [f"{name}-a", f"{name}-b"]
    for one in jobs:
        shared.apply(job(platform, one))
    found = {
        one: eventually(f"the secret of {one}", lambda one=one: shared.get("Secret", f"{one}-driver-tls"))
        for one in jobs
    }
    for one, secret in found.items():
        assert uris(secret["data"]) == [f"tussock://{shared.namespace}/{platform}/writer/{one}"]
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Compute", one, True)
        pod = eventually(f"the driver of {one}", lambda one=one: shared.get("Pod", f"{one}-driver"))
        mounted = {volume.get("secret", {}).get("secretName", "") for volume in pod["spec"]["volumes"]}
        assert {text for text in mounted if text.endswith("-tls")} == {f"{one}-driver-tls"}
    keys = [secret["data"]["tls.key"] for secret in found.values()]
    assert keys[0] != keys[1]
    for one, secret in found.items():
        ends = certificates_in(file_of(secret["data"], "tls.crt"))[0].not_valid_after_utc
        told = eventually("its end", lambda one=one: status_of(shared, one).get("certificatesExpireTime"))
        assert told == stamp(ends)
    trusted = (shared.get("Secret", f"{platform}-meta-tls") or {})["data"]["ca.crt"]
    assert {secret["data"]["ca.crt"] for secret in found.values()} == {trusted}

    shared.delete("Secret", f"{jobs[0]}-driver-tls")
    again = eventually("another one", lambda: shared.get("Secret", f"{jobs[0]}-driver-tls"))
    assert again["data"]["tls.key"] != keys[0]
    assert (shared.get("Secret", f"{jobs[1]}-driver-tls") or {})["data"]["tls.key"] == keys[1]


@pytest.mark.minio
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("operator")
def test_a_foreign_secret_of_that_name_is_left_alone(store: Body, name: str, shared: Objects) -> None:
    """It stays as it is, and the job reports it, until the name is free."""
    store["spec"]["tls"] = {"mode": "managed"}
    platform = serving(shared, store)
    secret = f"{name}-j-driver-tls"
    shared.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": {"tls.key": "mine"}}
    )
    before = shared.get("Secret", secret)
    shared.apply(job(platform, f"{name}-j"))
    message = shared.await_reason("Compute", f"{name}-j", "NameInUse")["message"]
    assert (
        f"There is a Secret {secret} in namespace {shared.namespace} that does not belong to Compute {name}-j"
        in message
    )
    assert shared.get("Secret", secret) == before
    assert shared.get("Pod", f"{name}-j-driver") is None
    shared.delete("Secret", secret)
    eventually("the driver", lambda: shared.get("Pod", f"{name}-j-driver"))
