"""Declared clients at an API server: their certificates, the nodes' file, and the end of both."""

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, unprobed_store
from tussock.operator.certificates.issue import certificates_in
from tussock.operator.planning.words.model import stamp

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def platform(name: str, shared: Objects, operator: OperatorProcess) -> str:
    """A store whose nodes seem to serve."""
    return serving(shared, unprobed_store(name, tls={"mode": "managed"}))


def declared(name: str, store: str, **spec: Any) -> Body:
    body = {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStoreClient", "metadata": {"name": name}}
    return {**body, "spec": {"storeRef": {"name": store}, "role": "reader", **spec}}


def file_of(shared: Objects, store: str) -> str:
    return str((shared.get("ConfigMap", f"{store}-meta") or {})["data"]["clients.toml"])


def uris(secret: Body) -> list[str]:
    leaf = certificates_in(base64.b64decode(secret["data"]["tls.crt"]).decode())[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def test_a_client_comes_and_goes_without_a_restart(platform: str, shared: Objects) -> None:
    """It has a certificate of its name; a revocation and a deletion are in the nodes' file at once."""
    before = shared.get("Deployment", f"{platform}-meta")
    client = f"{platform}-d"
    shared.apply(declared(client, platform))
    shared.await_reason("StateStoreClient", client, "Ready")
    secret = shared.get("Secret", f"{client}-client-tls")
    assert secret is not None
    assert uris(secret) == [f"tussock://{shared.namespace}/{platform}/client/{client}/1"]
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("StateStoreClient", client)
    status = (shared.get("StateStoreClient", client) or {})["status"]
    assert status["endpoint"] == f"tussock://{platform}-meta.{shared.namespace}.svc:7370"
    assert (status["secretName"], status["identity"]) == (f"{client}-client-tls", f"client:{client}")
    leaf = certificates_in(base64.b64decode(secret["data"]["tls.crt"]).decode())[0]
    told = eventually(
        "the end of the certificate",
        lambda: (shared.get("StateStoreClient", client) or {})["status"].get("certificatesExpireTime"),
    )
    assert told == stamp(leaf.not_valid_after_utc)
    assert f'[clients."{client}"]\nrole = "reader"\n' in file_of(shared, platform)

    shared.patch("StateStoreClient", client, {"spec": {"certificateVersion": 2}})
    other = eventually(
        "another certificate",
        lambda: (
            found
            if (found := shared.get("Secret", f"{client}-client-tls")) and found["data"] != secret["data"]
            else None
        ),
    )
    assert uris(other) == [f"tussock://{shared.namespace}/{platform}/client/{client}/2"]
    shared.patch("StateStoreClient", client, {"spec": {"revoked": True}})
    shared.await_reason("StateStoreClient", client, "Revoked")
    assert "revoked = true" in file_of(shared, platform)
    # The event comes after the status.
    reasons = eventually(
        "the event", lambda: found if "Revoked" in (found := [one["reason"] for one in shared.events(client)]) else None
    )
    assert reasons.count("Revoked") == 1

    shared.delete("StateStoreClient", client)
    eventually("the object gone", lambda: shared.get("StateStoreClient", client) is None)
    assert client not in file_of(shared, platform)
    after = shared.get("Deployment", f"{platform}-meta")
    assert before is not None
    assert after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_a_foreign_secret_of_that_name_is_left_alone(platform: str, shared: Objects) -> None:
    """It stays as it is, and the client reports it, until the name is free."""
    secret = f"{platform}-d-client-tls"
    shared.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": {"tls.key": "mine"}}
    )
    before = shared.get("Secret", secret)
    shared.apply(declared(f"{platform}-d", platform))
    message = shared.await_reason("StateStoreClient", f"{platform}-d", "NameInUse")["message"]
    assert f"There is a Secret {secret} in namespace {shared.namespace} that does not belong to" in message
    assert shared.get("Secret", secret) == before
    shared.delete("Secret", secret)
    shared.await_reason("StateStoreClient", f"{platform}-d", "Ready", 60)


def test_a_declaration_that_cannot_hold_is_refused_alone(platform: str, shared: Objects) -> None:
    """The API server takes times that do not exist; the store's other clients are not concerned."""
    shared.apply(declared(f"{platform}-a", platform, expiresAt="0000-01-01T00:00:00Z"))
    shared.apply(declared(f"{platform}-b", platform))
    message = shared.await_reason("StateStoreClient", f"{platform}-a", "ClientRefused")["message"]
    assert "spec.expiresAt is '0000-01-01T00:00:00Z', which is no time" in message
    shared.await_reason("StateStoreClient", f"{platform}-b", "Ready")
    assert f'"{platform}-a"' not in file_of(shared, platform)


def test_a_client_of_another_namespace_comes_and_goes_with_the_grant(
    name: str, objects: Objects, definitions: Path, tmp_path: Path
) -> None:
    """Its certificate is made where it is, and nothing else of the store: neither the CA's key nor a bucket's."""
    far = Objects(definitions, f"{objects.namespace}-far")
    far.make_namespace()
    operator = OperatorProcess(definitions, tmp_path, objects.namespace, far.namespace, lease=objects.namespace)
    operator.keep()
    platform = serving(objects, unprobed_store(name, tls={"mode": "managed"}))
    body = declared("dashboard", platform, storeRef={"name": platform, "namespace": objects.namespace})
    far.apply(body)
    assert far.namespace in far.await_reason("StateStoreClient", "dashboard", "StoreNotGranted")["message"]
    assert far.list("Secret") == []
    assert "dashboard" not in file_of(objects, platform)

    objects.patch("StateStore", platform, {"spec": {"allowedNamespaces": [far.namespace]}})
    far.await_reason("StateStoreClient", "dashboard", "Ready")
    (secret,) = far.list("Secret")
    assert secret["metadata"]["name"] == "dashboard-client-tls"
    assert secret["data"].keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert uris(secret) == [f"tussock://{objects.namespace}/{platform}/client/{far.namespace}/dashboard/1"]
    assert secret["data"]["ca.crt"] == (objects.get("Secret", f"{platform}-meta-tls") or {})["data"]["ca.crt"]
    status = (far.get("StateStoreClient", "dashboard") or {})["status"]
    assert status["endpoint"] == f"tussock://{platform}-meta.{objects.namespace}.svc:7370"
    assert f'[clients."{far.namespace}/dashboard"]' in file_of(objects, platform)

    objects.patch("StateStore", platform, {"spec": {"allowedNamespaces": []}})
    far.await_reason("StateStoreClient", "dashboard", "StoreNotGranted")
    assert "dashboard" not in file_of(objects, platform)
    far.delete("StateStoreClient", "dashboard")
    eventually("the object gone", lambda: far.get("StateStoreClient", "dashboard") is None)
    assert operator.stop() == 0
    assert "Traceback" not in operator.log()
